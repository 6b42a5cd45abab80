//! Trials: what acting takes and what it frees on this machine, found out on memory of our own.
//!
//! Owns: 2 MiB of memory for a moment. Never touches: a target.

use std::io;
use std::time::Instant;

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::{Advice, PidFd, advise::advise};

use super::give_back::split;
use crate::kernel::pagemap;
use crate::units::{Address, BASE_PAGE, HUGE_PAGE, Nanos, PAGES_PER_REGION};

/// How long a collapse of one region takes, during which a program that touches it waits.
///
/// Errors: no huge page could be had.
pub fn collapse_time() -> io::Result<Nanos> {
    let mut memory = Mapping::anonymous(HUGE_PAGE as usize)?;
    memory.advise(0, HUGE_PAGE as usize, OwnAdvice::NoHugePage)?;
    memory.bytes_mut().iter_mut().step_by(BASE_PAGE as usize).for_each(|byte| *byte = 1);
    memory.advise(0, HUGE_PAGE as usize, OwnAdvice::HugePage)?;
    let started = Instant::now();
    advise(&PidFd::open(std::process::id())?, memory.address(), HUGE_PAGE, Advice::Collapse)?;
    Ok(Nanos::from_duration(started.elapsed()))
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
        let time = collapse_time().unwrap();
        assert!((10_000..1_000_000_000).contains(&time.0), "{time}");
    }
}
