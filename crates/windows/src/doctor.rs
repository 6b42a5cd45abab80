//! Judges the facts about a Windows system: whether a program can have large pages, and how to enable them.
//!
//! Owns: the checks, their texts and their advice; [`check`] is a pure function of [`WindowsFacts`]. Never touches: the system.

pub use hugepilot_checks::CheckStatus;
use hugepilot_os::large_pages::{LargePagesError, PageSize, Standing};
use serde::Serialize;

use crate::contiguous::{Contiguous, probe};

const POLICY: &str = "secpol.msc > Local Policies > User Rights Assignment > Lock pages in memory: add the account";
/// What must follow either way to give the right.
pub(crate) const AFTERWARDS: &str =
    "sign out and in again: a right comes with the sign-in, and not to programs that run already";
const SERVICE: &str = "run it under SYSTEM, which has the right: as a task (schtasks /create /tn NAME /tr PROGRAM /sc onstart /ru SYSTEM), or, \
                       if it was written as a service, as one (sc create NAME binPath= PROGRAM obj= LocalSystem)";
/// Where there is no secpol.msc, too, as on home editions.
const COMMANDS: [&str; 1] = ["hugepilot grant"];
const PROPERTIES: &str = "Such memory is locked: it is never paged out, is not in the working set, and no job's limit counts it. It takes \
                          contiguous memory, which runs out soon after the machine's start. Allocate it once, when the program starts";

const CONTIGUOUS: &str = "contiguous memory";
const GIANT: &str = "pages of 1 GiB";

/// The facts about this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowsFacts {
    /// What Windows says about large pages for this process.
    pub standing: Result<Standing, LargePagesError>,
    /// Large pages taken in growing steps; None if that could not be tried.
    pub contiguous: Option<Contiguous>,
    /// One page of 1 GiB taken; None if that could not be tried.
    pub giant: Option<Result<(), LargePagesError>>,
}

impl WindowsFacts {
    /// Tries what is possible; `take` takes this many bytes on this kind of page only, and must give them back at once.
    pub fn gather(
        standing: Result<Standing, LargePagesError>,
        mut take: impl FnMut(usize, PageSize) -> Result<(), LargePagesError>,
    ) -> Self {
        let tried = standing.ok().filter(|standing| standing.minimum_bytes > 0 && standing.enabled.is_ok());
        let contiguous = tried.map(|standing| probe(standing.minimum_bytes, |bytes| take(bytes, PageSize::Large)));
        let giant = tried.map(|_| take(1, PageSize::Giant));
        Self { standing, contiguous, giant }
    }
}

/// One check.
pub type WindowsCheck = hugepilot_checks::Check<PolicyFix>;

/// How an account gets the right to lock pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyFix {
    /// Where to click in the policy editor.
    pub policy: &'static str,
    /// The same as commands for an elevated prompt.
    pub commands: Vec<&'static str>,
    /// What must follow either.
    pub afterwards: &'static str,
    /// An alternative without it.
    pub service: &'static str,
}

/// All checks, most important first.
pub fn check(facts: &WindowsFacts) -> Vec<WindowsCheck> {
    let standing = match &facts.standing {
        Ok(standing) => standing,
        Err(error) => return vec![WindowsCheck::unknown("privilege", error)],
    };
    vec![
        smallest(standing),
        privilege(standing),
        facts.contiguous.map_or_else(|| untried(CONTIGUOUS, standing), contiguous),
        facts.giant.map_or_else(|| untried(GIANT, standing), giant),
    ]
}

fn untried(name: &'static str, standing: &Standing) -> WindowsCheck {
    let why = match standing.minimum_bytes {
        0 => "There are no large pages that could be taken.",
        _ => "It takes the right to lock pages to try.",
    };
    WindowsCheck::new(name, CheckStatus::Warning, "not tried", why)
}

fn smallest(standing: &Standing) -> WindowsCheck {
    let name = "large pages";
    match standing.minimum_bytes {
        0 => WindowsCheck::new(
            name,
            CheckStatus::Missing,
            "the processor, or this Windows, has none",
            "Every program runs on ordinary pages. All Windows since Server 2003 have them, on x86-64 processors.",
        ),
        bytes => WindowsCheck::new(
            name,
            CheckStatus::Ok,
            format!("the smallest has {} KiB", bytes >> 10),
            format!("Sizes are rounded up to it. {PROPERTIES}."),
        ),
    }
}

