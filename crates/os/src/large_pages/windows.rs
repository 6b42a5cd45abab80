//! The Windows calls that large pages need, made without interpretation; `virtual_alloc.rs` knows what their answers mean.
//!
//! Owns: pointers, handles and structs that are passed to Windows. Never touches: the order of the calls.

mod lsa;

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use windows_sys::Win32::Foundation::{CloseHandle, GetLastError, HANDLE, LUID};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, GetTokenInformation, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_LOCK_MEMORY_NAME,
    SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES, TOKEN_INFORMATION_CLASS, TOKEN_PRIVILEGES, TOKEN_QUERY,
    TokenElevation, TokenPrivileges,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_EXTENDED_PARAMETER, MEM_EXTENDED_PARAMETER_0, MEM_EXTENDED_PARAMETER_1, MEM_LARGE_PAGES,
    MEM_RELEASE, MEM_RESERVE, MemExtendedParameterAttributeFlags, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

pub use self::lsa::change_lock_right;
use super::virtual_alloc::{self, Calls, Code, Privilege};
use super::{LargePagePolicy, LargePagesError, Obtained, Page, Standing};

/// `MEM_EXTENDED_PARAMETER_NONPAGED_HUGE` of winnt.h: pages of 1 GiB.
const NONPAGED_HUGE: u64 = 0x10;
/// Far more than a token ever lists: 3 of these for each privilege, and one for their number.
const LONGEST_LIST: usize = 256;

pub(super) type Memory = virtual_alloc::Memory<Windows>;

/// The policy makes no difference: Windows never changes the size of pages later.
pub(super) fn allocate(bytes: usize, page: Page, _: LargePagePolicy) -> Result<Obtained<Memory>, Vec<LargePagesError>> {
    virtual_alloc::allocate(Windows, bytes, page).map_err(|error| vec![error])
}

/// What Windows says about large pages for this process; enables the privilege to lock pages, as every allocation does.
///
/// Errors: the process may not read its own token.
pub fn standing() -> Result<Standing, LargePagesError> {
    virtual_alloc::standing(&Windows)
}

/// This Windows.
#[derive(Debug)]
pub struct Windows;

/// The token of this process.
#[derive(Debug)]
pub struct Token(HANDLE);

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: the handle was opened for this value alone, and is closed once.
        unsafe { CloseHandle(self.0) };
    }
}

impl Calls for Windows {
    type Token = Token;

    fn open_token(&self) -> Result<Token, Code> {
        let mut token = ptr::null_mut();
        // SAFETY: the process's own pseudo handle is always valid, and `token` is a place for one handle.
        let opened =
            unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &raw mut token) };
        if opened == 0 { Err(last_error()) } else { Ok(Token(token)) }
    }

    fn lookup_privilege(&self) -> Result<Privilege, Code> {
        let mut found = LUID::default();
        // SAFETY: null stands for this system, the name is a constant that ends with a zero, and `found` is a place for one number.
        let looked_up = unsafe { LookupPrivilegeValueW(ptr::null(), SE_LOCK_MEMORY_NAME, &raw mut found) };
        if looked_up == 0 { Err(last_error()) } else { Ok(number(found.LowPart, found.HighPart.cast_unsigned())) }
    }

    fn enable(&self, token: &Token, privilege: Privilege) -> (bool, Code) {
        let number = LUID { LowPart: privilege.0 as u32, HighPart: (privilege.0 >> 32) as i32 };
        let wanted = TOKEN_PRIVILEGES {
            PrivilegeCount: 1,
            Privileges: [LUID_AND_ATTRIBUTES { Luid: number, Attributes: SE_PRIVILEGE_ENABLED }],
        };
        // SAFETY: the token is open, `wanted` holds as many privileges as it says and lives across the call, and the previous state is
        // not requested.
        let adjusted =
            unsafe { AdjustTokenPrivileges(token.0, 0, &raw const wanted, 0, ptr::null_mut(), ptr::null_mut()) };
        (adjusted != 0, last_error())
    }

    fn privileges(&self, token: &Token) -> Result<Vec<Privilege>, Code> {
        // TOKEN_PRIVILEGES consists of 4-byte numbers: the number of privileges, and for each its low part, high part and attributes.
        let mut list = [0u32; LONGEST_LIST];
        information(token, TokenPrivileges, &mut list)?;
        let count = list[0] as usize;
        Ok(list[1..].chunks_exact(3).take(count).map(|each| number(each[0], each[1])).collect())
    }

    fn is_elevated(&self, token: &Token) -> Result<bool, Code> {
        let mut elevated = [0u32; 1];
        information(token, TokenElevation, &mut elevated)?;
        Ok(elevated[0] != 0)
    }

    fn large_page_minimum(&self) -> usize {
        // SAFETY: it takes no argument and touches no memory of ours.
        unsafe { windows_sys::Win32::System::Memory::GetLargePageMinimum() }
    }

    fn take(&self, bytes: usize, page: Page) -> Result<NonNull<u8>, Code> {
        let kind = MEM_RESERVE | MEM_COMMIT;
        let start = match page {
            // SAFETY: new memory at an address of Windows's choice overlaps nothing.
            Page::Base => unsafe { VirtualAlloc(ptr::null(), bytes, kind, PAGE_READWRITE) },
            // SAFETY: as above.
            Page::Large => unsafe { VirtualAlloc(ptr::null(), bytes, kind | MEM_LARGE_PAGES, PAGE_READWRITE) },
            Page::Giant => take_giant(bytes)?,
        };
        NonNull::new(start.cast()).ok_or_else(last_error)
    }

    unsafe fn give_back(&self, start: NonNull<u8>) {
        // SAFETY: the caller guarantees that it came from `take`; 0 bytes mean the whole allocation.
        unsafe { VirtualFree(start.as_ptr().cast(), 0, MEM_RELEASE) };
    }
}

