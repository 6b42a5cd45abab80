//! A fake Windows: tests set what each call answers and see which were made.

use std::cell::RefCell;

use super::*;

const LARGE: usize = 2 << 20;
const LOCK_MEMORY: Privilege = Privilege(4);
const ACCESS_DENIED: Code = 5;

/// A Windows on which everything succeeds unless a test says otherwise.
struct Windows {
    token: Result<(), Code>,
    known: Result<Privilege, Code>,
    listed: Result<Vec<Privilege>, Code>,
    elevated: Result<bool, Code>,
    adjusted: (bool, Code),
    minimum: usize,
    taken: Result<(), Code>,
    log: RefCell<Vec<String>>,
}

impl Default for Windows {
    fn default() -> Self {
        let known = Ok(LOCK_MEMORY);
        let (listed, elevated) = (Ok(vec![Privilege(23), LOCK_MEMORY]), Ok(true));
        let (token, taken, adjusted, minimum) = (Ok(()), Ok(()), (true, SUCCESS), LARGE);
        Self { token, known, listed, elevated, adjusted, minimum, taken, log: RefCell::default() }
    }
}

impl Windows {
    fn note(&self, call: impl Into<String>) {
        self.log.borrow_mut().push(call.into());
    }
}

impl Calls for &Windows {
    type Token = ();

    fn open_token(&self) -> Result<(), Code> {
        self.token
    }

    fn lookup_privilege(&self) -> Result<Privilege, Code> {
        self.known
    }

    fn enable(&self, (): &(), privilege: Privilege) -> (bool, Code) {
        self.note(format!("enable {}", privilege.0));
        self.adjusted
    }

    fn privileges(&self, (): &()) -> Result<Vec<Privilege>, Code> {
        self.listed.clone()
    }

    fn is_elevated(&self, (): &()) -> Result<bool, Code> {
        self.elevated
    }

    fn large_page_minimum(&self) -> usize {
        self.minimum
    }

    fn take(&self, bytes: usize, page: Page) -> Result<NonNull<u8>, Code> {
        self.note(format!("take {bytes} {page:?}"));
        self.taken.map(|()| NonNull::dangling())
    }

    unsafe fn give_back(&self, _: NonNull<u8>) {
        self.note("give back");
    }
}

fn got(windows: &Windows, bytes: usize, page: Page) -> Result<Got, LargePagesError> {
    allocate(windows, bytes, page).map(|obtained| obtained.got)
}

#[test]
fn large_pages_are_taken_with_the_privilege_in_whole_pages_and_given_back() {
    let windows = Windows::default();
    let got = got(&windows, 3 << 20, Page::Large);
    let expected = Got { bytes: 4 << 20, page_bytes: LARGE, large_bytes: 4 << 20, backing: Backing::Locked };
    assert_eq!(got, Ok(expected));
    assert_eq!(*windows.log.borrow(), ["enable 4", "take 4194304 Large", "give back"]);
}

#[test]
fn giant_pages_are_their_own_kind() {
    let windows = Windows::default();
    let got = got(&windows, 1, Page::Giant).unwrap();
    assert_eq!((got.bytes, got.page_bytes, got.large_bytes), (GIANT_PAGE, GIANT_PAGE, GIANT_PAGE));
    assert_eq!(windows.log.borrow()[1], "take 1073741824 Giant");
}

#[test]
fn ordinary_pages_need_no_privilege() {
    let windows = Windows { adjusted: (true, NOT_ALL_ASSIGNED), minimum: 0, ..Windows::default() };
    let got = got(&windows, 5000, Page::Base).unwrap();
    assert_eq!((got.bytes, got.large_bytes, got.backing), (8192, 0, Backing::Ordinary));
    assert_eq!(*windows.log.borrow(), ["take 8192 Base", "give back"]);
}

#[test]
fn a_privilege_that_is_not_assigned_is_seen_behind_the_success() {
    for returned in [true, false] {
        let windows = Windows { adjusted: (returned, NOT_ALL_ASSIGNED), ..Windows::default() };
        assert_eq!(got(&windows, 1, Page::Large), Err(LargePagesError::PrivilegeNotAssigned));
        assert_eq!(*windows.log.borrow(), ["enable 4"], "no memory is asked for");
    }
    let doing = "enable the privilege to lock pages";
    let windows = Windows { adjusted: (false, ACCESS_DENIED), ..Windows::default() };
    assert_eq!(got(&windows, 1, Page::Large), Err(LargePagesError::System { doing, code: 5 }));
}

