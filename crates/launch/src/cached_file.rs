//! A file in the page cache on huge pages, for programs that map it.
//!
//! Owns: which files, and what is dropped from the cache to be read anew. Never touches: a file's contents, or files that somebody may write to. Pages
//! that a program maps are replaced by the kernel, where it can.

use std::fs::File;
use std::io::{self, Write};
use std::ops::{AddAssign, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};
use hugepilot_os::file_cache::{cache_state, drop_clean};
use hugepilot_os::huge_file::{collapse_file, is_open_for_writing, read_huge};
use hugepilot_os::stop::Stop;
use rustix::fs::{Advice, Mode, OFlags, fadvise, fstatfs, open};
use rustix::io::Errno;

/// The type of a tmpfs (include/uapi/linux/magic.h).
const TMPFS: i64 = 0x0102_1994;

/// Where to try what files get, for [`probe_files`]: temporary files are on a disk there.
pub const PROBED_FILES: &str = "/var/tmp";

/// What came of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedFile {
    /// Its whole 2 MiB; the rest beyond them cannot be on a huge page.
    pub whole: Bytes,
    /// Of these, on huge pages.
    pub huge: Bytes,
    /// On base pages that a program maps.
    pub in_use: Bytes,
    /// On base pages although nobody uses them: the file system has no large folios, or no 2 MiB of memory were contiguous.
    pub refused: Bytes,
    /// On base pages, and whether a program maps them is told only to the file's owner and root.
    pub untold: Bytes,
}

impl CachedFile {
    /// What was not reached before a stop was requested.
    pub fn not_reached(&self) -> Bytes {
        self.whole.saturating_sub(self.huge + self.in_use + self.refused + self.untold)
    }
}

/// The sum of several.
impl AddAssign for CachedFile {
    fn add_assign(&mut self, other: Self) {
        let Self { whole, huge, in_use, refused, untold } = other;
        self.whole += whole;
        self.huge += huge;
        self.in_use += in_use;
        self.refused += refused;
        self.untold += untold;
    }
}

/// Why a file was left as it is.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum CacheError {
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{} is no file; name files, or a directory for those in it", path.display())]
    NoFile { path: PathBuf },
    #[error("{} has less than 2 MiB, the size of a huge page; there is nothing to gain", path.display())]
    TooSmall { path: PathBuf },
    #[error(
        "{} is open for writing; huge pages in the page cache are for files that are only read: close it first (`fuser -v` says who has it)",
        path.display()
    )]
    Written { path: PathBuf },
    #[error("{} is in memory already (tmpfs); `hugepilot promote` puts memory that programs share on huge pages", path.display())]
    InMemory { path: PathBuf },
    #[error("{} became shorter, or its disk cannot be read; `dmesg` tells of a disk that fails", path.display())]
    Failed { path: PathBuf },
    #[error("this kernel has no transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)")]
    NoHugePages,
    #[error(
        "the kernel does not tell whether {} is on huge pages; Linux 6.7 is the first that does (PAGEMAP_SCAN): use a newer one",
        path.display()
    )]
    NotTold { path: PathBuf },
}

/// A file that is to be read.
#[derive(Debug)]
pub struct FileToCache {
    path: PathBuf,
    file: File,
    whole: Bytes,
}