fn privilege(standing: &Standing) -> WindowsCheck {
    let name = "privilege";
    let elevated = match standing.elevated {
        true => "; this process runs elevated, which does not replace it",
        false => "",
    };
    // An administrator's programs have fewer rights than the account unless they run elevated.
    let filtered = match standing.elevated {
        true => "",
        false => "; if it was given already and the account is an administrator's, try elevated, too",
    };
    let (status, finding, meaning) = match (standing.held, standing.enabled) {
        (true, Ok(())) => (
            CheckStatus::Ok,
            "this account may lock pages in memory, and the right could be enabled".to_owned(),
            "Programs that enable it can have large pages.".to_owned(),
        ),
        (true, Err(error)) => (
            CheckStatus::Warning,
            format!("this account may lock pages in memory, but the right could not be enabled{elevated}"),
            format!("{error}."),
        ),
        (false, _) => (
            CheckStatus::Missing,
            format!("this account may not lock pages in memory (SeLockMemoryPrivilege){elevated}"),
            format!(
                "Windows refuses it large pages (error 1314, 0x522), and enabling the right \"succeeds\" without effect (error 1300, 0x514). Not even \
                 administrators have it unless it was given{filtered}."
            ),
        ),
    };
    let fix = PolicyFix { policy: POLICY, commands: COMMANDS.to_vec(), afterwards: AFTERWARDS, service: SERVICE };
    WindowsCheck::new(name, status, finding, meaning).fixed_by((!standing.held).then_some(fix))
}

fn contiguous(Contiguous { largest_bytes, refused }: Contiguous) -> WindowsCheck {
    let mebibytes = |bytes: usize| bytes >> 20;
    match refused {
        None => WindowsCheck::new(
            CONTIGUOUS,
            CheckStatus::Ok,
            format!("{} MiB could be had at once", mebibytes(largest_bytes)),
            "More was not tried.",
        ),
        Some((bytes, error)) => {
            let status = if largest_bytes == 0 { CheckStatus::Missing } else { CheckStatus::Warning };
            let finding =
                format!("{} MiB could be had at once, {} MiB not", mebibytes(largest_bytes), mebibytes(bytes));
            WindowsCheck::new(CONTIGUOUS, status, finding, format!("{error}."))
        }
    }
}