#[test]
fn a_token_that_cannot_be_had_is_named() {
    let windows = Windows { token: Err(ACCESS_DENIED), ..Windows::default() };
    let doing = "open the process's token";
    assert_eq!(got(&windows, 1, Page::Large), Err(LargePagesError::System { doing, code: 5 }));
    let windows = Windows { known: Err(1313), ..Windows::default() };
    let doing = "look up the privilege to lock pages";
    assert_eq!(got(&windows, 1, Page::Large), Err(LargePagesError::System { doing, code: 1313 }));
}

#[test]
fn a_token_that_cannot_be_read_is_no_token_without_the_privilege() {
    let refused = |windows: Windows| standing(&&windows).unwrap_err();
    let listed = refused(Windows { listed: Err(ACCESS_DENIED), ..Windows::default() });
    let doing = "read the privileges of the process's token";
    assert_eq!(listed, LargePagesError::System { doing, code: 5 });
    let elevated = refused(Windows { elevated: Err(ACCESS_DENIED), ..Windows::default() });
    let doing = "read whether the process is elevated";
    assert_eq!(elevated, LargePagesError::System { doing, code: 5 });
}

#[test]
fn each_refusal_of_memory_has_its_meaning() {
    let refused = |code, page| {
        let windows = Windows { taken: Err(code), ..Windows::default() };
        let refused = got(&windows, 1, page).unwrap_err();
        assert!(!windows.log.borrow().contains(&"give back".to_owned()), "there is nothing to give back");
        refused
    };
    let (bytes, page_bytes) = (LARGE, LARGE);
    assert_eq!(refused(1314, Page::Large), LargePagesError::PrivilegeNotHeld);
    assert_eq!(refused(1450, Page::Large), LargePagesError::NoContiguousMemory { bytes, page_bytes, code: Some(1450) });
    for code in [8, 14, 1453, 1454, 1455, 1816] {
        assert_eq!(refused(code, Page::Large), LargePagesError::Quota { bytes }, "{code}");
    }
    for code in [1, 50, 87, 120, 127] {
        let expected = LargePagesError::NotSupported { page_bytes: GIANT_PAGE };
        assert_eq!(refused(code, Page::Giant), expected, "{code}");
    }
    assert_eq!(refused(1450, Page::Base), LargePagesError::Quota { bytes: BASE_PAGE }, "no piece is smaller");
    assert_eq!(refused(87, Page::Base), LargePagesError::Size { bytes: BASE_PAGE });
    assert_eq!(refused(6, Page::Large), LargePagesError::System { doing: "take memory", code: 6 });
}

#[test]
fn a_processor_without_large_pages_is_told() {
    let windows = Windows { minimum: 0, ..Windows::default() };
    for page in [Page::Large, Page::Giant] {
        assert_eq!(got(&windows, 1, page), Err(LargePagesError::NotSupported { page_bytes: 0 }));
    }
}

#[test]
fn sizes_that_no_memory_has_are_refused_before_windows_is_asked() {
    let windows = Windows::default();
    for bytes in [0, usize::MAX] {
        assert_eq!(got(&windows, bytes, Page::Large), Err(LargePagesError::Size { bytes }));
    }
    assert!(!windows.log.borrow().iter().any(|call| call.starts_with("take")));
}

#[test]
fn a_standing_tells_what_is_held_from_what_is_enabled() {
    let standing = |windows: &Windows| super::standing(&windows).unwrap();
    let expected = Standing { minimum_bytes: LARGE, held: true, enabled: Ok(()), elevated: true };
    assert_eq!(standing(&Windows::default()), expected);
    let windows = Windows { listed: Ok(vec![Privilege(23)]), adjusted: (true, NOT_ALL_ASSIGNED), ..Windows::default() };
    let enabled = Err(LargePagesError::PrivilegeNotAssigned);
    assert_eq!(standing(&windows), Standing { held: false, enabled, ..expected });
    assert!(super::standing(&&Windows { token: Err(ACCESS_DENIED), ..Windows::default() }).is_err());
}
