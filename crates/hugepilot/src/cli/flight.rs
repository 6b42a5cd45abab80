//! What `run`, `attach` and the daemon say alike, at the beginning and at the end.
//!
//! Owns: what to expect of the pace, and the summary of a flight. Never touches: how the summary is printed.

use std::io::{self, Write};

use heat::units::{Nanos, Slowdown};
use kernel::process::own_cpu_time;
use pilot::act;
use pilot::engine::Flight;

use crate::report::{FlightReport, text};

/// Says on standard error what being fast will do to a program, where that can be found out.
pub(super) fn say_if_fast(max_slowdown: Slowdown) {
    if max_slowdown >= Slowdown::FAST
        && let Ok(times) = act::collapse_times()
    {
        // Standard error may be closed; nothing depends on this.
        let _ = io::stderr().write_all(text::fast(max_slowdown, times.slowest()).as_bytes());
    }
}

pub(super) fn report_of(flight: &Flight, elapsed: Nanos) -> FlightReport<'_> {
    FlightReport {
        rounds: flight.counts.looks,
        processes: flight.processes,
        outcome: &flight.outcome,
        given_back: flight.counts.given_back,
        growth: flight.growth,
        before: flight.before(),
        after: flight.after(),
        left_alone: &flight.left_alone,
        too_small: flight.too_small,
        pilot: own_cpu_time(),
        elapsed,
    }
}
