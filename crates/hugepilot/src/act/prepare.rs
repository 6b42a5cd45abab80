//! Prepared pages: the huge page that a collapse will take is made ready outside of the target's locks.
//!
//! Owns: one huge page of our own for a moment, and whether preparing it helps here. Never touches: a target.
//!
//! A collapse takes a free huge page while the target waits. In a virtual machine whose host takes free memory back, the first touch of
//! that page waits for the host, for milliseconds. So a page of our own is touched first and freed again: it goes to the list of free
//! huge pages of this processor (`NR_PCP_THP` in mm/page_alloc.c), from which the next allocation on it takes its page. On a machine with several
//! memory nodes it is a page of the node that has most of the region's pages, as the kernel will take. Whether preparing helps is measured: collapses with and without a prepared page take turns, and their medians decide.

use std::io;
use std::time::Instant;

use hugepilot_os::PidFd;
use hugepilot_os::nodes::{PinnedTo, current_cpu};

use super::RegionNodes;
use super::preparer::{Page, Preparer};
use super::processor::Processor;
use crate::kernel::Root;
use crate::kernel::nodes::Node;
use crate::kernel::probe::CollapseTimes;
use crate::statistics::median;
use crate::units::{Address, Nanos};

/// Collapses of each kind that are compared.
const COMPARED: usize = 8;
/// Regions after which both kinds are compared anew, where preparing helps: 2 GiB.
const AGAIN_WHERE_IT_HELPS: u32 = 1024;
/// The same where it does not: 512 MiB.
const AGAIN_WHERE_NOT: u32 = 256;
/// A collapse without a prepared page that takes so many times the median is reason to compare at once.
const SLOW: f64 = 3.0;

/// Prepares pages as long as that helps.
#[derive(Debug)]
pub struct Preparation {
    /// The page while nobody touches it, and who does; None before the first.
    page: Option<Page>,
    preparer: Option<Preparer>,
    nodes: RegionNodes,
    processor: Processor,
    comparison: Comparison,
}

/// Whether a collapse had a prepared page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    Yes {
        /// What that took.
        took: Nanos,
        /// The memory node of the page; None where the machine has one only, or the kernel does not tell.
        node: Option<Node>,
    },
    No,
}

impl Prepared {
    /// What preparing took.
    pub(super) fn took(self) -> Nanos {
        match self {
            Prepared::Yes { took, .. } => took,
            Prepared::No => Nanos(0),
        }
    }

    /// The memory node of the page.
    pub(super) fn node(self) -> Option<Node> {
        match self {
            Prepared::Yes { node, .. } => node,
            Prepared::No => None,
        }
    }
}

impl Default for Preparation {
    fn default() -> Self {
        Self {
            page: None,
            preparer: None,
            nodes: RegionNodes::new(&Root::host()),
            processor: Processor::default(),
            comparison: Comparison::default(),
        }
    }
}

impl Preparation {
    /// Makes the page ready that the collapse of this region will take, if that helps or is to be compared. The collapse must follow while
    /// the thread is kept on its processor.
    pub(super) fn prepare(&mut self, target: &PidFd, region: Address) -> (Prepared, Option<PinnedTo>) {
        if !self.comparison.prepares_next() {
            return (Prepared::No, None);
        }
        let (started, node) = (Instant::now(), self.nodes.of(target, region));
        let cpu = self.processor.for_target(target.pid());
        match self.make_ready(cpu, node) {
            Ok((node, kept)) => (Prepared::Yes { took: Nanos::from_duration(started.elapsed()), node }, Some(kept)),
            Err(error) => {
                tracing::debug!("no page could be prepared: {error}");
                (Prepared::No, None)
            }
        }
    }

    /// Takes note of what a collapse took.
    pub(super) fn note(&mut self, prepared: Prepared, took: Nanos) {
        self.comparison.note(prepared != Prepared::No, took);
    }

    /// Takes a huge page, from this node if one is given, and gives it back, to the list of this processor, which this thread is kept on: on
    /// another it would not be found. Answers where the page was, if a node was given.
    pub(super) fn make_ready(&mut self, cpu: u32, node: Option<Node>) -> io::Result<(Option<Node>, PinnedTo)> {
        let preparer = match &mut self.preparer {
            Some(preparer) => preparer,
            none => none.insert(Preparer::start()?),
        };
        let page = self.page.take().map_or_else(Page::new, Ok)?;
        let kept = PinnedTo::cpu(cpu).or_else(|_| PinnedTo::cpu(current_cpu()))?;
        let (page, node) = preparer.touch(page, node).inspect_err(|_| self.preparer = None)?;
        self.page.insert(page).free()?;
        Ok((node?, kept))
    }
}

/// Whether preparing helps, from what collapses took.
#[derive(Clone, Debug, PartialEq)]
enum Comparison {
    /// Both kinds take turns.
    TakingTurns { prepared: Vec<Nanos>, unprepared: Vec<Nanos> },
    /// The medians have decided, for so many regions.
    Decided { helps: bool, regions_left: u32, typical: Nanos },
}

