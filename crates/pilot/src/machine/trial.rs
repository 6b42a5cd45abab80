//! Trials on our own memory: what acting costs and frees on this machine.
//!
//! Owns: some memory for a moment. Never touches: a target.

use std::io;

use heat::units::{Address, HUGE_PAGE, PAGES_PER_REGION, Slowdown};
use hugepilot_os::advise::advise;
use hugepilot_os::memory::AlignedMemory;
use hugepilot_os::{Advice, PidFd};
use kernel::pagemap;
use kernel::probe::CollapseTimes;

use crate::machine::collapse::split;
use crate::machine::prepare::Preparation;

/// How long a collapse of one region takes, tried on 8 MiB of our own.
///
/// Errors: no huge page could be had.
pub fn collapse_times() -> io::Result<CollapseTimes> {
    Preparation::new(Slowdown::ASKED_FOR).times()
}

/// Whether this kernel frees the empty base pages of a huge page that it splits, tried on 2 MiB of our own.
///
/// Errors: no huge page could be had, or page frame numbers are hidden (CAP_SYS_ADMIN).
pub fn frees_empty_pages() -> io::Result<bool> {
    let mut memory = AlignedMemory::anonymous(HUGE_PAGE as usize)?;
    memory.bytes_mut()[0] = 1;
    let (own, region) = (PidFd::open(std::process::id())?, Address(memory.address()));
    advise(&own, region.0, HUGE_PAGE, Advice::Collapse)?;
    split(&own, region)?;
    let frames = pagemap::own_frames(region, PAGES_PER_REGION).map_err(io::Error::other)?;
    if frames[0] == 0 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // Freed pages all map the same zero page, or nothing at all; kept ones have a frame each.
    Ok(frames[2] == frames[3] || frames[2] == 0)
}
