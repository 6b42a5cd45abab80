//! Prepared pages: outside the target's locks, the huge page that a collapse will take is made ready.
//!
//! Owns: one huge page of our own for a moment, and whether preparing helps here. Never touches: a target.
//!
//! A collapse takes a free huge page while the target waits. In a virtual machine whose host takes free memory back, the first touch of that page
//! waits milliseconds for the host. So we first touch and free a page of our own: it goes to this processor's list of free huge pages (`NR_PCP_THP`
//! in mm/page_alloc.c), from which the next allocation on the processor takes it. On a machine with several memory nodes it comes from the node that
//! has most of the region's pages, as the kernel will choose. Whether preparing helps is first measured on our own memory, where nothing waits:
//! collapses with and without a prepared page alternate, and their medians decide. Where it does not help, one slow collapse later shows that it now
//! does.

use std::io;
use std::time::Instant;

use heat::units::{Address, BASE_PAGE, HUGE_PAGE, Nanos, Slowdown};
use hugepilot_os::advise::advise;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::nodes::{PinnedTo, current_cpu};
use hugepilot_os::{Advice, PidFd};
use kernel::Root;
use kernel::nodes::Node;
use kernel::probe::CollapseTimes;
use observe::Processors;

use crate::act::Times;
use crate::machine::node::RegionNodes;
use crate::machine::preparer::{Page, Preparer, Urgency};

/// Collapses of each kind to compare: so many that one where khugepaged came first does not decide.
const COMPARED: u64 = 3;
/// A collapse without a prepared page that takes this many times the usual is reason to prepare: the memory that the host had backed is used up.
const SLOW: f64 = 3.0;

/// Prepares pages while that helps.
#[derive(Debug)]
pub struct Preparation {
    urgency: Urgency,
    /// The page while it is not being touched, and the thread that touches pages; None before the first.
    page: Option<Page>,
    preparer: Option<Preparer>,
    nodes: RegionNodes,
    processors: Processors,
    /// The measurement; None before the first region.
    times: Option<CollapseTimes>,
    /// Whether pages are prepared: as measured, until an unprepared collapse was slow.
    helps: bool,
}

/// Whether a collapse had a prepared page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    Yes {
        /// How long preparing took.
        took: Nanos,
        /// The memory node of the page; None where the machine has only one, or the kernel does not tell.
        node: Option<Node>,
    },
    No,
}

impl Prepared {
    /// How long preparing took.
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

impl Preparation {
    /// Nothing has been prepared or measured yet.
    pub fn new(max_slowdown: Slowdown) -> Self {
        Self {
            urgency: if max_slowdown.is_fast() { Urgency::AtOnce } else { Urgency::WhileIdle },
            page: None,
            preparer: None,
            nodes: RegionNodes::new(&Root::host()),
            processors: Processors::default(),
            times: None,
            helps: true,
        }
    }

    /// When pages are touched.
    pub(super) fn urgency(&self) -> Urgency {
        self.urgency
    }

    /// How long collapses take, with and without a prepared page: tried once, on 8 MiB of our own.
    ///
    /// Errors: no huge page could be had.
    pub(super) fn times(&mut self) -> io::Result<CollapseTimes> {
        if let Some(times) = self.times {
            return Ok(times);
        }
        let times = self.compare()?;
        tracing::debug!("a collapse takes {} with a prepared page, {} without", times.prepared, times.unprepared);
        (self.times, self.helps) = (Some(times), times.preparing_helps());
        Ok(times)
    }

    fn compare(&mut self) -> io::Result<CollapseTimes> {
        let own = PidFd::open(std::process::id())?;
        let (mut prepared, mut unprepared, mut preparing) = (Times::default(), Times::default(), Times::default());
        // Collapsed memory stays until the end, so no page is used twice.
        let mut memory = AlignedMemory::anonymous((2 * COMPARED * HUGE_PAGE) as usize)?;
        memory.advise(0, memory.len(), OwnAdvice::NoHugePage)?;
        memory.bytes_mut().iter_mut().step_by(BASE_PAGE as usize).for_each(|byte| *byte = 1);
        for number in 0..2 * COMPARED {
            let has_page = number % 2 == 1;
            // Enabling huge pages wakes khugepaged, which would collapse some of them first.
            memory.advise((number * HUGE_PAGE) as usize, HUGE_PAGE as usize, OwnAdvice::HugePage)?;
            let started = Instant::now();
            let _kept = has_page.then(|| self.make_ready(current_cpu(), None)).transpose()?;
            if has_page {
                preparing.add(Nanos::from_duration(started.elapsed()));
            }
            let started = Instant::now();
            advise(&own, memory.address() + number * HUGE_PAGE, HUGE_PAGE, Advice::Collapse)?;
            if has_page { &mut prepared } else { &mut unprepared }.add(Nanos::from_duration(started.elapsed()));
        }
        let typical = |times: &Times| times.percentile(0.5).unwrap_or_default();
        Ok(CollapseTimes {
            prepared: typical(&prepared),
            unprepared: typical(&unprepared),
            preparing: typical(&preparing),
        })
    }