type VirtualAlloc2 =
    unsafe extern "system" fn(HANDLE, *const c_void, usize, u32, u32, *mut MEM_EXTENDED_PARAMETER, u32) -> *mut c_void;

/// Resolved at run time: a program that imports it does not start on Windows before 10, which has no giant pages.
fn take_giant(bytes: usize) -> Result<*mut c_void, Code> {
    // SAFETY: both names are constants that end with a zero; the library is part of every process and never unloaded.
    let found = unsafe {
        GetProcAddress(GetModuleHandleW(windows_sys::core::w!("kernelbase.dll")), c"VirtualAlloc2".as_ptr().cast())
    };
    let found = found.ok_or_else(last_error)?;
    // SAFETY: the function of that name in that library has this signature (memoryapi.h).
    let allocate = unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, VirtualAlloc2>(found) };
    let mut giant = MEM_EXTENDED_PARAMETER {
        Anonymous1: MEM_EXTENDED_PARAMETER_0 { _bitfield: MemExtendedParameterAttributeFlags as u64 },
        Anonymous2: MEM_EXTENDED_PARAMETER_1 { ULong64: NONPAGED_HUGE },
    };
    let kind = MEM_RESERVE | MEM_COMMIT | MEM_LARGE_PAGES;
    // SAFETY: new memory at an address of Windows's choice overlaps nothing; the one parameter lives across the call.
    Ok(unsafe { allocate(GetCurrentProcess(), ptr::null(), bytes, kind, PAGE_READWRITE, &raw mut giant, 1) })
}

/// Reads information about a token into 4-byte numbers.
fn information(token: &Token, class: TOKEN_INFORMATION_CLASS, into: &mut [u32]) -> Result<(), Code> {
    let mut length = 0;
    // SAFETY: the token is open, and `into` has room for as many bytes as are named.
    let read = unsafe {
        GetTokenInformation(token.0, class, into.as_mut_ptr().cast(), size_of_val(into) as u32, &raw mut length)
    };
    if read == 0 { Err(last_error()) } else { Ok(()) }
}

fn number(low: u32, high: u32) -> Privilege {
    Privilege((u64::from(high) << 32) | u64::from(low))
}

fn last_error() -> Code {
    // SAFETY: it takes no argument and touches no memory of ours.
    unsafe { GetLastError() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large_pages::{LargePageOptions, LargePagePolicy, LargePages};

    /// Wine does not have this privilege, and few Windows accounts hold it.
    #[test]
    fn what_is_said_of_the_privilege_is_what_memory_is_refused_for() {
        let standing = standing().unwrap();
        assert!(standing.minimum_bytes.is_power_of_two() && standing.minimum_bytes >= 2 << 20, "{standing:?}");
        assert_eq!(standing.held, standing.enabled.is_ok(), "{standing:?}");
        let required = LargePages::allocate(
            1,
            LargePageOptions { policy: LargePagePolicy::Required, ..LargePageOptions::default() },
        );
        match standing.enabled {
            Err(error) => assert_eq!(required.unwrap_err(), error),
            Ok(()) => assert!(required.map(|memory| memory.got().bytes == standing.minimum_bytes).unwrap_or(true)),
        }
    }

    #[test]
    fn without_the_privilege_memory_is_ordinary_and_the_reason_is_kept() {
        let memory = LargePages::allocate(3 << 20, LargePageOptions::default()).unwrap();
        match super::standing().unwrap().enabled {
            Err(error) => assert_eq!((memory.got().large_bytes, memory.refusals()), (0, &[error][..])),
            Ok(()) => eprintln!("skipped: this account may lock pages"),
        }
    }

    #[test]
    fn windows_refuses_what_no_privilege_backs() {
        if super::standing().unwrap().held {
            return eprintln!("skipped: this account may lock pages");
        }
        for page in [Page::Large, Page::Giant] {
            assert!(Windows.take(1 << 30, page).is_err());
        }
    }
}
