//! What Windows requires of a program that wants large pages, and what its answers mean.
//!
//! Owns: the order of the calls (enable the privilege, ask for the smallest page, round, allocate), and the meaning of their error
//! codes. Never touches: Windows. The calls are a trait: `windows.rs` makes them, and tests fake them on any system.

use std::ptr::NonNull;

use super::{BASE_PAGE, Backing, GIANT_PAGE, Got, LargePagesError, Obtained, Page, Standing, rounded};

/// A code from `GetLastError`; winerror.h has the names.
pub(super) type Code = u32;

const SUCCESS: Code = 0;
const INVALID_FUNCTION: Code = 1;
const NOT_ENOUGH_MEMORY: Code = 8;
const OUTOFMEMORY: Code = 14;
const NOT_SUPPORTED: Code = 50;
const INVALID_PARAMETER: Code = 87;
const CALL_NOT_IMPLEMENTED: Code = 120;
/// For a function that this version of Windows does not have yet.
const PROC_NOT_FOUND: Code = 127;
const NOT_ALL_ASSIGNED: Code = 1300;
const PRIVILEGE_NOT_HELD: Code = 1314;
const NO_SYSTEM_RESOURCES: Code = 1450;
const WORKING_SET_QUOTA: Code = 1453;
const PAGEFILE_QUOTA: Code = 1454;
const COMMITMENT_LIMIT: Code = 1455;
const NOT_ENOUGH_QUOTA: Code = 1816;

/// A privilege's number on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Privilege(pub(super) u64);

/// The calls, each with its result.
pub(super) trait Calls {
    /// The process's token, closed when it is dropped.
    type Token;
    /// `OpenProcessToken`
    fn open_token(&self) -> Result<Self::Token, Code>;
    /// `LookupPrivilegeValue` of `SeLockMemoryPrivilege`
    fn lookup_privilege(&self) -> Result<Privilege, Code>;
    /// `AdjustTokenPrivileges`: whether it claims success, and what `GetLastError` says then.
    fn enable(&self, token: &Self::Token, privilege: Privilege) -> (bool, Code);
    /// `GetTokenInformation`: all privileges in the token.
    fn privileges(&self, token: &Self::Token) -> Result<Vec<Privilege>, Code>;
    /// `GetTokenInformation`: whether it is elevated.
    fn is_elevated(&self, token: &Self::Token) -> Result<bool, Code>;
    /// `GetLargePageMinimum`
    fn large_page_minimum(&self) -> usize;
    /// `VirtualAlloc`, or `VirtualAlloc2` for giant pages; of whole pages.
    fn take(&self, bytes: usize, page: Page) -> Result<NonNull<u8>, Code>;
    /// `VirtualFree`
    ///
    /// # Safety
    ///
    /// [`Calls::take`] returned it, and nobody refers to it any more.
    unsafe fn give_back(&self, start: NonNull<u8>);
}

/// Memory that Windows gave.
#[derive(Debug)]
pub(super) struct Memory<C: Calls> {
    calls: C,
    start: NonNull<u8>,
}

impl<C: Calls> Drop for Memory<C> {
    fn drop(&mut self) {
        // SAFETY: these calls returned it, once, and the value's owner is dropping it.
        unsafe { self.calls.give_back(self.start) };
    }
}

pub(super) fn allocate<C: Calls>(calls: C, bytes: usize, page: Page) -> Result<Obtained<Memory<C>>, LargePagesError> {
    let page_bytes = match page {
        Page::Base => BASE_PAGE,
        Page::Large | Page::Giant => {
            enable(&calls)?;
            page_bytes(calls.large_page_minimum(), page)?
        }
    };
    let bytes = rounded(bytes, page_bytes)?;
    let start = calls.take(bytes, page).map_err(|code| meaning(code, "take memory", bytes, page_bytes))?;
    let (backing, large_bytes) = if page == Page::Base { (Backing::Ordinary, 0) } else { (Backing::Locked, bytes) };
    let got = Got { bytes, page_bytes, large_bytes, backing };
    // All or nothing: Windows never allocates a part.
    Ok(Obtained { memory: Memory { calls, start }, start, got, short: Vec::new() })
}

pub(super) fn standing(calls: &impl Calls) -> Result<Standing, LargePagesError> {
    let token = calls.open_token().map_err(failed("open the process's token"))?;
    let privilege = calls.lookup_privilege().map_err(failed("look up the privilege to lock pages"))?;
    let listed = calls.privileges(&token).map_err(failed("read the privileges of the process's token"))?;
    Ok(Standing {
        minimum_bytes: calls.large_page_minimum(),
        held: listed.contains(&privilege),
        enabled: enable(calls),
        elevated: calls.is_elevated(&token).map_err(failed("read whether the process is elevated"))?,
    })
}

fn page_bytes(minimum: usize, page: Page) -> Result<usize, LargePagesError> {
    match page {
        Page::Base => Ok(BASE_PAGE),
        _ if minimum == 0 => Err(LargePagesError::NotSupported { page_bytes: 0 }),
        Page::Large => Ok(minimum),
        Page::Giant => Ok(GIANT_PAGE),
    }
}

/// Enables the privilege to lock pages for this process.
fn enable(calls: &impl Calls) -> Result<(), LargePagesError> {
    let token = calls.open_token().map_err(failed("open the process's token"))?;
    let privilege = calls.lookup_privilege().map_err(failed("look up the privilege to lock pages"))?;
    match calls.enable(&token, privilege) {
        (true, SUCCESS) => Ok(()),
        // It "succeeds" even if there was nothing to enable; only the code tells.
        (_, NOT_ALL_ASSIGNED) => Err(LargePagesError::PrivilegeNotAssigned),
        (_, code) => Err(failed("enable the privilege to lock pages")(code)),
    }
}

fn failed(doing: &'static str) -> impl Fn(Code) -> LargePagesError {
    move |code| LargePagesError::System { doing, code: code.cast_signed() }
}

/// What a refused allocation means. The size is always valid, so an invalid parameter for large pages means an unknown kind of page.
fn meaning(code: Code, doing: &'static str, bytes: usize, page_bytes: usize) -> LargePagesError {
    match code {
        PRIVILEGE_NOT_HELD => LargePagesError::PrivilegeNotHeld,
        NO_SYSTEM_RESOURCES if page_bytes != BASE_PAGE => {
            LargePagesError::NoContiguousMemory { bytes, page_bytes, code: Some(code) }
        }
        NO_SYSTEM_RESOURCES | NOT_ENOUGH_MEMORY | OUTOFMEMORY | WORKING_SET_QUOTA | PAGEFILE_QUOTA
        | COMMITMENT_LIMIT | NOT_ENOUGH_QUOTA => LargePagesError::Quota { bytes },
        INVALID_PARAMETER if page_bytes == BASE_PAGE => LargePagesError::Size { bytes },
        INVALID_PARAMETER | INVALID_FUNCTION | NOT_SUPPORTED | CALL_NOT_IMPLEMENTED | PROC_NOT_FOUND => {
            LargePagesError::NotSupported { page_bytes }
        }
        code => failed(doing)(code),
    }
}

#[cfg(test)]
mod tests;
