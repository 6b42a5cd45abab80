//! The results of turns: ratios with their intervals, and the figures to reach.
//!
//! Owns: comparisons of phases within a turn, and the criteria for figures. Never touches: layout.
//!
//! Phases of one turn are compared with each other, because they follow each other in one process. The same comparison between two phases in which
//! nobody touched the program gives the noise that a figure must exceed.

use heat::statistics::{Interval, paired_ratio};
use heat::units::Nanos;

use super::mode::Mode;
use super::program::FeltProgram;
use super::record::{FeltTurn, Latency, Phase};
use crate::comparison::median_of;
use crate::table::interval;
use crate::verdict::{Bound, EXACT, FigureVerdict, JudgedFigure};

const MIB: f64 = (1 << 20) as f64;
/// In MiB: the figures state in how many seconds this much memory is promoted.
const THREE_GIB: f64 = 3072.0;
/// With more scatter than this, nothing can be concluded about p99.
const P99_MARGIN: f64 = 0.5;

/// Durations of single collapses, as hugepilot reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Collapses {
    /// The median.
    pub median_ns: Option<f64>,
    /// The 90th percentile.
    pub p90_ns: Option<f64>,
    /// The longest.
    pub longest_ns: Option<f64>,
    /// The time of all hugepilot's steps, divided by the regions tried.
    pub mean_ns: Option<f64>,
}

/// The turns of one mode on one host in which something was promoted.
#[derive(Clone, Debug)]
pub struct ModeTurns<'a> {
    mode: Mode,
    turns: Vec<&'a FeltTurn>,
    /// Turns in which nothing was promoted; they prove nothing.
    pub in_vain: usize,
}

impl<'a> ModeTurns<'a> {
    /// Keeps those turns of a mode in which something was promoted, and counts the others.
    pub fn of(mode: Mode, turns: Vec<&'a FeltTurn>) -> Self {
        let all = turns.len();
        let turns: Vec<&FeltTurn> = turns.into_iter().filter(|turn| turn.promoted.bytes > 0).collect();
        Self { mode, in_vain: all - turns.len(), turns }
    }

    /// The number of turns that count.
    pub fn count(&self) -> usize {
        self.turns.len()
    }

    /// The median of a number over the turns.
    pub fn typical(&self, number: impl Fn(&FeltTurn) -> Option<f64>) -> Option<f64> {
        median_of(self.turns.iter().filter_map(|turn| number(turn)))
    }

    /// The largest value of a number over the turns.
    pub fn largest(&self, number: impl Fn(&FeltTurn) -> Option<f64>) -> Option<f64> {
        self.turns.iter().filter_map(|turn| number(turn)).reduce(f64::max)
    }

    /// The typical ratio of two numbers of the same turn.
    pub fn ratio(&self, pair: impl Fn(&FeltTurn) -> Option<(f64, f64)>) -> Option<Interval> {
        paired_ratio(&self.turns.iter().filter_map(|turn| pair(turn)).collect::<Vec<_>>())
    }

    /// Throughput in the slowest window of a phase, relative to the typical window before.
    pub fn worst_window(&self, phase: fn(&FeltTurn) -> &Phase) -> Option<Interval> {
        self.ratio(|turn| phase(turn).worst_throughput().zip(turn.usual_throughput()))
    }

    /// Throughput of a whole phase, relative to the typical window before.
    pub fn throughput(&self, phase: fn(&FeltTurn) -> &Phase) -> Option<Interval> {
        self.ratio(|turn| phase(turn).throughput().zip(turn.usual_throughput()))
    }

    /// A latency during promotion, relative to the same directly before.
    pub fn latency(&self, number: fn(&Latency) -> u64) -> Option<Interval> {
        self.ratio(|turn| latency(&turn.promotion, number).zip(latency(&turn.alone_again, number)))
    }

    /// The same for the two phases in which nobody touched the program.
    pub fn latency_noise(&self, number: fn(&Latency) -> u64) -> Option<Interval> {
        self.ratio(|turn| latency(&turn.alone_again, number).zip(latency(&turn.alone, number)))
    }

    /// MiB promoted per second of hugepilot's whole run.
    pub fn mib_per_second(&self) -> Option<Interval> {
        self.ratio(|turn| Some((turn.promoted.bytes as f64 / MIB / turn.promoted.seconds, 1.0)))
    }

