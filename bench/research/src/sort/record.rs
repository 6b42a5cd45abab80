//! Raw results: every turn, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`, and the other format that may be read instead. Never touches: conclusions.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use heat::statistics::{Interval, median, paired_ratio};
use hugepilot_bench::kept::read_bytes;
use hugepilot_bench::machine::MachineDescription;
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::line::SortTurn;
use hugepilot_sort::task::PageChoice;
use serde::{Deserialize, Serialize};

use super::text;
use crate::record::ResearchRecord;

/// All of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortRecord {
    version: u32,
    /// The machine measured; None for lines that do not name it.
    pub machine: Option<MachineDescription>,
    /// In the order in which they ran.
    pub turns: Vec<SortTurn>,
}

impl SortRecord {
    /// A record without turns for this machine.
    pub fn new(machine: MachineDescription) -> Self {
        Self { version: Self::VERSION, machine: Some(machine), turns: Vec::new() }
    }

    /// Reads a saved file, or lines that hugepilot-sort printed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = text_of(&read_bytes(path)?).with_context(|| format!("{} is no text", path.display()))?;
        if let Ok(record) = serde_json::from_str::<Self>(&text) {
            ensure!(
                record.version == Self::VERSION,
                "{} has version {}, not {}",
                path.display(),
                record.version,
                Self::VERSION
            );
            return Ok(record);
        }
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let turns: Result<Vec<SortTurn>, _> = lines.map(serde_json::from_str).collect();
        let turns = turns.with_context(|| {
            format!("{} holds neither what `sort --keep` wrote nor lines of hugepilot-sort", path.display())
        })?;
        ensure!(!turns.is_empty(), "{} is empty", path.display());
        let record = Self { version: Self::VERSION, machine: None, turns };
        let same = |turn: &SortTurn| turn.shape.as_deref() == record.shape(turn.algorithm);
        ensure!(
            record.turns.iter().all(same),
            "{} holds sorts of several shapes: have each told alone",
            path.display()
        );
        Ok(record)
    }

    /// Which way to do it was timed, all the time; None where that was not kept.
    pub fn shape(&self, algorithm: Algorithm) -> Option<&str> {
        self.turns.iter().find(|turn| turn.algorithm == algorithm)?.shape.as_deref()
    }

    /// The algorithms, each with its sizes in ascending order.
    pub fn cases(&self) -> Vec<(Algorithm, Vec<u64>)> {
        let mut cases: Vec<(Algorithm, u64)> = self.turns.iter().map(|turn| (turn.algorithm, turn.bytes)).collect();
        cases.sort();
        cases.dedup();
        let group = |group: &[(Algorithm, u64)]| (group[0].0, group.iter().map(|case| case.1).collect());
        cases.chunk_by(|one, other| one.0 == other.0).map(group).collect()
    }

    /// The turns of one algorithm, size and choice of pages.
    pub fn turns_of(&self, algorithm: Algorithm, bytes: u64, pages: PageChoice) -> impl Iterator<Item = &SortTurn> {
        self.turns.iter().filter(move |turn| (turn.algorithm, turn.bytes, turn.pages) == (algorithm, bytes, pages))
    }

    /// The median milliseconds of a sort.
    pub fn milliseconds(&self, algorithm: Algorithm, bytes: u64, pages: PageChoice) -> Option<f64> {
        let times = self.turns_of(algorithm, bytes, pages).map(|turn| turn.nanoseconds as f64 / 1e6);
        median(&times.collect::<Vec<_>>())
    }

    /// How many times faster these pages are than ordinary ones, by round.
    pub fn speedups(&self, algorithm: Algorithm, bytes: u64, pages: PageChoice) -> Vec<(u32, f64)> {
        let ordinary = |round| {
            let mut turns = self.turns_of(algorithm, bytes, PageChoice::Ordinary);
            turns.find(|turn| turn.round == round).map(|turn| turn.nanoseconds as f64)
        };
        let of = |turn: &SortTurn| Some((turn.round, ordinary(turn.round)? / turn.nanoseconds as f64));
        self.turns_of(algorithm, bytes, pages).filter_map(of).collect()
    }

    /// Whether all memory that should be on large pages was.
    pub fn all_on_large_pages(&self, algorithm: Algorithm, bytes: u64) -> bool {
        self.turns_of(algorithm, bytes, PageChoice::Large).all(|turn| turn.large_bytes == turn.taken_bytes)
    }

    /// Their median, with its interval.
    pub fn speedup(&self, algorithm: Algorithm, bytes: u64, pages: PageChoice) -> Option<Interval> {
        let pairs = self.speedups(algorithm, bytes, pages).into_iter().map(|(_, ratio)| (ratio, 1.0));
        paired_ratio(&pairs.collect::<Vec<_>>())
    }
}

