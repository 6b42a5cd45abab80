//! A file's pages in the page cache, on huge pages; and whether somebody may write to the file.
//!
//! A file system with large folios (XFS, ext4 since Linux 6.16) reads what is touched through a mapping with `MADV_HUGEPAGE` in folios of
//! 2 MiB (mm/filemap.c, do_sync_mmap_readahead). They stay in the page cache, and a mapping whose address and offset agree modulo 2 MiB
//! maps each of them by one entry. Where the kernel collapses files (`MADV_COLLAPSE`, with `CONFIG_READ_ONLY_THP_FOR_FS`), pages that are there on
//! base pages are copied onto a huge one, beneath whoever maps them. None of these calls changes a file's contents.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::answer::checked;
use crate::page_scan::any_huge_here;

const HUGE_PAGE: usize = 2 << 20;
/// Chooses the signal that tells of a lease (include/uapi/asm-generic/fcntl.h); libc has no name for it.
const F_SETSIG: libc::c_int = 10;

/// Reads 2 MiB of a file from `start`, a multiple of 2 MiB, into the page cache: on a huge page, if none of it is there yet and there is
/// contiguous memory. Returns whether they are on one.
///
/// Errors: `EFAULT` the file is shorter, or its disk failed; `EINVAL` the kernel has no transparent huge pages; `ENODEV` the file cannot
/// be mapped; `ENOTTY` the kernel is older than 6.7 and does not tell.
pub fn read_huge(file: &impl AsFd, start: u64) -> io::Result<bool> {
    let view = HugeView::of(file, start, ProtFlags::READ)?;
    view.advise(libc::MADV_HUGEPAGE)?;
    // Touching a page of a file that somebody else truncates would end this process; advice fails instead.
    view.advise(libc::MADV_POPULATE_READ)?;
    any_huge_here(view.start as u64, (view.start + HUGE_PAGE) as u64)
}

/// Collapses 2 MiB of a file in the page cache from `start`, a multiple of 2 MiB, also for those who map it.
///
/// Errors: `EINVAL` this kernel, or file system, collapses no files; `EAGAIN` its pages are in use just now; `ENOMEM` no contiguous memory.
pub fn collapse_file(file: &impl AsFd, start: u64) -> io::Result<()> {
    // Older kernels collapse only what can be executed (mm/huge_memory.c, file_thp_enabled); some file systems are mounted `noexec`.
    let view = HugeView::of(file, start, ProtFlags::READ | ProtFlags::EXEC)
        .or_else(|_| HugeView::of(file, start, ProtFlags::READ))?;
    view.advise(libc::MADV_COLLAPSE)
}

/// Whether a file that is open here for reading is open for writing anywhere.
///
/// Errors: `EACCES` the file is another user's and CAP_LEASE is missing, `EINVAL` its file system has no leases.
pub fn is_open_for_writing(file: &impl AsFd) -> io::Result<bool> {
    let descriptor = file.as_fd().as_raw_fd();
    // If somebody opens the file for writing during the lease, the kernel signals this process. The default signal, SIGIO, would end it;
    // SIGURG is ignored.
    // SAFETY: these calls take a descriptor that is open through them, and numbers.
    let lease = unsafe {
        checked(libc::fcntl(descriptor, F_SETSIG, libc::SIGURG))?;
        checked(libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK))
    };
    match lease {
        Ok(_) => {
            // SAFETY: as above.
            checked(unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK) })?;
            Ok(false)
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

/// 2 MiB of a file, mapped for reading at an address that is a multiple of 2 MiB, and never read through.
struct HugeView {
    /// The reservation around it.
    whole: *mut c_void,
    start: usize,
}

impl HugeView {
    fn of(file: &impl AsFd, offset: u64, rights: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let whole = unsafe {
            mmap_anonymous(ptr::null_mut(), 2 * HUGE_PAGE, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
        };
        let view = Self { whole, start: (whole as usize).next_multiple_of(HUGE_PAGE) };
        // SAFETY: this replaces part of the mapping just made, which nobody refers to.
        unsafe {
            mmap(view.start as *mut c_void, HUGE_PAGE, rights, MapFlags::SHARED | MapFlags::FIXED, file, offset)?
        };
        Ok(view)
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is this value's own mapping; no advice given here changes contents. The preload library intercepts libc's function.
        checked(unsafe { libc::syscall(libc::SYS_madvise, self.start, HUGE_PAGE, advice) }).map(drop)
    }
}

impl Drop for HugeView {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody refers to it.
        let _ = unsafe { munmap(self.whole, 2 * HUGE_PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::PathBuf;

    use super::*;
    use crate::file_cache::drop_clean;

    /// A file of 4 MiB next to this test's binary, which is on a disk even where /tmp is in memory.
    fn file(name: &str) -> (PathBuf, File) {
        let path =
            std::env::current_exe().expect("our own path").with_file_name(format!("{name}-{}", std::process::id()));
        fs::write(&path, vec![7; 2 * HUGE_PAGE]).expect("room");
        let file = File::open(&path).expect("just written");
        file.sync_all().expect("a disk");
        (path, file)
    }

    #[test]
    fn a_file_is_on_huge_pages_where_its_file_system_has_them_and_stays_as_it_is() {
        let (path, file) = file("huge-file");
        drop_clean(&file, 0, 0).unwrap();
        match read_huge(&file, HUGE_PAGE as u64) {
            Ok(true) => {}
            Ok(false) => eprintln!("not tested: this file system has no large folios"),
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                eprintln!("not tested: the kernel does not tell")
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(fs::read(&path).unwrap(), vec![7; 2 * HUGE_PAGE]);
        let beyond = read_huge(&file, 2 * HUGE_PAGE as u64).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT), "{beyond}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn who_may_write_is_noticed() {
        let (path, file) = file("leased");
        assert!(!is_open_for_writing(&file).unwrap());
        let writer = File::options().write(true).open(&path).unwrap();
        assert!(is_open_for_writing(&file).unwrap());
        drop(writer);
        assert!(!is_open_for_writing(&file).unwrap());
        File::options().write(true).open(&path).expect("no lease is left that would make others wait");
        fs::remove_file(path).unwrap();
    }
}
