//! The files below a directory, a few at a time, and again from the beginning.
//!
//! Owns: which files are met. Never touches: another file system, what a symbolic link leads to, anything that is no file.
//!
//! Each path is resolved by the kernel below the open directory (`openat2`), so that whoever may rename things meanwhile cannot lead it
//! elsewhere. What is met is bounded by memory, not by the depth of the tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::AgeError;

/// Names that wait to be visited; what is beyond is passed over until the next time round.
const MOST_WAITING: usize = 1 << 20;
/// Nothing waits for a lease or the other end of a pipe, and no terminal is taken.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory, or a single file.
#[derive(Debug)]
pub(super) struct Tree {
    path: PathBuf,
    top: OwnedFd,
    is_directory: bool,
    except: Except,
}

/// Directories and files that are left alone, by device and number: whatever name leads there.
#[derive(Clone, Debug, Default)]
pub(super) struct Except(HashSet<(u64, u64)>);

impl Except {
    /// Errors: one of them is not there.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, AgeError> {
        let number = |path: &PathBuf| {
            let metadata = path.metadata().map_err(|cause| AgeError::Open { path: path.clone(), cause })?;
            Ok((metadata.dev(), metadata.ino()))
        };
        Ok(Self(paths.iter().map(number).collect::<Result<_, AgeError>>()?))
    }

    /// Whether it is one of them; what cannot be asked is.
    fn has(&self, file: &OwnedFd) -> bool {
        !self.0.is_empty() && fstat(file).map_or(true, |file| self.0.contains(&(file.st_dev, file.st_ino)))
    }
}

/// One time round a tree.
#[derive(Debug)]
pub(super) struct Round {
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Names that could not be opened, or for which there was no room.
    pub(super) passed_over: u64,
}

impl Tree {
    /// Errors: it is not there, may not be read, or is neither directory nor file.
    pub(super) fn open(path: &Path, except: Except) -> Result<Self, AgeError> {
        let failed = |cause: Errno| AgeError::Open { path: path.to_owned(), cause: cause.into() };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let top = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let kind = FileType::from_raw_mode(fstat(&top).map_err(failed)?.st_mode);
        match kind {
            FileType::Directory | FileType::RegularFile => {
                Ok(Self { path: path.to_owned(), top, is_directory: kind == FileType::Directory, except })
            }
            _ => Err(AgeError::NoDirectory { path: path.to_owned() }),
        }
    }

    /// As it was named.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// From the beginning.
    pub(super) fn round(&self) -> Round {
        let (directories, files) = match self.is_directory {
            true => (vec![PathBuf::from(".")], Vec::new()),
            false => (Vec::new(), vec![PathBuf::new()]),
        };
        Round { directories, files, passed_over: 0 }
    }

    /// The next file, open to be read; None at the end of the round.
    pub(super) fn next(&self, round: &mut Round) -> Option<File> {
        loop {
            while let Some(name) = round.files.pop() {
                match self.open_file(&name) {
                    Ok(file) if self.except.has(&file) => {}
                    Ok(file) => return Some(File::from(file)),
                    Err(_) => round.passed_over += 1,
                }
            }
            let directory = round.directories.pop()?;
            if self.list(&directory, round).is_err() {
                round.passed_over += 1;
            }
        }
    }

    fn open_file(&self, name: &Path) -> io::Result<OwnedFd> {
        if name.as_os_str().is_empty() {
            return self.top.try_clone();
        }
        // Only the owner may leave the time of access alone; it is not changed by what is done here anyway.
        let opened = self.open_below(name, FLAGS | OFlags::NOATIME);
        Ok(opened.or_else(|_| self.open_below(name, FLAGS))?)
    }

    fn open_below(&self, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let within =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.top, name, flags, Mode::empty(), within)
    }

    /// Adds what a directory holds to what waits.
    fn list(&self, directory: &Path, round: &mut Round) -> Result<(), Errno> {
        let opened = self.open_below(directory, FLAGS | OFlags::DIRECTORY)?;
        if self.except.has(&opened) {
            return Ok(());
        }
        let mut entries = Dir::new(opened)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if round.files.len() + round.directories.len() >= MOST_WAITING {
                round.passed_over += 1;
                continue;
            }
            match entry.file_type() {
                FileType::RegularFile => round.files.push(directory.join(name)),
                FileType::Directory => round.directories.push(directory.join(name)),
                // Some file systems do not say; whatever is no directory is then tried as a file.
                FileType::Unknown => match self.open_below(&directory.join(name), FLAGS | OFlags::DIRECTORY) {
                    Ok(_) => round.directories.push(directory.join(name)),
                    Err(_) => round.files.push(directory.join(name)),
                },
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn open(path: &Path) -> Tree {
        Tree::open(path, Except::default()).unwrap()
    }

    fn contents(tree: &Tree) -> BTreeSet<String> {
        let mut round = tree.round();
        let files = std::iter::from_fn(|| tree.next(&mut round));
        files.map(|file| io::read_to_string(file.take(100)).unwrap()).collect()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn files_are_met_wherever_they_are_and_links_are_not_followed() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        for (name, text) in [("one", "1"), ("a/two", "2"), ("a/b/three", "3")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::write(elsewhere.path().join("foreign"), "foreign").unwrap();
        symlink(elsewhere.path(), folder.path().join("a/link")).unwrap();
        symlink(elsewhere.path().join("foreign"), folder.path().join("file-link")).unwrap();
        rustix::fs::mknodat(CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let tree = open(folder.path());
        assert_eq!(contents(&tree), set(&["1", "2", "3"]));
        fs::write(folder.path().join("a/four"), "4").unwrap();
        assert_eq!(contents(&tree), set(&["1", "2", "3", "4"]), "the next time round");
    }

    #[test]
    fn a_file_may_be_named_itself() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("one"), "1").unwrap();
        assert_eq!(contents(&open(&folder.path().join("one"))), set(&["1"]));
        let error = Tree::open(&folder.path().join("none"), Except::default()).unwrap_err().to_string();
        assert!(error.contains("none") && error.contains("name a directory"), "{error}");
        assert!(matches!(Tree::open(Path::new("/dev/null"), Except::default()), Err(AgeError::NoDirectory { .. })));
    }

    #[test]
    fn what_is_excepted_is_left_alone_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        for (name, text) in [("one", "1"), ("a/two", "2"), ("a/b/three", "3"), ("a/four", "4")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        symlink(folder.path().join("a/four"), folder.path().join("link")).unwrap();
        let except = |names: &[&str]| {
            let paths: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
            Except::read(&paths).map(|except| contents(&Tree::open(folder.path(), except).unwrap()))
        };
        assert_eq!(except(&["a/b", "one"]).unwrap(), set(&["2", "4"]));
        assert_eq!(except(&["link"]).unwrap(), set(&["1", "2", "3"]), "what it leads to");
        assert_eq!(except(&["a"]).unwrap(), set(&["1"]));
        assert!(except(&["nowhere"]).unwrap_err().to_string().contains("nowhere"));
    }
}
