//! DAMON's observations, read from a scheme that does nothing to any region.
//!
//! Owns: that scheme. Never touches: how DAMON is taken and put back ([`damon`]).

use std::fs;

pub use damon::DamonError;
use damon::{Claim, ensure_free, number};
pub(super) use damon::{Intervals, Watched};
use heat::TrackerKind;
use heat::units::{Address, AddressRange, Nanos};
use kernel::damon::Purpose;
use kernel::{Root, kallsyms, probe};

/// The kernel (6.7 to 6.13) stops listing regions after two aggregations, without an error, and on a busy machine DAMON's thread may take longer. An
/// empty list therefore says nothing, and does not mean that nothing was walked.
const MOST_READS: u32 = 20;

/// The kind of addresses that DAMON observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A process's virtual addresses.
    Virtual,
    /// The machine's physical addresses.
    Physical,
}

impl Space {
    pub(super) fn tracker(self) -> TrackerKind {
        match self {
            Space::Virtual => TrackerKind::DamonVaddr,
            Space::Physical => TrackerKind::DamonPaddr,
        }
    }

    /// Its name in DAMON.
    fn operations(self) -> &'static str {
        match self {
            Space::Virtual => "vaddr",
            Space::Physical => "paddr",
        }
    }

    /// A kernel with these operations has this function.
    fn symbol(self) -> &'static str {
        match self {
            Space::Virtual => probe::VADDR_SYMBOL,
            Space::Physical => probe::PADDR_SYMBOL,
        }
    }
}

/// What DAMON says of one of its regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Addresses of the observed kind.
    pub(super) range: AddressRange,
    /// Samples of the last aggregation in which the sampled page was accessed.
    pub(super) accesses: u64,
}

/// DAMON observing for us; restored on drop.
#[derive(Debug)]
pub(super) struct Session(Claim);

impl Session {
    /// Sets DAMON up and switches it on. Errors: it is missing, in use by others, or refuses; then nothing is left changed.
    pub(super) fn start(root: &Root, watched: Watched<'_>, intervals: Intervals) -> Result<Self, DamonError> {
        let claim = Claim::take(root, Purpose::Watch)?;
        claim.watch(watched, intervals)?;
        // A scheme that does nothing to any region makes all of them readable.
        claim.context("schemes/nr_schemes", "1")?;
        claim.context("schemes/0/action", "stat")?;
        claim.follow_all_regions(0)?;
        claim.switch_on()?;
        Ok(Self(claim))
    }

    /// DAMON's observations in its last aggregation, ascending. Errors: it is refused, or DAMON lists no region at all.
    pub(super) fn read(&self) -> Result<Vec<Seen>, DamonError> {
        for _ in 0..MOST_READS {
            let seen = self.read_once()?;
            if !seen.is_empty() {
                return Ok(seen);
            }
        }
        Err(DamonError::Silent { reads: MOST_READS })
    }

    /// Empty if DAMON's thread did not finish in time.
    fn read_once(&self) -> Result<Vec<Seen>, DamonError> {
        self.0.write("0/state", "update_schemes_tried_regions")?;
        let directory = self.0.context_path("schemes/0/tried_regions");
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

    /// The CPU time that DAMON's thread has used; 0 if that is not known.
    pub(super) fn cpu_time(&self) -> Nanos {
        self.0.cpu_time()
    }
}

/// Errors if DAMON cannot be used for these addresses, as far as can be told without setting it up.
pub(super) fn ensure_usable(root: &Root, space: Space) -> Result<(), DamonError> {
    let purpose = Purpose::Watch;
    ensure_free(root, purpose)?;
    match kallsyms::lists(root, space.symbol()) {
        Some(false) => Err(DamonError::NoOperations { operations: space.operations(), purpose }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use damon::samples::{text, tree};
    use kernel::damon::{DIRECTORY, NOTE};

    use super::*;

    const INTERVALS: Intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };

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
    fn what_can_be_told_without_setting_it_up_is_told() {
        let (folder, root) = tree(0);
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/kallsyms"), "0 T _stext\n0 t damon_pa_check_accesses\n").unwrap();
        ensure_usable(&root, Space::Physical).unwrap();
        let error = ensure_usable(&root, Space::Virtual).unwrap_err();
        assert!(matches!(error, DamonError::NoOperations { operations: "vaddr", .. }), "{error}");
        assert_eq!(text(&root, "nr_kdamonds"), "0\n", "nothing was written");
        fs::write(root.path(&format!("{DIRECTORY}/nr_kdamonds")), "1\n").unwrap();
        assert!(matches!(ensure_usable(&root, Space::Physical), Err(DamonError::InUse { threads: 1, .. })));
    }
}
