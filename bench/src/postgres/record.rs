//! Raw results: every turn, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`. Never touches: conclusions; each report draws them from the file anew.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::load::{Connections, LoadSeen, Script};
use crate::kept::VERSION;
use crate::machine::MachineDescription;

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PostgresSetup {
    /// `huge_pages = off`.
    Default,
    /// The same server once more, for the noise.
    DefaultAgain,
    /// `huge_pages = on`, with a pool of reserved pages.
    Pool,
    /// `huge_pages = off`, started with shmem_enabled at always: huge from its first touch, the most that huge pages without a pool can give.
    Always,
    /// `huge_pages = off`, started with shmem_enabled at advise, and `hugepilot attach --children`.
    Hugepilot,
}

/// One file of raw results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PostgresRecord {
    /// Distinguishes it from other results: "postgres".
    pub(super) kind: String,
    /// 1; a file with another number is rejected.
    pub(super) version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// What clients did.
    pub script: Script,
    /// The number of clients.
    pub clients: u32,
    /// How long they had been connected.
    pub connections: Connections,
    /// `shared_buffers`.
    pub buffers_bytes: u64,
    /// Seconds of each turn.
    pub seconds: u32,
    /// Whether hugepilot was attached with --fast.
    #[serde(default)]
    pub fast: bool,
    /// Rounds requested; the file has fewer turns if the run was stopped.
    pub rounds: u32,
    /// The seed for the order of setups.
    pub seed: u64,
    /// What hugepilot did to each server that it was attached to.
    pub attached: Vec<Attached>,
    /// The effect of a promotion on a server in the meantime.
    pub felt: Vec<Felt>,
    /// The server that hugepilot promoted, with hugepilot at work and at rest.
    #[serde(default)]
    pub observed: Vec<Observed>,
    /// hugepilot's share of one processor while it observed that server for a minute; None if that was not measured.
    #[serde(default)]
    pub observing_cpu_share: Option<f64>,
    /// In the order in which they ran.
    pub turns: Vec<PostgresTurn>,
}

/// Transactions of one setup for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PostgresTurn {
    /// Counted from 0.
    pub round: u32,
    /// The server measured.
    pub setup: PostgresSetup,
    /// Transactions a second.
    pub per_second: f64,
    /// The size of the page tables of all its processes, near the end of the turn.
    pub page_tables_bytes: u64,
    /// CPU time of the server per transaction, in microseconds; 0 if it was not measured.
    #[serde(default)]
    pub cpu_us: f64,
}

/// The effect of attaching.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The gain in percent that `explain --children` predicted before, under load.
    pub forecast: serde_json::Value,
    /// From hugepilot's start until nine tenths of the final huge memory was huge.
    pub seconds: f64,
    /// Shared memory put on huge pages.
    pub huge_bytes: u64,
    /// The decrease of MemAvailable.
    pub taken_bytes: i64,
}

/// A server under constant load that was left alone twice and then promoted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Felt {
    /// Nobody touched it.
    pub alone: LoadSeen,
    /// Nobody touched it again.
    pub alone_again: LoadSeen,
    /// While it was promoted.
    pub promotion: LoadSeen,
    /// How long the promotion took.
    pub seconds: f64,
}

/// A server while it is observed, and while it is not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Transactions a second with hugepilot at work.
    pub observed_per_second: f64,
    /// And with hugepilot stopped by a signal.
    pub alone_per_second: f64,
}

impl PostgresRecord {
    /// A record without turns.
    pub fn new(machine: MachineDescription) -> Self {
        Self { kind: "postgres".to_owned(), version: VERSION, machine, ..Self::default() }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::kept::{ResultKind, parse};
    use crate::outputs::json_lines;

    /// Rounds in which hugepilot's server does `times` as much as the default's, and the pool's twice as much.
    pub fn record(rounds: u32, times: f64) -> PostgresRecord {
        let turn = |round, setup, times: f64, page_tables_bytes| {
            let per_second = times * (10_000.0 + f64::from(round * 300));
            PostgresTurn { round, setup, per_second, page_tables_bytes, cpu_us: 50.0 / times }
        };
        let round = |round| {
            [
                turn(round, PostgresSetup::Default, 1.0, 600 << 20),
                turn(round, PostgresSetup::DefaultAgain, 1.01, 600 << 20),
                turn(round, PostgresSetup::Pool, 2.0, 14 << 20),
                turn(round, PostgresSetup::Hugepilot, times, 16 << 20),
            ]
        };
        let seen = |fewest, p99_ms| LoadSeen { fewest, usual: 100.0, p99_ms, slowest_ms: 30.0 };
        let felt =
            Felt { alone: seen(95.0, 5.0), alone_again: seen(94.0, 5.5), promotion: seen(90.0, 6.0), seconds: 12.0 };
        PostgresRecord {
            rounds,
            clients: 100,
            buffers_bytes: 4 << 30,
            seconds: 10,
            attached: vec![Attached {
                forecast: serde_json::json!({ "low": 60.0, "likely": 90.0, "high": 130.0 }),
                seconds: 13.0,
                huge_bytes: 4 << 30,
                taken_bytes: 1 << 20,
            }],
            felt: vec![felt; rounds as usize],
            observed: vec![
                Observed { observed_per_second: times * 999.0, alone_per_second: times * 1000.0 };
                rounds as usize
            ],
            observing_cpu_share: Some(0.004 / times),
            turns: (0..rounds).flat_map(round).collect(),
            ..PostgresRecord::new(crate::machine::tests::machine())
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let record = record(2, 1.9);
        let text = json_lines(&record, "round").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Postgres));
        assert_eq!(parse::<PostgresRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        assert_eq!(text.lines().filter(|line| line.starts_with("{\"round\"")).count(), 8);
        assert!(parse::<PostgresRecord>("{\"version\":1}", "file".as_ref(), VERSION).is_err());
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        assert!(
            parse::<PostgresRecord>(&newer, "file".as_ref(), VERSION).unwrap_err().to_string().contains("version 2")
        );
    }
}
