//! Raw results of a crowd: every window, as saved in a file, and the report drawn from them.
//!
//! Owns: the format of that file, `"version": 1`, and the requirements of each figure. Never touches: measurements.

use heat::statistics::{Interval, median, paired_ratio};
use heat::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::table::{cell, head, interval, table};
use crate::verdict::{Bound, FigureVerdict, JudgedFigure};

/// The longest time for 50 programs, in seconds.
const LONGEST: f64 = 15.0;
/// What a program keeps of its speed.
const KEPT: f64 = 0.99;
const BESIDE: &str = "beside the command, of alone";
const NOISE: &str = "alone again, of alone";

/// What is compared of the three windows of a round.
type Compared = fn([f64; 3]) -> (f64, f64);

/// What each program did for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CrowdWindow {
    /// Counted from 0.
    pub(super) round: u32,
    /// Whether the command ran.
    pub(super) beside: bool,
    /// How long it took.
    pub(super) seconds: f64,
    /// Of each program.
    pub(super) operations_per_second: Vec<f64>,
    /// CPU time of each; empty in earlier files.
    #[serde(default)]
    pub(super) cpu_seconds: Vec<f64>,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrowdRecord {
    kind: String,
    version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    programs: u32,
    size_bytes: Bytes,
    /// In the order in which they ran: alone, beside the command, alone; round by round.
    pub(super) windows: Vec<CrowdWindow>,
}

impl CrowdRecord {
    /// A record without windows.
    pub(super) fn new(machine: MachineDescription, programs: u32, size: Bytes) -> Self {
        let kind = "crowd".to_owned();
        Self { kind, version: VERSION, machine, programs, size_bytes: size, windows: Vec::new() }
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}\ncrowd: {} programs of {}, {} rounds\n",
            self.machine,
            self.programs,
            self.size_bytes,
            self.windows.len() / 3
        );
        if let Some(by) = &self.machine.measured_by {
            text += &format!("command: {}\n", by.command);
        }
        let row = |name: &str, compared: Compared| {
            let slowest = self.slowest(compared).map(|slowest| format!("{slowest:.3}"));
            vec![name.to_owned(), interval(self.ratio(Self::mean, compared)), cell(slowest)]
        };
        let mut rows = vec![
            head("speed | all programs | the slowest"),
            row(BESIDE, beside_over_alone),
            row(NOISE, after_over_before),
        ];
        if self.knows_cpu_time() {
            let row = |name: &str, compared: Compared| {
                vec![name.to_owned(), interval(self.ratio(Self::per_cpu_second, compared)), cell(None)]
            };
            rows.push(row("for each second of CPU time, of alone", beside_over_alone));
            rows.push(row("the same alone again", after_over_before));
        }
        text += &format!("\n{}\nfigures\n", table(&rows));
        self.figures().iter().for_each(|figure| text += &figure.line(58, 30));
        text
    }

    fn figures(&self) -> Vec<JudgedFigure> {
        let beside = self.windows.iter().filter(|window| window.beside);
        let seconds: Vec<f64> = beside.map(|window| window.seconds).collect();
        let longest = seconds.iter().copied().reduce(f64::max);
        let all = self.ratio(Self::mean, beside_over_alone);
        let noise = self.ratio(Self::mean, after_over_before);
        let slowest = self.slowest(beside_over_alone);
        let by_chance = self.slowest(after_over_before).map_or(0.0, |slowest| 1.0 - slowest);
        let verdict = match slowest {
            Some(slowest) if slowest < KEPT && by_chance > 1.0 - KEPT => FigureVerdict::NotResolvable(by_chance),
            slowest => FigureVerdict::of_fact(slowest.map(|slowest| slowest >= KEPT)),
        };
        // A command that keeps a processor busy takes time from programs wherever there are not more processors; that is no disturbance of its own.
        let by_cpu = self.knows_cpu_time().then(|| {
            let of = |compared| self.ratio(Self::per_cpu_second, compared);
            let text = format!("work for each second of CPU time >= {KEPT} meanwhile");
            JudgedFigure::of_ratio(text, of(beside_over_alone), of(after_over_before), Bound::AtLeast(KEPT))
        });
        let figures = [
            JudgedFigure::of_fact(
                format!("the command takes at most {LONGEST} s"),
                median(&seconds).zip(longest).map(|(usual, longest)| format!("{usual:.1} s, at most {longest:.1}")),
                longest.map(|longest| longest <= LONGEST),
            ),
            JudgedFigure::of_ratio(format!("speed of all >= {KEPT} meanwhile"), all, noise, Bound::AtLeast(KEPT)),
            JudgedFigure {
                text: format!("speed of the slowest >= {KEPT} meanwhile"),
                numbers: cell(slowest.map(|slowest| format!("{slowest:.3}"))),
                verdict,
            },
        ];
        figures.into_iter().chain(by_cpu).collect()
    }

    fn knows_cpu_time(&self) -> bool {
        self.windows.iter().all(|window| window.cpu_seconds.len() == window.operations_per_second.len())
    }

    fn per_cpu_second(window: &CrowdWindow) -> f64 {
        let cpu = window.cpu_seconds.iter().sum::<f64>();
        window.operations_per_second.iter().sum::<f64>() * window.seconds / cpu.max(1e-9)
    }

    /// The speed of the program that is slowed down most.
    fn slowest(&self, compared: Compared) -> Option<f64> {
        let of_program =
            |program| self.ratio(move |window: &CrowdWindow| window.operations_per_second[program], compared);
        (0..self.programs as usize).filter_map(of_program).map(|ratio| ratio.estimate).reduce(f64::min)
    }

    fn mean(window: &CrowdWindow) -> f64 {
        window.operations_per_second.iter().sum::<f64>() / window.operations_per_second.len().max(1) as f64
    }

    /// A number of two windows, round by round.
    fn ratio(&self, number: impl Fn(&CrowdWindow) -> f64, compared: Compared) -> Option<Interval> {
        let rounds = self.windows.chunks_exact(3);
        let pairs: Vec<_> =
            rounds.map(|round| compared([number(&round[0]), number(&round[1]), number(&round[2])])).collect();
        paired_ratio(&pairs)
    }
}