impl Default for Comparison {
    fn default() -> Self {
        Comparison::TakingTurns { prepared: Vec::new(), unprepared: Vec::new() }
    }
}

impl Comparison {
    fn prepares_next(&self) -> bool {
        match self {
            Comparison::TakingTurns { prepared, unprepared } => prepared.len() <= unprepared.len(),
            Comparison::Decided { helps, .. } => *helps,
        }
    }

    fn note(&mut self, was_prepared: bool, took: Nanos) {
        match self {
            Comparison::TakingTurns { prepared, unprepared } => {
                if was_prepared { &mut *prepared } else { &mut *unprepared }.push(took);
                // Where no page can be prepared, only one of the two grows.
                if prepared.len() + unprepared.len() >= 2 * COMPARED {
                    *self = Self::decided(prepared, unprepared);
                }
            }
            Comparison::Decided { helps, regions_left, typical } => {
                let is_slow = !*helps && took.0 as f64 > typical.0 as f64 * SLOW;
                *regions_left -= 1;
                if *regions_left == 0 || is_slow {
                    *self = Self::default();
                }
            }
        }
    }

    fn decided(prepared: &[Nanos], unprepared: &[Nanos]) -> Self {
        let typical = |times: &[Nanos]| median(&times.iter().map(|time| time.0 as f64).collect::<Vec<_>>());
        let unprepared = Nanos(typical(unprepared).unwrap_or_default() as u64);
        let prepared = typical(prepared).map_or(unprepared, |time| Nanos(time as u64));
        let helps = CollapseTimes { prepared, unprepared, preparing: Nanos(0) }.preparing_helps();
        let regions_left = if helps { AGAIN_WHERE_IT_HELPS } else { AGAIN_WHERE_NOT };
        tracing::debug!("a collapse takes {prepared} with a prepared page, {unprepared} without");
        Comparison::Decided { helps, regions_left, typical: unprepared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// Collapses of a machine on which they take this long, and whether the last was prepared.
    fn collapses(comparison: &mut Comparison, count: u32, prepared_us: u64, unprepared_us: u64) -> bool {
        for _ in 0..count {
            let prepared = comparison.prepares_next();
            comparison.note(prepared, Nanos(if prepared { prepared_us } else { unprepared_us } * US));
        }
        comparison.prepares_next()
    }

    #[test]
    fn kinds_take_turns_and_the_medians_decide() {
        let mut cold = Comparison::default();
        let kinds: Vec<bool> = (0..4).map(|_| collapses(&mut cold, 1, 600, 7000)).collect();
        assert_eq!(kinds, [false, true, false, true]);
        assert!(collapses(&mut cold, 12, 600, 7000), "{cold:?}");
        assert!(matches!(cold, Comparison::Decided { helps: true, .. }));
        let mut warm = Comparison::default();
        assert!(!collapses(&mut warm, 16, 600, 620), "it saves too little: {warm:?}");
    }

    #[test]
    fn what_was_decided_is_compared_again() {
        let mut cold = Comparison::default();
        collapses(&mut cold, 16 + AGAIN_WHERE_IT_HELPS, 600, 7000);
        assert_eq!(cold, Comparison::default());
        let mut warm = Comparison::default();
        collapses(&mut warm, 16 + AGAIN_WHERE_NOT - 1, 600, 600);
        assert!(matches!(warm, Comparison::Decided { .. }));
        assert!(collapses(&mut warm, 1, 600, 600), "both kinds take turns again");
    }

    #[test]
    fn a_slow_collapse_is_reason_to_compare_at_once() {
        let mut comparison = Comparison::default();
        collapses(&mut comparison, 20, 600, 600);
        collapses(&mut comparison, 1, 600, 6000);
        assert_eq!(comparison, Comparison::default(), "the memory that the host had backed is used up");
    }

    #[test]
    fn where_no_page_can_be_prepared_none_is_tried_for_ever() {
        let mut comparison = Comparison::default();
        (0..16).for_each(|_| comparison.note(false, Nanos(600 * US)));
        assert!(matches!(comparison, Comparison::Decided { helps: false, .. }));
    }

    #[test]
    fn a_page_is_ready_on_this_processor() {
        let mut preparation = Preparation::default();
        let own = PidFd::open(std::process::id()).unwrap();
        for _ in 0..2 {
            preparation.comparison = Comparison::Decided { helps: true, regions_left: 9, typical: Nanos(US) };
            let (prepared, kept) = preparation.prepare(&own, Address(0));
            assert!(prepared.took() > Nanos(0) && kept.is_some(), "{prepared:?}");
        }
        preparation.comparison = Comparison::Decided { helps: false, regions_left: 9, typical: Nanos(US) };
        assert_eq!(preparation.prepare(&own, Address(0)).0, Prepared::No);
    }
}
