//! What commands estimate a gain with.
//!
//! Owns: joining the cost of page walks with past trials, as the options have it. Never touches: the estimate.

use std::path::Path;

use heat::units::Bytes;
use kernel::target::Process;
use observe::calibrate;
use pilot::forecast::Estimator;
use pilot::past_trials::{PastTrials, TRIALS};

use super::args::ForecastOptions;
use super::terminal;

/// What trials have shown on this machine; nothing where that is to be ignored.
pub(super) fn past_trials(options: &ForecastOptions) -> PastTrials {
    if options.no_calibration { PastTrials::default() } else { PastTrials::read(Path::new(TRIALS)) }
}

/// For a process that walks for this much memory. Measures what a page walk costs unless that was done since boot.
pub(super) fn estimator(process: Process, footprint: Bytes, options: &ForecastOptions) -> Estimator {
    let (cost, _) = calibrate::walk_cost(footprint, terminal::say_measuring);
    Estimator::of(cost, &past_trials(options), process)
}
