//! Giving up CAP_SYS_ADMIN, which is nearly root, once it is no longer needed.
//!
//! Owns: the process's own capabilities. Never touches: which capabilities a task needs; the task's own code knows.
//!
//! Opening the page-walk tracker needs it, to prove where page tables are; observing and acting afterwards do not.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::getpid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::{KernelError, Root, process};

/// A joined thread may be listed a moment longer; the list is polled this many times, at this interval.
const POLLS: u32 = 50;
const BETWEEN_POLLS: Duration = Duration::from_millis(2);

/// Why CAP_SYS_ADMIN was not given up.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum PrivilegeError {
    #[error(
        "process {pid} has {threads} threads, and capabilities belong to each: CAP_SYS_ADMIN can be given up only before others \
         are started"
    )]
    MoreThreads { pid: u32, threads: usize },
    #[error("process {pid} cannot give up CAP_SYS_ADMIN ({step}): {cause}")]
    Kernel { pid: u32, step: &'static str, cause: io::Error },
    #[error(transparent)]
    Threads(#[from] KernelError),
}

/// Gives up CAP_SYS_ADMIN for good, for this process and for threads and programs that it starts later.
///
/// Call it while there is only one thread: capabilities belong to threads, and new threads inherit them. It is removed from the effective, permitted,
/// inheritable and ambient sets, and from the bounding set where CAP_SETPCAP allows that. Since a program started by root would otherwise regain what
/// is in the bounding set, the process can no longer gain privileges by exec (`no_new_privs`).
///
/// Errors: the process has more than one thread, or the kernel refuses a step, which the error names.
pub fn drop_sys_admin() -> Result<(), PrivilegeError> {
    ensure_one_thread()?;
    let failed =
        |step| move |error: Errno| PrivilegeError::Kernel { pid: std::process::id(), step, cause: error.into() };
    set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    match remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN) {
        // CAP_SETPCAP is missing; no_new_privs already prevents regaining it.
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(failed("bounding set")(error)),
    }
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, false).map_err(failed("ambient set"))?;
    let held = capabilities(None).map_err(failed("reading its sets"))?;
    set_capabilities(None, without_sys_admin(held)).map_err(failed("effective, permitted, inheritable set"))
}

fn without_sys_admin(held: CapabilitySets) -> CapabilitySets {
    CapabilitySets {
        effective: held.effective - CapabilitySet::SYS_ADMIN,
        permitted: held.permitted - CapabilitySet::SYS_ADMIN,
        inheritable: held.inheritable - CapabilitySet::SYS_ADMIN,
    }
}

fn ensure_one_thread() -> Result<(), PrivilegeError> {
    let pid = getpid().as_raw_pid() as u32;
    for _ in 0..POLLS {
        if process::threads(&Root::host(), pid)?.len() == 1 {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_POLLS);
    }
    let threads = process::threads(&Root::host(), pid)?.len();
    Err(PrivilegeError::MoreThreads { pid, threads })
}
