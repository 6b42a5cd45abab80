//! `/proc/PID/pagemap`: which page frame is behind each base page of a process (Documentation/admin-guide/mm/pagemap.rst).
//!
//! Owns: the format of its entries, and reading many in one call. Never touches: what is mapped there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use heat::units::{Address, BASE_PAGE};

use crate::{KernelError, Root};

const FRAME: u64 = (1 << 55) - 1;
const EXCLUSIVE: u64 = 1 << 56;
const OF_FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

/// The page behind one base page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// A present page, known by other means than this file.
    pub fn present(frame: Option<u64>) -> Self {
        Self(PRESENT | frame.unwrap_or(0))
    }

    /// Whether it is present; a page whose every access faults (mprotect) is present, too.
    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Whether its contents are in swap.
    pub fn is_swapped(self) -> bool {
        self.0 & SWAPPED != 0
    }

    /// Whether nothing else maps the frame. Also false for what the kernel does not count, such as the zero page.
    pub fn is_exclusive(self) -> bool {
        self.is_present() && self.0 & EXCLUSIVE != 0
    }

    /// Whether it belongs to a file or to shared memory, rather than to a process's private copy.
    pub fn is_of_file(self) -> bool {
        self.is_present() && self.0 & OF_FILE != 0
    }

    /// The page frame; None where no page is present, and everywhere without CAP_SYS_ADMIN.
    pub fn frame(self) -> Option<u64> {
        Some(self.0 & FRAME).filter(|&frame| self.is_present() && frame != 0)
    }
}

/// The pagemap of one process, for the program that it ran when this was opened.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    path: PathBuf,
}

impl Pagemap {
    /// Errors: the process has ended (`is_gone`), or belongs to another user and CAP_SYS_PTRACE is missing (`is_denied`).
    pub fn open(root: &Root, pid: u32) -> Result<Self, KernelError> {
        let name = format!("proc/{pid}/pagemap");
        Ok(Self { file: root.open(&name)?, path: root.path(&name) })
    }

    /// Reads the entries of `into.len()` base pages from `start`, the 512 of a region in one call. Nothing is present beyond the end of the address
    /// space, or in a process that has ended.
    ///
    /// Errors: the kernel cannot read the entries, for example for lack of memory (`ENOMEM`).
    pub fn read(&self, start: Address, into: &mut [Entry]) -> Result<(), KernelError> {
        let words = words_at(&self.file, start.0 / BASE_PAGE, into.len());
        let words = words.map_err(|cause| KernelError::Read { path: self.path.clone(), cause })?;
        into.iter_mut().zip(words).for_each(|(entry, word)| *entry = Entry(word));
        Ok(())
    }
}

/// The 64-bit words of a file, starting at word `first`; 0 beyond its end.
///
/// Errors: the file cannot be read.
pub fn words_at(file: &File, first: u64, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], first * 8 + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// The page frames of our own memory, from `start`; 0 where they are not visible.
///
/// Errors: `/proc/self/pagemap` cannot be opened (`EACCES` in a process that is not dumpable), or ends before the last page.
pub fn own_frames(start: Address, pages: usize) -> Result<Vec<u64>, KernelError> {
    hugepilot_os::page_move::own_frames(start.0, pages)
        .map_err(|cause| KernelError::Read { path: "/proc/self/pagemap".into(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_tells_its_page() {
        let present = Entry(PRESENT | EXCLUSIVE | 7);
        assert!(present.is_present() && present.is_exclusive() && !present.is_swapped());
        assert_eq!(present.frame(), Some(7));
        assert_eq!(Entry(PRESENT).frame(), None, "hidden from those without rights");
        assert!(!present.is_of_file() && Entry(PRESENT | OF_FILE | 7).is_of_file());
        let swapped = Entry(SWAPPED | EXCLUSIVE | OF_FILE | 7);
        assert!(swapped.is_swapped() && !swapped.is_exclusive() && !swapped.is_of_file());
        assert_eq!(swapped.frame(), None, "that is a place in swap");
    }

    #[test]
    fn entries_are_read_where_they_are_and_nothing_lies_beyond() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        let file = File::create(tree.path().join("proc/7/pagemap")).unwrap();
        file.write_all_at(&(PRESENT | 5).to_ne_bytes(), 513 * 8).unwrap();
        let pagemap = Pagemap::open(&Root::at(tree.path()), 7).unwrap();
        let mut entries = [Entry(u64::MAX); 512];
        pagemap.read(Address(512 * BASE_PAGE), &mut entries).unwrap();
        assert_eq!((entries[0], entries[1].frame(), entries[511]), (Entry(0), Some(5), Entry(0)));
        assert!(Pagemap::open(&Root::at(tree.path()), 8).unwrap_err().is_gone());
    }

    #[test]
    fn memory_of_our_own_is_there_once_touched() {
        let mut mapping = hugepilot_os::memory::AlignedMemory::anonymous(64 << 10).unwrap();
        mapping.bytes_mut()[5 * BASE_PAGE as usize] = 1;
        let mut entries = [Entry::default(); 16];
        let pagemap = Pagemap::open(&Root::host(), std::process::id()).unwrap();
        pagemap.read(Address(mapping.address()), &mut entries).unwrap();
        assert!(entries[5].is_present() && entries[5].is_exclusive() && !entries[6].is_present());
    }
}
