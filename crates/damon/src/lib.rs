//! DAMON while it is ours: claimed, set up, switched on, and restored whatever happens.
//!
//! Owns: everything below `/sys/kernel/mm/damon/admin` while it is ours (Documentation/admin-guide/mm/damon/usage.rst), and the note that
//! says so. Never touches: a DAMON that someone else has set up; or what it is used for, which is up to the caller.
//!
//! [`kernel::damon`] judges whether it is in use; the next hugepilot tidies up what a killed one left behind.
#![forbid(unsafe_code)]

mod guardian;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

pub use guardian::{Deadline, Guardian};

use heat::units::Nanos;
use hugepilot_os::rights::remedy;
use hugepilot_os::run_directory::replace_file;
use kernel::damon::{DIRECTORY, Leftover, NOTE, Note, Purpose, leftover, threads_of_others};
use kernel::{KernelError, Root, process};

/// The maximum number of regions that the kernel splits a target into: enough for a hot set of a few MiB in a few GiB.
const MOST_REGIONS: u64 = 1000;
const FEWEST_REGIONS: u64 = 10;
/// DAMON answers EBUSY while its own thread holds its lock, which it takes after each sample, but never for long.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// Why DAMON cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum DamonError {
    #[error("this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS); {}", instead(*purpose))]
    Missing { purpose: Purpose },
    #[error(
        "DAMON is in use by someone else ({threads} of its threads are set up in /sys/kernel/mm/damon), and was left alone; \
         {}, or end the other use first",
        instead(*purpose)
    )]
    InUse { threads: u32, purpose: Purpose },
    #[error(
        "DAMON is in use by a part of the kernel that shows in no file of /sys/kernel/mm/damon, such as DAMON_RECLAIM, DAMON_LRU_SORT or \
         DAMON_STAT (/sys/module/damon_*/parameters/enabled); {}, or end that use first",
        instead(*purpose)
    )]
    Busy { purpose: Purpose },
    #[error("this kernel's DAMON has no operations for {operations} addresses; {}", instead(*purpose))]
    NoOperations { operations: &'static str, purpose: Purpose },
    #[error("cannot {doing} {path}: {cause}; {}", remedy("CAP_DAC_OVERRIDE"), path = path.display())]
    File { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error("DAMON answered '{found}' in {path}, where a number was expected", path = path.display())]
    Malformed { path: PathBuf, found: String },
    #[error(
        "DAMON was asked {reads} times what it has seen and said nothing: its thread gets no processor in time. Try again when \
         the machine is less busy, or choose another tracker, such as page-walk"
    )]
    Silent { reads: u32 },
    #[error(
        "cannot have /bin/sh switch DAMON off should this process be killed: {cause}; see that it can be run, or name directories whose \
         files may leave memory (--drop-behind)"
    )]
    Guardian { cause: io::Error },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// An alternative to DAMON.
fn instead(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Watch => "choose another tracker, such as page-walk",
        Purpose::Reclaim => "name directories whose files may leave memory (--drop-behind)",
    }
}

/// What DAMON monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched<'a> {
    /// The virtual addresses of the process with this id.
    Process(u32),
    /// Ranges of physical addresses, ascending.
    Physical(&'a [Range<u64>]),
}

impl Watched<'_> {
    /// DAMON's name for it.
    fn operations(self) -> &'static str {
        match self {
            Watched::Process(_) => "vaddr",
            Watched::Physical(_) => "paddr",
        }
    }
}

/// How often DAMON samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// From one sample to the next.
    pub sample: Nanos,
    /// The time over which the samples of a region are aggregated.
    pub aggregation: Nanos,
}

/// How a file is written; tests substitute one that answers like a kernel.
type Write = fn(&Path, &str) -> io::Result<()>;

/// DAMON, set up for us or about to be; restored on drop.
#[derive(Debug)]
pub struct Claim {
    root: Root,
    purpose: Purpose,
    write: Write,
}

impl Claim {
    /// Claims DAMON, with one context that does nothing yet. Errors: it is missing, in use by someone else, or refuses; then nothing stays
    /// changed.
    pub fn take(root: &Root, purpose: Purpose) -> Result<Self, DamonError> {
        Self::take_with(root, purpose, write_file)
    }

