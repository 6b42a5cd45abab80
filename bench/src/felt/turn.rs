//! One turn: a program under load is left alone, left alone again, promoted, and left alone.
//!
//! Owns: the phases and their boundaries. Never touches: how the program is loaded, or who promotes.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use indicatif::ProgressBar;

use super::host::Host;
use super::mode::{Done, Mode, Promoter};
use super::program::{FeltSetup, Loaded};
use super::record::{FeltPromotion, FeltTurn, Phase};
use crate::sample::huge_memory;
use crate::settings::SavedSettings;
use crate::workload::{WINDOW, WorkInterval, leave_alone};

/// Excluded before the first phase: the aftermath of starting, giving back and counting huge pages.
const SETTLE: Duration = WINDOW.saturating_mul(8);
/// After the promotion; long enough for the last of its windows to be reported.
const AFTER: Duration = Duration::from_secs(3);
/// A region may be huge for another reason, and one may resist splitting while the program uses it.
const GIVEN_BACK: Bytes = Bytes(16 << 20);
const ATTEMPTS: u32 = 5;

/// Everything that turns need.
pub struct Stage<'a> {
    /// How programs are set up.
    pub setup: &'a FeltSetup,
    /// How long phases are.
    pub timing: FeltTiming,
    /// Who promotes.
    pub promoter: &'a Promoter<'a>,
    /// Ends everything early.
    pub stop: &'a Stop,
    /// Where progress is shown.
    pub bar: &'a ProgressBar,
}

/// How long phases are.
#[derive(Clone, Copy, Debug)]
pub struct FeltTiming {
    /// Each of the two phases in which nobody touches the program.
    pub alone: Duration,
}

impl FeltTiming {
    /// The approximate time of a turn, without the promotion itself.
    pub fn turn_time(self, host: Host, setup: &FeltSetup) -> Duration {
        let around = match host.needs_new_program() {
            true => setup.start_time() + 2 * AFTER,
            false => Duration::from_secs_f64(1e-9 * setup.size.0 as f64),
        };
        around + SETTLE + 2 * self.alone + AFTER
    }
}

impl Stage<'_> {
    /// Shows the current phase.
    pub fn say(&self, about: &str, phase: &str) {
        self.bar.set_message(format!("{about}: {phase}"));
    }

    /// Measures one turn.
    pub fn turn(
        &self,
        (host, mode, round): (Host, Mode, u32),
        about: &str,
        program: &mut Loaded,
        settings: &mut SavedSettings,
    ) -> Result<FeltTurn> {
        self.say(about, "waiting until free memory is as it should be");
        host.wait_until_ready(settings, self.stop)?;
        let huge_before = huge_memory(program.running.pid())?;
        self.leave_alone(program, SETTLE)?;
        let alone = self.watch_alone("alone", about, program)?;
        let alone_again = self.watch_alone("alone again", about, program)?;
        self.say(about, "promoting");
        let Done { start, end, cpu, output } = self.promoter.promote(mode, &program.name, &mut *program.running)?;
        self.leave_alone(program, AFTER)?;
        host.go_on(settings)?;
        let bytes = (huge_memory(program.running.pid())?.saturating_sub(huge_before)).0;
        let (seconds, cpu_seconds) = (end.duration_since(start).as_secs_f64(), cpu.as_secs_f64());
        let progress = program.running.progress();
        let phase = |intervals: Vec<WorkInterval>| Phase::of(&intervals, |interval| seconds_after(start, interval.end));
        Ok(FeltTurn {
            round,
            mode,
            host,
            capacity_per_second: program.capacity_per_second,
            requests_per_second: program.requests_per_second,
            alone: phase(progress.intervals(alone.start, alone.end)),
            alone_again: phase(progress.intervals(alone_again.start, alone_again.end)),
            promotion: phase(progress.overlapping(start, end)),
            after: phase(progress.intervals(end, Instant::now())),
            promoted: FeltPromotion { bytes, seconds, cpu_seconds, output },
        })
    }

    /// Leaves the program alone for a phase.
    fn watch_alone(&self, phase: &str, about: &str, program: &mut Loaded) -> Result<Range<Instant>> {
        self.say(about, phase);
        let start = Instant::now();
        self.leave_alone(program, self.timing.alone)?;
        Ok(start..Instant::now())
    }

    /// Splits the program's huge pages, so that the next turn starts on base pages.
    pub fn give_back(&self, program: &mut Loaded) -> Result<()> {
        let pid = program.running.pid();
        let mut left = huge_memory(pid)?;
        for _ in 0..ATTEMPTS {
            self.promoter.tool.run_on("give-back", pid, &["--all"], self.stop)?;
            left = huge_memory(pid)?;
            if left <= GIVEN_BACK {
                return Ok(());
            }
        }
        ensure!(left <= GIVEN_BACK, "{left} of process {pid} stayed huge after {ATTEMPTS} times `hugepilot give-back`");
        Ok(())
    }

    fn leave_alone(&self, program: &mut Loaded, time: Duration) -> Result<()> {
        leave_alone(&mut [&mut *program.running], Instant::now() + time, self.stop)
    }
}

/// Negative before the origin.
fn seconds_after(origin: Instant, time: Instant) -> f64 {
    match time.checked_duration_since(origin) {
        Some(after) => after.as_secs_f64(),
        None => -origin.duration_since(time).as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_origin_are_negative() {
        let origin = Instant::now();
        let quarter = Duration::from_millis(250);
        assert_eq!(seconds_after(origin, origin + quarter), 0.25);
        assert_eq!(seconds_after(origin + quarter, origin), -0.25);
    }
}
