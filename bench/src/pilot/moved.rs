//! The scenario `moved`: the hot memory moves to another quarter after the pilot has settled.
//!
//! Owns: its steps and their results. Never touches: how the pilot notices.

use std::time::{Duration, Instant};

use anyhow::Result;
use heat::statistics::{median, paired_ratio};
use heat::units::Bytes;
use serde::Serialize;

use super::arguments::PilotArguments;
use super::scenario::{AROUND, Scenario, Stage, all_within, figure, seconds};
use super::timeline::{Speed, back_after};
use crate::comparison::median_of;
use crate::sample::huge_memory;
use crate::table::interval;
use crate::warm::WarmMemory;
use crate::workload::{Hot, HotPattern, POLL, Running, Start, Workload, move_on};

/// The interval between samples of speed and huge memory.
const SAMPLE: Duration = Duration::from_millis(250);
/// The gain counts as restored at this share of it.
const SHARE: f64 = 0.95;
/// The figure: the time limit in seconds.
const AT_MOST_SECONDS: f64 = 10.0;

/// The parameters of the measurement.
pub(super) struct Moved {
    program: Hot,
    limit: Bytes,
    rounds: u32,
    /// On base pages, twice.
    alone: Duration,
    /// From the pilot's start to the move.
    settle: Duration,
    /// The last part of that, in which the settled speed is measured.
    settled: Duration,
    /// From the move to the end.
    after: Duration,
}

/// One program's life.
#[derive(Serialize)]
pub(super) struct Round {
    default_throughput: f64,
    default_again_throughput: f64,
    settled_throughput: f64,
    /// From the move.
    speeds: Vec<Speed>,
    /// From the pilot's start.
    huge: Vec<Huge>,
    moved_seconds: f64,
    back_after_seconds: Option<f64>,
    /// From the move until nearly all of the limit was huge for good; 0 if it always was, None if it never was again. This does not say which regions
    /// are huge, but does not scatter as speeds do on a noisy host.
    huge_again_after_seconds: Option<f64>,
}

/// Memory on huge pages.
#[derive(Clone, Copy, Debug, Serialize)]
struct Huge {
    /// Since the pilot's start.
    seconds: f64,
    bytes: u64,
}

impl Moved {
    pub(super) fn new(arguments: &PilotArguments) -> Self {
        let size = arguments.size();
        let seconds = |usual, quick| Duration::from_secs(if arguments.quick { quick } else { usual });
        Self {
            program: Hot { name: "pilot moved", size, pattern: HotPattern::Quarter, seed: arguments.seed },
            limit: Bytes(size.0 / 4),
            rounds: arguments.rounds(6, 1),
            alone: seconds(5, 2),
            settle: seconds(40, 12),
            settled: seconds(10, 4),
            after: seconds(25, 25),
        }
    }

    fn round(&self, stage: &Stage) -> Result<Round> {
        let _warm = WarmMemory::touch(self.program.size.0 / 4 * 5, &stage.stop)?;
        let mut program = self.program.start(Start::AsItIs, &stage.stop)?;
        stage.leave_alone(&mut [&mut *program], self.alone)?;
        let default_throughput = speed_of(&*program, self.alone);
        stage.leave_alone(&mut [&mut *program], self.alone)?;
        let default_again_throughput = speed_of(&*program, self.alone);
        let mut pilot = stage.tool.attach(program.pid(), true, Some(self.limit))?;
        let (begun, mut huge) = (Instant::now(), Vec::new());
        self.watch(stage, &mut *program, begun, self.settle, &mut huge)?;
        let settled_throughput = speed_of(&*program, self.settled);
        pilot.check()?;
        move_on(program.pid())?;
        let moved = Instant::now();
        self.watch(stage, &mut *program, begun, self.after, &mut huge)?;
        let speeds = speeds_since(&*program, moved);
        pilot.end()?;
        // The mean of two windows scatters less than one.
        let default = (default_throughput + default_again_throughput) / 2.0;
        let back_after_seconds = back_after(&speeds, default, settled_throughput, SHARE);
        let moved_seconds = (moved - begun).as_secs_f64();
        let huge_again_after_seconds = huge_again_after(&huge, moved_seconds);
        Ok(Round {
            default_throughput,
            default_again_throughput,
            settled_throughput,
            speeds,
            huge,
            moved_seconds,
            back_after_seconds,
            huge_again_after_seconds,
        })
    }

    fn watch(
        &self,
        stage: &Stage,
        program: &mut dyn Running,
        begun: Instant,
        time: Duration,
        huge: &mut Vec<Huge>,
    ) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let next = Instant::now() + SAMPLE;
            huge.push(Huge { seconds: begun.elapsed().as_secs_f64(), bytes: huge_memory(program.pid())?.0 });
            stage.leave_alone(&mut [&mut *program], next.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }
}

/// The time after the move from which samples stay near the maximum.
fn huge_again_after(samples: &[Huge], moved_seconds: f64) -> Option<f64> {
    let most = samples.iter().map(|huge| huge.bytes).max()? as f64;
    let since = samples.iter().skip_while(|huge| huge.seconds < moved_seconds);
    let mut again = Some(0.0);
    for huge in since {
        let is_near = huge.bytes as f64 >= most * SHARE;
        again = if is_near { again.or(Some(huge.seconds - moved_seconds)) } else { None };
    }
    again
}

