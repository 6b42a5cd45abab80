//! Policies: which page is evicted when memory is short, one file each behind one trait.
//!
//! Owns: the list of policies, and their names on the command line. Never touches: how any of them chooses.
//!
//! We describe facts about kernels in our own words; none of their code is here. Their constants count base pages, so list lengths are converted to
//! base pages before a comparison.

mod anon_file;
mod classic;
mod generations;
mod mixed;
mod scan;
mod split;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use anon_file::AnonFile;
use generations::Generations;
use mixed::{Mixed, Version};
pub use scan::{ReplacementPolicy, Scan, Taken};
pub use split::FULL_COST;
use split::Split;

/// The kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolicyKind {
    /// Linux 2.6.6, the paper's: one active and one inactive list for all pages.
    Mixed,
    /// The same lists in Linux 2.6.9, which scans both by their length.
    MixedLater,
    /// The paper: mapped pages have their own active list; a mapped page costs as much as this many others, and at 100 it is not aged.
    Split(u32),
    /// The paper's general form: one active list per use, each with its own cost: code, read-only data, data and shared memory.
    SplitByUse([u32; 4]),
    /// Linux today: one pair of lists for memory that goes to swap, another for files.
    AnonFile,
    /// Linux today with its multi-generational LRU.
    Generations,
}

impl PolicyKind {
    /// The same cost for code and data; shared memory, which is expensive to bring back, is not aged.
    pub fn split_by_use(cost: u32) -> Self {
        PolicyKind::SplitByUse([cost, cost, cost, FULL_COST])
    }

    /// A policy of this kind for `frames` frames.
    pub fn build(self, frames: u32) -> Box<dyn ReplacementPolicy> {
        match self {
            PolicyKind::Mixed => Box::new(Mixed::new(Version::Older, frames)),
            PolicyKind::MixedLater => Box::new(Mixed::new(Version::Later, frames)),
            PolicyKind::Split(cost) => Box::new(Split::by_mapped(frames, cost)),
            PolicyKind::SplitByUse(costs) => Box::new(Split::by_use(frames, costs)),
            PolicyKind::AnonFile => Box::new(AnonFile::new(frames)),
            PolicyKind::Generations => Box::new(Generations::new(frames)),
        }
    }
}

/// The names of policies on the command line; a split without a cost takes each of `--mapped-page-cost`.
pub const NAMES: [&str; 6] = ["mixed", "mixed-2.6.9", "split", "split-by-use", "anon-file", "generations"];

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyKind::Mixed => f.pad("mixed"),
            PolicyKind::MixedLater => f.pad("mixed-2.6.9"),
            PolicyKind::Split(cost) => f.pad(&format!("split-{cost}")),
            PolicyKind::SplitByUse(costs) if PolicyKind::split_by_use(costs[0]) == *self => {
                f.pad(&format!("split-by-use-{}", costs[0]))
            }
            PolicyKind::SplitByUse([code, read_only, data, shared]) => {
                f.pad(&format!("split-by-use-{code}-{read_only}-{data}-{shared}"))
            }
            PolicyKind::AnonFile => f.pad("anon-file"),
            PolicyKind::Generations => f.pad("generations"),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let cost = |digits: &str| digits.parse::<u32>().ok().filter(|cost| (0..=100).contains(cost));
        let of_cost = |prefix: &str| name.strip_prefix(prefix).and_then(cost);
        let of_costs = |prefix: &str| {
            let costs: Option<Vec<u32>> = name.strip_prefix(prefix)?.split('-').map(cost).collect();
            costs?.try_into().ok()
        };
        match name {
            "mixed" => Ok(PolicyKind::Mixed),
            "mixed-2.6.9" => Ok(PolicyKind::MixedLater),
            "anon-file" => Ok(PolicyKind::AnonFile),
            "generations" => Ok(PolicyKind::Generations),
            _ => of_cost("split-by-use-")
                .map(PolicyKind::split_by_use)
                .or_else(|| Some(PolicyKind::SplitByUse(of_costs("split-by-use-")?)))
                .or_else(|| of_cost("split-").map(PolicyKind::Split))
                .ok_or_else(|| format!("'{name}' is no policy: there are {}", NAMES.join(", "))),
        }
    }
}

impl TryFrom<String> for PolicyKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<PolicyKind> for String {
    fn from(kind: PolicyKind) -> String {
        kind.to_string()
    }
}
