//! Walks the files below a directory, a few at a time, and starts again at the end.
//!
//! Owns: which files are visited. Never touches: other file systems, symbolic links, or anything that is not a regular file.
//!
//! The kernel resolves each path below the open directory (`openat2`), so concurrent renames cannot lead it elsewhere. The queue is
//! bounded, however large a directory is, and nothing stays open between steps.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, fstat, openat2, seek};
use rustix::io::Errno;

use crate::mechanism::ReclaimError;

/// Room for names. A listing stops when half of the free room is used, which leaves the rest for subdirectories, but adds at least a few
/// names.
const MOST_WAITING: usize = 1 << 14;
const FEW: usize = 16;
/// The buffer for one call that lists a directory.
const LISTING: usize = 32 << 10;
/// Opening never blocks on a lease or the other end of a pipe, and never acquires a controlling terminal.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

/// A directory, or a single file.
#[derive(Debug)]
pub(super) struct Tree {
    path: PathBuf,
    /// The same without symbolic links: their original target is opened every time, even if they change.
    resolved: PathBuf,
    except: Vec<PathBuf>,
}

/// Directories and files that are left alone, by device and inode number, whatever their names.
#[derive(Debug)]
struct Except(HashSet<(u64, u64)>);

impl Except {
    /// Those that exist now: the file behind a path changes when it is replaced or a disk is mounted.
    fn read(paths: &[PathBuf]) -> Self {
        let there = paths.iter().filter_map(|path| path.metadata().ok());
        Self(there.map(|file| (file.dev(), file.ino())).collect())
    }

    /// Whether the file is one of them; also true if that cannot be determined.
    fn has(&self, file: &OwnedFd) -> bool {
        !self.0.is_empty() && fstat(file).map_or(true, |file| self.0.contains(&(file.st_dev, file.st_ino)))
    }
}

/// One round through a tree.
#[derive(Debug, Default)]
pub(super) struct Round {
    has_begun: bool,
    open: Option<Open>,
    /// The last entry is visited next.
    waiting: Vec<Waiting>,
    /// Names that could not be opened.
    pub(super) passed_over: u64,
    /// Whether the tree itself could not be opened.
    pub(super) is_missing: bool,
}

impl Round {
    /// Closes everything until the next step, so a disk can be unmounted and the space of deleted files is freed.
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}

/// A name below the tree that has not been visited yet.
#[derive(Debug)]
enum Waiting {
    File(PathBuf),
    /// Its listing continues at the cookie; 0 is the beginning.
    Directory {
        path: PathBuf,
        cookie: u64,
    },
}

/// A tree while it is walked.
#[derive(Debug)]
struct Open {
    top: OwnedFd,
    is_directory: bool,
    except: Except,
}

impl Tree {
    /// Errors: it or an exception does not exist, or it is not readable, or is neither directory nor file.
    pub(super) fn open(path: &Path, except: &[PathBuf]) -> Result<Self, ReclaimError> {
        let failed = |path: &Path, cause| ReclaimError::Open { path: path.to_owned(), cause };
        for path in except {
            path.metadata().map_err(|cause| failed(path, cause))?;
        }
        let resolved = path.canonicalize().map_err(|cause| failed(path, cause))?;
        let tree = Self { path: path.to_owned(), resolved, except: except.to_owned() };
        let number = |file: &Metadata| (file.dev(), file.ino());
        let named = path.metadata().map_err(|cause| failed(path, cause))?;
        let opened = File::from(tree.open_now()?.top).metadata().map_err(|cause| failed(path, cause))?;
        if number(&named) != number(&opened) {
            return Err(failed(path, io::Error::other("it lies behind a link that is no path, as in /proc/PID/root")));
        }
        Ok(tree)
    }