impl FileToCache {
    /// Opens a file. Errors: it cannot be read, is too small, no regular file or not on a disk, or open for writing.
    pub fn open(path: &Path) -> Result<Self, CacheError> {
        let unreadable = |cause| CacheError::Unreadable { path: path.to_owned(), cause };
        let about = path.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(CacheError::NoFile { path: path.to_owned() });
        }
        let whole = Bytes(about.len() / HUGE_PAGE * HUGE_PAGE);
        if whole == Bytes(0) {
            return Err(CacheError::TooSmall { path: path.to_owned() });
        }
        let file = File::open(path).map_err(unreadable)?;
        if is_in_memory(&file) {
            return Err(CacheError::InMemory { path: path.to_owned() });
        }
        // If the kernel cannot tell, go on: written pages are dirty, and dirty pages are not dropped.
        if is_open_for_writing(&file).unwrap_or(false) {
            return Err(CacheError::Written { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), file, whole })
    }

    /// How much of it may be on huge pages.
    pub fn whole(&self) -> Bytes {
        self.whole
    }

    /// Reads it into the page cache on huge pages, until a stop is requested. What is there on base pages is collapsed; where the kernel does not do that
    /// to files, what is clean and mapped by nobody is dropped and read anew. `progress` is told after each 2 MiB how much was done.
    ///
    /// Errors: it cannot be read, or became shorter; the kernel does not tell what came of it.
    pub fn read(&self, stop: &Stop, progress: impl FnMut(Bytes)) -> Result<CachedFile, CacheError> {
        self.read_part(0..self.whole.0, stop, progress)
    }

    /// The same for a part of it, between multiples of 2 MiB.
    pub fn read_part(
        &self,
        part: Range<u64>,
        stop: &Stop,
        mut progress: impl FnMut(Bytes),
    ) -> Result<CachedFile, CacheError> {
        // A file that was just copied is not on disk yet, and only what is there may be dropped.
        self.file.sync_data().map_err(|cause| self.error(cause))?;
        let mut cached = CachedFile { whole: Bytes(part.end.saturating_sub(part.start)), ..CachedFile::default() };
        for start in part.clone().step_by(HUGE_PAGE as usize) {
            if stop.requested() {
                break;
            }
            let outcome = match self.read_region(start).map_err(|cause| self.error(cause))? {
                RegionIs::Huge => &mut cached.huge,
                RegionIs::InUse => &mut cached.in_use,
                RegionIs::Refused => &mut cached.refused,
                RegionIs::Untold => &mut cached.untold,
            };
            *outcome += Bytes(HUGE_PAGE);
            progress(Bytes(start + HUGE_PAGE - part.start));
        }
        Ok(cached)
    }

    fn read_region(&self, start: u64) -> io::Result<RegionIs> {
        let is_huge = || read_huge(&self.file, start);
        if is_huge()? || (collapse_file(&self.file, start).is_ok() && is_huge()?) {
            return Ok(RegionIs::Huge);
        }
        drop_clean(&self.file, start, HUGE_PAGE)?;
        let stays = cache_state(&self.file, start, HUGE_PAGE).map(|state| state.cached > 0);
        Ok(match (is_huge()?, stays) {
            (true, _) => RegionIs::Huge,
            (false, Ok(true)) => RegionIs::InUse,
            (false, Ok(false)) => RegionIs::Refused,
            (false, Err(_)) => RegionIs::Untold,
        })
    }

    /// Drops it from the page cache, as far as it is clean and mapped by nobody. Returns what stayed; None if the kernel does not tell.
    ///
    /// Errors: as the kernel refuses it.
    pub fn forget(&self) -> Result<Option<Bytes>, CacheError> {
        drop_clean(&self.file, 0, 0).map_err(|cause| self.error(cause))?;
        let state = cache_state(&self.file, 0, 0).ok();
        Ok(state.map(|state| Bytes(state.cached * BASE_PAGE)))
    }

    fn error(&self, cause: io::Error) -> CacheError {
        let path = self.path.clone();
        match Errno::from_io_error(&cause) {
            Some(Errno::NOTTY) => CacheError::NotTold { path },
            Some(Errno::FAULT) => CacheError::Failed { path },
            Some(Errno::INVAL) => CacheError::NoHugePages,
            _ => CacheError::Unreadable { path, cause },
        }
    }
}

/// Whether 2 MiB of a file, from a multiple of 2 MiB, are on a huge page of the page cache after reading them so. A file that cannot be read
/// so, or of which the kernel does not tell it, gets none.
pub fn gets_huge_page(path: &Path, start: u64) -> bool {
    let read = |file: FileToCache| file.read_part(start..start.saturating_add(HUGE_PAGE), &Stop::default(), |_| ());
    FileToCache::open(path).and_then(read).is_ok_and(|cached| cached.huge > Bytes(0))
}

