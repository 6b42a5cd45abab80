//! The load that pgbench makes, and its output.
//!
//! Owns: pgbench's arguments, and reading its output. Never touches: processes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What clients do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// Look rows up by their key, at random, each client on one connection.
    #[default]
    Select,
    /// The same on a new connection for each transaction.
    Connect,
    /// TPC-B: three updates, an insert and a look-up in each transaction.
    Write,
}

shown_as_typed!(Script);

/// How long clients have been connected when they are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// New ones in each turn, so that each server process begins without page tables.
    #[default]
    Cold,
    /// The same ones in all turns, until page tables grow no more before the first.
    Warm,
}

shown_as_typed!(Connections);

/// One run of pgbench.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// What clients do.
    pub script: Script,
    /// How many there are.
    pub clients: u32,
    /// How long.
    pub seconds: u32,
    /// Transactions a second to start, whether the last ones are answered or not; None for as many as possible, without a log.
    pub rate: Option<f64>,
    /// Whether it prints its speed every second.
    pub progress: bool,
}

impl Load {
    /// pgbench's arguments, before the database.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = ["-n", "-M", "prepared", "-j", "2"].map(str::to_owned).into();
        match self.script {
            Script::Select => words.push("-S".to_owned()),
            Script::Connect => words.extend(["-S", "-C"].map(str::to_owned)),
            Script::Write => {}
        }
        words.extend([format!("-c{}", self.clients), format!("-T{}", self.seconds)]);
        if let Some(rate) = self.rate {
            words.extend([format!("-R{rate}"), "-l".to_owned(), "--log-prefix=felt".to_owned()]);
        }
        if self.progress {
            words.push("-P1".to_owned());
        }
        words
    }
}

/// Transactions a second, from pgbench's output.
pub fn transactions_per_second(printed: &str) -> Result<f64> {
    let told = printed.lines().find_map(|line| line.strip_prefix("tps = "));
    let number = told.and_then(|told| told.split_whitespace().next()).and_then(|number| number.parse().ok());
    number.with_context(|| format!("pgbench told no 'tps = ..': '{}'", printed.trim()))
}

/// Transactions a second, from a progress line of pgbench.
pub fn progress(line: &str) -> Option<f64> {
    let after = line.strip_prefix("progress: ")?.split_once(" s, ")?.1;
    after.split_once(" tps")?.0.parse().ok()
}

/// The transactions of a log: when they ended, and how long they took from their scheduled start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log(Vec<(f64, f64)>);

/// A part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSeen {
    /// Transactions in the window with the fewest.
    pub fewest: f64,
    /// Transactions in the median window.
    pub usual: f64,
    /// The 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// The slowest, in milliseconds.
    pub slowest_ms: f64,
}

impl Log {
    /// Adds the lines of a log file: client, number, microseconds, script, seconds and microseconds of the time, and lag. pgbench counts the
    /// microseconds from the scheduled start of the transaction.
    pub fn add(&mut self, text: &str) {
        let parse = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
            Some((number(4)? + number(5)? * 1e-6, number(2)? * 1e-3))
        };
        self.0.extend(text.lines().filter_map(parse));
    }

    /// The part from one time to another, in windows of `window` seconds that lie entirely between; None if there is none.
    pub fn between(&self, from: f64, to: f64, window: f64) -> Option<LoadSeen> {
        let windows = ((to - from) / window) as u64;
        let mut counts: BTreeMap<u64, f64> = (0..windows).map(|number| (number, 0.0)).collect();
        let mut times = Vec::new();
        for &(ended, took_ms) in self.0.iter().filter(|(ended, _)| (from..to).contains(ended)) {
            counts.entry(((ended - from) / window) as u64).and_modify(|count| *count += 1.0);
            times.push(took_ms);
        }
        let fewest = counts.values().copied().reduce(f64::min)?;
        times.sort_by(f64::total_cmp);
        let at =
            |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied();
        let usual = heat::statistics::median(&counts.into_values().collect::<Vec<_>>())?;
        Some(LoadSeen { fewest, usual, p99_ms: at(0.99)?, slowest_ms: at(1.0)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_understood() {
        let printed = "number of failed transactions: 0 (0.000%)\nlatency average = 4.2 ms\n\
                       tps = 23671.934 (without initial connection time)\n";
        assert_eq!(transactions_per_second(printed).unwrap(), 23671.934);
        assert_eq!(progress("progress: 5.0 s, 17000.1 tps, lat 5.9 ms stddev 1.0, 0 failed"), Some(17000.1));
        assert_eq!(progress("pgbench (15.18)"), None);
        assert!(transactions_per_second("pgbench: error: no").unwrap_err().to_string().contains("error: no"));
    }

    #[test]
    fn each_script_has_its_words() {
        let load = Load { script: Script::Select, clients: 100, seconds: 9, rate: None, progress: false };
        let words = |script, rate| Load { script, rate, ..load }.words().join(" ");
        assert!(Load { progress: true, ..load }.words().contains(&"-P1".to_owned()));
        assert_eq!(words(Script::Select, None), "-n -M prepared -j 2 -S -c100 -T9");
        assert_eq!(words(Script::Connect, None), "-n -M prepared -j 2 -S -C -c100 -T9");
        assert_eq!(words(Script::Write, Some(500.0)), "-n -M prepared -j 2 -c100 -T9 -R500 -l --log-prefix=felt");
    }

    #[test]
    fn a_log_tells_its_worst_window_and_its_slowest() {
        let mut log = Log::default();
        let line = |number: u64, took_us: u64, at_ms: u64| {
            format!("{} {number} {took_us} 0 {} {} 3\n", number % 4, at_ms / 1000, at_ms % 1000 * 1000)
        };
        let text: String = (0..100).map(|number| line(number, 500, 10_000 + number * 10)).collect();
        log.add(&(text + &line(7, 40_000, 11_100) + "an odd line\n"));
        let seen = log.between(10.0, 11.5, 0.25).unwrap();
        assert_eq!((seen.fewest, seen.usual, seen.slowest_ms), (0.0, 25.0, 40.0));
        assert_eq!(log.between(10.0, 11.0, 0.25).unwrap().p99_ms, 0.5);
        assert_eq!(log.between(20.0, 20.1, 0.25), None);
    }
}
