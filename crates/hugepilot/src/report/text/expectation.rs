//! What to expect of a promotion, printed before it begins.
//!
//! Owns: these words. Never touches: how it is estimated.

use heat::units::{Nanos, Slowdown};
use pilot::forecast::Forecast;
use pilot::words::count_of;

use super::{joined, plan};
use crate::report::Expectation;

/// What to expect, printed before acting. `forecast`: None if nothing tells what the program gains, as of a virtual machine.
pub fn expectation(expectation: &Expectation, forecast: Option<Forecast>) -> String {
    let gain = forecast.map(|forecast| format!("expected gain: {}", plan::gain(forecast)));
    joined(std::iter::once(expected(expectation)).chain(gain).collect())
}

pub(super) fn expected(expectation: &Expectation) -> String {
    format!(
        "expect {}, {} of growth, about {} on a machine that does little else, several times as long on a busy one; meanwhile the program is to be \
         slower by {} at most on average, in stalls of about {} (as collapses of memory of our own took)",
        count_of(expectation.regions, "region"),
        expectation.growth,
        expectation.elapsed,
        expectation.max_slowdown,
        expectation.longest_stall
    )
}

/// What `--fast` will cost the program, printed before anything is promoted.
pub fn fast(max_slowdown: Slowdown, stall: Nanos) -> String {
    format!(
        "hugepilot: promoting fast: the program may lose {max_slowdown} of its speed meanwhile, in stalls of about {stall} (as collapses of memory \
         of our own took; a busy machine has longer ones); a smaller --max-slowdown is gentler\n"
    )
}
