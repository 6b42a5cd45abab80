//! What is said after an account was given the right to lock pages, or lost it.
//!
//! Owns: the words of success; an error has its own. Never touches: the right.

use hugepilot_os::large_pages::{LockRightChange, LockRightOutcome};

use crate::doctor::AFTERWARDS;

const RIGHT: &str = "the right \"Lock pages in memory\" (SeLockMemoryPrivilege)";
const POLICY: &str = "Local Security Policy > Local Policies > User Rights Assignment";

/// What was done, and what is to be done now.
pub fn said(change: LockRightChange, LockRightOutcome { account, changed }: &LockRightOutcome) -> String {
    match (change, changed) {
        (LockRightChange::Grant, true) => format!(
            "{account} was given {RIGHT}, as {POLICY} shows. Now {AFTERWARDS}. Then `hugepilot doctor` tells whether there are large pages. \
             `hugepilot grant --undo` takes the right away."
        ),
        (LockRightChange::Grant, false) => format!(
            "{account} has {RIGHT} already; nothing was changed. If `hugepilot doctor` says that it is missing, {AFTERWARDS}."
        ),
        (LockRightChange::Revoke, true) => format!(
            "{account} does not have {RIGHT} any more, as {POLICY} shows. Programs that run already keep it until the account signs out."
        ),
        (LockRightChange::Revoke, false) => format!(
            "{account} was not given {RIGHT}; nothing was changed. If `hugepilot doctor` finds it all the same, a group of the account's has \
             it: see {POLICY}."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_with_what_follows() {
        let said = |change, changed| said(change, &LockRightOutcome { account: r"DESK\me".to_owned(), changed });
        for (change, changed, words) in [
            (LockRightChange::Grant, true, ["was given", "sign out and in again"]),
            (LockRightChange::Grant, false, ["has the right", "sign out and in again"]),
            (LockRightChange::Revoke, true, ["not have the right", "until the account signs out"]),
            (LockRightChange::Revoke, false, ["was not given", "a group"]),
        ] {
            let said = said(change, changed);
            assert!(said.starts_with(r"DESK\me ") && words.iter().all(|words| said.contains(words)), "{said}");
            assert!(said.contains("\"Lock pages in memory\" (SeLockMemoryPrivilege)"), "{said}");
            assert_eq!(said.contains("nothing was changed"), !changed, "{said}");
        }
    }
}
