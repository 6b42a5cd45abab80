//! Which part of a file is in memory, and dropping it: `cachestat(2)`, `posix_fadvise(2)`, `sync_file_range(2)`.
//!
//! None of these calls changes a file's contents.
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
    /// Of these, dirty and not yet under writeback.
    pub dirty: u64,
    /// Of these, under writeback.
    pub writeback: u64,
    /// No longer in memory, as far as the kernel remembers.
    pub evicted: u64,
    /// Of these, evicted so recently that a refault would count as part of the working set.
    pub recently_evicted: u64,
}

impl CacheState {
    /// Whether everything in memory is also on disk.
    pub fn is_clean(self) -> bool {
        self.dirty == 0 && self.writeback == 0
    }
}

/// Tells which part of a file is in memory: `len` bytes from `start`, or up to the end if `len` is 0. Reads nothing from disk.
///
/// Errors: `ENOSYS` before Linux 6.5, `EPERM` (6.14) the file belongs to another user and is not writable either, `EOPNOTSUPP` it is on
/// hugetlbfs.
pub fn cache_state(file: &impl AsFd, start: u64, len: u64) -> io::Result<CacheState> {
    let range = [start, len];
    let mut state = CacheState::default();
    // SAFETY: the kernel reads two numbers (`struct cachestat_range`) and writes five (`struct cachestat`), which have the layout of
    // `CacheState`; both live through the call.
    let told = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), range.as_ptr(), &raw mut state, 0 as libc::c_uint)
    };
    checked(told).map(|_| state)
}

/// Drops pages of a file that are neither dirty nor mapped by any process: `len` bytes from `start`, or up to the end if `len` is 0.
/// Dirty pages stay, but the kernel begins to write them back. Pages only partly inside the range stay.
///
/// Errors: `ESPIPE` a pipe, `EINVAL` a file without pages.
pub fn drop_clean(file: &impl AsFd, start: u64, len: u64) -> io::Result<()> {
    Ok(fadvise(file, start, NonZeroU64::new(len), Advice::DontNeed)?)
}

/// Starts writeback of dirty pages without waiting: `len` bytes from `start`, or up to the end if `len` is 0. It makes nothing durable.
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

    /// An unlinked file of 1 MiB next to this test's binary, which is on a disk even where /tmp is in memory.
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
        // The kernel may keep it as one large folio, which goes as a whole or not at all.
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
