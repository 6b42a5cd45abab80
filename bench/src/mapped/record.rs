//! Raw results of a mapped file: every window, as saved in a file, and the report drawn from them.
//!
//! Owns: the format of that file, `"version": 1`. Never touches: measurements.

use std::fmt;

use heat::statistics::{Interval, paired_ratio};
use heat::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::table::{cell, head, interval, table};
use crate::verdict::{Bound, JudgedFigure};

/// What reading at random from huge pages is to gain at least.
const GAIN: f64 = 1.15;

/// How a file came into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HowFilled {
    /// Page by page, as reads at random addresses do.
    ByRandomReads,
    /// By reading it once before (`cat`).
    FromStartToEnd,
    /// By `hugepilot cache`.
    ByHugepilot,
}

impl fmt::Display for HowFilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HowFilled::ByRandomReads => "by random reads",
            HowFilled::FromStartToEnd => "from start to end",
            HowFilled::ByHugepilot => "by hugepilot cache",
        })
    }
}

/// How much of a file was mapped by huge pages after it was filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Filled {
    pub(super) fill: u32,
    pub(super) how: HowFilled,
    pub(super) huge_bytes: Bytes,
}

/// Reads in one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MappedWindow {
    /// Counted from 0.
    pub(super) fill: u32,
    /// Counted from 0 in each filling.
    pub(super) round: u32,
    pub(super) how: HowFilled,
    /// Whether it is the first file's second window of the round.
    pub(super) again: bool,
    pub(super) reads_per_second: f64,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MappedRecord {
    kind: String,
    version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    size_bytes: Bytes,
    seed: u64,
    /// What `hugepilot explain` said of the reader: its gain after a restart, in percent; null if it said nothing.
    pub(super) forecast: Option<Value>,
    pub(super) filled: Vec<Filled>,
    /// In the order in which they ran.
    pub(super) windows: Vec<MappedWindow>,
}

impl MappedRecord {
    /// A record without windows.
    pub(super) fn new(machine: MachineDescription, size_bytes: Bytes, seed: u64) -> Self {
        let (kind, forecast, filled, windows) = ("mapped".to_owned(), None, Vec::new(), Vec::new());
        Self { kind, version: VERSION, machine, size_bytes, seed, forecast, filled, windows }
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let rounds = self.windows.len() / 4;
        let mut text =
            format!("{}\nmapped: files of {}, read at random, {rounds} rounds\n", self.machine, self.size_bytes);
        if let Some(by) = &self.machine.measured_by {
            text += &format!("command: {}\n", by.command);
        }
        let mut rows = vec![head("in the page cache | on huge pages | reads per second, of base pages")];
        for how in [HowFilled::ByRandomReads, HowFilled::FromStartToEnd, HowFilled::ByHugepilot] {
            let again = how == HowFilled::ByRandomReads;
            rows.push(vec![how.to_string(), self.huge(how), interval(self.ratio(how, again))]);
        }
        let forecast = self.forecast.as_ref().and_then(|gain| {
            let number = |field: &str| gain[field].as_f64();
            Some(format!("{:.1} ({:.1} to {:.1})", number("likely")?, number("low")?, number("high")?))
        });
        text += &format!("\n{}\nforecast by `hugepilot explain`, %: {}\n\nfigures\n", table(&rows), cell(forecast));
        let noise = self.ratio(HowFilled::ByRandomReads, true);
        let figures = [
            (format!("hugepilot cache: reads >= {GAIN} x those of base pages"), HowFilled::ByHugepilot),
            (format!("from start to end: reads >= {GAIN} x those of base pages"), HowFilled::FromStartToEnd),
        ];
        for (text_of, how) in figures {
            text += &JudgedFigure::of_ratio(text_of, self.ratio(how, false), noise, Bound::AtLeast(GAIN)).line(58, 30);
        }
        text
    }

    fn huge(&self, how: HowFilled) -> String {
        let shares: Vec<String> = self
            .filled
            .iter()
            .filter(|filled| filled.how == how)
            .map(|filled| format!("{:.1} %", 100.0 * filled.huge_bytes.0 as f64 / self.size_bytes.0.max(1) as f64))
            .collect();
        shares.join(", ")
    }

    /// Reads of a file, of the first file's, round by round.
    fn ratio(&self, how: HowFilled, again: bool) -> Option<Interval> {
        let of = |round: &[MappedWindow], how, again| {
            let found = round.iter().find(|window| window.how == how && window.again == again);
            found.map_or(0.0, |window| window.reads_per_second)
        };
        let rounds = self.windows.chunks_exact(4);
        let pairs: Vec<_> =
            rounds.map(|round| (of(round, how, again), of(round, HowFilled::ByRandomReads, false))).collect();
        paired_ratio(&pairs)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kept::{ResultKind, parse};
    use crate::outputs::json_lines;

    fn record(gain: f64) -> MappedRecord {
        let mut record = MappedRecord::new(crate::machine::tests::machine(), Bytes(2 << 30), 1);
        record.forecast = Some(json!({ "likely": 30.0, "low": 20.0, "high": 45.0 }));
        let all = [
            (HowFilled::ByRandomReads, 0, 1.0),
            (HowFilled::FromStartToEnd, 1 << 30, 1.0 + gain / 2.0),
            (HowFilled::ByHugepilot, 2 << 30, 1.0 + gain),
        ];
        for (how, huge, _) in all {
            record.filled.push(Filled { fill: 0, how, huge_bytes: Bytes(huge) });
        }
        for round in 0..8 {
            for (how, _, speed) in all {
                let reads_per_second = 1e7 * speed * (1.0 + f64::from(round) / 10.0);
                record.windows.push(MappedWindow { fill: 0, round, how, again: false, reads_per_second });
            }
            let again = MappedWindow { again: true, ..record.windows[record.windows.len() - 3].clone() };
            record.windows.push(again);
        }
        record
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_told() {
        let record = record(0.4);
        let text = json_lines(&record, "fill").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Mapped));
        assert_eq!(parse::<MappedRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        let told = record.text();
        assert!(told.contains("files of 2 GiB, read at random, 8 rounds"), "{told}");
        assert!(told.contains("50.0 %") && told.contains("30.0 (20.0 to 45.0)"), "{told}");
        assert_eq!(told.lines().filter(|line| line.ends_with(" met")).count(), 2, "{told}");
    }

    #[test]
    fn what_gains_too_little_is_told() {
        assert_eq!(record(0.2).text().matches("NOT MET").count(), 1);
        assert!(MappedRecord::new(crate::machine::tests::machine(), Bytes(0), 1).text().contains("not measured"));
    }
}