impl ResearchRecord for SortRecord {
    const NAME: &'static str = "sort";
    const VERSION: u32 = 1;
    const FIRST_FIELD: &'static str = "round";

    fn text(&self) -> String {
        text::text(self)
    }
}

/// Text as programs write it, or as the Windows shell redirects it to a file: in UTF-16 after a byte order mark.
fn text_of(bytes: &[u8]) -> Result<String> {
    let text = match bytes.strip_prefix(&[0xff, 0xfe]) {
        Some(utf_16) => {
            let (units, rest) = utf_16.as_chunks::<2>();
            ensure!(rest.is_empty(), "it ends within a character");
            String::from_utf16(&units.iter().map(|&unit| u16::from_le_bytes(unit)).collect::<Vec<_>>())?
        }
        None => std::str::from_utf8(bytes)?.to_owned(),
    };
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Six rounds of this size, in which large pages are `faster` times as fast.
    pub(in crate::sort) fn turns(algorithm: Algorithm, bytes: u64, faster: f64) -> Vec<SortTurn> {
        let turn = |round: u32, pages, nanoseconds: f64| SortTurn {
            round,
            algorithm,
            shape: Some(algorithm.shape().to_owned()),
            pages,
            bytes,
            nanoseconds: nanoseconds as u64,
            large_bytes: if pages == PageChoice::Large { bytes } else { 0 },
            taken_bytes: bytes,
            refusal: None,
        };
        // The machine slows down from round to round, which must count neither as a gain nor as a loss.
        let round = |round: u32| {
            let slow = 1e9 * f64::from(round + 10);
            [
                turn(round, PageChoice::Large, slow / faster),
                turn(round, PageChoice::Ordinary, slow),
                turn(round, PageChoice::OrdinaryAgain, slow),
            ]
        };
        (0..6).flat_map(round).collect()
    }

    pub(in crate::sort) fn record(turns: Vec<SortTurn>) -> SortRecord {
        SortRecord { version: SortRecord::VERSION, machine: None, turns }
    }

    #[test]
    fn turns_of_a_round_are_compared() {
        let record = record(turns(Algorithm::Heap, 64 << 20, 1.25));
        let gain = record.speedup(Algorithm::Heap, 64 << 20, PageChoice::Large).unwrap();
        assert!((gain.low - 1.25).abs() < 1e-6 && (gain.high - 1.25).abs() < 1e-6 && gain.pairs == 6, "{gain:?}");
        assert!(record.speedup(Algorithm::Quick, 64 << 20, PageChoice::Large).is_none());
        assert_eq!(record.milliseconds(Algorithm::Heap, 64 << 20, PageChoice::Ordinary), Some(12_500.0));
    }

    #[test]
    fn what_was_kept_and_lines_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sort.json");
        let kept = record([turns(Algorithm::Heap, 1 << 20, 1.0), turns(Algorithm::Quick, 2 << 20, 1.0)].concat());
        std::fs::write(&path, kept.json().unwrap()).unwrap();
        assert_eq!(SortRecord::read(&path).unwrap(), kept);
        let lines: Vec<String> = kept.turns.iter().map(|turn| serde_json::to_string(turn).unwrap()).collect();
        let lines = lines.join("\r\n") + "\r\n";
        let in_utf_16: Vec<u8> = format!("\u{feff}{lines}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        for written in [lines.clone().into_bytes(), format!("\u{feff}{lines}").into_bytes(), in_utf_16] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(SortRecord::read(&path).unwrap(), kept);
        }
        assert_eq!(kept.cases(), [(Algorithm::Heap, vec![1 << 20]), (Algorithm::Quick, vec![2 << 20])]);
        let of_others = format!("{}\n{}", lines, lines.replace("bottom-up", "other"));
        for wrong in [&of_others, "", "{}", "{\"round\":1}", "\u{feff}"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(SortRecord::read(&path).is_err(), "{wrong}");
        }
    }
}
