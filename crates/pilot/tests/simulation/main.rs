//! The real engine on simulated machines: a seed makes one, and the promises hold whatever happens on it.
//!
//! `HUGEPILOT_SEED` replays one seed. `HUGEPILOT_HOURS` says how many machine-hours of new seeds to try, 1,000 by default: half a
//! minute on two processors.

mod churning;
mod client;
mod giving_back;
mod machine;
mod newcomer;
mod program;
mod promises;
mod resting;
mod scenario;
mod slowed;
mod steps;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::machine::Calls;
use crate::scenario::{Ended, Kind};

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")))
}

/// What was simulated so far.
#[derive(Default)]
struct Tally {
    machines: BTreeMap<Kind, u64>,
    simulated: Duration,
    programs: usize,
    calls: Calls,
}

impl Tally {
    fn add(&mut self, ended: &Ended) {
        *self.machines.entry(ended.kind).or_default() += 1;
        self.simulated += ended.simulated;
        self.programs = self.programs.max(ended.programs);
        let Calls { observed, collapsed, refused, split, killed, lists } = ended.calls;
        let calls = &mut self.calls;
        (calls.observed, calls.collapsed) = (calls.observed + observed, calls.collapsed + collapsed);
        (calls.refused, calls.split) = (calls.refused + refused, calls.split + split);
        (calls.killed, calls.lists) = (calls.killed + killed, calls.lists + lists);
    }

    fn and(mut self, other: Tally) -> Tally {
        other.machines.iter().for_each(|(kind, count)| *self.machines.entry(*kind).or_default() += count);
        let programs = self.programs.max(other.programs);
        self.add(&Ended {
            kind: Kind::Lonely,
            simulated: other.simulated,
            calls: other.calls,
            programs,
            broken: Vec::new(),
        });
        *self.machines.entry(Kind::Lonely).or_default() -= 1;
        self
    }
}

fn simulate(seed: u64) -> Ended {
    let ended = scenario::run(seed);
    assert!(
        ended.broken.is_empty(),
        "seed {seed} ({:?}) breaks promises; HUGEPILOT_SEED={seed} cargo test -p pilot --test simulation\n{}",
        ended.kind,
        ended.broken.join("\n")
    );
    ended
}

#[test]
fn promises_hold_on_every_machine() {
    // A panic of the engine is reported with its seed.
    if let Some(seed) = variable("HUGEPILOT_SEED") {
        let ended = simulate(seed);
        return println!("seed {seed}: {:?}, {:?}, {:?}", ended.kind, ended.simulated, ended.calls);
    }
    let hours = variable("HUGEPILOT_HOURS").unwrap_or(1_000);
    let (began, first) = (Instant::now(), fastrand::u64(..u64::MAX / 2));
    let (next, seconds, failed) = (AtomicU64::new(first), AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        let mut tally = Tally::default();
        while seconds.load(Ordering::Relaxed) < hours * 3600 && !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let ended = std::panic::catch_unwind(|| simulate(seed)).unwrap_or_else(|panic| {
                failed.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(panic)
            });
            seconds.fetch_add(ended.simulated.as_secs(), Ordering::Relaxed);
            tally.add(&ended);
        }
        tally
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let tally = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        let tallies = joined.into_iter().map(|tally| tally.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        tallies.fold(Tally::default(), Tally::and)
    });
    let Tally { machines, simulated, programs, calls } = tally;
    let took = began.elapsed();
    println!(
        "from seed {first}: {:.0} machine-hours in {took:.1?}: {machines:?}, up to {programs} programs at once; {calls:?}",
        simulated.as_secs_f64() / 3600.0
    );
    let Calls { observed, collapsed, refused, split, killed, lists } = calls;
    assert!(
        [observed, collapsed, refused, split, killed, lists].iter().all(|&count| count > 0),
        "little happened: {calls:?}"
    );
}
