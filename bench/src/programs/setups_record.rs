//! Raw results of programs compared with themselves: every turn, as saved in a file, and the report drawn from them.
//!
//! Owns: the format of that file, `"version": 1`, and the requirements of each figure. Never touches: measurements.

use std::collections::BTreeMap;

use heat::statistics::{Interval, paired_ratio};
use heat::units::Bytes;
use serde::{Deserialize, Serialize};

use super::setup::ProgramSetup;
use crate::comparison::{median_of, ratio_by_round};
use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::table::{distinct, head, interval, table};
use crate::verdict::{Bound, JudgedFigure};

/// The most that a program may lose; smaller losses cannot be resolved.
const LEVEL: f64 = 0.97;

/// Work of one program in one setup for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SetupTurn {
    /// Which of the processes of this setup it was, counted from 0.
    #[serde(default)]
    pub(super) start: u32,
    /// Counted from 0, over all starts.
    pub(super) round: u32,
    /// The setup.
    pub(super) setup: ProgramSetup,
    /// Work for each second of its CPU time.
    pub(super) work_per_cpu_second: f64,
    /// Work a second.
    pub(super) work_per_second: f64,
    /// Memory of its processes without files; shared memory counts once.
    pub(super) own_bytes: Bytes,
    /// Memory on huge pages of the process that has most of it.
    pub(super) huge_bytes: Bytes,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramTurns {
    /// The name of its definition.
    pub(super) program: String,
    /// What it is and does.
    pub(super) what: String,
    /// How its experts put it on huge pages.
    pub(super) experts: Option<String>,
    /// Setups in which it could not be measured, and why.
    pub(super) missing: Vec<(ProgramSetup, String)>,
    /// In the order in which they ran.
    pub(super) turns: Vec<SetupTurn>,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupsRecord {
    kind: String,
    version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// Rounds requested of each start; the file has fewer turns if the run was stopped.
    pub(super) rounds: u32,
    /// In the order in which they ran.
    pub(super) programs: Vec<ProgramTurns>,
}

impl SetupsRecord {
    /// A record without turns.
    pub(super) fn new(machine: MachineDescription, rounds: u32) -> Self {
        Self { kind: "program-setups".to_owned(), version: VERSION, machine, rounds, programs: Vec::new() }
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = format!("{}\nprograms in several setups: {} rounds of each start\n", self.machine, self.rounds);
        self.programs.iter().for_each(|program| text += &program.text());
        text
    }
}

impl ProgramTurns {
    fn text(&self) -> String {
        let setups = distinct(self.turns.iter().map(|turn| turn.setup));
        let mut rows =
            vec![head("setup | work per CPU second, of default | by the clock | memory | of default | huge")];
        rows.extend(setups.iter().map(|&setup| self.row(setup)));
        let mut text = format!("\n{}: {}\n\n{}", self.program, self.what, table(&rows));
        text += &self.experts.as_ref().map_or(String::new(), |experts| format!("experts: {experts}\n"));
        self.missing.iter().for_each(|(setup, why)| text += &format!("without {setup}: {why}\n"));
        text += "\nfigures\n";
        self.figures().iter().for_each(|figure| text += &figure.line(58, 30));
        text
    }

    fn figures(&self) -> Vec<JudgedFigure> {
        let noise = self.speed(ProgramSetup::DefaultAgain, ProgramSetup::Default);
        let against = [ProgramSetup::Default, ProgramSetup::Experts, ProgramSetup::Ideal];
        let against = against.into_iter().filter(|&other| self.of(other).next().is_some());
        let figure = |other| {
            let text = format!("{}: attach >= {LEVEL} x {other}", self.program);
            JudgedFigure::of_ratio(text, self.speed(ProgramSetup::Attach, other), noise, Bound::AtLeast(LEVEL))
        };
        against.map(figure).collect()
    }

    fn row(&self, setup: ProgramSetup) -> Vec<String> {
        let usual = |setup, number: fn(&SetupTurn) -> Bytes| {
            median_of(self.of(setup).map(|turn| number(turn).0 as f64)).unwrap_or_default()
        };
        let own = usual(setup, |turn| turn.own_bytes);
        vec![
            setup.to_string(),
            interval(self.speed(setup, ProgramSetup::Default)),
            interval(self.ratio(setup, ProgramSetup::Default, |turn| turn.work_per_second)),
            Bytes(own as u64).to_string(),
            format!("x {:.3}", own / usual(ProgramSetup::Default, |turn| turn.own_bytes)),
            Bytes(usual(setup, |turn| turn.huge_bytes) as u64).to_string(),
        ]
    }

    fn of(&self, setup: ProgramSetup) -> impl Iterator<Item = &SetupTurn> {
        self.turns.iter().filter(move |turn| turn.setup == setup)
    }

    fn speed(&self, setup: ProgramSetup, other: ProgramSetup) -> Option<Interval> {
        self.ratio(setup, other, |turn| turn.work_per_cpu_second)
    }

    /// A number of one setup relative to another's, always within a round, since the machine's speed changes from one to the next. With several
    /// starts each counts once, by the median of its rounds; with one, each round counts.
    fn ratio(&self, setup: ProgramSetup, other: ProgramSetup, number: fn(&SetupTurn) -> f64) -> Option<Interval> {
        let starts = distinct(self.turns.iter().map(|turn| turn.start));
        let numbers = |setup, start| {
            self.of(setup).filter(move |turn| turn.start == start).map(|turn| (turn.round, number(turn)))
        };
        if let [only] = starts[..] {
            return ratio_by_round(numbers(setup, only), numbers(other, only));
        }
        let of_start = |&start: &u32| -> Vec<f64> {
            let others: BTreeMap<u32, f64> = numbers(other, start).collect();
            numbers(setup, start).filter_map(|(round, number)| Some(number / others.get(&round)?)).collect()
        };
        let ratios: Vec<Vec<f64>> = starts.iter().map(of_start).collect();
        // A start that was ended early would count as much as the others.
        let most = ratios.iter().map(Vec::len).max().unwrap_or(0);
        let whole = ratios.into_iter().filter(|rounds| rounds.len() == most);
        let usual: Vec<(f64, f64)> = whole.filter_map(|rounds| Some((median_of(rounds.into_iter())?, 1.0))).collect();
        paired_ratio(&usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{ResultKind, parse};
    use crate::outputs::json_lines;
    use crate::verdict::FigureVerdict;

    fn program(times: f64) -> ProgramTurns {
        let turn = |round, setup, times| SetupTurn {
            start: 0,
            round,
            setup,
            work_per_cpu_second: times * (1000.0 + f64::from(round)),
            work_per_second: times * 900.0,
            own_bytes: Bytes(1 << 30),
            huge_bytes: Bytes(1 << 29),
        };
        let round = |round| {
            [
                (ProgramSetup::Default, 1.0),
                (ProgramSetup::DefaultAgain, 1.0),
                (ProgramSetup::Experts, 1.125),
                (ProgramSetup::Attach, times),
            ]
            .map(|(setup, times)| turn(round, setup, times))
        };
        ProgramTurns {
            program: "redis".to_owned(),
            what: "Redis".to_owned(),
            experts: Some("its switch".to_owned()),
            missing: vec![(ProgramSetup::Always, "no memory".to_owned())],
            turns: (0..8).flat_map(round).collect(),
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_told() {
        let mut record = SetupsRecord::new(crate::machine::tests::machine(), 8);
        record.programs.push(program(1.25));
        let text = json_lines(&record, "round").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::ProgramSetups));
        assert_eq!(parse::<SetupsRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        let told = record.text();
        for part in ["1.250 [1.250, 1.250]", "x 1.000", "512 MiB", "experts: its switch", "without always: no memory"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn of_several_starts_each_is_one_pair() {
        let mut program = program(1.25);
        // In the second start all of its memory lies badly: eight rounds of one process are one finding.
        program.turns.iter_mut().filter(|turn| turn.round >= 4).for_each(|turn| {
            turn.start = 1;
            turn.work_per_cpu_second *= if turn.setup == ProgramSetup::Attach { 0.8 } else { 1.0 };
        });
        let interval = program.speed(ProgramSetup::Attach, ProgramSetup::Default).unwrap();
        assert_eq!(
            (interval.pairs, (interval.low * 100.0).round(), (interval.high * 100.0).round()),
            (2, 100.0, 125.0)
        );
    }

    #[test]
    fn within_a_start_only_turns_of_one_round_are_compared() {
        let mut program = program(1.0);
        program.turns.retain(|turn| turn.round < 6);
        for turn in &mut program.turns {
            turn.start = turn.round / 3;
            // Ratios of 9, 0.5 and 0.875; the medians of each alone would tell 3.5.
            turn.work_per_cpu_second = match turn.setup {
                ProgramSetup::Attach => [9.0, 1.0, 7.0],
                _ => [1.0, 2.0, 8.0],
            }[turn.round as usize % 3];
        }
        let speed = program.speed(ProgramSetup::Attach, ProgramSetup::Default).unwrap();
        assert_eq!((speed.pairs, speed.low, speed.high), (2, 0.875, 0.875));
    }

    #[test]
    fn who_loses_against_the_default_or_the_experts_is_told() {
        let verdicts = |times| program(times).figures().iter().map(|figure| figure.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(1.25), [FigureVerdict::Met, FigureVerdict::Met]);
        assert_eq!(verdicts(1.0), [FigureVerdict::Met, FigureVerdict::NotMet]);
        assert_eq!(verdicts(0.875), [FigureVerdict::NotMet, FigureVerdict::NotMet]);
    }
}
