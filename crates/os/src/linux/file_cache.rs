//! Which part of a file is in memory, and letting go of it: `cachestat(2)`, `posix_fadvise(2)`, `sync_file_range(2)`.
//!
//! None of these changes what a file holds, whatever else it does.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Advice, fadvise};

use crate::answer::checked;

/// The call's number, the same on every architecture (Linux 6.5); libc has no name for it.
const SYS_CACHESTAT: libc::c_long = 451;

/// Which part of a range is in memory, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheState {
    /// In memory.
    pub cached: u64,
    /// Of it, written and not yet begun to be written back.
    pub dirty: u64,
    /// Of it, being written back.
    pub writeback: u64,
    /// Not in memory any more, though it once was, as far as the kernel remembers.
    pub evicted: u64,
    /// Of it, so lately that reading it again would show that it should have stayed.
    pub recently_evicted: u64,
}

impl CacheState {
    /// Whether all that is in memory is on disk, too.
    pub fn is_clean(self) -> bool {
        self.dirty == 0 && self.writeback == 0
    }
}

/// Tells which part of a file is in memory: `len` bytes from `start`, to the end of the file where `len` is 0. Reads nothing from disk.
///
/// Errors: `ENOSYS` before Linux 6.5, `EPERM` (6.14) the file is another user's and may not be written either, `EOPNOTSUPP` it is of a
/// pool of huge pages.
pub fn cache_state(file: &impl AsFd, start: u64, len: u64) -> io::Result<CacheState> {
    let range = [start, len];
    let mut state = CacheState::default();
    // SAFETY: the kernel reads two numbers (`struct cachestat_range`) and writes five (`struct cachestat`), which have the shape of
    // `CacheState`; both live through the call.
    let told = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), range.as_ptr(), &raw mut state, 0 as libc::c_uint)
    };
    checked(told).map(|_| state)
}

/// Lets go of what is in memory of a file and is neither dirty nor in any process's address space: `len` bytes from `start`, to the end
/// where `len` is 0. Dirty pages stay, but the kernel begins to write them back. Pages at the ends of the range that are only partly
/// in it stay.
///
/// Errors: `ESPIPE` a pipe, `EINVAL` no file that has pages.
pub fn drop_clean(file: &impl AsFd, start: u64, len: u64) -> io::Result<()> {
    Ok(fadvise(file, start, NonZeroU64::new(len), Advice::DontNeed)?)
}

/// Begins to write dirty pages back and does not wait: `len` bytes from `start`, to the end where `len` is 0. It makes nothing durable.
///
/// Errors: `EIO`, `ENOSPC`, `ESPIPE`.
pub fn begin_writeback(file: &impl AsFd, start: u64, len: u64) -> io::Result<()> {
    let whole = |number: u64| i64::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let (start, len) = (whole(start)?, whole(len)?);
    // SAFETY: takes a descriptor that is open through the call, and numbers.
    let begun = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE) };
    checked(begun).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    /// A file of 1 MiB beside this test, which is on a disk where /tmp may be in memory. Its name goes at once.
    fn file(name: &str) -> File {
        let path =
            std::env::current_exe().expect("our own path").with_file_name(format!("{name}-{}", std::process::id()));
        let options = File::options().read(true).write(true).create_new(true).open(&path);
        let mut file = options.expect("a file in target");
        std::fs::remove_file(&path).expect("it is ours");
        file.write_all(&[7; 1 << 20]).expect("room");
        file
    }

    /// None where the kernel is too old.
    fn state(file: &File) -> Option<CacheState> {
        match cache_state(file, 0, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                eprintln!("skipped: this kernel has no cachestat");
                None
            }
            state => Some(state.expect("our own file")),
        }
    }

    #[test]
    fn what_is_clean_goes_and_contents_stay() {
        let file = file("clean");
        file.sync_all().unwrap();
        let Some(before) = state(&file) else { return };
        assert_eq!((before.cached, before.is_clean()), (256, true));
        drop_clean(&file, 0, 512 << 10).unwrap();
        // The kernel may keep all of it in one piece, which goes whole or not at all.
        let half = state(&file).unwrap();
        assert!(half.cached >= 128, "{half:?}");
        drop_clean(&file, 0, 0).unwrap();
        assert_eq!(state(&file).unwrap().cached, 0);
        let mut bytes = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn writing_back_makes_it_clean() {
        let file = file("dirty");
        let Some(before) = state(&file) else { return };
        assert_eq!(before.cached, 256);
        begin_writeback(&file, 0, 0).unwrap();
        file.sync_data().unwrap();
        assert!(state(&file).unwrap().is_clean());
        assert_eq!(begin_writeback(&file, u64::MAX, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
