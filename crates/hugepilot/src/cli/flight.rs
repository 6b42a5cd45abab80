//! What `run` and `attach` report alike.
//!
//! Owns: the summary of a flight. Never touches: how it is printed.

use crate::pilot::{Flight, own_cpu_time};
use crate::report::FlightReport;
use crate::units::Nanos;

pub(super) fn report_of(flight: &Flight, elapsed: Nanos) -> FlightReport<'_> {
    FlightReport {
        rounds: flight.rounds,
        processes: flight.processes,
        outcome: &flight.outcome,
        given_back: flight.given_back,
        growth: flight.growth,
        before: flight.before(),
        after: flight.after(),
        left_alone: &flight.left_alone,
        too_small: flight.too_small,
        pilot: own_cpu_time(),
        elapsed,
    }
}
