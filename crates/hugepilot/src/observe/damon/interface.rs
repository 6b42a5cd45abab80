//! The files by which DAMON is set up, switched on and read (Documentation/admin-guide/mm/damon/usage.rst).
//!
//! Owns: everything below `/sys/kernel/mm/damon/admin`, while it is ours, and the note that it is. Never touches: a DAMON that
//! someone else has set up.
//!
//! Whether it is in use is judged in [`crate::kernel::damon`]; what a hugepilot has left behind that was killed is tidied up by the
//! next.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::kernel::damon::{DIRECTORY, Leftover, NOTE, Note, leftover, threads_of_others};
use crate::kernel::{KernelError, Root, kallsyms, probe, process};
use crate::units::{Address, AddressRange, Nanos};

/// The kernel splits a target into at most so many regions: enough for a hot set of a few MiB in a few GiB.
const MOST_REGIONS: u64 = 1000;
const FEWEST_REGIONS: u64 = 10;

/// The kernel (6.7 to 6.13) gives up listing regions after two aggregations, without an error, and on a busy machine DAMON's thread may
/// take longer. An empty list therefore says nothing, least of all that nothing was walked.
const MOST_READS: u32 = 20;

/// Why DAMON cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum DamonError {
    #[error("this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS); choose another tracker, such as page-walk")]
    Missing,
    #[error(
        "DAMON is in use by someone else ({threads} of its threads are set up in /sys/kernel/mm/damon), and was left alone; \
         choose another tracker, such as page-walk, or end the other use first"
    )]
    InUse { threads: u32 },
    #[error(
        "this kernel's DAMON has no operations for {operations} addresses; choose another tracker, such as page-walk"
    )]
    NoOperations { operations: &'static str },
    #[error("cannot {doing} {path}: {cause}. DAMON needs root", path = path.display())]
    File { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error("DAMON answered '{found}' in {path}, where a number was expected", path = path.display())]
    Malformed { path: PathBuf, found: String },
    #[error(
        "DAMON was asked {reads} times what it has seen and said nothing: its thread gets no processor in time. Try again when \
         the machine is less busy, or choose another tracker, such as page-walk"
    )]
    Silent { reads: u32 },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Whose addresses DAMON looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// A process's virtual addresses.
    Virtual,
    /// The machine's physical addresses.
    Physical,
}

impl Space {
    /// As DAMON calls it.
    fn operations(self) -> &'static str {
        match self {
            Space::Virtual => "vaddr",
            Space::Physical => "paddr",
        }
    }

    /// Where the kernel has these operations, it has this function.
    fn symbol(self) -> &'static str {
        match self {
            Space::Virtual => probe::VADDR_SYMBOL,
            Space::Physical => probe::PADDR_SYMBOL,
        }
    }
}

/// What DAMON is to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched<'a> {
    /// The virtual addresses of the process with this id.
    Process(u32),
    /// Ranges of physical addresses, ascending.
    Physical(&'a [Range<u64>]),
}

/// How often DAMON looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intervals {
    /// From one sample to the next.
    pub(super) sample: Nanos,
    /// After this time the samples of a region are summed up.
    pub(super) aggregation: Nanos,
}

/// What DAMON says of one of its regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Addresses of the kind that is watched.
    pub(super) range: AddressRange,
    /// Samples of the last aggregation in which the page looked at was accessed.
    pub(super) accesses: u64,
}

/// DAMON at work for us; put back on drop.
#[derive(Debug)]
pub(super) struct Session {
    root: Root,
}

impl Session {
    /// Sets DAMON up and switches it on. Errors: it is missing, in use by someone else, or refuses; then nothing is left changed.
    pub(super) fn start(root: &Root, watched: Watched<'_>, intervals: Intervals) -> Result<Self, DamonError> {
        tidy_up(root)?;
        ensure_free(root)?;
        leave_note(root)?;
        // The kernel refuses it while another thread of DAMON's runs; then nothing is ours.
        if let Err(error) = write(root, "nr_kdamonds", "1") {
            let _ = fs::remove_file(root.path(NOTE));
            return Err(error);
        }
        // From here on dropping it puts everything back.
        let session = Self { root: root.clone() };
        session.set_up(watched, intervals)?;
        match session.write("0/state", "on") {
            Err(DamonError::File { cause, .. }) if cause.raw_os_error() == Some(libc::EBUSY) => {
                // DAMON_RECLAIM and DAMON_LRU_SORT show in no file here.
                Err(DamonError::InUse { threads: 1 })
            }
            result => result.map(|()| session),
        }
    }

    fn set_up(&self, watched: Watched<'_>, intervals: Intervals) -> Result<(), DamonError> {
        self.write("0/contexts/nr_contexts", "1")?;
        let space = if matches!(watched, Watched::Process(_)) { Space::Virtual } else { Space::Physical };
        let operations = space.operations();
        self.context("operations", operations).map_err(|_| DamonError::NoOperations { operations })?;
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
        // A scheme that does nothing to any region, so that all of them can be read.
        self.context("schemes/nr_schemes", "1")?;
        self.context("schemes/0/action", "stat")?;
        for (limit, most) in [("sz", u64::MAX), ("nr_accesses", u32::MAX.into()), ("age", u32::MAX.into())] {
            self.context(&format!("schemes/0/access_pattern/{limit}/min"), "0")?;
            self.context(&format!("schemes/0/access_pattern/{limit}/max"), &most.to_string())?;
        }
        Ok(())
    }

