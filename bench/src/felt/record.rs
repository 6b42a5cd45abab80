//! Raw results: every window of every turn, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`. Never touches: conclusions; each report draws them from the file anew.

use heat::units::HUGE_PAGE;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::mode::Mode;
use super::program::{FeltProgram, FeltSetup};
use crate::comparison::median_of;
use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::table::distinct;
use crate::workload::{Histogram, WorkInterval};

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeltRecord {
    /// Distinguishes it from other results: "felt".
    pub(super) kind: String,
    /// 1; a file with another number is rejected.
    pub(super) version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// What ran.
    pub program: FeltProgram,
    /// A description of its setup.
    pub description: String,
    /// The program's approximate memory.
    pub size_bytes: u64,
    /// The load as a share of the program's capacity; None if it runs at full speed.
    pub load: Option<f64>,
    /// Rounds requested; the file has fewer turns if the run was stopped.
    pub rounds: u32,
    /// The seed of random numbers.
    pub seed: u64,
    /// The arguments of `hugepilot promote` in the mode `before`.
    pub promote_arguments: Vec<String>,
    /// In the order in which they ran.
    pub turns: Vec<FeltTurn>,
}

/// A program left alone twice, promoted, and left alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeltTurn {
    /// Counted from 0.
    pub round: u32,
    /// Who promoted.
    pub mode: Mode,
    /// How the host of this virtual machine handled free memory.
    pub host: Host,
    /// Requests a second that the program can answer, if that was measured.
    pub capacity_per_second: Option<f64>,
    /// Requests that arrived per second.
    pub requests_per_second: Option<f64>,
    /// Nobody touched it.
    pub alone: Phase,
    /// Nobody touched it again.
    pub alone_again: Phase,
    /// While it was promoted.
    pub promotion: Phase,
    /// Directly afterwards.
    pub after: Phase,
    /// What promoting did.
    pub promoted: FeltPromotion,
}

/// What a promotion did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FeltPromotion {
    /// Memory put on huge pages.
    pub bytes: u64,
    /// How long the phase took.
    pub seconds: f64,
    /// CPU time of hugepilot in it.
    pub cpu_seconds: f64,
    /// hugepilot's JSON: the outcome of `promote`, the status of the daemon.
    pub output: serde_json::Value,
}

/// A part of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Latencies of all its requests.
    pub latency: Option<Latency>,
    /// Some 250 ms each.
    pub windows: Vec<FeltWindow>,
}

/// A short interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeltWindow {
    /// When it ended, counted from the start of the promotion.
    pub end_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// Requests answered in it.
    pub operations: u64,
    /// Their latencies, if requests arrive on their own schedule.
    pub latency: Option<Latency>,
}

