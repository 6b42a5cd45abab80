//! The right "Lock pages in memory", which an account of Windows needs for large pages: what can be done about it, and what comes of that.
//!
//! Owns: the words. Never touches: Windows; `lsa.rs` has the order of the calls.

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRightChange {
    /// Give it to the account.
    Grant,
    /// Take it from the account.
    Revoke,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRightOutcome {
    /// The account, with its domain or machine.
    pub account: String,
    /// Whether anything was done; false where it was so before.
    pub changed: bool,
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRightError {
    /// Nobody is called that.
    #[error(
        "no account is called {name} (error 1332, 0x534): `whoami` tells what this one is called, `net user` which others there are"
    )]
    UnknownAccount {
        /// As it was given.
        name: String,
    },
    /// It takes an administrator, and more than his account.
    #[error(
        "cannot {doing}: access is denied (error 5, 0x5): only an elevated administrator may do that. Start the prompt by \"Run as \
         administrator\", and there name the account (`whoami` tells it): the prompt may be another one's"
    )]
    AccessDenied {
        /// What was being done.
        doing: &'static str,
    },
    /// It made no difference.
    #[error(
        "Windows says that it changed the right of {account}, and lists what it listed before; try secpol.msc > Local Policies > User \
         Rights Assignment > Lock pages in memory"
    )]
    WithoutEffect {
        /// Whose right it is.
        account: String,
    },
    /// Something else went wrong.
    #[error("cannot {doing} (error {code}, {code:#X})")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// Windows's number for it.
        code: u32,
    },
}