    /// The figures to reach, for this program.
    pub fn figures(&self, program: FeltProgram) -> Vec<JudgedFigure> {
        let mut figures = Vec::new();
        match self.mode {
            Mode::Default => {
                figures.push(self.worst_window_at_least(0.8));
                figures.extend(program.has_requests().then(|| self.p99_of_noise_at_most(1.5)));
                figures.push(match program.is_reader() {
                    true => self.speed_at_least(50.0, ">= 50 MiB/s".to_owned()),
                    false => self.three_gib_within(60.0),
                });
            }
            Mode::Fast => {
                figures.push(self.worst_window_at_least(0.4));
                figures.push(self.three_gib_within(12.0));
                figures.extend(program.has_requests().then(|| self.p99_at_most(Nanos(5_000_000))));
            }
            Mode::Daemon => {
                figures.extend(program.has_requests().then(|| self.p99_as_without()));
                figures.push(self.speed_at_least(10.0, ">= 10 MiB/s".to_owned()));
            }
            Mode::Before => {}
        }
        figures
    }

    fn worst_window_at_least(&self, limit: f64) -> JudgedFigure {
        let noise = self.worst_window(|turn| &turn.alone_again);
        let text = format!("worst window >= {limit} x the usual one");
        JudgedFigure::of_ratio(text, self.worst_window(|turn| &turn.promotion), noise, Bound::AtLeast(limit))
    }

    fn p99_of_noise_at_most(&self, limit: f64) -> JudgedFigure {
        let (seen, noise) = (self.latency(|it| it.p99_ns), self.latency_noise(|it| it.p99_ns));
        JudgedFigure::of_ratio(format!("p99 <= {limit} x alone"), seen, noise, Bound::AtMost(limit))
    }

    fn p99_at_most(&self, limit: Nanos) -> JudgedFigure {
        let millis = self.ratio(|turn| Some((latency(&turn.promotion, |it| it.p99_ns)? / 1e6, 1.0)));
        let text = format!("p99 <= {limit} (numbers in ms)");
        JudgedFigure::of_ratio(text, millis, Some(EXACT), Bound::AtMost(limit.0 as f64 / 1e6))
    }

    /// Whether p99 differs from that of a program that nobody touches. An improvement counts as met.
    fn p99_as_without(&self) -> JudgedFigure {
        let (seen, noise) = (self.latency(|it| it.p99_ns), self.latency_noise(|it| it.p99_ns));
        let verdict = seen.zip(noise).map_or(FigureVerdict::NotMeasured, |(seen, noise)| not_worse(&seen, &noise));
        JudgedFigure { text: "p99 not to be told from p99 alone".to_owned(), numbers: interval(seen), verdict }
    }

    fn three_gib_within(&self, seconds: f64) -> JudgedFigure {
        let least = THREE_GIB / seconds;
        self.speed_at_least(least, format!("3 GiB within {seconds} s: >= {least:.1} MiB/s"))
    }

    fn speed_at_least(&self, limit: f64, text: String) -> JudgedFigure {
        let judged = JudgedFigure::of_ratio(text, self.mib_per_second(), Some(EXACT), Bound::AtLeast(limit));
        match self.in_vain {
            0 => judged,
            _ => JudgedFigure { verdict: FigureVerdict::NotMet, ..judged },
        }
    }
}

fn latency(phase: &Phase, number: fn(&Latency) -> u64) -> Option<f64> {
    phase.latency.as_ref().map(|latency| number(latency) as f64)
}

fn not_worse(seen: &Interval, noise: &Interval) -> FigureVerdict {
    match () {
        () if seen.confidence < 0.95 || noise.confidence < 0.95 => FigureVerdict::NotMeasured,
        () if noise.reach() > P99_MARGIN => FigureVerdict::NotResolvable(noise.reach()),
        () if seen.low <= 1.0 || seen.high <= noise.high => FigureVerdict::Met,
        () => FigureVerdict::NotMet,
    }
}

