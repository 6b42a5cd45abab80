//! The scenario `late-starter`: one program has all huge pages that the limit allows, and an identical one starts later.
//!
//! Owns: its steps and their results. Never touches: how the daemon divides the limit.
//!
//! The daemon matches both by name only, so it finds the second one as it would on any host. Each program has its own processor; in every other trial
//! they are swapped.

use std::fmt::{Display, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use heat::statistics::median;
use heat::units::Bytes;
use serde::Serialize;

use super::arguments::PilotArguments;
use super::scenario::{AROUND, Scenario, Stage, all_within, figure, seconds};
use super::timeline::{Parts, fair_since};
use crate::process::Pinning;
use crate::sample::huge_memory;
use crate::warm::WarmMemory;
use crate::workload::{ChasePattern, OwnProcess, Running, words};

/// Both programs' name, as the configuration file has it.
const NAME: &str = "bench-equal";
const SAMPLE: Duration = Duration::from_millis(250);
/// Parts that stayed fair this long count as fair for good.
const LASTING: f64 = 10.0;
/// The figure: the time limit in seconds.
const AT_MOST_SECONDS: f64 = 30.0;

/// The parameters of the measurement.
pub(super) struct LateStarter {
    size: Bytes,
    /// From the first program's start to the second's.
    lead: Duration,
    /// The longest wait for fair parts.
    patience: Duration,
    rounds: u32,
    seed: u64,
}

/// One trial.
#[derive(Serialize)]
pub(super) struct Round {
    /// Whether the first program had the processor that is otherwise the second one's.
    swapped: bool,
    /// What the first one had when the second one started.
    first_had_bytes: u64,
    /// Both programs' parts from the second one's start.
    samples: Vec<Parts>,
    fair_after_seconds: Option<f64>,
    /// The daemon's status at the end.
    status: serde_json::Value,
}

impl LateStarter {
    pub(super) fn new(arguments: &PilotArguments) -> Self {
        Self {
            size: Bytes(if arguments.quick { 512 << 20 } else { 1 << 30 }),
            lead: Duration::from_secs(if arguments.quick { 10 } else { 20 }),
            patience: Duration::from_secs(90),
            rounds: arguments.rounds(6, 1),
            seed: arguments.seed,
        }
    }

    fn round(&self, stage: &Stage, swapped: bool) -> Result<Round> {
        let _warm = WarmMemory::touch(self.size.0 * 3, &stage.stop)?;
        let Pinning { program, load } = Pinning::of_this_process()?;
        let (one, other) = if swapped { (load, program) } else { (program, load) };
        let mut first = self.start(one, self.seed, stage)?;
        let mut daemon = stage.tool.daemon_with(&configuration_text(self.size))?;
        stage.leave_alone(&mut [&mut first], self.lead)?;
        daemon.process.check()?;
        let (began, first_had_bytes) = (Instant::now(), huge_memory(first.pid())?.0);
        let mut second = self.start(other, self.seed + 1, stage)?;
        let samples = self.watch(stage, began, &mut first, &mut second)?;
        let (fair_after_seconds, status) = (fair_since(&samples, self.size.0), stage.tool.status(&daemon.socket())?);
        daemon.process.end()?;
        Ok(Round { swapped, first_had_bytes, samples, fair_after_seconds, status })
    }

    fn start(&self, processor: Option<u32>, seed: u64, stage: &Stage) -> Result<OwnProcess> {
        let pattern = ChasePattern::Dependent;
        let options: [(&str, &dyn Display); 4] =
            [("size", &self.size.0), ("pattern", &pattern), ("seed", &seed), ("called", &NAME)];
        OwnProcess::start_on(processor, words("workload-chase", &options), &stage.stop)
    }

    /// Until parts have been fair for a while, or time is up.
    fn watch(
        &self,
        stage: &Stage,
        began: Instant,
        first: &mut OwnProcess,
        second: &mut OwnProcess,
    ) -> Result<Vec<Parts>> {
        let mut samples = Vec::new();
        while began.elapsed() < self.patience {
            let next = Instant::now() + SAMPLE;
            let seconds = began.elapsed().as_secs_f64();
            let bytes = [huge_memory(first.pid())?.0, huge_memory(second.pid())?.0];
            samples.push(Parts { seconds, bytes });
            if fair_since(&samples, self.size.0).is_some_and(|since| seconds - since > LASTING) {
                break;
            }
            stage.leave_alone(&mut [&mut *first, &mut *second], next.saturating_duration_since(Instant::now()))?;
        }
        Ok(samples)
    }
}

fn configuration_text(limit: Bytes) -> String {
    format!(
        "max-huge = \"{}M\"\nfairness = \"share\"\nmax-slowdown = \"40%\"\nmax-cpu = \"1%\"\n\n[[target]]\nname = \"{NAME}\"\n",
        limit.0 >> 20
    )
}

impl Scenario for LateStarter {
    type Round = Round;
    const NAME: &'static str = "late-starter";

    fn description(&self) -> String {
        format!(
            "two programs of dependent random reads over {} each, the second {} s after the first; at most {0} huge, to be shared",
            self.size,
            self.lead.as_secs()
        )
    }

    fn expected_time(&self) -> Duration {
        2 * self.rounds * (self.lead + AROUND + self.patience / 2)
    }

    fn measure(&self, stage: &Stage, rounds: &mut Vec<Round>) -> Result<()> {
        for number in 1..=self.rounds {
            for swapped in [false, true] {
                let round = self.round(stage, swapped)?;
                eprintln!("round {number}: fair after {}", seconds(round.fair_after_seconds));
                rounds.push(round);
            }
        }
        Ok(())
    }

    fn text(&self, rounds: &[Round]) -> String {
        let mut text = "order      trials  first had  fair after: median      at most\n".to_owned();
        for (name, swapped) in [("as listed", false), ("swapped", true)] {
            let of_order = || rounds.iter().filter(|round| round.swapped == swapped);
            let after: Vec<f64> = of_order().map(|round| round.fair_after_seconds.unwrap_or(f64::INFINITY)).collect();
            let finite = |value: Option<f64>| seconds(value.filter(|value| value.is_finite()));
            let had = median(&of_order().map(|round| round.first_had_bytes as f64).collect::<Vec<_>>());
            let _ = writeln!(
                text,
                "{name:<10} {:>6} {:>10} {:>19} {:>12}",
                after.len(),
                Bytes(had.unwrap_or_default() as u64).to_string(),
                finite(median(&after)),
                finite(after.iter().copied().reduce(f64::max)),
            );
        }
        let all: Vec<Option<f64>> = rounds.iter().map(|round| round.fair_after_seconds).collect();
        text + "\nfigures\n"
            + &figure("40 to 60 % each within 30 s, in any order", "", all_within(&all, AT_MOST_SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_fits_in_what_the_kernel_keeps() {
        assert!(NAME.len() <= 15);
        let text = configuration_text(Bytes(1 << 30));
        assert!(text.contains("max-huge = \"1024M\"") && text.contains("name = \"bench-equal\""), "{text}");
    }

    #[test]
    fn both_orders_must_be_fair_in_time() {
        let scenario =
            LateStarter { size: Bytes(1 << 30), lead: Duration::ZERO, patience: Duration::ZERO, rounds: 1, seed: 1 };
        let round = |swapped, fair_after_seconds| Round {
            swapped,
            first_had_bytes: 1 << 30,
            samples: Vec::new(),
            fair_after_seconds,
            status: serde_json::Value::Null,
        };
        assert!(scenario.text(&[round(false, Some(3.0)), round(true, Some(29.0))]).ends_with(" met\n"));
        let text = scenario.text(&[round(false, Some(3.0)), round(true, None)]);
        assert!(text.ends_with("NOT MET\n") && text.contains("never"), "{text}");
    }
}