    fn take_with(root: &Root, purpose: Purpose, write: Write) -> Result<Self, DamonError> {
        ensure_free(root, purpose)?;
        leave_note(root, purpose, None)?;
        // The kernel refuses while another thread of DAMON runs; then nothing is ours.
        if let Err(error) = write_with(write, root, "nr_kdamonds", "1") {
            let _ = fs::remove_file(root.path(NOTE));
            return Err(error);
        }
        // From here on dropping it restores everything.
        let claim = Self { root: root.clone(), purpose, write };
        claim.write("0/contexts/nr_contexts", "1")?;
        Ok(claim)
    }

    /// Sets what to monitor, and how often.
    ///
    /// Errors: DAMON has no operations for such addresses, or refuses a value.
    pub fn watch(&self, watched: Watched<'_>, intervals: Intervals) -> Result<(), DamonError> {
        let operations = watched.operations();
        let missing = |_| DamonError::NoOperations { operations, purpose: self.purpose };
        self.context("operations", operations).map_err(missing)?;
        self.context("monitoring_attrs/intervals/sample_us", &microseconds(intervals.sample))?;
        self.context("monitoring_attrs/intervals/aggr_us", &microseconds(intervals.aggregation))?;
        self.context("monitoring_attrs/nr_regions/min", &FEWEST_REGIONS.to_string())?;
        self.context("monitoring_attrs/nr_regions/max", &MOST_REGIONS.to_string())?;
        self.context("targets/nr_targets", "1")?;
        match watched {
            Watched::Process(pid) => self.context("targets/0/pid_target", &pid.to_string())?,
            Watched::Physical(ranges) => {
                self.context("targets/0/regions/nr_regions", &ranges.len().to_string())?;
                for (number, range) in ranges.iter().enumerate() {
                    self.context(&format!("targets/0/regions/{number}/start"), &range.start.to_string())?;
                    self.context(&format!("targets/0/regions/{number}/end"), &range.end.to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Makes a scheme apply to all regions.
    ///
    /// Errors: the scheme is not set up, or DAMON refuses a value.
    pub fn follow_all_regions(&self, scheme: usize) -> Result<(), DamonError> {
        for (limit, most) in [("sz", u64::MAX), ("nr_accesses", u32::MAX.into()), ("age", u32::MAX.into())] {
            self.context(&format!("schemes/{scheme}/access_pattern/{limit}/min"), "0")?;
            self.context(&format!("schemes/{scheme}/access_pattern/{limit}/max"), &most.to_string())?;
        }
        Ok(())
    }

    /// Switches it on.
    ///
    /// Errors: a part of the kernel uses DAMON already, DAMON does not start, or the note cannot be written.
    pub fn switch_on(&self) -> Result<(), DamonError> {
        match self.write("0/state", "on") {
            Err(DamonError::File { cause, .. }) if cause.raw_os_error() == Some(libc::EBUSY) => {
                Err(DamonError::Busy { purpose: self.purpose })
            }
            result => result.and_then(|()| leave_note(&self.root, self.purpose, self.thread())),
        }
    }

    /// Switches it off; its setup remains.
    ///
    /// Errors: DAMON is off already, or its `state` cannot be written.
    pub fn switch_off(&self) -> Result<(), DamonError> {
        self.write("0/state", "off")
    }

    /// The CPU time of DAMON's thread; 0 if unknown.
    pub fn cpu_time(&self) -> Nanos {
        self.thread().and_then(|thread| process::cpu_time(&self.root, thread).ok()).unwrap_or_default()
    }

    /// Writes a file of the one context.
    ///
    /// Errors: as [`Claim::write`].
    pub fn context(&self, name: &str, value: &str) -> Result<(), DamonError> {
        self.write(&format!("0/contexts/0/{name}"), value)
    }

    /// Writes a file, named relative to the directory of all threads.
    ///
    /// Errors: the file is missing or accessible to root only, DAMON refuses the value, or it stays busy for 100 ms (`EBUSY`).
    pub fn write(&self, name: &str, value: &str) -> Result<(), DamonError> {
        write_with(self.write, &self.root, name, value)
    }

    /// The path of a file of the one context.
    pub fn context_path(&self, name: &str) -> PathBuf {
        self.root.path(&format!("{DIRECTORY}/0/contexts/0/{name}"))
    }

    /// DAMON's thread; None if it is not running.
    pub fn thread(&self) -> Option<u32> {
        number(&self.root.path(&format!("{DIRECTORY}/0/pid"))).ok().and_then(|thread| thread.try_into().ok())
    }

    /// Where its files are.
    pub fn root(&self) -> &Root {
        &self.root
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = put_back(&self.root, self.write) {
            tracing::warn!("{error}; `echo 0 > /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds && rm /{NOTE}` does it");
        }
    }
}

/// Checks that DAMON can be claimed, after restoring what a killed hugepilot left behind.
///
/// Errors: the kernel has no DAMON, someone else uses it, its files cannot be read, or what was left behind cannot be removed.
pub fn ensure_free(root: &Root, purpose: Purpose) -> Result<(), DamonError> {
    tidy_up(root)?;
    match threads_of_others(root)? {
        None => Err(DamonError::Missing { purpose }),
        Some(0) => Ok(()),
        Some(threads) => Err(DamonError::InUse { threads, purpose }),
    }
}

/// Removes what a killed hugepilot left behind.
///
/// Errors: `nr_kdamonds` cannot be written, or the note cannot be removed.
pub fn tidy_up(root: &Root) -> Result<(), DamonError> {
    match leftover(root) {
        None => Ok(()),
        Some(Leftover::AsSetUp) => put_back(root, write_file),
        Some(Leftover::Note) => forget(root),
    }
}

fn leave_note(root: &Root, purpose: Purpose, thread: Option<u32>) -> Result<(), DamonError> {
    let path = root.path(NOTE);
    let write = || {
        let pid = std::process::id();
        let start_ticks = process::start_time(root, pid).unwrap_or_default();
        fs::create_dir_all(path.parent().expect("it is in a directory"))?;
        replace_file(&path, 0o644, &serde_json::to_vec(&Note { pid, start_ticks, purpose, thread })?)
    };
    write().map_err(|cause| DamonError::File { doing: "write", path: path.clone(), cause })
}

/// Switches DAMON off and removes the setup; succeeds if there is no DAMON any more.
fn put_back(root: &Root, write: Write) -> Result<(), DamonError> {
    // It may be off already: because it was never on, or because the process that it monitored has ended.
    let _ = write_with(write, root, "0/state", "off");
    write_with(write, root, "nr_kdamonds", "0")?;
    forget(root)
}

fn forget(root: &Root) -> Result<(), DamonError> {
    let path = root.path(NOTE);
    fs::remove_file(&path).map_err(|cause| DamonError::File { doing: "remove", path, cause })
}

fn write(root: &Root, name: &str, value: &str) -> Result<(), DamonError> {
    write_with(write_file, root, name, value)
}

fn write_file(path: &Path, value: &str) -> io::Result<()> {
    fs::write(path, value)
}

fn write_with(write: Write, root: &Root, name: &str, value: &str) -> Result<(), DamonError> {
    let path = root.path(&format!("{DIRECTORY}/{name}"));
    patiently(|| write(&path, value)).map_err(|cause| DamonError::File { doing: "write", path, cause })
}

/// Retries for a while as long as the answer is EBUSY.
fn patiently<T>(act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match act() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => thread::sleep(BETWEEN_TRIES),
            result => return result,
        }
    }
    act()
}

fn microseconds(time: Nanos) -> String {
    (time.0 / 1000).to_string()
}

/// Reads a file that contains one number.
///
/// Errors: the file cannot be read, DAMON stays busy for 100 ms (`EBUSY`), or the file contains no number.
pub fn number(path: &Path) -> Result<u64, DamonError> {
    let read = patiently(|| fs::read_to_string(path));
    let text = read.map_err(|cause| DamonError::File { doing: "read", path: path.to_owned(), cause })?;
    let found = text.trim();
    found.parse().map_err(|_| DamonError::Malformed { path: path.to_owned(), found: found.chars().take(80).collect() })
}

#[cfg(any(test, feature = "samples"))]
pub mod samples;

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::samples::{text, tree};

    #[test]
    fn it_is_taken_and_put_back() {
        let (_folder, root) = tree(0);
        let claim = Claim::take(&root, Purpose::Watch).unwrap();
        assert!(root.path(NOTE).exists());
        fs::write(root.path(&format!("{DIRECTORY}/0/pid")), "70\n").unwrap();
        claim.switch_on().unwrap();
        let note: Note = serde_json::from_str(&root.text(NOTE).unwrap()).unwrap();
        assert_eq!((note.pid, note.thread), (std::process::id(), Some(70)));
        assert_eq!((text(&root, "0/state").as_str(), text(&root, "nr_kdamonds").as_str()), ("on", "1"));
        drop(claim);
        assert_eq!((text(&root, "0/state").as_str(), text(&root, "nr_kdamonds").as_str()), ("off", "0"));
        assert!(!root.path(NOTE).exists());
    }

    thread_local! {
        /// How many more times the fake kernel answers EBUSY.
        static BUSY: Cell<u32> = const { Cell::new(0) };
    }

    fn write_if_not_busy(path: &Path, value: &str) -> io::Result<()> {
        match BUSY.get() {
            0 => fs::write(path, value),
            left => {
                BUSY.set(left - 1);
                Err(io::Error::from_raw_os_error(libc::EBUSY))
            }
        }
    }

    #[test]
    fn a_kernel_that_is_busy_for_a_moment_is_asked_again() {
        let (_folder, root) = tree(0);
        BUSY.set(TRIES - 1);
        let claim = Claim::take_with(&root, Purpose::Reclaim, write_if_not_busy).unwrap();
        for state in ["on", "commit", "off"] {
            BUSY.set(TRIES - 1);
            claim.write("0/state", state).unwrap();
            assert_eq!(text(&root, "0/state"), state);
        }
        BUSY.set(TRIES - 1);
        claim.switch_on().unwrap();
        BUSY.set(TRIES);
        let error = claim.switch_on().unwrap_err();
        assert!(matches!(error, DamonError::Busy { .. }), "busy for good is someone else: {error}");
        BUSY.set(TRIES - 1);
        drop(claim);
        assert_eq!((BUSY.get(), text(&root, "nr_kdamonds").as_str()), (0, "0"), "also when it is put back");
    }

    #[test]
    fn physical_addresses_are_watched_range_by_range() {
        let (_folder, root) = tree(0);
        let claim = Claim::take(&root, Purpose::Watch).unwrap();
        let intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };
        claim.watch(Watched::Physical(&[4096..8192, 16384..65536]), intervals).unwrap();
        let context = |name: &str| text(&root, &format!("0/contexts/0/{name}"));
        assert_eq!((context("operations").as_str(), context("targets/0/pid_target").as_str()), ("paddr", ""));
        assert_eq!(context("targets/0/regions/nr_regions"), "2");
        for (name, value) in [("0/start", "4096"), ("0/end", "8192"), ("1/start", "16384"), ("1/end", "65536")] {
            assert_eq!(context(&format!("targets/0/regions/{name}")), value, "{name}");
        }
    }

    #[test]
    fn what_belongs_to_someone_else_is_left_alone() {
        let (_folder, root) = tree(1);
        fs::write(root.path(&format!("{DIRECTORY}/0/state")), "on\n").unwrap();
        let error = Claim::take(&root, Purpose::Reclaim).unwrap_err();
        assert!(matches!(error, DamonError::InUse { threads: 1, .. }), "{error}");
        assert!(error.to_string().contains("left alone; name directories"), "{error}");
        assert_eq!((text(&root, "0/state").as_str(), text(&root, "nr_kdamonds").as_str()), ("on\n", "1\n"));
    }

    #[test]
    fn what_a_killed_hugepilot_left_is_put_back_first() {
        let (_folder, root) = tree(1);
        fs::create_dir_all(root.path("run/hugepilot")).unwrap();
        fs::write(root.path(NOTE), r#"{"pid":4194303,"start_ticks":1}"#).unwrap();
        tidy_up(&root).unwrap();
        assert_eq!((text(&root, "nr_kdamonds").as_str(), root.path(NOTE).exists()), ("0", false));
    }

    #[test]
    fn a_kernel_without_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = Claim::take(&Root::at(folder.path()), Purpose::Watch).unwrap_err();
        assert!(matches!(error, DamonError::Missing { .. }) && error.to_string().contains("page-walk"), "{error}");
    }
}
