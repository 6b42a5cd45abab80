//! The Local Security Authority, played: what each call answers is set, and what was called is seen.

use std::cell::RefCell;

use super::*;

const OTHER: &str = "SeServiceLogonRight";

/// An authority that does what it is told, unless a call is to fail.
struct Lsa {
    rights: RefCell<Vec<&'static str>>,
    /// The call that fails, and with what.
    fails: Option<(&'static str, Code)>,
    /// Whether changes are made, and not only confirmed.
    obeys: bool,
    log: RefCell<Vec<String>>,
}

impl Lsa {
    fn with(rights: &[&'static str]) -> Self {
        Self { rights: RefCell::new(rights.to_vec()), fails: None, obeys: true, log: RefCell::default() }
    }

    fn failing(call: &'static str, code: Code) -> Self {
        Self { fails: Some((call, code)), ..Self::with(&[]) }
    }

    fn answer<T>(&self, call: &'static str, about: &str, answer: T) -> Result<T, Code> {
        self.log.borrow_mut().push(format!("{call} {about}").trim_end().to_owned());
        match self.fails {
            Some((failing, code)) if failing == call => Err(code),
            _ => Ok(answer),
        }
    }
}

impl LsaCalls for Lsa {
    type Sid = String;
    type Policy = ();

    fn own_name(&self) -> Result<String, Code> {
        self.answer("own name", "", r"DESK\me".to_owned())
    }

    fn lookup(&self, name: &str) -> Result<(String, String), Code> {
        self.answer("lookup", name, (format!("S-{name}"), "DESK".to_owned()))
    }

    fn open_policy(&self) -> Result<(), Code> {
        self.answer("open policy", "", ())
    }

    fn rights(&self, (): &(), sid: &String) -> Result<Vec<String>, Code> {
        let rights: Vec<String> = self.rights.borrow().iter().map(|&right| right.to_owned()).collect();
        let rights = self.answer("rights", sid, rights)?;
        if rights.is_empty() { Err(FILE_NOT_FOUND) } else { Ok(rights) }
    }

    fn add(&self, (): &(), sid: &String, right: &str) -> Result<(), Code> {
        self.answer("add", &format!("{sid} {right}"), ())?;
        if self.obeys {
            self.rights.borrow_mut().push(LOCK_PAGES);
        }
        Ok(())
    }

    fn remove(&self, (): &(), sid: &String, right: &str) -> Result<(), Code> {
        self.answer("remove", &format!("{sid} {right}"), ())?;
        if self.obeys {
            self.rights.borrow_mut().retain(|&held| held != right);
        }
        Ok(())
    }
}

fn outcome(account: &str, changed: bool) -> Result<LockRightOutcome, LockRightError> {
    Ok(LockRightOutcome { account: account.to_owned(), changed })
}

#[test]
fn the_right_is_given_to_this_account_and_seen_to_be_there() {
    let lsa = Lsa::with(&[]);
    assert_eq!(change(&lsa, None, LockRightChange::Grant), outcome(r"DESK\me", true));
    let sid = r"S-DESK\me";
    let calls = [
        "own name",
        r"lookup DESK\me",
        "open policy",
        &format!("rights {sid}"),
        &format!("add {sid} SeLockMemoryPrivilege"),
        &format!("rights {sid}"),
    ];
    assert_eq!(*lsa.log.borrow(), calls);
    assert_eq!(change(&lsa, None, LockRightChange::Revoke), outcome(r"DESK\me", true));
    assert!(lsa.rights.borrow().is_empty());
}

#[test]
fn only_that_right_is_taken_away() {
    let lsa = Lsa::with(&[OTHER, LOCK_PAGES]);
    assert_eq!(change(&lsa, Some("sql"), LockRightChange::Revoke), outcome(r"DESK\sql", true));
    assert_eq!(*lsa.rights.borrow(), [OTHER]);
}

#[test]
fn what_is_so_already_is_left_alone() {
    for (held, wanted) in [
        (&[OTHER, LOCK_PAGES][..], LockRightChange::Grant),
        (&[OTHER], LockRightChange::Revoke),
        (&[], LockRightChange::Revoke),
    ] {
        let lsa = Lsa::with(held);
        assert_eq!(change(&lsa, Some("me@desk"), wanted), outcome("me@desk", false));
        assert_eq!(lsa.log.borrow().len(), 3, "{:?}", lsa.log);
    }
}

#[test]
fn a_success_without_effect_is_none() {
    for (held, wanted) in [(&[][..], LockRightChange::Grant), (&[LOCK_PAGES], LockRightChange::Revoke)] {
        let lsa = Lsa { obeys: false, ..Lsa::with(held) };
        let error = LockRightError::WithoutEffect { account: r"DESK\me".to_owned() };
        assert_eq!(change(&lsa, None, wanted), Err(error));
    }
}

#[test]
fn each_refusal_says_what_to_do() {
    let refused = |call, code| change(&Lsa::failing(call, code), Some("nemo"), LockRightChange::Grant).unwrap_err();
    assert_eq!(refused("lookup", NONE_MAPPED), LockRightError::UnknownAccount { name: "nemo".to_owned() });
    for (call, doing) in [
        ("open policy", "open the machine's security policy"),
        ("rights", "read the account's rights"),
        ("add", "give the account the right"),
    ] {
        let error = refused(call, ACCESS_DENIED);
        assert_eq!(error, LockRightError::AccessDenied { doing });
        assert!(error.to_string().contains("0x5") && error.to_string().contains("Run as administrator"), "{error}");
    }
    let error = refused("lookup", 1789);
    assert_eq!(error.to_string(), "cannot look the account up (error 1789, 0x6FD)");
    let own = change(&Lsa::failing("own name", 1), None, LockRightChange::Grant).unwrap_err();
    assert_eq!(own, LockRightError::Failed { doing: "read what this account is called", code: 1 });
}