fn giant(found: Result<(), LargePagesError>) -> WindowsCheck {
    match found {
        Ok(()) => WindowsCheck::new(GIANT, CheckStatus::Ok, "one could be had", "Programs that ask for them get them."),
        Err(error) => WindowsCheck::new(GIANT, CheckStatus::Warning, "none could be had", format!("{error}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 2 << 20;

    fn facts(held: bool, elevated: bool) -> WindowsFacts {
        let enabled = if held { Ok(()) } else { Err(LargePagesError::PrivilegeNotAssigned) };
        let standing = Ok(Standing { minimum_bytes: LARGE, held, enabled, elevated });
        let all = Contiguous { largest_bytes: 1 << 30, refused: None };
        WindowsFacts { standing, contiguous: held.then_some(all), giant: held.then_some(Ok(())) }
    }

    fn status(facts: &WindowsFacts, name: &str) -> (CheckStatus, WindowsCheck) {
        let check = check(facts).into_iter().find(|check| check.name == name).expect("it is checked");
        (check.status, check)
    }

    #[test]
    fn an_account_with_the_right_has_nothing_to_fix() {
        let checks = check(&facts(true, false));
        assert_eq!(checks.len(), 4);
        assert!(checks.iter().all(|check| check.status == CheckStatus::Ok && check.fix.is_none()), "{checks:?}");
        assert!(checks[0].finding.contains("2048 KiB") && checks[0].meaning.contains("never paged out"));
    }

    #[test]
    fn an_account_without_it_is_told_how_to_get_it() {
        let (status, check) = status(&facts(false, true), "privilege");
        assert_eq!(status, CheckStatus::Missing);
        assert!(
            check.finding.contains("elevated")
                && check.meaning.contains("1314, 0x522")
                && check.meaning.contains("1300")
        );
        let fix = check.fix.expect("there is a way");
        assert!(fix.policy.contains("Lock pages in memory") && fix.afterwards.contains("sign out"));
        assert!(fix.commands == ["hugepilot grant"] && fix.service.contains("LocalSystem"));
        assert!(!check.meaning.contains("try elevated"));
        let check = self::status(&facts(false, false), "privilege").1;
        assert!(!check.finding.contains("elevated") && check.meaning.contains("an administrator's, try elevated, too"));
        let (status, check) = self::status(&facts(false, false), CONTIGUOUS);
        assert!(status == CheckStatus::Warning && check.meaning.contains("takes the right"), "{check:?}");
    }

    #[test]
    fn a_right_that_cannot_be_enabled_is_no_missing_right() {
        let error = LargePagesError::System { doing: "enable the privilege to lock pages", code: 5 };
        let mut facts = facts(true, false);
        facts.standing = facts.standing.map(|standing| Standing { enabled: Err(error), ..standing });
        let (status, check) = status(&facts, "privilege");
        assert!(
            status == CheckStatus::Warning && check.fix.is_none() && check.meaning.contains("error 5"),
            "{check:?}"
        );
    }

    #[test]
    fn what_can_be_tried_is_tried() {
        let tried = |held| {
            let mut taken = Vec::new();
            let take = |bytes: usize, page_size| {
                taken.push((bytes >> 20, page_size));
                if bytes <= LARGE { Ok(()) } else { Err(LargePagesError::Quota { bytes }) }
            };
            let found = WindowsFacts::gather(facts(held, false).standing, take);
            (found.contiguous.is_some(), found.giant, taken)
        };
        let large_then_giant = vec![(2, PageSize::Large), (4, PageSize::Large), (0, PageSize::Giant)];
        assert_eq!(tried(true), (true, Some(Ok(())), large_then_giant));
        assert_eq!(tried(false), (false, None, vec![]));
    }

    #[test]
    fn scarce_memory_is_told_with_its_remedy() {
        let error = LargePagesError::NoContiguousMemory { bytes: 16 << 20, page_bytes: LARGE, code: Some(1450) };
        let refused = |largest_bytes| {
            let contiguous = Some(Contiguous { largest_bytes, refused: Some((16 << 20, error)) });
            status(&WindowsFacts { contiguous, ..facts(true, false) }, CONTIGUOUS)
        };
        let (status, check) = refused(8 << 20);
        assert_eq!(status, CheckStatus::Warning);
        assert!(check.finding.contains("8 MiB could be had at once, 16 MiB not"), "{}", check.finding);
        assert!(check.meaning.contains("when the program starts") && check.meaning.contains("error 1450, 0x5AA"));
        assert_eq!(refused(0).0, CheckStatus::Missing);
        let none = Err(LargePagesError::NotSupported { page_bytes: 1 << 30 });
        let (status, _) = self::status(&WindowsFacts { giant: Some(none), ..facts(true, false) }, GIANT);
        assert_eq!(status, CheckStatus::Warning);
    }

    #[test]
    fn what_is_not_there_and_what_is_not_known_are_different() {
        let standing = facts(true, false).standing.map(|standing| Standing { minimum_bytes: 0, ..standing });
        let none = WindowsFacts::gather(standing, |_, _| panic!("there is nothing to take"));
        assert_eq!(status(&none, "large pages").0, CheckStatus::Missing);
        for name in [CONTIGUOUS, GIANT] {
            let (status, check) = status(&none, name);
            assert!(status == CheckStatus::Warning && check.meaning.contains("no large pages"), "{check:?}");
        }
        let error = LargePagesError::System { doing: "open the process's token", code: 5 };
        let unknown = check(&WindowsFacts { standing: Err(error), ..none });
        assert!(unknown.len() == 1 && unknown[0].status == CheckStatus::Warning, "{unknown:?}");
        assert!(unknown[0].finding.contains("open the process's token (error 5)"));
    }
}
