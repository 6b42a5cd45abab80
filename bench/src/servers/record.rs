//! Raw results: every turn, as saved in a file, and the report drawn from them.
//!
//! Owns: the format of that file, `"version": 1`, and the requirements of each figure. Never touches: measurements.

use heat::statistics::Interval;
use heat::units::Bytes;
use serde::{Deserialize, Serialize};

use super::program::ServerProgram;
use crate::comparison::{median_of, ratio_by_round};
use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::table::{distinct, head, interval, table};
use crate::verdict::{Bound, JudgedFigure};

/// The most that a server may lose; smaller losses cannot be resolved.
const LEVEL: f64 = 0.97;

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerSetup {
    /// Unchanged.
    Default,
    /// The same server again, to measure noise.
    DefaultAgain,
    /// With `hugepilot attach --children`, or started by `hugepilot run` on a pool's pages.
    Hugepilot,
}

/// Requests of one server for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTurn {
    /// Counted from 0.
    pub round: u32,
    /// The server.
    pub program: ServerProgram,
    /// Its setup.
    pub setup: ServerSetup,
    /// Requests a second.
    pub per_second: f64,
    /// Private memory of all its processes; memory shared by fork counts in each.
    pub own_bytes: u64,
    /// Memory on huge pages, counted the same way.
    pub huge_bytes: u64,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServersRecord {
    kind: String,
    version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// The approximate seconds of each turn.
    pub seconds: u32,
    /// Rounds requested; the file has fewer turns if the run was stopped.
    pub rounds: u32,
    /// In the order in which they ran.
    pub turns: Vec<ServerTurn>,
}

impl ServersRecord {
    /// A record without turns.
    pub fn new(machine: MachineDescription, seconds: u32, rounds: u32) -> Self {
        Self { kind: "servers".to_owned(), version: VERSION, machine, seconds, rounds, turns: Vec::new() }
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = format!("{}\nservers: turns of {} s, {} rounds\n\n", self.machine, self.seconds, self.rounds);
        let programs = distinct(self.turns.iter().map(|turn| turn.program));
        let mut rows = vec![head("server | a second | again | hugepilot | huge | memory | hugepilot >= 0.97")];
        rows.extend(programs.into_iter().map(|program| self.row(program)));
        text += &table(&rows);
        text
    }

    fn row(&self, program: ServerProgram) -> Vec<String> {
        let usual =
            |setup, number: fn(&ServerTurn) -> f64| median_of(self.of(program, setup).map(number)).unwrap_or_default();
        let (again, piloted) =
            (self.ratio(program, ServerSetup::DefaultAgain), self.ratio(program, ServerSetup::Hugepilot));
        let own = |turn: &ServerTurn| turn.own_bytes as f64;
        let memory = usual(ServerSetup::Hugepilot, own) / usual(ServerSetup::Default, own);
        vec![
            program.to_string(),
            format!("{:.0}", usual(ServerSetup::Default, |turn| turn.per_second)),
            interval(again),
            interval(piloted),
            Bytes(usual(ServerSetup::Hugepilot, |turn| turn.huge_bytes as f64) as u64).to_string(),
            format!("x {memory:.3}"),
            JudgedFigure::of_ratio("", piloted, again, Bound::AtLeast(LEVEL)).verdict.to_string(),
        ]
    }

    fn of(&self, program: ServerProgram, setup: ServerSetup) -> impl Iterator<Item = &ServerTurn> {
        self.turns.iter().filter(move |turn| (turn.program, turn.setup) == (program, setup))
    }

    /// Requests a second of one setup relative to the default's, round by round.
    fn ratio(&self, program: ServerProgram, setup: ServerSetup) -> Option<Interval> {
        let numbers = |setup| self.of(program, setup).map(|turn| (turn.round, turn.per_second));
        ratio_by_round(numbers(setup), numbers(ServerSetup::Default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{ResultKind, parse};
    use crate::outputs::json_lines;
    use crate::verdict::FigureVerdict;

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
        let text = json_lines(&record, "round").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Servers));
        assert_eq!(parse::<ServersRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        assert!(parse::<ServersRecord>("{\"version\":1}", "file".as_ref(), VERSION).is_err());
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        assert!(
            parse::<ServersRecord>(&newer, "file".as_ref(), VERSION).unwrap_err().to_string().contains("version 2")
        );
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