impl Collapses {
    /// From the outcome of `promote`; values that it does not report stay unknown.
    pub fn of(outcome: &serde_json::Value) -> Self {
        let number = |name: &str| outcome.get(name).and_then(serde_json::Value::as_f64);
        let tried = number("tried").filter(|&tried| tried > 0.0);
        Self {
            median_ns: number("step_median_ns"),
            p90_ns: number("step_p90_ns"),
            longest_ns: number("longest_step_ns"),
            mean_ns: number("busy_ns").zip(tried).map(|(busy, tried)| busy / tried),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::super::record::{FeltPromotion, FeltRecord};
    use super::*;

    fn verdicts(record: &FeltRecord, mode: Mode) -> Vec<FigureVerdict> {
        let group = ModeTurns::of(mode, record.turns.iter().collect());
        group.figures(FeltProgram::Memcached).into_iter().map(|figure| figure.verdict).collect()
    }

    #[test]
    fn the_default_is_judged_by_its_worst_window_p99_and_speed() {
        use FigureVerdict::{Met, NotMet};
        assert_eq!(verdicts(&record(Mode::Default, 8, 0.9, 1.1), Mode::Default), [Met, Met, Met]);
        assert_eq!(verdicts(&record(Mode::Default, 8, 0.7, 1.6), Mode::Default), [NotMet, NotMet, Met]);
        let mut slow = record(Mode::Default, 8, 0.9, 1.1);
        slow.turns.iter_mut().for_each(|turn| turn.promoted.seconds = 61.0);
        assert_eq!(verdicts(&slow, Mode::Default)[2], NotMet);
    }

    #[test]
    fn fast_is_judged_by_p99_itself() {
        let (usual, slow) = (record(Mode::Fast, 8, 0.5, 2.0), record(Mode::Fast, 8, 0.3, 9.0));
        assert_eq!(verdicts(&usual, Mode::Fast), [FigureVerdict::Met, FigureVerdict::NotMet, FigureVerdict::Met]);
        assert_eq!(verdicts(&slow, Mode::Fast)[0], FigureVerdict::NotMet);
        assert_eq!(verdicts(&slow, Mode::Fast)[2], FigureVerdict::NotMet);
    }

    #[test]
    fn the_daemon_must_not_be_found() {
        assert_eq!(
            verdicts(&record(Mode::Daemon, 8, 1.0, 1.0), Mode::Daemon),
            [FigureVerdict::Met, FigureVerdict::Met]
        );
        assert_eq!(
            verdicts(&record(Mode::Daemon, 8, 1.0, 0.7), Mode::Daemon)[0],
            FigureVerdict::Met,
            "better is no harm"
        );
        assert_eq!(verdicts(&record(Mode::Daemon, 8, 1.0, 1.1), Mode::Daemon)[0], FigureVerdict::NotMet);
        let mut noisy = record(Mode::Daemon, 8, 1.0, 1.1);
        for turn in noisy.turns.iter_mut().filter(|turn| turn.round % 2 == 0) {
            turn.alone.latency.as_mut().unwrap().p99_ns /= 4;
        }
        assert!(matches!(verdicts(&noisy, Mode::Daemon)[0], FigureVerdict::NotResolvable(_)));
    }

    #[test]
    fn few_rounds_and_other_binaries_are_not_judged() {
        assert_eq!(verdicts(&record(Mode::Default, 3, 0.9, 1.1), Mode::Default), [FigureVerdict::NotMeasured; 3]);
        assert_eq!(verdicts(&record(Mode::Before, 8, 0.9, 1.1), Mode::Before), []);
    }

    #[test]
    fn what_promotes_nothing_proves_nothing() {
        let mut record = record(Mode::Default, 8, 0.9, 1.1);
        record.turns[3].promoted = FeltPromotion { seconds: 1.0, ..FeltPromotion::default() };
        let group = ModeTurns::of(Mode::Default, record.turns.iter().collect());
        assert_eq!((group.count(), group.in_vain), (7, 1));
        assert_eq!(group.figures(FeltProgram::Memcached)[2].verdict, FigureVerdict::NotMet);
    }

    #[test]
    fn a_program_without_requests_has_no_p99() {
        let record = record(Mode::Fast, 8, 0.5, 1.0);
        let group = ModeTurns::of(Mode::Fast, record.turns.iter().collect());
        let figures = group.figures(FeltProgram::ReaderBusy);
        assert!(figures.len() == 2 && figures.iter().all(|figure| !figure.text.contains("p99")), "{figures:?}");
    }

    #[test]
    fn the_worst_window_is_held_against_the_usual_one() {
        let record = record(Mode::Fast, 8, 0.5, 1.0);
        let group = ModeTurns::of(Mode::Fast, record.turns.iter().collect());
        let about = |seen: Option<Interval>, wanted: f64| (seen.unwrap().estimate - wanted).abs() < 0.01;
        assert!(about(group.worst_window(|turn| &turn.promotion), 0.5));
        assert!(about(group.worst_window(|turn| &turn.alone_again), 0.96));
        assert!(about(group.throughput(|turn| &turn.promotion), 2.5 / 3.0));
    }

    #[test]
    fn collapses_are_told_as_far_as_they_are_known() {
        let today = serde_json::json!({ "tried": 4, "busy_ns": 8_000_000, "longest_step_ns": 5_000_000 });
        let seen = Collapses::of(&today);
        assert_eq!((seen.median_ns, seen.longest_ns, seen.mean_ns), (None, Some(5e6), Some(2e6)));
        let told = serde_json::json!({ "step_median_ns": 700_000, "step_p90_ns": 900_000 });
        assert_eq!(Collapses::of(&told).p90_ns, Some(9e5));
        assert_eq!(Collapses::of(&serde_json::Value::Null), Collapses::default());
    }
}
