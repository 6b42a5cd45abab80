//! A root directory below which kernel text is read: `/`, or a captured tree.
//!
//! Owns: bounded reads, directory listings, links. Never touches: anything for writing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use heat::units::Bytes;

use crate::lines::LineReader;
use crate::{KernelError, Malformed};

/// A tree with the kernel's `/proc` and `/sys` below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    directory: PathBuf,
}

impl Root {
    /// The default bound on a file.
    pub const LIMIT: Bytes = Bytes(1 << 20);
    /// The bound on entries of one directory: Linux has at most 4 Mi process ids (`PID_MAX_LIMIT`).
    pub const ENTRIES: usize = 4 << 20;

    /// The running system.
    pub fn host() -> Self {
        Self::at("/")
    }

    /// A captured tree.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The real path of a file named from the top of the tree, with or without a leading slash.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name.trim_start_matches('/'))
    }

    /// A whole file of at most [`Root::LIMIT`]; bytes that are not UTF-8 are replaced.
    ///
    /// Errors: as [`Root::text_within`].
    pub fn text(&self, name: &str) -> Result<String, KernelError> {
        self.text_within(name, Self::LIMIT)
    }

    /// A whole file of at most `limit`; bytes that are not UTF-8 are replaced, each by three: not for files in which users choose what is written.
    ///
    /// Errors: the file cannot be opened or read, or is longer than `limit`.
    pub fn text_within(&self, name: &str, limit: Bytes) -> Result<String, KernelError> {
        let bytes = self.bytes_within(name, limit)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// A whole file of at most `limit`.
    ///
    /// Errors: as [`Root::text_within`].
    pub(crate) fn bytes_within(&self, name: &str, limit: Bytes) -> Result<Vec<u8>, KernelError> {
        let mut bytes = Vec::new();
        let read = self.told(name, |path| File::open(path)?.take(limit.0.saturating_add(1)).read_to_end(&mut bytes))?;
        if read as u64 > limit.0 {
            return Err(KernelError::TooLong { path: self.path(name), limit });
        }
        Ok(bytes)
    }

    /// A whole file, parsed by `parse`.
    ///
    /// Errors: the file cannot be read, is longer than `limit`, or `parse` finds it malformed.
    pub fn parsed<T>(
        &self,
        name: &str,
        limit: Bytes,
        parse: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Result<T, KernelError> {
        let text = self.text_within(name, limit)?;
        parse(&text).map_err(|cause| KernelError::Malformed { path: self.path(name), cause })
    }

    /// The user who owns a file.
    ///
    /// Errors: there is no such file, or its directory cannot be searched.
    pub fn owner(&self, name: &str) -> Result<u32, KernelError> {
        self.told(name, |path| Ok(fs::metadata(path)?.uid()))
    }

    /// Passes each line of a file of at most `limit` to `take`, with its number from 1. Takes no memory for the rest of the file, and cuts the middle
    /// out of a line longer than [`LineReader::LONGEST`].
    ///
    /// Errors: the file cannot be opened or read, is longer than `limit`, or `take` rejects a line.
    pub(crate) fn each_line(
        &self,
        name: &str,
        limit: Bytes,
        mut take: impl FnMut(usize, &str) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let mut lines = LineReader::new(self.stream(name, Bytes(limit.0.saturating_add(1)))?);
        let mut number = 0;
        while lines.advance().map_err(|cause| KernelError::Read { path: self.path(name), cause })? {
            if lines.read() > limit {
                return Err(KernelError::TooLong { path: self.path(name), limit });
            }
            number += 1;
            take(number, &lines.line())?;
        }
        Ok(())
    }

    /// A file that holds one number.
    ///
    /// Errors: the file cannot be read, is longer than [`Root::LIMIT`], or holds anything but one number.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<T, KernelError> {
        self.parsed(name, Self::LIMIT, |text| {
            text.trim().parse().map_err(|_| Malformed::new(1, "a number", text.trim()))
        })
    }

    /// A file to be read in pieces, truncated at `limit`.
    ///
    /// Errors: the file cannot be opened.
    pub fn stream(&self, name: &str, limit: Bytes) -> Result<impl BufRead + use<>, KernelError> {
        Ok(BufReader::with_capacity(64 << 10, self.open(name)?.take(limit.0)))
    }

    /// A file to be read at any offset.
    ///
    /// Errors: the file cannot be opened.
    pub(crate) fn open(&self, name: &str) -> Result<File, KernelError> {
        self.told(name, |path| File::open(path))
    }

    /// The names in a directory, sorted, at most [`Root::ENTRIES`].
    ///
    /// Errors: the directory cannot be opened or read.
    pub fn entries(&self, name: &str) -> Result<Vec<String>, KernelError> {
        self.sorted_entries(name, Self::ENTRIES, |entry| Some(entry.to_string_lossy().into_owned()))
    }

    /// The names in a directory that are numbers, ascending: process and thread ids, file descriptors.
    ///
    /// Errors: as [`Root::entries`].
    pub fn numbered_entries(&self, name: &str) -> Result<Vec<u32>, KernelError> {
        self.first_numbered_entries(name, Self::ENTRIES)
    }

    /// Those among the first `most` names that the kernel lists; of threads and file descriptors it lists the lowest first.
    ///
    /// Errors: as [`Root::entries`].
    pub fn first_numbered_entries(&self, name: &str, most: usize) -> Result<Vec<u32>, KernelError> {
        self.sorted_entries(name, most, |entry| entry.to_str()?.parse().ok())
    }

    fn sorted_entries<T: Ord>(
        &self,
        name: &str,
        most: usize,
        wanted: impl Fn(&OsStr) -> Option<T>,
    ) -> Result<Vec<T>, KernelError> {
        let mut names: Vec<T> = self.told(name, |path| {
            let names = fs::read_dir(path)?.take(most);
            names.filter_map(|entry| entry.map(|entry| wanted(&entry.file_name())).transpose()).collect()
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// The target of a symbolic link.
    ///
    /// Errors: it does not exist, is not a symbolic link (`EINVAL`), or the reader may not read it (`is_denied`).
    pub fn link(&self, name: &str) -> Result<PathBuf, KernelError> {
        self.told(name, |path| fs::read_link(path))
    }

    /// Whether a file exists.
    ///
    /// Errors: the kernel does not tell, for example where a directory above it may not be searched (`is_denied`).
    pub fn exists(&self, name: &str) -> Result<bool, KernelError> {
        self.told(name, Path::try_exists)
    }

    fn told<T>(&self, name: &str, ask: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, KernelError> {
        let path = self.path(name);
        ask(&path).map_err(|cause| KernelError::Read { path, cause })
    }
}

/// Turns "the file does not exist" into `None`, for features that a kernel may lack.
///
/// Errors: any in `result` except the absence of the file (`is_absent`).
pub fn optional<T>(result: Result<T, KernelError>) -> Result<Option<T>, KernelError> {
    match result {
        Err(error) if error.is_absent() => Ok(None),
        result => result.map(Some),
    }
}

/// Turns "the process has ended" into `None`, for callers that ask about several.
///
/// Errors: any in `result` except the end of the process (`is_gone`).
pub fn unless_ended<T>(result: Result<T, KernelError>) -> Result<Option<T>, KernelError> {
    match result {
        Err(error) if error.is_gone() => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_bounded_and_errors_carry_the_path() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("five"), "12345").unwrap();
        let root = Root::at(directory.path());
        assert_eq!(root.text_within("/five", Bytes(5)).unwrap(), "12345");
        assert!(matches!(root.text_within("five", Bytes(4)), Err(KernelError::TooLong { .. })));
        assert_eq!(root.number::<u64>("five").unwrap(), 12345);
        assert!(root.number::<u8>("five").unwrap_err().to_string().contains("five"));
        let absent = root.text("proc/none").unwrap_err();
        assert!(absent.is_absent() && absent.to_string().contains("proc/none"), "{absent}");
        assert!(optional(root.text("none")).unwrap().is_none());
        assert!(!root.exists("none").unwrap());
    }

    #[test]
    fn an_absolute_name_stays_below_the_root() {
        assert_eq!(Root::at("/tree").path("/proc/self"), Path::new("/tree/proc/self"));
    }

    #[test]
    fn only_numbers_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["10", "9", "self", "99999999999"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        assert_eq!(Root::at(directory.path()).numbered_entries("/").unwrap(), [9, 10]);
    }
}
