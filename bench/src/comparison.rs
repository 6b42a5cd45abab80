//! Comparisons, always paired by round; mostly of configurations within one run.
//!
//! Owns: which number of a turn is compared, and how pairs are formed. Never touches: judgement.

use std::collections::BTreeMap;

use heat::statistics::{Interval, median, paired_ratio};

use crate::configuration::Configuration::{self, Default, DefaultAgain};
use crate::record::{Run, Turn};

/// A number of a turn that can be compared as a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Operations a second.
    Throughput,
    /// Resident memory after measuring, without file pages.
    OwnMemory,
    /// The decrease of the machine's available memory from before the program's start until after measuring.
    MachineMemory,
}

impl Metric {
    /// The number.
    pub fn of(self, turn: &Turn) -> f64 {
        match self {
            Metric::Throughput => turn.throughput,
            Metric::OwnMemory => turn.after.own_bytes as f64,
            Metric::MachineMemory => turn.available_at_start_bytes.saturating_sub(turn.after.available_bytes) as f64,
        }
    }
}

/// The typical ratio of numbers to reference numbers of the same rounds; None if no round has both.
pub fn ratio_by_round<R: Ord>(
    subjects: impl Iterator<Item = (R, f64)>,
    references: impl Iterator<Item = (R, f64)>,
) -> Option<Interval> {
    let references: BTreeMap<R, f64> = references.collect();
    let pairs = subjects.filter_map(|(round, subject)| Some((subject, *references.get(&round)?)));
    paired_ratio(&pairs.collect::<Vec<_>>())
}

/// The median of numbers; None if there are none.
pub fn median_of(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    median(&numbers.collect::<Vec<_>>())
}

/// The typical ratio of two configurations' numbers; None if no round has both.
pub fn ratio(run: &Run, metric: Metric, subject: Configuration, reference: Configuration) -> Option<Interval> {
    let numbers = |configuration| run.turns_of(configuration).map(|turn| (turn.round, metric.of(turn)));
    ratio_by_round(numbers(subject), numbers(reference))
}

/// The same comparison where no effect exists: default against default.
pub fn noise(run: &Run, metric: Metric) -> Option<Interval> {
    ratio(run, metric, Configuration::DefaultAgain, Configuration::Default)
}

/// The same of what is compared with this: of the reference itself, where it was measured twice.
pub fn noise_beside(run: &Run, metric: Metric, reference: Configuration) -> Option<Interval> {
    let of_itself = match reference {
        Configuration::Always => ratio(run, metric, Configuration::AlwaysAgain, Configuration::Always),
        _ => None,
    };
    of_itself.or_else(|| noise(run, metric))
}

/// One configuration's gain over the default, divided by another's; None if no round has all three, or if the other gained nothing in a round.
pub fn gain_ratio(run: &Run, subject: Configuration, reference: Configuration) -> Option<Interval> {
    let gains = |round| {
        let default = (throughput(run, Default, round)? + throughput(run, DefaultAgain, round)?) / 2.0;
        Some((throughput(run, subject, round)? - default, throughput(run, reference, round)? - default))
    };
    ratio_of_gains(rounds_of(run).filter_map(gains).collect())
}

/// The same comparison where no effect exists: one configuration's gain over the repeated default, divided by its gain over the default.
pub fn gain_noise(run: &Run, configuration: Configuration) -> Option<Interval> {
    let gains = |round| {
        let gained = throughput(run, configuration, round)?;
        Some((gained - throughput(run, DefaultAgain, round)?, gained - throughput(run, Default, round)?))
    };
    ratio_of_gains(rounds_of(run).filter_map(gains).collect())
}

fn ratio_of_gains(mut gains: Vec<(f64, f64)>) -> Option<Interval> {
    // A loss has no ratio to a gain; it counts as next to nothing, and so still against the subject.
    const NEXT_TO_NOTHING: f64 = 1e-6;
    gains.iter_mut().for_each(|(gained, reference)| *gained = gained.max(*reference * NEXT_TO_NOTHING));
    gains.iter().all(|&(_, reference)| reference > 0.0).then(|| paired_ratio(&gains))?
}

fn rounds_of(run: &Run) -> impl Iterator<Item = u32> {
    0..run.turns.iter().map(|turn| turn.round + 1).max().unwrap_or(0)
}

fn throughput(run: &Run, configuration: Configuration, round: u32) -> Option<f64> {
    run.turns_of(configuration).find(|turn| turn.round == round).map(|turn| turn.throughput)
}

/// The median of a number over those turns of a configuration that have it.
pub fn typical(run: &Run, configuration: Configuration, number: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
    median_of(run.turns_of(configuration).filter_map(number))
}

/// The longest time that the tool took in any round.
pub fn slowest_tool(run: &Run, configuration: Configuration) -> Option<f64> {
    run.turns_of(configuration).filter_map(|turn| turn.tool.as_ref()).map(|tool| tool.seconds).reduce(f64::max)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::sample::ProgramMemory;

    /// A run with the given throughputs and resident bytes of each configuration, round by round.
    pub fn run_of(workload: &str, turns: &[(Configuration, &[f64], u64)]) -> Run {
        let turn = |round: usize, configuration, throughput: f64, own_bytes| Turn {
            round: round as u32,
            configuration,
            seconds: 1.0,
            warm_seconds: 0.0,
            start_seconds: 0.0,
            act_seconds: 1.0,
            window_start_seconds: 2.0,
            window_end_seconds: 3.0,
            throughput,
            p50_ns: None,
            p99_ns: Some(1000),
            cpu_ns_per_operation: 1e9 / throughput,
            cpu_share: 1.0,
            before: ProgramMemory::default(),
            after: ProgramMemory { rss_bytes: own_bytes, own_bytes, ..ProgramMemory::default() },
            available_at_start_bytes: 0,
            tool: None,
            hottest_huge_share: None,
            search: None,
            pool: None,
            throughput_over_time: Vec::new(),
            memory_over_time: Vec::new(),
        };
        let turns = turns.iter().flat_map(|(configuration, throughputs, rss)| {
            throughputs.iter().enumerate().map(move |(round, &value)| turn(round, *configuration, value, *rss))
        });
        Run {
            one_process: false,
            workload: workload.to_owned(),
            description: "made up".to_owned(),
            unit: "reads".to_owned(),
            rounds: 20,
            seed: 1,
            frontier: Vec::new(),
            missing: Vec::new(),
            turns: turns.collect(),
        }
    }

    #[test]
    fn pairs_are_of_the_same_round() {
        let run = run_of(
            "memcached",
            &[(Configuration::Default, &[100.0, 200.0, 400.0], 1), (Configuration::Ideal, &[120.0, 240.0], 1)],
        );
        let interval = ratio(&run, Metric::Throughput, Configuration::Ideal, Configuration::Default).unwrap();
        assert!((interval.low - 1.2).abs() < 1e-9 && (interval.high - 1.2).abs() < 1e-9);
        assert_eq!(interval.pairs, 2);
        assert_eq!(noise(&run, Metric::Throughput), None);
    }
}
