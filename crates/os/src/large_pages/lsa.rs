//! How an account is given the right to lock pages, and what Windows's answers to that mean.
//!
//! Owns: the order of the calls of the Local Security Authority, and the meaning of their error codes. Never touches: Windows. The calls are
//! a trait: `windows/lsa.rs` makes them, and the tests answer them, on any system.

use super::lock_right::{LockRightChange, LockRightError, LockRightOutcome};
use super::virtual_alloc::Code;

const LOCK_PAGES: &str = "SeLockMemoryPrivilege";

const FILE_NOT_FOUND: Code = 2;
const ACCESS_DENIED: Code = 5;
const NONE_MAPPED: Code = 1332;

/// The calls, each with what it answers.
pub(super) trait LsaCalls {
    /// What identifies an account.
    type Sid;
    /// The machine's policy, closed when it is dropped.
    type Policy;
    /// `GetUserNameEx`: this process's account, with its domain.
    fn own_name(&self) -> Result<String, Code>;
    /// `LookupAccountName`: what identifies it, and its domain.
    fn lookup(&self, name: &str) -> Result<(Self::Sid, String), Code>;
    /// `LsaOpenPolicy`
    fn open_policy(&self) -> Result<Self::Policy, Code>;
    /// `LsaEnumerateAccountRights`: those that the account was given itself; an error where there are none.
    fn rights(&self, policy: &Self::Policy, sid: &Self::Sid) -> Result<Vec<String>, Code>;
    /// `LsaAddAccountRights`
    fn add(&self, policy: &Self::Policy, sid: &Self::Sid, right: &str) -> Result<(), Code>;
    /// `LsaRemoveAccountRights`
    fn remove(&self, policy: &Self::Policy, sid: &Self::Sid, right: &str) -> Result<(), Code>;
}

/// None stands for the account of this process.
pub(super) fn change(
    calls: &impl LsaCalls,
    account: Option<&str>,
    change: LockRightChange,
) -> Result<LockRightOutcome, LockRightError> {
    let own = || calls.own_name().map_err(failed("read what this account is called"));
    let name = account.map_or_else(own, |name| Ok(name.to_owned()))?;
    let (sid, domain) = calls.lookup(&name).map_err(|code| match code {
        NONE_MAPPED => LockRightError::UnknownAccount { name: name.clone() },
        code => failed("look the account up")(code),
    })?;
    let account = if name.contains(['\\', '@']) { name } else { format!("{domain}\\{name}") };
    let policy = calls.open_policy().map_err(failed("open the machine's security policy"))?;
    let is_as_wanted = || match calls.rights(&policy, &sid) {
        Ok(rights) => Ok(rights.iter().any(|right| right == LOCK_PAGES) == (change == LockRightChange::Grant)),
        Err(FILE_NOT_FOUND) => Ok(change == LockRightChange::Revoke),
        Err(code) => Err(failed("read the account's rights")(code)),
    };
    if is_as_wanted()? {
        return Ok(LockRightOutcome { account, changed: false });
    }
    match change {
        LockRightChange::Grant => calls.add(&policy, &sid, LOCK_PAGES).map_err(failed("give the account the right"))?,
        LockRightChange::Revoke => {
            calls.remove(&policy, &sid, LOCK_PAGES).map_err(failed("take the right from the account"))?;
        }
    }
    // A success is not believed: enabling the right "succeeds" without effect, too.
    if is_as_wanted()? {
        Ok(LockRightOutcome { account, changed: true })
    } else {
        Err(LockRightError::WithoutEffect { account })
    }
}

fn failed(doing: &'static str) -> impl Fn(Code) -> LockRightError {
    move |code| match code {
        ACCESS_DENIED => LockRightError::AccessDenied { doing },
        code => LockRightError::Failed { doing, code },
    }
}

#[cfg(test)]
mod tests;
