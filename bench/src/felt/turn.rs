//! One turn: a program under load is left alone, left alone again, promoted, and left alone.
//!
//! Owns: the phases and their borders. Never touches: how the program is loaded, or who promotes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use indicatif::ProgressBar;

use super::host::Host;
use super::mode::{Mode, Promoter};
use super::program::{FeltSetup, Loaded};
use super::record::{FeltPromotion, FeltTurn, Phase};
use crate::sample::huge_memory;
use crate::settings::SavedSettings;
use crate::workload::{Running, WINDOW, WorkInterval, leave_alone};

/// Left out before the first phase: what starting, giving back and counting huge pages leaves behind.
const SETTLE: Duration = WINDOW.saturating_mul(8);
/// After the promotion; long enough that the last of its windows has been told.
const AFTER: Duration = Duration::from_secs(3);
/// A region may be huge by another's doing, and one may refuse to be split while the program has it in use.
const GIVEN_BACK: Bytes = Bytes(16 << 20);
const ATTEMPTS: u32 = 5;

/// What all turns need.
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
    /// Each of the two in which nobody touches the program.
    pub alone: Duration,
}

impl FeltTiming {
    /// Roughly how long a turn takes, without the promotion itself.
    pub fn turn_time(self, host: Host, setup: &FeltSetup) -> Duration {
        let around = match host.needs_new_program() {
            true => setup.start_time() + 2 * AFTER,
            false => Duration::from_secs_f64(1e-9 * setup.size.0 as f64),
        };
        around + SETTLE + 2 * self.alone + AFTER
    }
}

impl Stage<'_> {
    /// Shows what goes on.
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
        let Loaded { running, name, capacity_per_second, requests_per_second } = program;
        self.say(about, "waiting until free memory is as it should be");
        host.wait_until_ready(settings, self.stop)?;
        let huge_before = huge_memory(running.pid())?;
        self.leave_alone(&mut **running, SETTLE)?;
        self.say(about, "alone");
        let [first, second] = [Instant::now(), Instant::now() + self.timing.alone];
        self.leave_alone(&mut **running, self.timing.alone)?;
        self.say(about, "alone again");
        self.leave_alone(&mut **running, self.timing.alone)?;
        self.say(about, "promoting");
        let asked = Instant::now();
        let done = self.promoter.promote(mode, name, &mut **running)?;
        self.leave_alone(&mut **running, AFTER)?;
        host.go_on(settings)?;
        let bytes = huge_memory(running.pid())?.0.saturating_sub(huge_before.0);
        let progress = running.progress();
        let phase =
            |intervals: &[WorkInterval]| Phase::of(intervals, |interval| seconds_after(done.start, interval.end));
        Ok(FeltTurn {
            round,
            mode,
            host,
            capacity_per_second: *capacity_per_second,
            requests_per_second: *requests_per_second,
            alone: phase(&progress.intervals(first, second)),
            alone_again: phase(&progress.intervals(second, asked)),
            promotion: phase(&progress.overlapping(done.start, done.end)),
            after: phase(&progress.intervals(done.end, Instant::now())),
            promoted: FeltPromotion {
                bytes,
                seconds: done.end.duration_since(done.start).as_secs_f64(),
                cpu_seconds: done.cpu.as_secs_f64(),
                output: done.output,
            },
        })
    }

    /// Splits the program's huge pages, so that the next turn starts from base pages again.
    pub fn give_back(&self, program: &mut Loaded) -> Result<()> {
        let pid = program.running.pid();
        let mut left = huge_memory(pid)?;
        for _ in 0..ATTEMPTS {
            self.promoter.tool.give_back(pid, self.stop)?;
            left = huge_memory(pid)?;
            if left <= GIVEN_BACK {
                return Ok(());
            }
        }
        ensure!(left <= GIVEN_BACK, "{left} of process {pid} stayed huge after {ATTEMPTS} times `hugepilot give-back`");
        Ok(())
    }

    fn leave_alone(&self, program: &mut dyn Running, time: Duration) -> Result<()> {
        leave_alone(&mut [program], Instant::now() + time, self.stop)
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
