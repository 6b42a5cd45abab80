//! Raw results: every turn, as it is kept in a file, and the report that is drawn from them.
//!
//! Owns: the shape of that file, `"version": 1`, and what each figure demands. Never touches: measurements.

use std::path::Path;

use anyhow::Result;
use heat::statistics::{Interval, median, paired_ratio};
use heat::units::Bytes;
use serde::{Deserialize, Serialize};

use super::program::ServerProgram;
use crate::comparison::Metric;
use crate::kept;
use crate::machine::MachineDescription;
use crate::outputs::json_lines;
use crate::report::interval_text;
use crate::table::{strings, table};
use crate::verdict::FigureVerdict;

const VERSION: u32 = 1;
const KIND: &str = "servers";
/// What a server may lose at most; less is not resolved.
const LEVEL: f64 = 0.97;

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerSetup {
    /// As it is.
    Default,
    /// The same server once more, for the noise.
    DefaultAgain,
    /// With `hugepilot attach --children`, or started by `hugepilot run` on pages of a pool.
    Hugepilot,
}

/// Requests of one server for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTurn {
    /// From 0.
    pub round: u32,
    /// Which server.
    pub program: ServerProgram,
    /// How it is set up.
    pub setup: ServerSetup,
    /// Requests a second.
    pub per_second: f64,
    /// Private memory of all its processes; what they share by fork counts in each.
    pub own_bytes: u64,
    /// Memory on huge pages, counted the same way.
    pub huge_bytes: u64,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServersRecord {
    kind: String,
    version: u32,
    /// Where it was measured.
    pub machine: MachineDescription,
    /// Seconds of each turn, roughly.
    pub seconds: u32,
    /// Rounds asked for; fewer turns are here when the run was stopped.
    pub rounds: u32,
    /// In the order in which they ran.
    pub turns: Vec<ServerTurn>,
}

impl ServersRecord {
    /// Without turns.
    pub fn new(machine: MachineDescription, seconds: u32, rounds: u32) -> Self {
        Self { kind: KIND.to_owned(), version: VERSION, machine, seconds, rounds, turns: Vec::new() }
    }

    /// As text, a line for each turn.
    pub fn json(&self) -> Result<String> {
        json_lines(self, "round")
    }

    /// The record in the text of a file.
    pub fn parse(text: &str, file: &Path) -> Result<Self> {
        kept::parse(text, file, VERSION)
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = format!("{}\nservers: turns of {} s, {} rounds\n\n", self.machine, self.seconds, self.rounds);
        let mut programs: Vec<ServerProgram> = self.turns.iter().map(|turn| turn.program).collect();
        programs.sort_unstable();
        programs.dedup();
        let mut rows =
            vec![strings(&["server", "a second", "again", "hugepilot", "huge", "memory", "hugepilot >= 0.97"])];
        rows.extend(programs.into_iter().map(|program| self.row(program)));
        text += &table(&rows);
        text
    }

    fn row(&self, program: ServerProgram) -> Vec<String> {
        let usual = |setup, number: fn(&ServerTurn) -> f64| {
            median(&self.of(program, setup).map(number).collect::<Vec<_>>()).unwrap_or_default()
        };
        let (again, piloted) =
            (self.ratio(program, ServerSetup::DefaultAgain), self.ratio(program, ServerSetup::Hugepilot));
        let words = |ratio: &Option<Interval>| {
            ratio.as_ref().map_or("-".to_owned(), |ratio| interval_text(Metric::Throughput, ratio))
        };
        let both = piloted.as_ref().zip(again.as_ref());
        let verdict =
            both.map_or(FigureVerdict::NotMeasured, |(seen, noise)| FigureVerdict::at_least(LEVEL, seen, noise));
        let memory = usual(ServerSetup::Hugepilot, |turn| turn.own_bytes as f64)
            / usual(ServerSetup::Default, |turn| turn.own_bytes as f64);
        vec![
            program.to_string(),
            format!("{:.0}", usual(ServerSetup::Default, |turn| turn.per_second)),
            words(&again),
            words(&piloted),
            Bytes(usual(ServerSetup::Hugepilot, |turn| turn.huge_bytes as f64) as u64).to_string(),
            format!("x {memory:.3}"),
            verdict.to_string(),
        ]
    }

    fn of(&self, program: ServerProgram, setup: ServerSetup) -> impl Iterator<Item = &ServerTurn> {
        self.turns.iter().filter(move |turn| (turn.program, turn.setup) == (program, setup))
    }

    /// Requests a second of one setup against the default's, round by round.
    fn ratio(&self, program: ServerProgram, setup: ServerSetup) -> Option<Interval> {
        let partner =
            |turn: &ServerTurn| self.of(program, ServerSetup::Default).find(|other| other.round == turn.round);
        let pairs = self.of(program, setup).filter_map(|turn| Some((turn.per_second, partner(turn)?.per_second)));
        paired_ratio(&pairs.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::ResultKind;

    fn record(times: f64) -> ServersRecord {
        let turn = |round, setup, times| ServerTurn {
            round,
            program: ServerProgram::Redis,
            setup,
            per_second: times * (1000.0 + f64::from(round)),
            own_bytes: 1 << 30,
            huge_bytes: 1 << 29,
        };
        let round = |round| {
            [(ServerSetup::Default, 1.0), (ServerSetup::DefaultAgain, 1.0), (ServerSetup::Hugepilot, times)]
                .map(|(setup, times)| turn(round, setup, times))
        };
        let mut record = ServersRecord::new(crate::machine::tests::machine(), 4, 8);
        record.turns = (0..8).flat_map(round).collect();
        record
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let record = record(1.5);
        let text = record.json().unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Servers));
        assert_eq!(ServersRecord::parse(&text, Path::new("file")).unwrap(), record);
        assert!(ServersRecord::parse("{\"version\":1}", Path::new("file")).is_err());
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        assert!(ServersRecord::parse(&newer, Path::new("file")).unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn who_loses_is_told() {
        let verdict = |times| record(times).row(ServerProgram::Redis).pop().unwrap();
        assert_eq!(
            [1.2, 0.9].map(verdict),
            [FigureVerdict::Met, FigureVerdict::NotMet].map(|verdict| verdict.to_string())
        );
        let text = record(1.2).text();
        assert!(text.contains("redis") && text.contains("512 MiB") && text.contains("x 1.000"), "{text}");
    }
}
