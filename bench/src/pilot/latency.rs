//! The scenario `latency`: memcached's response times while the pilot promotes, gently and fast.
//!
//! Owns: its phases, and what they come to. Never touches: how requests are sent.
//!
//! Requests come at 30 % of what the server can do, which is measured first in each round by clients that wait for each answer.

use std::fmt;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use hugepilot::statistics::{Interval, median, paired_ratio};
use hugepilot::units::{Bytes, Nanos};
use serde::Serialize;

use super::{AROUND, PilotArguments, Scenario, Stage, figure, interval};
use crate::sample::huge_memory;
use crate::verdict::Verdict;
use crate::warm::WarmMemory;
use crate::workload::{Histogram, Memcached, Popularity, Running, Server, Start, Workload};

/// Of what the server can do.
const LOAD: f64 = 0.3;
/// Clients that wait for each answer.
const CONNECTIONS: usize = 8;
/// From the load's start to the first phase.
const LEAD: Duration = Duration::from_secs(2);
/// The figure: the median p99 while promoting gently, of that without a pilot.
const AT_MOST: f64 = 1.5;

/// How it is measured.
pub(super) struct Latency {
    server: Memcached,
    capacity: Duration,
    /// Each phase.
    phase: Duration,
    rounds: u32,
}

/// Who does what to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Alone,
    Gentle,
    AloneAgain,
    Fast,
}

/// One second of a phase.
#[derive(Clone, Copy, Debug, Serialize)]
struct Window {
    requests: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

/// One server's life.
#[derive(Serialize)]
pub(super) struct Round {
    capacity_per_second: f64,
    requests_per_second: f64,
    phases: Vec<PhaseSeen>,
}

#[derive(Serialize)]
struct PhaseSeen {
    phase: Phase,
    windows: Vec<Window>,
    /// Memory that was put on huge pages in it.
    promoted_bytes: u64,
}

impl Phase {
    /// Fast comes last, because it leaves nothing to promote.
    const ALL: [Phase; 4] = [Phase::Alone, Phase::Gentle, Phase::AloneAgain, Phase::Fast];

    /// Whether the pilot is told to be fast; None without a pilot.
    fn pilot_is_fast(self) -> Option<bool> {
        match self {
            Phase::Alone | Phase::AloneAgain => None,
            Phase::Gentle => Some(false),
            Phase::Fast => Some(true),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Alone => "alone",
            Phase::Gentle => "gentle",
            Phase::AloneAgain => "alone again",
            Phase::Fast => "fast",
        })
    }
}

impl Window {
    fn of(latencies: &Histogram, requests: u64) -> Option<Self> {
        let share = |share| latencies.percentile(share);
        Some(Self { requests, p99_ns: share(0.99)?, p999_ns: share(0.999)?, max_ns: share(1.0)? })
    }
}

impl PhaseSeen {
    fn median_of(&self, number: fn(&Window) -> u64) -> Option<f64> {
        median(&self.windows.iter().map(|window| number(window) as f64).collect::<Vec<_>>())
    }
}

impl Round {
    /// The median p99 of a phase's windows; None if a pilot in it found nothing to promote.
    fn p99(&self, phase: Phase) -> Option<f64> {
        let seen = self.phases.iter().find(|seen| seen.phase == phase)?;
        let counts = phase.pilot_is_fast().is_none() || seen.promoted_bytes > 0;
        seen.median_of(|window| window.p99_ns).filter(|_| counts)
    }
}

impl Latency {
    pub(super) fn new(arguments: &PilotArguments) -> Self {
        let seconds = |usual, quick| Duration::from_secs(if arguments.quick { quick } else { usual });
        let items = if arguments.quick { 800_000 } else { 5_200_000 };
        Self {
            server: server(items, 512, CONNECTIONS, arguments.seed),
            capacity: seconds(10, 3),
            // One more than counts, because windows begin where they like.
            phase: seconds(31, 10),
            rounds: arguments.rounds(6, 1),
        }
    }

