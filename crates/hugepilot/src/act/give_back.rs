//! Give back: split huge pages, and free their empty base pages where the kernel does that.
//!
//! Owns: the split of single regions, and the probe of what a split frees. Never touches: contents; a split leaves every
//! byte readable as it was.
//!
//! A remote `MADV_COLD` on one base page inside a huge page splits it. Newer kernels then replace base pages that hold
//! only zeros by the shared zero page, which frees them; that is documented nowhere, so it is probed.

use std::io;

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::{Advice, PidFd, advise::advise};

use super::Outcome;
use super::promote::{Pacer, Schedule, Step, step_through};
use crate::kernel::pagemap;
use crate::stop::Stop;
use crate::units::{Address, BASE_PAGE, HUGE_PAGE, PAGES_PER_REGION};

/// Splits the huge pages in these regions, until all are done, the target ends, or stopping is requested.
pub fn give_back(
    target: &PidFd,
    regions: &[Address],
    pacer: &mut Pacer,
    stop: &Stop,
    mut progress: impl FnMut(&Outcome),
) -> Outcome {
    let mut outcome = Outcome::default();
    let schedule = Schedule { step: Step::Split, pacer, until: None, stop };
    step_through(regions, schedule, &mut outcome, &mut progress, |region| split(target, region));
    outcome
}

/// Splits by advising one base page that is neither the first nor the last.
fn split(target: &PidFd, region: Address) -> io::Result<()> {
    advise(target, region.0 + BASE_PAGE, BASE_PAGE, Advice::Cold)
}

/// Whether this kernel frees the empty base pages of a huge page that it splits, tried on 2 MiB of our own.
///
/// Errors: no huge page could be had, or page frame numbers are hidden (CAP_SYS_ADMIN).
pub fn frees_empty_pages() -> io::Result<bool> {
    let mut mapping = Mapping::anonymous(HUGE_PAGE as usize)?;
    mapping.advise(0, HUGE_PAGE as usize, OwnAdvice::HugePage)?;
    mapping.bytes_mut()[0] = 1;
    let own = PidFd::open(std::process::id())?;
    let region = Address(mapping.address());
    advise(&own, region.0, HUGE_PAGE, Advice::Collapse)?;
    split(&own, region)?;
    let frames = pagemap::own_frames(region, PAGES_PER_REGION).map_err(io::Error::other)?;
    if frames[0] == 0 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // Freed pages all map the one zero page, or nothing at all; kept ones have a frame each.
    Ok(frames[2] == frames[3] || frames[2] == 0)
}