/// How 2 MiB of a file are in the page cache.
enum RegionIs {
    Huge,
    InUse,
    Refused,
    Untold,
}

/// How a kernel puts files of one file system on huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAbilities {
    /// Files are read from disk on huge pages.
    pub reads_huge: bool,
    /// Base pages are replaced beneath a program that maps them.
    pub collapses: bool,
}

/// Tries it on a file of 2 MiB that has no name, in this directory. None: it is in memory (tmpfs), which tells nothing of disks.
///
/// Errors: no such file can be made there; `ENOTTY` the kernel is older than 6.7 and does not tell; its huge pages cannot be dropped, so that
/// none of its base pages can be collapsed.
pub fn probe_files(directory: &Path) -> io::Result<Option<FileAbilities>> {
    let named = open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR)?;
    let mut written = File::from(named);
    if is_in_memory(&written) {
        return Ok(None);
    }
    written.write_all(&vec![7; HUGE_PAGE as usize])?;
    written.sync_all()?;
    // A file that is open for writing is not collapsed.
    let file = File::open(format!("/proc/self/fd/{}", written.as_raw_fd()))?;
    drop(written);
    drop_clean(&file, 0, 0)?;
    let reads_huge = read_huge(&file, 0)?;
    drop_clean(&file, 0, 0)?;
    Ok(Some(FileAbilities { reads_huge, collapses: base_pages_collapse(&file)? }))
}

/// Whether the first 2 MiB of a file that is not in the page cache are collapsed, once they are there on base pages.
///
/// Errors: they are on a huge page, which the kernel would call collapsed without doing anything.
fn base_pages_collapse(file: &File) -> io::Result<bool> {
    fadvise(file, 0, None, Advice::Random)?;
    for offset in (0..HUGE_PAGE).step_by(BASE_PAGE as usize) {
        file.read_exact_at(&mut [0], offset)?;
    }
    if read_huge(file, 0)? {
        return Err(io::Error::other("its huge pages stay in the page cache, so that there is nothing to collapse"));
    }
    Ok(collapse_file(file, 0).is_ok() && read_huge(file, 0)?)
}

fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|system| system.f_type == TMPFS)
}

/// A file, and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: Bytes,
}

