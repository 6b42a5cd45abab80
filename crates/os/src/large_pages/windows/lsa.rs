//! The calls of Windows that giving a right takes. Each is made as it stands; what its answer means is `lsa.rs` above.
//!
//! Owns: pointers, handles and structs that cross into Windows. Never touches: which call comes when.

use std::ptr;

use windows_sys::Win32::Foundation::NTSTATUS;
use windows_sys::Win32::Security::Authentication::Identity::{
    GetUserNameExW, LSA_HANDLE, LSA_OBJECT_ATTRIBUTES, LSA_UNICODE_STRING, LsaAddAccountRights, LsaClose,
    LsaEnumerateAccountRights, LsaFreeMemory, LsaNtStatusToWinError, LsaOpenPolicy, LsaRemoveAccountRights,
    NameSamCompatible, POLICY_CREATE_ACCOUNT, POLICY_LOOKUP_NAMES,
};
use windows_sys::Win32::Security::{LookupAccountNameW, PSID, SECURITY_MAX_SID_SIZE};

use super::{Windows, last_error};
use crate::large_pages::lock_right::{LockRightChange, LockRightError, LockRightOutcome};
use crate::large_pages::lsa::{self, LsaCalls};
use crate::large_pages::virtual_alloc::Code;

/// In units of UTF-16: more than a domain and a name may have together.
const LONGEST_NAME: usize = 1024;

/// Gives an account the right to lock pages in memory, or takes it away; None stands for the account of this process.
///
/// Errors: there is no such account, it takes an elevated administrator, or it made no difference.
pub fn change_lock_right(account: Option<&str>, change: LockRightChange) -> Result<LockRightOutcome, LockRightError> {
    lsa::change(&Windows, account, change)
}

/// What identifies an account: numbers of 4 bytes.
#[derive(Debug)]
pub struct AccountSid([u32; SECURITY_MAX_SID_SIZE as usize / 4]);

/// The policy of this machine.
#[derive(Debug)]
pub struct OpenPolicy(LSA_HANDLE);

impl Drop for OpenPolicy {
    fn drop(&mut self) {
        // SAFETY: the handle was opened for this value alone, and is closed once.
        unsafe { LsaClose(self.0) };
    }
}

impl LsaCalls for Windows {
    type Sid = AccountSid;
    type Policy = OpenPolicy;

    fn own_name(&self) -> Result<String, Code> {
        let mut name = [0; LONGEST_NAME];
        let mut length = LONGEST_NAME as u32;
        // SAFETY: `name` has room for as many units as `length` says.
        let told = unsafe { GetUserNameExW(NameSamCompatible, name.as_mut_ptr(), &raw mut length) };
        if told { Ok(until_zero(&name)) } else { Err(last_error()) }
    }

    fn lookup(&self, name: &str) -> Result<(AccountSid, String), Code> {
        let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
        let (mut sid, mut sid_bytes) = (AccountSid(Default::default()), SECURITY_MAX_SID_SIZE);
        let (mut domain, mut domain_units) = ([0; LONGEST_NAME], LONGEST_NAME as u32);
        let mut kind = 0;
        // SAFETY: no system means this one, the name ends with a zero, `sid` and `domain` have room for as much as is named, and all live
        // across the call.
        let found = unsafe {
            LookupAccountNameW(
                ptr::null(),
                name.as_ptr(),
                sid.0.as_mut_ptr().cast(),
                &raw mut sid_bytes,
                domain.as_mut_ptr(),
                &raw mut domain_units,
                &raw mut kind,
            )
        };
        if found == 0 { Err(last_error()) } else { Ok((sid, until_zero(&domain))) }
    }

    fn open_policy(&self) -> Result<OpenPolicy, Code> {
        let attributes = LSA_OBJECT_ATTRIBUTES::default();
        let access = (POLICY_LOOKUP_NAMES | POLICY_CREATE_ACCOUNT).cast_unsigned();
        let mut policy = 0;
        // SAFETY: no system means this one, attributes of zeros are what is asked for, and `policy` is a place for one handle.
        answer(unsafe { LsaOpenPolicy(ptr::null(), &raw const attributes, access, &raw mut policy) })?;
        Ok(OpenPolicy(policy))
    }

    fn rights(&self, policy: &OpenPolicy, sid: &AccountSid) -> Result<Vec<String>, Code> {
        let (mut list, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the policy is open, `sid` was filled by Windows, and there is a place for one pointer and one number.
        answer(unsafe { LsaEnumerateAccountRights(policy.0, sid.pointer(), &raw mut list, &raw mut count) })?;
        let rights = (0..count as usize).map(|place| {
            // SAFETY: Windows gave so many strings, each of as many bytes as it says, and keeps them until they are freed below.
            let units = unsafe {
                let right = &*list.add(place);
                std::slice::from_raw_parts(right.Buffer, usize::from(right.Length) / size_of::<u16>())
            };
            String::from_utf16_lossy(units)
        });
        let rights = rights.collect();
        // SAFETY: Windows gave it with that call, and nothing refers to it any more.
        unsafe { LsaFreeMemory(list.cast()) };
        Ok(rights)
    }

    fn add(&self, policy: &OpenPolicy, sid: &AccountSid, right: &str) -> Result<(), Code> {
        let mut units: Vec<u16> = right.encode_utf16().collect();
        let right = counted(&mut units);
        // SAFETY: the policy is open, `sid` was filled by Windows, and there is one string, which lives across the call.
        answer(unsafe { LsaAddAccountRights(policy.0, sid.pointer(), &raw const right, 1) })
    }

    fn remove(&self, policy: &OpenPolicy, sid: &AccountSid, right: &str) -> Result<(), Code> {
        let mut units: Vec<u16> = right.encode_utf16().collect();
        let right = counted(&mut units);
        // SAFETY: as in `add`; not all rights are meant.
        answer(unsafe { LsaRemoveAccountRights(policy.0, sid.pointer(), false, &raw const right, 1) })
    }
}

impl AccountSid {
    /// For calls that only read it.
    fn pointer(&self) -> PSID {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// These units as Windows's authority has strings; valid as long as they are.
fn counted(units: &mut [u16]) -> LSA_UNICODE_STRING {
    let bytes = size_of_val(units) as u16;
    LSA_UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() }
}

fn until_zero(units: &[u16]) -> String {
    String::from_utf16_lossy(units.split(|&unit| unit == 0).next().unwrap_or_default())
}

fn answer(status: NTSTATUS) -> Result<(), Code> {
    // SAFETY: it takes a number, and touches no memory of ours.
    if status == 0 { Ok(()) } else { Err(unsafe { LsaNtStatusToWinError(status) }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name() {
        let own = Windows.own_name().unwrap();
        let (sid, domain) = Windows.lookup(&own).unwrap();
        // Their first byte is a version, of which there is one.
        assert!(sid.0[0] & 0xff == 1 && !domain.is_empty(), "{own} {sid:?} {domain}");
        assert_eq!(Windows.lookup("nobody is called that").unwrap_err(), 1332);
    }
}