    /// What DAMON has seen in its last aggregation, ascending. Errors: it is refused, or DAMON says of no region at all.
    pub(super) fn read(&self) -> Result<Vec<Seen>, DamonError> {
        for _ in 0..MOST_READS {
            let seen = self.read_once()?;
            if !seen.is_empty() {
                return Ok(seen);
            }
        }
        Err(DamonError::Silent { reads: MOST_READS })
    }

    /// Empty if DAMON's thread did not come round in time.
    fn read_once(&self) -> Result<Vec<Seen>, DamonError> {
        self.write("0/state", "update_schemes_tried_regions")?;
        let directory = self.root.path(&format!("{DIRECTORY}/0/contexts/0/schemes/0/tried_regions"));
        let entries = fs::read_dir(&directory).map_err(|cause| DamonError::File {
            doing: "list",
            path: directory.clone(),
            cause,
        })?;
        let mut seen = Vec::new();
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_none_or(|name| name.parse::<u64>().is_err()) {
                continue;
            }
            let value = |name: &str| number(&entry.path().join(name));
            let range = AddressRange { start: Address(value("start")?), end: Address(value("end")?) };
            seen.push(Seen { range, accesses: value("nr_accesses")? });
        }
        seen.sort_by_key(|region| region.range.start);
        Ok(seen)
    }

    /// The CPU time that DAMON's thread has taken; 0 if it does not tell.
    pub(super) fn cpu_time(&self) -> Nanos {
        let thread = number(&self.root.path(&format!("{DIRECTORY}/0/pid"))).unwrap_or_default();
        process::cpu_time(&self.root, thread as u32).unwrap_or_default()
    }

    fn context(&self, name: &str, value: &str) -> Result<(), DamonError> {
        self.write(&format!("0/contexts/0/{name}"), value)
    }

    fn write(&self, name: &str, value: &str) -> Result<(), DamonError> {
        write(&self.root, name, value)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = put_back(&self.root) {
            tracing::warn!("{error}; `echo 0 > /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds && rm /{NOTE}` does it");
        }
    }
}

/// Errors if DAMON cannot be used for these addresses, as far as can be told without setting it up.
pub(super) fn ensure_usable(root: &Root, space: Space) -> Result<(), DamonError> {
    tidy_up(root)?;
    ensure_free(root)?;
    match kallsyms::lists(root, space.symbol()) {
        Some(false) => Err(DamonError::NoOperations { operations: space.operations() }),
        _ => Ok(()),
    }
}

fn ensure_free(root: &Root) -> Result<(), DamonError> {
    match threads_of_others(root)? {
        None => Err(DamonError::Missing),
        Some(0) => Ok(()),
        Some(threads) => Err(DamonError::InUse { threads }),
    }
}

/// Ends what a hugepilot that was killed has left behind.
fn tidy_up(root: &Root) -> Result<(), DamonError> {
    match leftover(root) {
        None => Ok(()),
        Some(Leftover::AsSetUp) => put_back(root),
        Some(Leftover::Note) => forget(root),
    }
}

fn leave_note(root: &Root) -> Result<(), DamonError> {
    let path = root.path(NOTE);
    let write = || {
        let pid = std::process::id();
        let start_ticks = process::start_time(root, pid).unwrap_or_default();
        fs::create_dir_all(path.parent().expect("it is in a directory"))?;
        fs::write(&path, serde_json::to_vec(&Note { pid, start_ticks })?)
    };
    write().map_err(|cause| DamonError::File { doing: "write", path: path.clone(), cause })
}

/// Switches DAMON off and removes what was set up; without it again is well.
fn put_back(root: &Root) -> Result<(), DamonError> {
    // It may be off already: because it never was on, or because the process it watched has ended.
    let _ = write(root, "0/state", "off");
    write(root, "nr_kdamonds", "0")?;
    forget(root)
}

fn forget(root: &Root) -> Result<(), DamonError> {
    let path = root.path(NOTE);
    fs::remove_file(&path).map_err(|cause| DamonError::File { doing: "remove", path, cause })
}

fn write(root: &Root, name: &str, value: &str) -> Result<(), DamonError> {
    let path = root.path(&format!("{DIRECTORY}/{name}"));
    fs::write(&path, value).map_err(|cause| DamonError::File { doing: "write", path, cause })
}

fn microseconds(time: Nanos) -> String {
    (time.0 / 1000).to_string()
}