    /// The next file, open for reading; None at the end of the round.
    pub(super) fn next(&self, round: &mut Round) -> Option<File> {
        if round.open.is_none() {
            self.go_on(round);
        }
        let open = round.open.as_ref()?;
        loop {
            match round.waiting.pop()? {
                Waiting::File(path) => match open.file(&path) {
                    Ok(file) if open.except.has(&file) => {}
                    Ok(file) => return Some(File::from(file)),
                    Err(_) => round.passed_over += 1,
                },
                Waiting::Directory { path, cookie } => {
                    if open.list(&path, cookie, &mut round.waiting).is_err() {
                        round.passed_over += 1;
                    }
                }
            }
        }
    }

    fn go_on(&self, round: &mut Round) {
        round.open = self.open_now().ok();
        round.is_missing = round.open.is_none();
        if let Some(open) = round.open.as_ref().filter(|_| !round.has_begun) {
            round.waiting.push(match open.is_directory {
                true => Waiting::Directory { path: PathBuf::from("."), cookie: 0 },
                false => Waiting::File(PathBuf::new()),
            });
            round.has_begun = true;
        }
    }

    fn open_now(&self) -> Result<Open, ReclaimError> {
        let failed = |cause: Errno| ReclaimError::Open { path: self.path.clone(), cause: cause.into() };
        let top = openat2(CWD, &self.resolved, FLAGS, Mode::empty(), NO_LINKS).map_err(failed)?;
        let kind = FileType::from_raw_mode(fstat(&top).map_err(failed)?.st_mode);
        match kind {
            FileType::Directory | FileType::RegularFile => {
                Ok(Open { top, is_directory: kind == FileType::Directory, except: Except::read(&self.except) })
            }
            _ => Err(ReclaimError::NoDirectory { path: self.path.clone() }),
        }
    }
}

impl Open {
    fn file(&self, path: &Path) -> io::Result<OwnedFd> {
        if path.as_os_str().is_empty() {
            return self.top.try_clone();
        }
        // Only the owner may use O_NOATIME; nothing here changes the access time anyway.
        let opened = self.below(path, FLAGS | OFlags::NOATIME);
        Ok(opened.or_else(|_| self.below(path, FLAGS))?)
    }