    fn round(&self, stage: &Stage) -> Result<Round> {
        let _warm = WarmMemory::touch(self.server.memory_bytes() / 4 * 5, &stage.stop)?;
        let mut server = self.server.serve(Start::AsItIs, &stage.stop)?;
        server.begin_closed_loop();
        let start = Instant::now();
        stage.leave_alone(&mut [&mut server], self.capacity)?;
        let capacity_per_second = server.progress().window(start, Instant::now()).throughput();
        let requests_per_second = LOAD * capacity_per_second;
        server.begin_open_loop(requests_per_second);
        stage.leave_alone(&mut [&mut server], LEAD)?;
        let phases: Result<Vec<PhaseSeen>> =
            Phase::ALL.into_iter().map(|phase| self.phase(stage, phase, &mut server)).collect();
        Ok(Round { capacity_per_second, requests_per_second, phases: phases? })
    }

    fn phase(&self, stage: &Stage, phase: Phase, server: &mut Server) -> Result<PhaseSeen> {
        let before = huge_memory(server.pid())?;
        let start = Instant::now();
        let pilot = phase.pilot_is_fast().map(|fast| stage.tool.attach(server.pid(), fast, None)).transpose()?;
        stage.leave_alone(&mut [&mut *server], self.phase)?;
        let end = Instant::now();
        pilot.map_or(Ok(()), |pilot| pilot.end())?;
        let promoted_bytes = huge_memory(server.pid())?.0.saturating_sub(before.0);
        let seen = server.progress().intervals(start, end);
        let window = |interval: &crate::workload::WorkInterval| {
            interval.latencies.as_ref().and_then(|latencies| Window::of(latencies, interval.operations))
        };
        Ok(PhaseSeen { phase, windows: seen.iter().filter_map(window).collect(), promoted_bytes })
    }
}

impl Scenario for Latency {
    type Round = Round;
    const NAME: &'static str = "latency";

    fn description(&self) -> String {
        format!(
            "memcached, {} items of {} bytes; an open loop of reads at {:.0} % of its capacity, windows of 1 s, phases of {} s",
            self.server.items,
            self.server.value_size,
            LOAD * 100.0,
            self.phase.as_secs()
        )
    }

    fn expected_time(&self) -> Duration {
        self.rounds * (AROUND + self.capacity + LEAD + Phase::ALL.len() as u32 * self.phase)
    }

    fn measure(&self, stage: &Stage, rounds: &mut Vec<Round>) -> Result<()> {
        for number in 1..=self.rounds {
            let round = self.round(stage)?;
            let millis = |phase| round.p99(phase).map_or("-".to_owned(), |p99| Nanos(p99 as u64).to_string());
            eprintln!("round {number}: p99 {} alone, {} gentle", millis(Phase::Alone), millis(Phase::Gentle));
            rounds.push(round);
        }
        Ok(())
    }

    fn text(&self, rounds: &[Round]) -> String {
        let rate =
            |number: fn(&Round) -> f64| median(&rounds.iter().map(number).collect::<Vec<_>>()).unwrap_or_default();
        let mut text = format!(
            "{} rounds; capacity {:.0} requests/s, sent {:.0}\n\nphase        windows    promoted  median p99      p99.9        max  worst p99        max  p99 of alone\n",
            rounds.len(),
            rate(|round| round.capacity_per_second),
            rate(|round| round.requests_per_second),
        );
        Phase::ALL.into_iter().for_each(|phase| text += &line(rounds, phase));
        let (gentle, noise) = (of_alone(rounds, Phase::Gentle), of_alone(rounds, Phase::AloneAgain));
        let verdict = match (&gentle, &noise) {
            (Some(gentle), Some(noise)) => Verdict::at_most(AT_MOST, gentle, noise),
            _ => Verdict::NotMeasured,
        };
        text + "\nfigures\n" + &figure("median p99 while gentle <= 1.5 x alone", &interval(gentle.as_ref()), verdict)
    }
}

