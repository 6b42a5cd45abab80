//! A scan of what is present, what is huge and what would grow, for trackers that learn by other means which pages are used.
//!
//! Owns: choosing how to scan. Never touches: accessed bits.
//!
//! *Cost*: where eBPF may read page tables, one read as in page-walk, about 0.5 ms/GiB of base pages; otherwise that of [`files`]. In both cases, if
//! growth is needed, 0.4 us for each page whose entry leaves a doubt, such as one shared by fork.

mod files;

use heat::{Heat, Meaning, Region, TrackerKind};
use kernel::Root;
use kernel::pagemap::Entry;
use kernel::target::Target;

use crate::ObserveError;
use crate::page_walk::PageWalk;
use crate::survey::files::FileSurvey;

/// Ready to scan any process.
pub struct Survey {
    way: Way,
    tracker: TrackerKind,
    meaning: Meaning,
}

enum Way {
    PageTables(Box<PageWalk>),
    Files(FileSurvey),
}

impl Survey {
    /// For a tracker whose bits have this meaning, in the cheapest way that this machine allows. Errors: as [`Survey::without_bpf`].
    pub fn new(root: &Root, tracker: TrackerKind, meaning: Meaning) -> Result<Self, ObserveError> {
        match PageWalk::new() {
            Ok(walk) => Ok(Self { way: Way::PageTables(Box::new(walk)), tracker, meaning }),
            Err(error) => {
                tracing::debug!("page tables cannot be read: {error}");
                Self::without_bpf(root, tracker, meaning)
            }
        }
    }

    /// The same without eBPF. Errors: the tables of page frames are missing, or CAP_DAC_OVERRIDE.
    pub fn without_bpf(root: &Root, tracker: TrackerKind, meaning: Meaning) -> Result<Self, ObserveError> {
        Ok(Self { way: Way::Files(FileSurvey::open(root)?), tracker, meaning })
    }

    /// Scans once. `each` gets every region with a page present, ascending, with its entries, of which only page and frame are reliable. Its changes
    /// to the region are kept, except for growth, and it returns whether growth is needed.
    ///
    /// Errors: the process ends, its mappings or pages cannot be read, page frames are hidden (CAP_SYS_ADMIN), it has more than `most_regions`, or its
    /// memory is too scattered to be read without eBPF.
    pub fn scan(
        &mut self,
        target: &Target,
        most_regions: usize,
        each: impl FnMut(&mut Region, &[Entry]) -> bool,
    ) -> Result<Heat, ObserveError> {
        let (tracker, meaning) = (self.tracker, self.meaning);
        match &mut self.way {
            Way::PageTables(walk) => Ok(Heat { tracker, meaning, ..walk.survey_pages(target, most_regions, each)? }),
            Way::Files(files) => files.scan(target, most_regions, (tracker, meaning), each),
        }
    }
}
