//! What `run`, `attach` and the daemon print alike, at the beginning and at the end.
//!
//! Owns: what to expect of the pace, and the summary of a run. Never touches: how the summary is printed.

use heat::units::{Nanos, Slowdown};
use kernel::process::own_cpu_time;
use pilot::engine::PilotSummary;
use pilot::machine;

use super::terminal;
use crate::report::{PilotReport, text};

/// Prints on standard error what `--fast` will cost a program, if that can be found out.
pub(super) fn say_if_fast(max_slowdown: Slowdown) {
    if max_slowdown >= Slowdown::FAST
        && let Ok(times) = machine::collapse_times()
    {
        terminal::say(&text::fast(max_slowdown, times.slowest()));
    }
}

pub(super) fn report_of(pilot_summary: &PilotSummary, elapsed: Nanos) -> PilotReport<'_> {
    PilotReport {
        rounds: pilot_summary.counts.scans,
        processes: pilot_summary.processes,
        outcome: &pilot_summary.outcome,
        given_back: pilot_summary.counts.given_back,
        lost: pilot_summary.counts.lost,
        growth: pilot_summary.growth,
        before: pilot_summary.before(),
        after: pilot_summary.after(),
        left_alone: &pilot_summary.left_alone,
        reasons: &pilot_summary.reasons,
        mostly_kept: pilot_summary.mostly_kept.map(|(_, reason)| reason),
        too_small: pilot_summary.too_small,
        pilot: own_cpu_time(),
        elapsed,
    }
}
