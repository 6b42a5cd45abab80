//! Trials: what acting takes and what it frees on this machine, found out on memory of our own.
//!
//! Owns: some memory for a moment. Never touches: a target.

use std::io;
use std::time::Instant;

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::nodes::current_cpu;
use hugepilot_os::{Advice, PidFd, advise::advise};

use super::Times;
use super::give_back::split;
use super::prepare::Preparation;
use crate::kernel::pagemap;
use crate::kernel::probe::CollapseTimes;
use crate::units::{Address, BASE_PAGE, HUGE_PAGE, Nanos, PAGES_PER_REGION};

/// Collapses of each kind in a trial.
const COLLAPSES: usize = 4;

/// How long a collapse of one region takes, tried on 16 MiB of our own.
///
/// Errors: no huge page could be had.
pub fn collapse_times() -> io::Result<CollapseTimes> {
    let (own, mut preparation) = (PidFd::open(std::process::id())?, Preparation::default());
    let (mut prepared, mut unprepared, mut preparing) = (Times::default(), Times::default(), Times::default());
    // What is collapsed stays until the end, so that no page is taken twice.
    let mut memory = Mapping::anonymous(2 * COLLAPSES * HUGE_PAGE as usize)?;
    memory.advise(0, memory.len(), OwnAdvice::NoHugePage)?;
    memory.bytes_mut().iter_mut().step_by(BASE_PAGE as usize).for_each(|byte| *byte = 1);
    for number in 0..2 * COLLAPSES as u64 {
        let kind = if number % 2 == 0 { &mut unprepared } else { &mut prepared };
        // Asking for huge pages wakes khugepaged, which would collapse some of them first.
        memory.advise((number * HUGE_PAGE) as usize, HUGE_PAGE as usize, OwnAdvice::HugePage)?;
        let mut _kept_on_its_processor = None;
        if number % 2 == 1 {
            let started = Instant::now();
            _kept_on_its_processor = Some(preparation.make_ready(current_cpu(), None)?);
            preparing.add(Nanos::from_duration(started.elapsed()));
        }
        let started = Instant::now();
        advise(&own, memory.address() + number * HUGE_PAGE, HUGE_PAGE, Advice::Collapse)?;
        kind.add(Nanos::from_duration(started.elapsed()));
    }
    let typical = |times: &Times| times.percentile(0.5).unwrap_or_default();
    Ok(CollapseTimes { prepared: typical(&prepared), unprepared: typical(&unprepared), preparing: typical(&preparing) })
}

/// Whether this kernel frees the empty base pages of a huge page that it splits, tried on 2 MiB of our own.
///
/// Errors: no huge page could be had, or page frame numbers are hidden (CAP_SYS_ADMIN).
pub fn frees_empty_pages() -> io::Result<bool> {
    let mut memory = Mapping::anonymous(HUGE_PAGE as usize)?;
    memory.bytes_mut()[0] = 1;
    let (own, region) = (PidFd::open(std::process::id())?, Address(memory.address()));
    advise(&own, region.0, HUGE_PAGE, Advice::Collapse)?;
    split(&own, region)?;
    let frames = pagemap::own_frames(region, PAGES_PER_REGION).map_err(io::Error::other)?;
    if frames[0] == 0 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // Freed pages all map the one zero page, or nothing at all; kept ones have a frame each.
    Ok(frames[2] == frames[3] || frames[2] == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_takes_some_time() {
        let times = collapse_times().unwrap();
        assert!(times.usual() <= times.slowest(), "{times:?}");
        assert!((10_000..1_000_000_000).contains(&times.usual().0), "{times:?}");
    }
}