    fn below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let within = NO_LINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        openat2(&self.top, path, flags, Mode::empty(), within)
    }

    /// Adds a directory's entries from the cookie on to the queue; if there are too many, the directory itself is queued for after them.
    fn list(&self, directory: &Path, cookie: u64, waiting: &mut Vec<Waiting>) -> Result<(), Errno> {
        let opened = self.below(directory, FLAGS | OFlags::DIRECTORY)?;
        if self.except.has(&opened) {
            return Ok(());
        }
        if cookie > 0 {
            seek(&opened, SeekFrom::Start(cookie))?;
        }
        let (first, room) = (waiting.len(), (MOST_WAITING.saturating_sub(waiting.len()) / 2).max(FEW));
        let mut buffer = Vec::with_capacity(LISTING);
        let mut entries = RawDir::new(&opened, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                waiting.extend(self.waiting(directory.join(name), entry.file_type()));
            }
            if waiting.len() >= first + room {
                let rest = Waiting::Directory { path: directory.to_owned(), cookie: entry.next_entry_cookie() };
                waiting.insert(first, rest);
                break;
            }
        }
        Ok(())
    }

    /// Anything that is neither a directory nor a regular file is skipped.
    fn waiting(&self, path: PathBuf, kind: FileType) -> Option<Waiting> {
        match kind {
            FileType::RegularFile => Some(Waiting::File(path)),
            FileType::Directory => Some(Waiting::Directory { path, cookie: 0 }),
            // Some file systems do not report the type; anything that is not a directory is then tried as a file.
            FileType::Unknown => match self.below(&path, FLAGS | OFlags::DIRECTORY) {
                Ok(_) => Some(Waiting::Directory { path, cookie: 0 }),
                Err(_) => Some(Waiting::File(path)),
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> Tree {
        Tree::open(path, &[]).unwrap()
    }

    fn contents(tree: &Tree) -> BTreeSet<String> {
        let mut round = Round::default();
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
        let error = Tree::open(&folder.path().join("none"), &[]).unwrap_err().to_string();
        assert!(error.contains("none") && error.contains("name a directory"), "{error}");
        assert!(matches!(Tree::open(Path::new("/dev/null"), &[]), Err(ReclaimError::NoDirectory { .. })));
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
            Tree::open(folder.path(), &paths).map(|tree| contents(&tree))
        };
        assert_eq!(except(&["a/b", "one"]).unwrap(), set(&["2", "4"]));
        assert_eq!(except(&["link"]).unwrap(), set(&["1", "2", "3"]), "what it leads to");
        assert_eq!(except(&["a"]).unwrap(), set(&["1"]));
        assert!(except(&["nowhere"]).unwrap_err().to_string().contains("nowhere"));
    }

    fn number(file: &File) -> u64 {
        file.metadata().unwrap().ino()
    }

    #[test]
    fn all_of_a_large_directory_is_met_and_little_of_it_waits() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        for name in 0..MOST_WAITING + 100 {
            File::create(folder.path().join("below").join(name.to_string())).unwrap();
        }
        let (tree, mut round) = (open(folder.path()), Round::default());
        let (mut met, mut most) = (Vec::new(), 0);
        while let Some(file) = tree.next(&mut round) {
            met.push(number(&file));
            most = most.max(round.waiting.len());
            if met.len() % 1000 == 0 {
                round.close();
            }
        }
        assert_eq!((met.iter().collect::<HashSet<_>>().len(), round.passed_over), (MOST_WAITING + 100, 0));
        assert!(most <= MOST_WAITING / 2 + 1, "{most} names waited");
    }

    #[test]
    fn what_is_named_is_looked_for_anew() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::create_dir(&one).unwrap();
        fs::write(one.join("file"), "before").unwrap();
        fs::write(elsewhere.path().join("file"), "elsewhere").unwrap();
        let tree = open(&one);
        assert_eq!(contents(&tree), set(&["before"]));
        fs::rename(&one, &two).unwrap();
        let mut round = Round::default();
        assert!(tree.next(&mut round).is_none() && round.is_missing);
        symlink(elsewhere.path(), &one).unwrap();
        assert_eq!(contents(&tree), set(&[]), "a link that came in its place");
        fs::remove_file(&one).unwrap();
        fs::create_dir(&one).unwrap();
        fs::write(one.join("file"), "after").unwrap();
        assert_eq!(contents(&tree), set(&["after"]));
        let single = open(&one.join("file"));
        fs::remove_file(one.join("file")).unwrap();
        assert_eq!(contents(&single), set(&[]));
    }

    #[test]
    fn nothing_is_open_while_it_pauses() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let open_below = || {
            let ours = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
            ours.filter(|path| path.starts_with(folder.path())).count()
        };
        let (tree, mut round) = (open(folder.path()), Round::default());
        assert_eq!(open_below(), 0);
        let first = number(&tree.next(&mut round).unwrap());
        assert_eq!(open_below(), 1);
        round.close();
        assert_eq!(open_below(), 0);
        assert_ne!(number(&tree.next(&mut round).unwrap()), first, "it goes on where it was");
        assert!(tree.next(&mut round).is_none());
    }

    #[test]
    fn what_comes_in_the_place_of_an_exception_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let [kept, new] = ["kept", "new"].map(|name| folder.path().join(name));
        fs::write(&kept, "kept").unwrap();
        fs::write(&new, "new").unwrap();
        let tree = Tree::open(folder.path(), std::slice::from_ref(&kept)).unwrap();
        assert_eq!(contents(&tree), set(&["new"]));
        fs::rename(&new, &kept).unwrap();
        assert_eq!(contents(&tree), set(&[]));
    }
}