/// Percentiles of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl FeltRecord {
    /// A record without turns.
    pub fn new(machine: MachineDescription, setup: &FeltSetup) -> Self {
        Self {
            kind: "felt".to_owned(),
            version: VERSION,
            machine,
            program: setup.program,
            description: setup.description(),
            size_bytes: setup.size.0,
            load: setup.program.has_requests().then_some(setup.load),
            rounds: 0,
            seed: setup.seed,
            promote_arguments: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// The hosts and modes that have turns, in report order.
    pub fn groups(&self) -> Vec<(Host, Mode)> {
        distinct(self.turns.iter().map(|turn| (turn.host, turn.mode)))
    }

    /// The turns of one of them.
    pub fn turns_of(&self, (host, mode): (Host, Mode)) -> Vec<&FeltTurn> {
        self.turns.iter().filter(|turn| (turn.host, turn.mode) == (host, mode)).collect()
    }
}

impl FeltTurn {
    /// Requests a second in the typical window before the promotion.
    pub fn usual_throughput(&self) -> Option<f64> {
        median_of(self.alone.windows.iter().map(FeltWindow::throughput))
    }
}

impl FeltPromotion {
    /// The number of regions of 2 MiB.
    pub fn regions(&self) -> u64 {
        self.bytes / HUGE_PAGE
    }
}

impl Phase {
    /// Windows made from these intervals. `origin` is the start of the promotion, in seconds of the clock that `end_of` uses.
    pub fn of(intervals: &[WorkInterval], end_of: impl Fn(&WorkInterval) -> f64) -> Self {
        let mut all: Option<Histogram> = None;
        let mut window = |interval: &WorkInterval| {
            if let Some(latencies) = &interval.work.latencies {
                all.get_or_insert_default().merge(latencies);
            }
            FeltWindow {
                end_seconds: end_of(interval),
                seconds: interval.work.duration.as_secs_f64(),
                operations: interval.work.operations,
                latency: interval.work.latencies.as_deref().and_then(Latency::of),
            }
        };
        let windows = intervals.iter().map(&mut window).collect();
        Self { latency: all.as_ref().and_then(Latency::of), windows }
    }

    /// Requests a second in the slowest window.
    pub fn worst_throughput(&self) -> Option<f64> {
        self.windows.iter().map(FeltWindow::throughput).reduce(f64::min)
    }

    /// Requests a second in all windows together.
    pub fn throughput(&self) -> Option<f64> {
        let seconds: f64 = self.windows.iter().map(|window| window.seconds).sum();
        let operations: u64 = self.windows.iter().map(|window| window.operations).sum();
        (seconds > 0.0).then(|| operations as f64 / seconds)
    }
}

impl FeltWindow {
    /// Requests a second.
    pub fn throughput(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

impl Latency {
    /// None without requests.
    pub fn of(latencies: &Histogram) -> Option<Self> {
        let share = |share| latencies.percentile(share);
        Some(Self { p50_ns: share(0.5)?, p99_ns: share(0.99)?, p999_ns: share(0.999)?, max_ns: share(1.0)? })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::kept::{ResultKind, parse};
    use crate::machine::tests::machine;
    use crate::outputs::json_lines;
    use crate::workload::Work;
    use heat::units::Bytes;

    /// A phase that ends at `end`, with one window per throughput.
    pub(in crate::felt) fn phase(throughputs: &[f64], end: f64, p99_ns: u64) -> Phase {
        let latency = Some(Latency { p50_ns: p99_ns / 10, p99_ns, p999_ns: p99_ns * 4, max_ns: p99_ns * 10 });
        let window = |(place, throughput): (usize, &f64)| FeltWindow {
            end_seconds: end - 0.25 * (throughputs.len() - 1 - place) as f64,
            seconds: 0.25,
            operations: (throughput / 4.0) as u64,
            latency,
        };
        Phase { latency, windows: throughputs.iter().enumerate().map(window).collect() }
    }

    /// Rounds in which the worst window of a promotion has this share of the throughput, and p99 is this many times as long.
    pub(in crate::felt) fn record(mode: Mode, rounds: u32, worst: f64, p99: f64) -> FeltRecord {
        let turn = |round: u32| {
            // The machine slows down from round to round, which must not count for or against the promotion.
            let (usual, p99_ns) = (40_000.0 - 1000.0 * f64::from(round), 100_000.0 * f64::from(round + 10));
            let still = [usual * 1.04, usual, usual * 0.96, usual];
            FeltTurn {
                round,
                mode,
                host: Host::Cold,
                capacity_per_second: Some(usual * 4.0),
                requests_per_second: Some(usual),
                alone: phase(&still, -1.0, p99_ns as u64),
                alone_again: phase(&still, 0.0, p99_ns as u64),
                promotion: phase(&[usual, usual * worst, usual], 0.75, (p99_ns * p99) as u64),
                after: phase(&[usual], 1.0, p99_ns as u64),
                promoted: FeltPromotion { bytes: 3 << 30, seconds: 40.0, cpu_seconds: 2.0, ..FeltPromotion::default() },
            }
        };
        let (program, size, capacity) = (FeltProgram::Memcached, Bytes(3 << 30), Duration::from_secs(1));
        let mut record = FeltRecord::new(
            machine(),
            &FeltSetup { program, size, load: 0.3, capacity, spare_processor: true, seed: 1 },
        );
        record.turns = (0..rounds).map(turn).collect();
        record
    }

    #[test]
    fn what_was_kept_is_read_again() {
        let kept = record(Mode::Fast, 2, 0.5, 2.0);
        let text = json_lines(&kept, "round").unwrap();
        assert_eq!(text.lines().count(), 3, "a line a turn");
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Felt));
        assert_eq!(parse::<FeltRecord>(&text, "a".as_ref(), VERSION).unwrap(), kept);
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(parse::<FeltRecord>(&newer, "a".as_ref(), VERSION).unwrap_err().to_string().contains("version 2"));
        assert!(parse::<FeltRecord>("{\"kind\":\"felt\"}", "a".as_ref(), VERSION).is_err());
    }

    #[test]
    fn a_phase_has_the_percentiles_of_all_its_windows() {
        let interval = |operations, latency_ns| {
            let mut latencies = Box::<Histogram>::default();
            latencies.add(latency_ns, operations);
            let work = Work {
                duration: Duration::from_millis(250),
                operations: operations.into(),
                latencies: Some(latencies),
                ..Work::default()
            };
            WorkInterval { end: Instant::now(), work }
        };
        let phase = Phase::of(&[interval(985, 50), interval(15, 60_000_000)], |_| 1.0);
        assert_eq!(phase.windows[0].latency.unwrap().p99_ns, 50);
        let all = phase.latency.unwrap();
        assert_eq!(all.p50_ns, 50);
        assert!((60_000_000..61_000_000).contains(&all.p99_ns), "{all:?}");
        assert_eq!((phase.worst_throughput(), phase.throughput()), (Some(60.0), Some(2000.0)));
        assert_eq!(Phase::of(&[], |_| 1.0), Phase::default());
    }

    #[test]
    fn groups_are_told_apart() {
        let mut both = record(Mode::Fast, 2, 0.5, 2.0);
        both.turns[1].host = Host::Warm;
        both.turns.extend(record(Mode::Default, 1, 1.0, 1.0).turns);
        assert_eq!(both.groups(), [(Host::Cold, Mode::Default), (Host::Cold, Mode::Fast), (Host::Warm, Mode::Fast)]);
        assert_eq!(both.turns_of((Host::Warm, Mode::Fast)).len(), 1);
    }
}