    /// Prepares the page that the collapse of this region will take, if that helps. The collapse must follow while the thread is pinned to its
    /// processor.
    pub(super) fn prepare(&mut self, target: &PidFd, region: Address) -> (Prepared, Option<PinnedTo>) {
        if let Err(error) = self.times() {
            tracing::debug!("whether preparing helps could not be measured: {error}");
        }
        if !self.helps {
            return (Prepared::No, None);
        }
        let (started, node) = (Instant::now(), self.nodes.of(target, region));
        let cpu = self.processors.least_used_by(target.pid());
        match self.make_ready(cpu, node) {
            Ok((node, kept)) => (Prepared::Yes { took: Nanos::from_duration(started.elapsed()), node }, Some(kept)),
            Err(error) => {
                tracing::debug!("no page could be prepared: {error}");
                (Prepared::No, None)
            }
        }
    }

    /// Records how long a collapse took.
    pub(super) fn note(&mut self, prepared: Prepared, took: Nanos) {
        let usual = self.times.map_or(took, |times| times.unprepared);
        self.helps |= prepared == Prepared::No && took.0 as f64 > usual.0 as f64 * SLOW;
    }

    /// Takes a huge page, from this node if one is given, and frees it to the list of this processor. This thread is pinned to it, because the page
    /// would not be found on another. Returns where the page was, if a node was given.
    ///
    /// Errors: no huge page could be had.
    pub fn make_ready(&mut self, cpu: u32, node: Option<Node>) -> io::Result<(Option<Node>, PinnedTo)> {
        let preparer = match &mut self.preparer {
            Some(preparer) => preparer,
            none => none.insert(Preparer::start(self.urgency)?),
        };
        let page = self.page.take().map_or_else(Page::new, Ok)?;
        let kept = PinnedTo::cpu(cpu).or_else(|_| PinnedTo::cpu(current_cpu()))?;
        let (page, node) = preparer.touch(page, node).inspect_err(|_| self.preparer = None)?;
        self.page.insert(page).free()?;
        Ok((node?, kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// A machine where collapses took this long.
    fn seen(prepared_us: u64, unprepared_us: u64) -> Preparation {
        let [prepared, unprepared] = [prepared_us, unprepared_us].map(|us| Nanos(us * US));
        let times = CollapseTimes { prepared, unprepared, preparing: Nanos(US) };
        Preparation { times: Some(times), helps: times.preparing_helps(), ..Preparation::new(Slowdown::ASKED_FOR) }
    }

    #[test]
    fn what_was_measured_decides() {
        assert!(seen(600, 7000).helps);
        assert!(!seen(600, 620).helps, "it saves too little");
    }

    #[test]
    fn a_slow_collapse_is_reason_to_prepare() {
        let mut preparation = seen(600, 600);
        preparation.note(Prepared::No, Nanos(1700 * US));
        assert!(!preparation.helps);
        preparation.note(Prepared::Yes { took: Nanos(US), node: None }, Nanos(6000 * US));
        assert!(!preparation.helps, "that one had a prepared page");
        preparation.note(Prepared::No, Nanos(6000 * US));
        assert!(preparation.helps);
    }

    #[test]
    fn collapses_take_some_time_and_are_tried_once() {
        let mut preparation = Preparation::new(Slowdown::ASKED_FOR);
        let times = preparation.times().unwrap();
        assert!(times.usual() <= times.slowest(), "{times:?}");
        assert!((10_000..1_000_000_000).contains(&times.usual().0), "{times:?}");
        assert_eq!(preparation.times().unwrap(), times);
    }

    #[test]
    fn a_page_is_ready_on_this_processor() {
        let own = PidFd::open(std::process::id()).unwrap();
        let mut preparation = seen(600, 7000);
        for _ in 0..2 {
            let (prepared, kept) = preparation.prepare(&own, Address(0));
            assert!(prepared.took() > Nanos(0) && kept.is_some(), "{prepared:?}");
        }
        assert_eq!(seen(600, 600).prepare(&own, Address(0)).0, Prepared::No);
    }
}
