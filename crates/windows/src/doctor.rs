//! Judges what was seen of a Windows: whether a program can have large pages, and what gives them to it.
//!
//! Owns: the checks, their words and their advice; [`check`] is a pure function of [`Facts`]. Never touches: the system.

pub use hugepilot_checks::Status;
use hugepilot_os::large_pages::{LargePagesError, Standing};
use serde::Serialize;

use crate::contiguous::Contiguous;

const POLICY: &str = "secpol.msc > Local Policies > User Rights Assignment > Lock pages in memory: add the account";
const AFTERWARDS: &str = "sign out and in again: a right comes with the sign-in, and not to programs that run already";
const SERVICE: &str = "run it under SYSTEM, which has the right: as a service (sc create NAME binPath= PROGRAM obj= LocalSystem), or as a \
                       task (schtasks /create /tn NAME /tr PROGRAM /sc onstart /ru SYSTEM)";
/// By command where there is no secpol.msc, as on home editions. What is exported holds who has the right already.
const COMMANDS: [&str; 4] = [
    "whoami /user",
    "secedit /export /areas USER_RIGHTS /cfg rights.inf",
    "notepad rights.inf",
    "secedit /configure /db rights.sdb /areas USER_RIGHTS /cfg rights.inf",
];
const EDIT: &str = "in rights.inf, below [Privilege Rights], SeLockMemoryPrivilege = *S-1-5-.. is to name the account by what whoami says, \
                    after those that stand there";
const PROPERTIES: &str = "Such memory is locked: it is never paged out, is not in the working set, and no job's limit counts it. It takes \
                          contiguous memory, which runs out soon after the machine's start. Allocate it once, when the program starts";

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What Windows says of large pages for this process.
    pub standing: Result<Standing, LargePagesError>,
    /// Large pages taken in growing steps; None where none could be tried.
    pub contiguous: Option<Contiguous>,
    /// One page of 1 GiB taken; None where none could be tried.
    pub giant: Option<Result<(), LargePagesError>>,
}

/// One thing looked at.
pub type Check = hugepilot_checks::Check<Mend>;

/// How an account gets the right to lock pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mend {
    /// Where to click.
    pub policy: &'static str,
    /// The same by commands for an elevated prompt.
    pub commands: Vec<&'static str>,
    /// What is to be written between them.
    pub edit: &'static str,
    /// What must follow either.
    pub afterwards: &'static str,
    /// What does without.
    pub service: &'static str,
}

/// All checks, in the order in which they matter.
pub fn check(facts: &Facts) -> Vec<Check> {
    let standing = match &facts.standing {
        Ok(standing) => standing,
        Err(error) => return vec![Check::unknown("privilege", error)],
    };
    let mut checks = vec![smallest(standing), privilege(standing)];
    checks.push(contiguous(facts.contiguous));
    checks.push(giant(facts.giant));
    checks
}

fn smallest(standing: &Standing) -> Check {
    let name = "large pages";
    match standing.minimum_bytes {
        0 => Check::new(
            name,
            Status::Missing,
            "the processor, or this Windows, has none",
            "Every program runs on ordinary pages. All Windows since Server 2003 have them, on x86-64 processors.",
        ),
        bytes => Check::new(
            name,
            Status::Ok,
            format!("the smallest has {} KiB", bytes >> 10),
            format!("Sizes are rounded up to it. {PROPERTIES}."),
        ),
    }
}

fn privilege(standing: &Standing) -> Check {
    let name = "privilege";
    let elevated = match standing.elevated {
        true => "; this process runs elevated, which does not replace it",
        false => "",
    };
    let (status, finding, meaning) = match (standing.held, standing.enabled) {
        (true, Ok(())) => (
            Status::Ok,
            "this account may lock pages in memory, and the right could be enabled".to_owned(),
            "Programs that enable it can have large pages.".to_owned(),
        ),
        (true, Err(error)) => (
            Status::Warning,
            format!("this account may lock pages in memory, but the right could not be enabled{elevated}"),
            format!("{error}."),
        ),
        (false, _) => (
            Status::Missing,
            format!("this account may not lock pages in memory (SeLockMemoryPrivilege){elevated}"),
            "Windows refuses it large pages (error 1314), and enabling the right \"succeeds\" without effect (error 1300). Not even \
             administrators have it unless it was given."
                .to_owned(),
        ),
    };
    let mend =
        Mend { policy: POLICY, commands: COMMANDS.to_vec(), edit: EDIT, afterwards: AFTERWARDS, service: SERVICE };
    Check::new(name, status, finding, meaning).mended_by((!standing.held).then_some(mend))
}