/// The files that a path names: itself, or those of at least 2 MiB in a directory and below it, by name. Symbolic links below it are not followed.
///
/// Errors: it, or a directory below it, cannot be read.
pub fn files_at(path: &Path) -> Result<Vec<FoundFile>, CacheError> {
    let about = path.metadata().map_err(|cause| CacheError::Unreadable { path: path.to_owned(), cause })?;
    if !about.is_dir() {
        return Ok(vec![FoundFile { path: path.to_owned(), bytes: Bytes(about.len()) }]);
    }
    let (mut found, mut left) = (Vec::new(), vec![path.to_owned()]);
    while let Some(directory) = left.pop() {
        let unreadable = |cause| CacheError::Unreadable { path: directory.clone(), cause };
        for entry in directory.read_dir().map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            // Search engines replace their files at any time.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                left.push(entry.path());
            } else if about.is_file() && about.len() >= HUGE_PAGE {
                found.push(FoundFile { path: entry.path(), bytes: Bytes(about.len()) });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory next to this test's binary, which is on a disk even where /tmp is in memory.
    fn directory() -> tempfile::TempDir {
        let binary = std::env::current_exe().expect("our own path");
        tempfile::tempdir_in(binary.parent().expect("a directory")).expect("room")
    }

    fn written(path: &Path, bytes: u64) -> PathBuf {
        fs::write(path, vec![7; bytes as usize]).expect("room");
        File::open(path).and_then(|file| file.sync_all()).expect("a disk");
        path.to_owned()
    }

    #[test]
    fn only_files_that_fit_are_found_and_opened() {
        let directory = directory();
        let below = directory.path().join("below");
        fs::create_dir(&below).unwrap();
        let large = written(&below.join("large"), HUGE_PAGE);
        let small = written(&directory.path().join("small"), HUGE_PAGE - 1);
        std::os::unix::fs::symlink(directory.path(), below.join("loop")).unwrap();
        let paths = |at: &Path| files_at(at).unwrap().into_iter().map(|file| file.path).collect::<Vec<_>>();
        assert_eq!(paths(directory.path()), [large.as_path()]);
        assert_eq!(paths(&small), [small.as_path()], "named, so that opening says what is wrong");
        assert!(matches!(FileToCache::open(&small), Err(CacheError::TooSmall { .. })));
        assert!(matches!(FileToCache::open(&below), Err(CacheError::NoFile { .. })));
        let writer = File::options().write(true).open(&large).unwrap();
        assert!(matches!(FileToCache::open(&large), Err(CacheError::Written { .. })));
        drop(writer);
        assert_eq!(FileToCache::open(&large).unwrap().whole(), Bytes(HUGE_PAGE));
        let missing = files_at(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere") && missing.contains("No such file"), "{missing}");
    }

    #[test]
    fn a_probe_leaves_nothing_behind_and_tells_nothing_of_memory() {
        let directory = directory();
        // What it finds depends on the file system, and on how much memory is contiguous just then.
        let found = probe_files(directory.path());
        assert_eq!(directory.path().read_dir().unwrap().count(), 0, "{found:?}");
        let in_memory = probe_files(Path::new("/dev/shm"));
        assert!(matches!(in_memory, Ok(None)), "{in_memory:?}");
    }

    #[test]
    fn huge_pages_that_stay_in_the_page_cache_are_not_taken_for_collapsed_ones() {
        let directory = directory();
        let file = File::open(written(&directory.path().join("file"), HUGE_PAGE)).unwrap();
        drop_clean(&file, 0, 0).unwrap();
        let Ok(true) = read_huge(&file, 0) else {
            return eprintln!("not tested: no file gets huge pages here, or the kernel does not tell");
        };
        let refused = base_pages_collapse(&file).unwrap_err().to_string();
        assert!(refused.contains("nothing to collapse"), "{refused}");
    }

    #[test]
    fn a_file_that_cannot_be_tried_gets_no_huge_page() {
        let directory = directory();
        let small = written(&directory.path().join("small"), HUGE_PAGE - 1);
        assert!(!gets_huge_page(&small, 0) && !gets_huge_page(Path::new("/nowhere"), 0));
        let large = written(&directory.path().join("large"), 2 * HUGE_PAGE);
        let gets_one = gets_huge_page(&large, HUGE_PAGE);
        assert!(!gets_one || read_huge(&File::open(large).unwrap(), HUGE_PAGE).unwrap(), "it is there afterwards");
    }

    #[test]
    fn what_is_cached_on_base_pages_is_read_anew_and_every_region_is_accounted_for() {
        let directory = directory();
        let path = written(&directory.path().join("file"), 3 * HUGE_PAGE + 4096);
        let file = FileToCache::open(&path).unwrap();
        let mut told = Vec::new();
        let cached = match file.read(&Stop::default(), |done| told.push(done.0 / HUGE_PAGE)) {
            Err(CacheError::NotTold { .. }) => return eprintln!("not tested: the kernel does not tell"),
            cached => cached.unwrap(),
        };
        assert_eq!((told, cached.whole, cached.not_reached()), (vec![1, 2, 3], Bytes(3 * HUGE_PAGE), Bytes(0)));
        assert!(cached.huge == cached.whole || cached.refused > Bytes(0), "{cached:?}");
        assert_eq!(file.forget().unwrap().unwrap_or_default(), Bytes(0));
        let stopped = Stop::default();
        stopped.request();
        assert_eq!(file.read(&stopped, |_| ()).unwrap().not_reached(), cached.whole);
    }
}
