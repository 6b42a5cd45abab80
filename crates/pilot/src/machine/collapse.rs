//! One call per region: the collapse, and the split.
//!
//! Owns: these two calls, and how long they took. Never touches: the choice of regions, or how fast to go.
//!
//! A call for a range may fail after collapsing most of it, and could not be stopped halfway, so each region has its own. A remote `MADV_COLD` on one
//! base page inside a huge page splits it. Newer kernels then replace all-zero base pages with the shared zero page, which frees them; that is
//! undocumented, so it is tried ([`super::trial`]).

use std::io;
use std::time::Instant;

use heat::units::{Address, BASE_PAGE, HUGE_PAGE, Nanos};
use hugepilot_os::advise::{advise, advise_again};
use hugepilot_os::page_scan::{self, category};
use hugepilot_os::process::Punctual;
use hugepilot_os::stop::Stop;
use hugepilot_os::{Advice, PidFd};
use kernel::process::thread_cpu_time;

use crate::decide::WhoWaits;
use crate::machine::prepare::Preparation;
use crate::machine::preparer::Urgency;
use crate::world::{Candidate, Step};

/// A collapse of private memory comes before ordinary threads: if it is interrupted, it holds the lock that the target waits for.
const COLLAPSING: u8 = 1;

/// Puts a region on a huge page, a prepared one where that helps. `of_guest`: what was given back since the plan stays so. `processors`: how many the
/// machine has.
pub(super) fn collapse(
    target: &PidFd,
    region: Candidate,
    of_guest: bool,
    preparation: &mut Preparation,
    processors: u64,
    stop: &Stop,
) -> Step {
    let Candidate { start, who_waits, .. } = region;
    let (prepared, _kept_on_its_processor) = preparation.prepare(target, start);
    let (started, cpu_before) = (Instant::now(), thread_cpu_time());
    let result = {
        let _punctual = comes_first(who_waits, preparation).then(|| Punctual::begin(COLLAPSING));
        let collapse = || advise(target, start.0, HUGE_PAGE, Advice::Collapse);
        let unchanged = if of_guest { ensure_none_given_back(target, region) } else { Ok(()) };
        unchanged.and_then(|()| advise_again(collapse, || stop.requested()))
    };
    let took = Nanos::from_duration(started.elapsed());
    if result.is_ok() {
        preparation.note(prepared, took);
    }
    let held_up = match who_waits {
        WhoWaits::AnyThread => took,
        // It begins by waiting for other processors to drain their lists, which takes long where they are busy, and holds nothing up.
        WhoWaits::WhoTouchesIt => thread_cpu_time().saturating_sub(cpu_before),
    };
    Step {
        result,
        took,
        held_up: who_waits.counted(held_up, processors),
        preparing: prepared.took(),
        prepared_on: prepared.node(),
    }
}

/// A collapse fills what a balloon took since the plan was made: so this is asked just before. Programs that free and use memory again all the time
/// are not asked, or few of their regions would be promoted. Errors: some pages are gone ([`io::ErrorKind::InvalidData`]).
fn ensure_none_given_back(target: &PidFd, region: Candidate) -> io::Result<()> {
    let (start, end) = (region.start.0, region.start.0 + HUGE_PAGE);
    let mut present = 0;
    let scanned = page_scan::scan(target.pid(), start, end, category::PRESENT, |run| {
        present += (run.end - run.start) / BASE_PAGE
    });
    match scanned {
        Ok(()) if present < region.present.0 => Err(io::ErrorKind::InvalidData.into()),
        // Kernels before 6.7 do not say.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether a collapse comes before ordinary threads. For shared memory it takes up to 10 ms where a hundred processes map it, and only threads that
/// touch the region wait for it: work on that processor comes first, except in fast promotion.
fn comes_first(who_waits: WhoWaits, preparation: &Preparation) -> bool {
    who_waits == WhoWaits::AnyThread || preparation.urgency() == Urgency::AtOnce
}

/// Splits a huge page. That takes less than a millisecond, copies nothing and needs no memory, so it has no pace.
pub(super) fn timed_split(target: &PidFd, region: Address) -> Step {
    let started = Instant::now();
    let split_surely = || split(target, region).and_then(|()| ensure_split(target, region));
    let result = split_surely().or_else(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            drain_page_lists(target, region);
            split_surely()
        }
        _ => Err(error),
    });
    let took = Nanos::from_duration(started.elapsed());
    Step { result, took, held_up: took, preparing: Nanos(0), prepared_on: None }
}

/// A processor's list of pages on their way to the LRU lists holds them, and the kernel does not split what is held. A collapse of what is huge
/// already changes nothing, but begins by draining every processor's lists.
fn drain_page_lists(target: &PidFd, region: Address) {
    let _nothing_to_collapse = advise(target, region.0, HUGE_PAGE, Advice::Collapse);
}

/// The kernel reports success where it leaves a huge page alone that several processes map, or that something holds. Errors: it did
/// ([`io::ErrorKind::ResourceBusy`]).
fn ensure_split(target: &PidFd, region: Address) -> io::Result<()> {
    // Kernels before 6.7 do not say.
    match page_scan::any_huge(target.pid(), region.0, region.0 + HUGE_PAGE) {
        Ok(true) => Err(io::ErrorKind::ResourceBusy.into()),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// Splits by advising one base page that is neither the first nor the last; the contents stay the same.
pub(super) fn split(target: &PidFd, region: Address) -> io::Result<()> {
    advise(target, region.0 + BASE_PAGE, BASE_PAGE, Advice::Cold)
}

#[cfg(test)]
mod tests {
    use heat::units::{Pages, Slowdown};
    use hugepilot_os::memory::{AlignedMemory, OwnAdvice};

    use super::*;

    #[test]
    fn what_was_given_back_since_the_plan_is_not_filled_again() {
        let mut memory = AlignedMemory::anonymous(HUGE_PAGE as usize).unwrap();
        memory.advise(0, HUGE_PAGE as usize, OwnAdvice::NoHugePage).unwrap();
        memory.bytes_mut().fill(1);
        memory.advise(5 * BASE_PAGE as usize, BASE_PAGE as usize, OwnAdvice::DontNeed).unwrap();
        let own = PidFd::open(std::process::id()).unwrap();
        if page_scan::any_huge(own.pid(), memory.address(), memory.address() + HUGE_PAGE).is_err() {
            return eprintln!("skipped: this kernel has no PAGEMAP_SCAN");
        }
        let start = Address(memory.address());
        let planned = |present| Candidate { start, who_waits: WhoWaits::AnyThread, present: Pages(present) };
        let mut preparation = Preparation::new(Slowdown::UNASKED);
        let mut collapsed =
            |of_guest| collapse(&own, planned(512), of_guest, &mut preparation, 1, &Stop::default()).result;
        assert_eq!(collapsed(true).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(ensure_none_given_back(&own, planned(511)).is_ok(), "it is as it was");
        memory.advise(0, HUGE_PAGE as usize, OwnAdvice::HugePage).unwrap();
        collapsed(false).expect("of a program that is no guest");
    }

    #[test]
    fn collapses_of_shared_memory_come_first_only_when_they_are_to_be_over_with() {
        let at = Preparation::new;
        let (usual, fast) = (at(Slowdown::UNASKED), at(Slowdown::FAST));
        assert!(comes_first(WhoWaits::AnyThread, &usual) && comes_first(WhoWaits::WhoTouchesIt, &fast));
        assert!(!comes_first(WhoWaits::WhoTouchesIt, &usual));
    }
}