fn contiguous(found: Option<Contiguous>) -> Check {
    let name = "contiguous memory";
    let mebibytes = |bytes: usize| bytes >> 20;
    match found {
        None => Check::new(name, Status::Warning, "not tried", "It takes the right to lock pages to try."),
        Some(Contiguous { largest_bytes, refused: None }) => Check::new(
            name,
            Status::Ok,
            format!("{} MiB could be had at once", mebibytes(largest_bytes)),
            "More was not tried.",
        ),
        Some(Contiguous { largest_bytes, refused: Some((bytes, error)) }) => {
            let status = if largest_bytes == 0 { Status::Missing } else { Status::Warning };
            let finding =
                format!("{} MiB could be had at once, {} MiB not", mebibytes(largest_bytes), mebibytes(bytes));
            Check::new(name, status, finding, format!("{error}."))
        }
    }
}

fn giant(found: Option<Result<(), LargePagesError>>) -> Check {
    let name = "pages of 1 GiB";
    match found {
        None => Check::new(name, Status::Warning, "not tried", "It takes the right to lock pages to try."),
        Some(Ok(())) => Check::new(name, Status::Ok, "one could be had", "Programs that ask for them get them."),
        Some(Err(error)) => Check::new(name, Status::Warning, "none could be had", format!("{error}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 2 << 20;

    fn facts(held: bool, elevated: bool) -> Facts {
        let enabled = if held { Ok(()) } else { Err(LargePagesError::PrivilegeNotAssigned) };
        let standing = Ok(Standing { minimum_bytes: LARGE, held, enabled, elevated });
        let all = Contiguous { largest_bytes: 1 << 30, refused: None };
        Facts { standing, contiguous: held.then_some(all), giant: held.then_some(Ok(())) }
    }

    fn status(facts: &Facts, name: &str) -> (Status, Check) {
        let check = check(facts).into_iter().find(|check| check.name == name).expect("it is looked at");
        (check.status, check)
    }

    #[test]
    fn an_account_with_the_right_has_nothing_to_mend() {
        let checks = check(&facts(true, false));
        assert_eq!(checks.len(), 4);
        assert!(checks.iter().all(|check| check.status == Status::Ok && check.mend.is_none()), "{checks:?}");
        assert!(checks[0].finding.contains("2048 KiB") && checks[0].meaning.contains("never paged out"));
    }

    #[test]
    fn an_account_without_it_is_told_how_to_get_it() {
        let (status, check) = status(&facts(false, true), "privilege");
        assert_eq!(status, Status::Missing);
        assert!(check.finding.contains("elevated") && check.meaning.contains("1314") && check.meaning.contains("1300"));
        let mend = check.mend.expect("there is a way");
        assert!(mend.policy.contains("Lock pages in memory") && mend.afterwards.contains("sign out"));
        assert!(
            mend.commands.iter().any(|line| line.starts_with("secedit /configure"))
                && mend.service.contains("LocalSystem")
        );
        assert!(!self::status(&facts(false, false), "privilege").1.finding.contains("elevated"));
        assert_eq!(self::status(&facts(false, false), "contiguous memory").0, Status::Warning);
    }

    #[test]
    fn a_right_that_cannot_be_enabled_is_no_missing_right() {
        let error = LargePagesError::System { doing: "enable the privilege to lock pages", code: 5 };
        let mut facts = facts(true, false);
        facts.standing = facts.standing.map(|standing| Standing { enabled: Err(error), ..standing });
        let (status, check) = status(&facts, "privilege");
        assert!(status == Status::Warning && check.mend.is_none() && check.meaning.contains("error 5"), "{check:?}");
    }

    #[test]
    fn scarce_memory_is_told_with_its_remedy() {
        let error = LargePagesError::NoContiguousMemory { bytes: 16 << 20, page_bytes: LARGE };
        let refused = |largest_bytes| {
            let contiguous = Some(Contiguous { largest_bytes, refused: Some((16 << 20, error)) });
            status(&Facts { contiguous, ..facts(true, false) }, "contiguous memory")
        };
        let (status, check) = refused(8 << 20);
        assert_eq!(status, Status::Warning);
        assert!(check.finding.contains("8 MiB could be had at once, 16 MiB not"), "{}", check.finding);
        assert!(check.meaning.contains("when the program starts"));
        assert_eq!(refused(0).0, Status::Missing);
        let none = Err(LargePagesError::NotSupported { page_bytes: 1 << 30 });
        let (status, _) = self::status(&Facts { giant: Some(none), ..facts(true, false) }, "pages of 1 GiB");
        assert_eq!(status, Status::Warning);
    }

    #[test]
    fn what_is_not_there_and_what_is_not_known_are_different() {
        let mut none = facts(true, false);
        none.standing = none.standing.map(|standing| Standing { minimum_bytes: 0, ..standing });
        assert_eq!(status(&none, "large pages").0, Status::Missing);
        let error = LargePagesError::System { doing: "open the process's token", code: 5 };
        let unknown = check(&Facts { standing: Err(error), ..none });
        assert!(unknown.len() == 1 && unknown[0].status == Status::Warning, "{unknown:?}");
        assert!(unknown[0].finding.contains("open the process's token (error 5)"));
    }
}
