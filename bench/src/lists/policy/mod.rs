//! Policies: which page goes when memory is short, one file each behind one trait.
//!
//! Owns: what every policy is asked, and the account that each gives of it. Never touches: time, disks or programs.
//!
//! Facts about kernels are told in our words, and no code of theirs is here. Their constants count base pages, so lengths of lists
//! are turned into base pages before they meet one.

mod anon_file;
mod classic;
mod generations;
mod mixed;
mod split;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::list::Lists;
use super::pages::{Bit, Pages};
use anon_file::AnonFile;
use generations::Generations;
use mixed::{Mixed, Version};
use split::Split;

/// A way to choose.
pub trait Policy {
    /// A page has come into a frame. `evicted`: what [`Taken::freed`] said when the same page went the last time.
    fn insert(&mut self, pages: &mut Pages, frame: u32, evicted: Option<u32>);
    /// A system call reads or writes the page. (Programs that use mapped pages tell nobody; the processor sets [`Bit::Young`].)
    fn called(&mut self, pages: &mut Pages, frame: u32);
    /// Takes pages off its lists until `wanted` frames are free, or none can be freed now.
    fn reclaim(&mut self, pages: &mut Pages, wanted: u32, taken: &mut Taken) -> Scan;
    /// A page that was to be reclaimed once it is written is written.
    fn written(&mut self, pages: &mut Pages, frame: u32);
    /// Its lists; every page in memory is on one of them.
    fn lists(&self) -> &Lists;
}

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// Linux 2.6.6, the paper's: one active and one inactive list for all pages.
    Mixed,
    /// The same lists in Linux 2.6.9, which scans both by their length.
    MixedLater,
    /// The paper: mapped pages have an active list of their own; a mapped page costs as much as so many others, at 100 it is not aged.
    Split(u32),
    /// The paper's general form: an active list for each use, each with its own cost: code, read-only data, data and shared memory.
    SplitByUse([u32; 4]),
    /// Linux today: a pair of lists for what goes to swap, another for files.
    AnonFile,
    /// Linux today with its multi-generational LRU.
    Generations,
}

/// What reclaim took.
#[derive(Debug, Default)]
pub struct Taken {
    /// Frames that are on no list any more, each with what the policy wants to be told when the page comes back.
    pub freed: Vec<(u32, u32)>,
    /// Frames whose pages the disk is to write; they stay on their lists meanwhile.
    pub writes: Vec<u32>,
}

/// What reclaim did, in frames; the numbers add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Pages looked at, on any list.
    pub scanned: u64,
    /// Page-table entries found from a page, one by one.
    pub mappings: u64,
    /// Page-table entries read in the order in which they lie.
    pub walked: u64,
    /// Pages moved while the lists' lock was held.
    pub held: u64,
    /// The most of them in one go.
    pub longest_hold: u64,
    /// Pages freed.
    pub reclaimed: u64,
}

impl Kind {
    /// The same cost for code and data; shared memory, which is dear to bring back, is not aged.
    pub fn split_by_use(cost: u32) -> Self {
        Kind::SplitByUse([cost, cost, cost, 100])
    }

    /// A policy of this kind, for that many frames.
    pub fn build(self, frames: u32) -> Box<dyn Policy> {
        match self {
            Kind::Mixed => Box::new(Mixed::new(Version::Older, frames)),
            Kind::MixedLater => Box::new(Mixed::new(Version::Later, frames)),
            Kind::Split(cost) => Box::new(Split::by_mapped(frames, cost)),
            Kind::SplitByUse(costs) => Box::new(Split::by_use(frames, costs)),
            Kind::AnonFile => Box::new(AnonFile::new(frames)),
            Kind::Generations => Box::new(Generations::new(frames)),
        }
    }
}

/// The names by which policies are asked for; a split without a cost takes each of `--mapped-page-cost`.
pub const NAMES: [&str; 6] = ["mixed", "mixed-2.6.9", "split", "split-by-use", "anon-file", "generations"];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Mixed => f.pad("mixed"),
            Kind::MixedLater => f.pad("mixed-2.6.9"),
            Kind::Split(cost) => f.pad(&format!("split-{cost}")),
            Kind::SplitByUse(costs) if Kind::split_by_use(costs[0]) == *self => {
                f.pad(&format!("split-by-use-{}", costs[0]))
            }
            Kind::SplitByUse([code, read_only, data, shared]) => {
                f.pad(&format!("split-by-use-{code}-{read_only}-{data}-{shared}"))
            }
            Kind::AnonFile => f.pad("anon-file"),
            Kind::Generations => f.pad("generations"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let cost = |digits: &str| digits.parse::<u32>().ok().filter(|cost| (0..=100).contains(cost));
        let of_cost = |prefix: &str| name.strip_prefix(prefix).and_then(cost);
        let of_costs = |prefix: &str| {
            let costs: Option<Vec<u32>> = name.strip_prefix(prefix)?.split('-').map(cost).collect();
            costs?.try_into().ok()
        };
        match name {
            "mixed" => Ok(Kind::Mixed),
            "mixed-2.6.9" => Ok(Kind::MixedLater),
            "anon-file" => Ok(Kind::AnonFile),
            "generations" => Ok(Kind::Generations),
            _ => of_cost("split-by-use-")
                .map(Kind::split_by_use)
                .or_else(|| Some(Kind::SplitByUse(of_costs("split-by-use-")?)))
                .or_else(|| of_cost("split-").map(Kind::Split))
                .ok_or_else(|| format!("'{name}' is no policy: there are {}", NAMES.join(", "))),
        }
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        kind.to_string()
    }
}

impl Scan {
    /// The lock is held while so many pages are moved.
    fn hold(&mut self, pages: u64) {
        self.held += pages;
        self.longest_hold = self.longest_hold.max(pages);
    }

    /// The same in base pages.
    pub fn in_base_pages(self, base_pages: u64) -> Scan {
        let Scan { scanned, mappings, walked, held, longest_hold, reclaimed } = self;
        let [scanned, mappings, walked, held, longest_hold, reclaimed] =
            [scanned, mappings, walked, held, longest_hold, reclaimed].map(|frames| frames * base_pages);
        Scan { scanned, mappings, walked, held, longest_hold, reclaimed }
    }
}

impl AddAssign for Scan {
    fn add_assign(&mut self, other: Self) {
        self.scanned += other.scanned;
        self.mappings += other.mappings;
        self.walked += other.walked;
        self.held += other.held;
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.reclaimed += other.reclaimed;
    }
}

impl Taken {
    /// The page goes; it is on no list.
    fn free(&mut self, frame: u32, evicted: u32, scan: &mut Scan) {
        self.freed.push((frame, evicted));
        scan.reclaimed += 1;
    }

    /// The disk is to write the page, which may then go.
    fn write(&mut self, pages: &mut Pages, frame: u32) {
        pages.clean(frame);
        pages.set(frame, Bit::Writeback);
        pages.set(frame, Bit::Reclaim);
        self.writes.push(frame);
    }
}