/// A phase's median p99, of that alone in the same round.
fn of_alone(rounds: &[Round], phase: Phase) -> Option<Interval> {
    let pairs = rounds.iter().filter_map(|round| round.p99(phase).zip(round.p99(Phase::Alone)));
    paired_ratio(&pairs.collect::<Vec<_>>())
}

fn line(rounds: &[Round], phase: Phase) -> String {
    let seen: Vec<&PhaseSeen> =
        rounds.iter().flat_map(|round| &round.phases).filter(|seen| seen.phase == phase).collect();
    let windows = || seen.iter().flat_map(|seen| &seen.windows);
    let typical = |number: fn(&Window) -> u64| {
        let value = median(&windows().map(|window| number(window) as f64).collect::<Vec<_>>());
        Nanos(value.unwrap_or_default() as u64).to_string()
    };
    let worst = |number: fn(&Window) -> u64| Nanos(windows().map(number).max().unwrap_or(0)).to_string();
    let promoted = median(&seen.iter().map(|seen| seen.promoted_bytes as f64).collect::<Vec<_>>());
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{phase:<12} {:>7} {:>11} {:>11} {:>10} {:>10} {:>10} {:>10}  {}",
        windows().count(),
        Bytes(promoted.unwrap_or_default() as u64).to_string(),
        typical(|window| window.p99_ns),
        typical(|window| window.p999_ns),
        typical(|window| window.max_ns),
        worst(|window| window.p99_ns),
        worst(|window| window.max_ns),
        interval(of_alone(rounds, phase).filter(|_| phase != Phase::Alone).as_ref()),
    );
    text
}

/// An ordinary memcached, asked for one item at a time on each connection.
fn server(items: u64, value_size: usize, connections: usize, seed: u64) -> Memcached {
    let popularity = Popularity::Ycsb;
    Memcached { items, value_size, connections, depth: 1, popularity, seed, compacting: "memcached".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_percentiles_of_its_requests() {
        let mut latencies = Histogram::default();
        latencies.add(1_000, 9_900);
        latencies.add(100_000, 90);
        latencies.add(5_000_000, 10);
        let window = Window::of(&latencies, 10_000).unwrap();
        let about = |seen: u64, wanted: u64| seen >= wanted && seen <= wanted + wanted / 60;
        assert!(about(window.p99_ns, 1_000) && about(window.p999_ns, 100_000) && about(window.max_ns, 5_000_000));
        assert!(Window::of(&Histogram::default(), 0).is_none());
    }

    fn round(gentle: u64, promoted_bytes: u64) -> Round {
        let window = |p99_ns| Window { requests: 1, p99_ns, p999_ns: p99_ns, max_ns: p99_ns };
        let seen = |phase: Phase| {
            let p99 = if phase == Phase::Gentle { gentle } else { 100 };
            // One bad second is not the median.
            let windows = vec![window(p99), window(1_000_000), window(p99)];
            PhaseSeen {
                phase,
                windows,
                promoted_bytes: if phase.pilot_is_fast().is_some() { promoted_bytes } else { 0 },
            }
        };
        Round { capacity_per_second: 1e5, requests_per_second: 3e4, phases: Phase::ALL.map(seen).into() }
    }

    fn text_of(gentle: u64, promoted: u64) -> String {
        let server = server(1, 8, 1, 1);
        let scenario = Latency { server, capacity: LEAD, phase: LEAD, rounds: 8 };
        scenario.text(&(0..8).map(|_| round(gentle, promoted)).collect::<Vec<_>>())
    }

    #[test]
    fn gentle_is_judged_by_its_typical_window() {
        assert!(text_of(140, 1).ends_with(" met\n"), "{}", text_of(140, 1));
        assert!(text_of(160, 1).ends_with("NOT MET\n"));
    }

    #[test]
    fn a_pilot_that_promotes_nothing_proves_nothing() {
        assert!(text_of(100, 0).contains("not measured"));
    }
}