/// Operations a second over the last `time`.
fn speed_of(program: &dyn Running, time: Duration) -> f64 {
    let now = Instant::now();
    program.progress().window(now - time.saturating_sub(POLL), now).throughput()
}

fn speeds_since(program: &dyn Running, start: Instant) -> Vec<Speed> {
    let ends = (1..).map(|number| start + SAMPLE * number).take_while(|&end| end <= Instant::now());
    let speed = |end: Instant| Speed {
        seconds: (end - start).as_secs_f64(),
        throughput: program.progress().window(end - SAMPLE, end).throughput(),
    };
    ends.map(speed).collect()
}

impl Scenario for Moved {
    type Round = Round;
    const NAME: &'static str = "moved";

    fn description(&self) -> String {
        format!(
            "{}, which is another one after {} s under the pilot; at most {} huge",
            self.program.description(),
            self.settle.as_secs(),
            self.limit
        )
    }

    fn expected_time(&self) -> Duration {
        self.rounds * (AROUND + 2 * self.alone + self.settle + self.after)
    }

    fn measure(&self, stage: &Stage, rounds: &mut Vec<Round>) -> Result<()> {
        for number in 1..=self.rounds {
            let round = self.round(stage)?;
            eprintln!("round {number}: {} after the move", seconds(round.back_after_seconds));
            rounds.push(round);
        }
        Ok(())
    }

    fn text(&self, rounds: &[Round]) -> String {
        let ratio = |subject: fn(&Round) -> f64| {
            let pairs = rounds.iter().map(|round| (subject(round), round.default_throughput));
            paired_ratio(&pairs.collect::<Vec<_>>())
        };
        let back: Vec<Option<f64>> = rounds.iter().map(|round| round.back_after_seconds).collect();
        let typical = median_of(back.iter().map(|back| back.unwrap_or(f64::INFINITY)));
        let or_never = |round: &Round| round.huge_again_after_seconds.unwrap_or(f64::INFINITY);
        let again: Vec<f64> = rounds.iter().map(or_never).collect();
        let latest = again.iter().copied().reduce(f64::max);
        let most = rounds.iter().flat_map(|round| &round.huge).map(|huge| huge.bytes).max().unwrap_or(0);
        let within = if Bytes(most) <= self.limit { "met" } else { "NOT MET" };
        format!(
            "{} rounds\nsettled, of default        {}\ndefault again, of default  {}\nas much huge as before     after {} (median), {} at \
             most\n\nfigures\n{}{}{}",
            rounds.len(),
            interval(ratio(|round| round.settled_throughput)),
            interval(ratio(|round| round.default_again_throughput)),
            seconds(median(&again).filter(|again| again.is_finite())),
            seconds(latest.filter(|again| again.is_finite())),
            figure(
                "95 % of the gain back within 10 s, median",
                &seconds(typical.filter(|typical| typical.is_finite())),
                all_within(&[typical], AT_MOST_SECONDS),
            ),
            figure(
                "the same, in every round",
                &format!(
                    "{} of {}",
                    back.iter().flatten().filter(|&&back| back <= AT_MOST_SECONDS).count(),
                    back.len()
                ),
                all_within(&back, AT_MOST_SECONDS),
            ),
            figure(&format!("at most {} huge, at any time", self.limit), &format!("at most {}", Bytes(most)), within),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn round(back: Option<f64>, huge: u64) -> Round {
        Round {
            default_throughput: 100.0,
            default_again_throughput: 101.0,
            settled_throughput: 130.0,
            speeds: Vec::new(),
            huge: samples(&[0, huge, 0]),
            moved_seconds: 0.25,
            back_after_seconds: back,
            huge_again_after_seconds: Some(0.75),
        }
    }

    /// Samples a quarter of a second apart.
    fn samples(bytes: &[u64]) -> Vec<Huge> {
        let huge = |(number, &bytes): (usize, &u64)| Huge { seconds: number as f64 / 4.0, bytes };
        bytes.iter().enumerate().map(huge).collect()
    }

    fn text(rounds: &[Round]) -> String {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            pilot: PilotArguments,
        }
        Moved::new(&Line::parse_from(["pilot", "--quick"]).pilot).text(rounds)
    }

    #[test]
    fn huge_again_is_what_stays() {
        let after = |bytes: &[u64]| huge_again_after(&samples(bytes), 0.5);
        assert_eq!(after(&[100, 20, 20, 97, 80, 99, 100]), Some(0.75));
        assert_eq!(after(&[100, 20, 99, 100]), Some(0.0), "nothing changed its place");
        assert_eq!(after(&[100, 100, 99, 80]), None);
        assert!(text(&[round(Some(4.0), 1 << 20)]).contains("after 0.75 s (median), 0.75 s at most"));
    }

    #[test]
    fn every_round_must_be_in_time_and_every_sample_within_the_limit() {
        let limit = 256 << 20;
        let verdicts = |rounds: &[Round]| {
            let text = text(rounds);
            text.lines().rev().take(3).map(|line| line.contains("NOT MET")).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&[round(Some(4.0), limit), round(Some(9.0), limit)]), [false, false, false]);
        assert_eq!(
            verdicts(&[round(Some(4.0), limit), round(None, limit), round(Some(5.0), limit)]),
            [false, true, false]
        );
        assert_eq!(verdicts(&[round(Some(4.0), limit), round(None, limit), round(None, limit)]), [false, true, true]);
        assert_eq!(verdicts(&[round(Some(4.0), limit), round(Some(9.0), limit + 1)]), [true, false, false]);
    }
}