fn beside_over_alone([before, beside, after]: [f64; 3]) -> (f64, f64) {
    (beside, (before + after) / 2.0)
}

fn after_over_before([before, _, after]: [f64; 3]) -> (f64, f64) {
    (after, before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{ResultKind, parse};
    use crate::outputs::json_lines;

    /// Three programs, of which the last is slowed down to this share.
    fn record(seconds: f64, kept: f64) -> CrowdRecord {
        let mut record = CrowdRecord::new(crate::machine::tests::machine(), 3, Bytes(80 << 20));
        for round in 0..8 {
            for beside in [false, true, false] {
                let last = if beside { kept } else { 1.0 };
                let operations_per_second = vec![1000.0, 2000.0, 1000.0 * last];
                let cpu_seconds = vec![0.5, 1.0, 0.5 * last];
                record.windows.push(CrowdWindow { round, beside, seconds, operations_per_second, cpu_seconds });
            }
        }
        record
    }

    fn verdicts(record: &CrowdRecord) -> Vec<bool> {
        record.figures().iter().map(|figure| figure.verdict == FigureVerdict::Met).collect()
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_told() {
        let record = record(9.0, 1.0);
        let text = json_lines(&record, "round").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Crowd));
        assert_eq!(parse::<CrowdRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        assert!(record.text().contains("3 programs of 80 MiB, 8 rounds"), "{}", record.text());
        assert!(record.text().contains("9.0 s, at most 9.0"), "{}", record.text());
    }

    #[test]
    fn a_slow_command_and_one_that_disturbs_a_single_program_are_told() {
        assert_eq!(verdicts(&record(9.0, 1.0)), [true; 4]);
        assert_eq!(verdicts(&record(16.0, 1.0)), [false, true, true, true]);
        assert_eq!(verdicts(&record(9.0, 0.985)), [true, true, false, true], "it had less CPU time");
        assert_eq!(verdicts(&record(9.0, 0.5)), [true, false, false, true]);
        let mut disturbed = record(9.0, 0.5);
        disturbed.windows.iter_mut().for_each(|window| window.cpu_seconds = vec![1.0; 3]);
        assert_eq!(verdicts(&disturbed), [true, false, false, false], "it did less in its CPU time");
        disturbed.windows[0].cpu_seconds.clear();
        assert_eq!(disturbed.figures().len(), 3, "an earlier file");
        let mut noisy = record(9.0, 0.985);
        noisy.windows.iter_mut().skip(2).step_by(3).for_each(|after| after.operations_per_second[0] *= 0.95);
        let slowest = noisy.figures()[2].verdict;
        assert!(matches!(slowest, FigureVerdict::NotResolvable(_)), "{slowest:?}");
    }
}