fn number(path: &Path) -> Result<u64, DamonError> {
    let text =
        fs::read_to_string(path).map_err(|cause| DamonError::File { doing: "read", path: path.to_owned(), cause })?;
    let found = text.trim();
    found.parse().map_err(|_| DamonError::Malformed { path: path.to_owned(), found: found.chars().take(80).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVALS: Intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };

    /// A tree with DAMON's files, which take whatever is written.
    fn tree(threads: u64) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let context = folder.path().join(DIRECTORY).join("0/contexts/0");
        for name in [
            "monitoring_attrs/intervals",
            "monitoring_attrs/nr_regions",
            "targets/0/regions/0",
            "targets/0/regions/1",
            "schemes/0/access_pattern/sz",
            "schemes/0/access_pattern/nr_accesses",
            "schemes/0/access_pattern/age",
            "schemes/0/tried_regions",
        ] {
            fs::create_dir_all(context.join(name)).unwrap();
        }
        fs::write(folder.path().join(DIRECTORY).join("nr_kdamonds"), format!("{threads}\n")).unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    fn text(root: &Root, name: &str) -> String {
        fs::read_to_string(root.path(&format!("{DIRECTORY}/{name}"))).unwrap_or_default()
    }

    #[test]
    fn it_is_set_up_read_and_put_back() {
        let (_folder, root) = tree(0);
        let session = Session::start(&root, Watched::Process(42), INTERVALS).unwrap();
        assert_eq!(text(&root, "0/contexts/0/operations"), "vaddr");
        assert_eq!(text(&root, "0/contexts/0/targets/0/pid_target"), "42");
        assert_eq!(text(&root, "0/contexts/0/monitoring_attrs/intervals/sample_us"), "5000");
        assert_eq!((text(&root, "0/state").as_str(), text(&root, "nr_kdamonds").as_str()), ("on", "1"));
        let tried = root.path(&format!("{DIRECTORY}/0/contexts/0/schemes/0/tried_regions"));
        for (number, start) in [(0, 8192), (1, 4096)] {
            let region = tried.join(number.to_string());
            fs::create_dir_all(&region).unwrap();
            for (name, value) in [("start", start), ("end", start + 4096), ("nr_accesses", 7)] {
                fs::write(region.join(name), format!("{value}\n")).unwrap();
            }
        }
        let seen = session.read().unwrap();
        assert_eq!(
            seen.iter().map(|seen| (seen.range.start.0, seen.accesses)).collect::<Vec<_>>(),
            [(4096, 7), (8192, 7)]
        );
        drop(session);
        assert_eq!((text(&root, "0/state").as_str(), text(&root, "nr_kdamonds").as_str()), ("off", "0"));
        assert!(!root.path(NOTE).exists());
    }

    #[test]
    fn an_empty_list_is_not_taken_for_quiet_memory() {
        let (_folder, root) = tree(0);
        let session = Session::start(&root, Watched::Process(42), INTERVALS).unwrap();
        assert!(matches!(session.read(), Err(DamonError::Silent { .. })));
    }

    #[test]
    fn physical_addresses_are_watched_range_by_range() {
        let (_folder, root) = tree(0);
        let session = Session::start(&root, Watched::Physical(&[4096..8192, 16384..65536]), INTERVALS).unwrap();
        let context = |name: &str| text(&root, &format!("0/contexts/0/{name}"));
        assert_eq!((context("operations").as_str(), context("targets/0/pid_target").as_str()), ("paddr", ""));
        assert_eq!(context("targets/0/regions/nr_regions"), "2");
        assert_eq!(
            (context("targets/0/regions/0/start"), context("targets/0/regions/0/end")),
            ("4096".into(), "8192".into())
        );
        assert_eq!(
            (context("targets/0/regions/1/start"), context("targets/0/regions/1/end")),
            ("16384".into(), "65536".into())
        );
        drop(session);
        assert_eq!(text(&root, "nr_kdamonds"), "0");
    }

    #[test]
    fn what_can_be_told_without_setting_it_up_is_told() {
        let (folder, root) = tree(0);
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/kallsyms"), "0 T _stext\n0 t damon_pa_check_accesses\n").unwrap();
        ensure_usable(&root, Space::Physical).unwrap();
        let error = ensure_usable(&root, Space::Virtual).unwrap_err();
        assert!(matches!(error, DamonError::NoOperations { operations: "vaddr" }), "{error}");
        assert_eq!(text(&root, "nr_kdamonds"), "0\n", "nothing was written");
        fs::write(root.path(&format!("{DIRECTORY}/nr_kdamonds")), "1\n").unwrap();
        assert!(matches!(ensure_usable(&root, Space::Physical), Err(DamonError::InUse { threads: 1 })));
    }

    #[test]
    fn what_belongs_to_someone_else_is_left_alone() {
        let (_folder, root) = tree(1);
        fs::write(root.path(&format!("{DIRECTORY}/0/state")), "on\n").unwrap();
        let error = Session::start(&root, Watched::Process(42), INTERVALS).unwrap_err();
        assert!(matches!(error, DamonError::InUse { threads: 1 }), "{error}");
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
        let error = Session::start(&Root::at(folder.path()), Watched::Process(1), INTERVALS).unwrap_err();
        assert!(matches!(error, DamonError::Missing), "{error}");
    }
}
