//! Give back: split huge pages, and free their empty base pages where the kernel does that.
//!
//! Owns: the split of single regions. Never touches: contents; a split leaves every byte readable as it was.
//!
//! A remote `MADV_COLD` on one base page inside a huge page splits it. Newer kernels then replace base pages that hold
//! only zeros by the shared zero page, which frees them; that is documented nowhere, so it is tried.

use std::io;
use std::time::Instant;

use heat::units::{Address, BASE_PAGE, Nanos};
use hugepilot_os::advise::advise;
use hugepilot_os::stop::Stop;
use hugepilot_os::{Advice, PidFd};

use crate::act::Outcome;
use crate::act::promote::{Schedule, Step, step_through};

/// Splits the huge pages in these regions one after the other, until all are done, the target ends, or stopping is requested. A split takes
/// less than a millisecond, copies nothing and needs no memory, so that it has no pace.
pub fn give_back(target: &PidFd, regions: &[Address], stop: &Stop, mut progress: impl FnMut(&Outcome)) -> Outcome {
    let mut outcome = Outcome::default();
    let schedule = Schedule { pacer: None, until: None, stop, waited: &mut || None };
    step_through(regions, schedule, &mut outcome, &mut progress, |region| {
        let started = Instant::now();
        let result = split(target, region);
        let took = Nanos::from_duration(started.elapsed());
        Step { result, took, held_up: took, preparing: Nanos(0), prepared_on: None }
    });
    outcome
}

/// Splits by advising one base page that is neither the first nor the last.
pub(super) fn split(target: &PidFd, region: Address) -> io::Result<()> {
    advise(target, region.0 + BASE_PAGE, BASE_PAGE, Advice::Cold)
}
