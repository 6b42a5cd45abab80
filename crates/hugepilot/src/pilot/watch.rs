//! Piloting a process, or a program and its descendants, for as long as they run.
//!
//! Owns: whom to look at, and when. Never touches: how a single round goes; that is [`Pilot`].
//!
//! Often while promoting still pays, then ever more rarely; often again when a process has grown. Never so often that observing
//! costs more of a CPU than it may.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{Pilot, Round};
use crate::act::Outcome;
use crate::decide::Spent;
use crate::kernel::Root;
use crate::kernel::process::{self, Status};
use crate::report::Snapshot;
use crate::target::{Process, Target};
use crate::units::{Address, Bytes};

/// Below this a process is left alone: its page tables fit in the TLB or nearly so, and looking costs more than it gains.
const SMALLEST: Bytes = Bytes(16 << 20);
/// From one look to the next while promoting still pays.
const SOONEST: Duration = Duration::from_secs(1);
/// The longest from one look to the next.
const LATEST: Duration = Duration::from_secs(60);
/// How often resident memory is checked for growth meanwhile; one small file a process is read.
const GLANCE: Duration = Duration::from_millis(250);
/// How often new descendants are searched for; one small file of every process of the machine is read.
const CENSUS: Duration = Duration::from_secs(1);
/// Growth of resident memory by this share makes the next look due.
const GROWN: f64 = 0.05;

/// Who belongs to a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// The process alone.
    Alone,
    /// The process and its descendants, those to come included.
    WithDescendants,
}

/// A process, with its descendants if they are wanted.
pub struct Family {
    pid: u32,
    kinship: Kinship,
    /// Who lived at the last census, large or small.
    alive: Vec<Process>,
    next_census: Instant,
    /// Everyone who was ever large enough, also after its end.
    members: BTreeMap<Process, Member>,
    /// The most memory that any process was seen with.
    largest: Bytes,
}

/// One process of the family.
struct Member {
    next_look: Instant,
    interval: Duration,
    /// From the last look to the next, so that looking takes no more from the process than it may.
    affordable: Duration,
    rss: Bytes,
    /// Growth already taken in this program, which later rounds may not spend again.
    growth: Bytes,
    address_space: Option<u64>,
    first: Option<Snapshot>,
    last: Option<Snapshot>,
    /// Why the last look at it failed.
    left_alone: Option<String>,
}

/// What came of piloting.
#[derive(Default)]
pub struct Flight {
    /// How often a process was observed.
    pub rounds: u32,
    /// How many processes were observed.
    pub processes: usize,
    /// All promotions together.
    pub outcome: Outcome,
    /// Memory growth that they took.
    pub growth: Bytes,
    /// Why processes were not observed, each reason once.
    pub left_alone: BTreeSet<String>,
    /// The most memory that a process was seen with, if none was ever large enough to be observed.
    pub too_small: Option<Bytes>,
    ends: Vec<(Option<Snapshot>, Option<Snapshot>)>,
}

impl Family {
    /// The family of this process.
    pub fn of(pid: u32, kinship: Kinship) -> Self {
        Self {
            pid,
            kinship,
            alive: Vec::new(),
            next_census: Instant::now(),
            members: BTreeMap::new(),
            largest: Bytes(0),
        }
    }

    /// Pilots the family until it has ended, until that time, or until stopping is requested; `progress` is told after each round.
    pub fn fly(mut self, pilot: &mut Pilot<'_>, until: Option<Instant>, mut progress: impl FnMut(&Flight)) -> Flight {
        let started = Instant::now();
        let mut flight = Flight::default();
        loop {
            let due = self.due();
            if self.alive.is_empty() {
                break;
            }
            for process in due {
                if pilot.budget.free_at() > Instant::now() {
                    break;
                }
                let spent = self.spent(process);
                let member = self.members.get_mut(&process).expect("due means known");
                match member.round(process, &spent, pilot, &mut flight) {
                    Ok(()) => member.left_alone = None,
                    Err(_) if pilot.stop.requested() => break,
                    Err(error) => {
                        tracing::debug!(pid = process.pid, "left alone for a while: {error:#}");
                        member.left_alone = process.lives().then(|| format!("{error:#}"));
                        member.wait_longer();
                    }
                }
                progress(&flight);
            }
            let now = Instant::now();
            let next = until.map_or(now + GLANCE, |until| until.min(now + GLANCE));
            if until.is_some_and(|until| until <= now) || pilot.stop.sleep_until(next).is_err() {
                break;
            }
        }
        self.land(flight, started.elapsed())
    }

    fn land(self, flight: Flight, flown: Duration) -> Flight {
        let known_small = self.members.is_empty() && self.largest > Bytes(0) && flown >= CENSUS;
        Flight {
            processes: self.members.values().filter(|member| member.first.is_some()).count(),
            left_alone: self.members.values().filter_map(|member| member.left_alone.clone()).collect(),
            too_small: known_small.then_some(self.largest),
            ends: self.members.values().map(|member| (member.first, member.last)).collect(),
            ..flight
        }
    }

    /// Processes that are large enough and whose look is due, those that have waited longest first. Newcomers are due at once.
    fn due(&mut self) -> Vec<Process> {
        let (root, now) = (Root::host(), Instant::now());
        if self.next_census <= now {
            self.next_census = now + CENSUS;
            let mut pids = match self.kinship {
                Kinship::Alone => Vec::new(),
                Kinship::WithDescendants => process::descendants(&root, self.pid).unwrap_or_default(),
            };
            pids.push(self.pid);
            self.alive = pids.into_iter().filter_map(|pid| Process::of(&root, pid)).filter(Process::lives).collect();
        }
        let mut due = Vec::new();
        for &process in &self.alive {
            let rss = Status::read(&root, process.pid).map_or(Bytes(0), |status| status.vm_rss);
            self.largest = self.largest.max(rss);
            if rss < SMALLEST {
                continue;
            }
            let member = self.members.entry(process).or_insert_with(|| Member::new(now));
            member.notice_growth(rss);
            if member.next_look <= now {
                due.push(process);
            }
        }
        due.sort_by_key(|process| self.members[process].next_look);
        due
    }

    /// What the allowance has already given: to this process, and to the others that still live.
    fn spent(&self, process: Process) -> Spent {
        let living = |&(other, _): &(&Process, &Member)| *other != process && self.alive.contains(other);
        let others: Vec<&Member> = self.members.iter().filter(living).map(|(_, member)| member).collect();
        Spent {
            growth: self.members.get(&process).map_or(Bytes(0), |member| member.growth),
            growth_elsewhere: others.iter().map(|member| member.growth).sum(),
            huge_elsewhere: others.iter().filter_map(|member| member.last).map(|last| last.huge).sum(),
        }
    }
}

impl Member {
    fn new(now: Instant) -> Self {
        Self {
            next_look: now,
            interval: SOONEST,
            affordable: Duration::ZERO,
            rss: Bytes(0),
            growth: Bytes(0),
            address_space: None,
            first: None,
            last: None,
            left_alone: None,
        }
    }

    fn notice_growth(&mut self, rss: Bytes) {
        if self.rss.0 > 0 && rss.0 as f64 > self.rss.0 as f64 * (1.0 + GROWN) {
            self.look_soon();
        }
    }

    fn look_soon(&mut self) {
        self.interval = SOONEST;
        self.next_look = self.next_look.min(Instant::now() + self.rest());
    }

    fn wait_longer(&mut self) {
        self.interval = (self.interval * 2).min(LATEST);
        self.next_look = Instant::now() + self.rest();
    }

    /// From one look to the next: the interval, or longer where a look costs much.
    fn rest(&self) -> Duration {
        self.interval.max(self.affordable)
    }

    /// Observes, decides and acts once, and says when to look again.
    fn round(
        &mut self,
        process: Process,
        spent: &Spent,
        pilot: &mut Pilot<'_>,
        flight: &mut Flight,
    ) -> anyhow::Result<()> {
        let target = Target::open(process.pid)?;
        ensure!(target.start_time == process.start_ticks, "process {} has ended", process.pid);
        target.ensure_huge_pages_enabled()?;
        let round = pilot.look(&target, spent)?;
        flight.rounds += 1;
        self.noted(&round);
        self.affordable = pilot.budget.rest_for(round.heat.cost.program);
        let growth: Vec<(Address, Bytes)> =
            round.plan.promotions().map(|decision| (decision.start, decision.growth)).collect();
        if growth.is_empty() {
            self.wait_longer();
            return Ok(());
        }
        let regions: Vec<Address> = growth.iter().map(|&(start, _)| start).collect();
        let mut outcome = Outcome::default();
        pilot.act_while_fresh(&target, &regions, &mut outcome, |_| ());
        let grown = grown(&growth, &outcome);
        self.growth += grown;
        flight.growth += grown;
        if outcome.applied > 0 || outcome.not_reached > 0 {
            self.promoted()
        } else {
            self.wait_longer()
        }
        if let Ok(heat) = pilot.tracker.survey(&target) {
            let walks_per_second = self.last.and_then(|last| last.walks_per_second);
            self.rss = heat.rss;
            self.last = Some(Snapshot { walks_per_second, ..Snapshot::of(&heat, super::page_tables(&target)) });
        }
        flight.outcome = std::mem::take(&mut flight.outcome).and(outcome);
        Ok(())
    }

    /// Takes over what a look showed. After an exec the memory, and what was taken of the allowance for it, is another.
    fn noted(&mut self, round: &Round) {
        if self.address_space != round.heat.address_space {
            self.growth = Bytes(0);
        }
        self.address_space = round.heat.address_space;
        self.rss = round.heat.rss;
        self.first.get_or_insert(round.before);
        self.last = Some(round.before);
    }

    fn promoted(&mut self) {
        self.interval = SOONEST;
        self.next_look = Instant::now() + self.rest();
    }
}

/// The growth of the regions that were promoted.
fn grown(growth: &[(Address, Bytes)], outcome: &Outcome) -> Bytes {
    let refused: HashSet<Address> = outcome.refused.iter().map(|refusal| refusal.start).collect();
    let tried = growth.iter().take(outcome.tried as usize);
    tried.filter(|(start, _)| !refused.contains(start)).map(|&(_, growth)| growth).sum()
}

impl Flight {
    /// All processes at their first look together.
    pub fn before(&self) -> Option<Snapshot> {
        self.ends.iter().filter_map(|(first, _)| *first).reduce(together)
    }

    /// All processes at their last look together.
    pub fn after(&self) -> Option<Snapshot> {
        self.ends.iter().filter_map(|(_, last)| *last).reduce(together)
    }
}

fn together(one: Snapshot, other: Snapshot) -> Snapshot {
    Snapshot {
        walks_per_second: one.walks_per_second.zip(other.walks_per_second).map(|(one, other)| one + other),
        rss: one.rss + other.rss,
        huge: one.huge + other.huge,
        page_tables: one.page_tables + other.page_tables,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(members: &[(u32, u64, u64)], alive: &[u32]) -> Family {
        let named = |pid| Process { pid, start_ticks: 7 };
        let member = |&(pid, growth, huge)| {
            let last = Snapshot { walks_per_second: None, rss: Bytes(0), huge: Bytes(huge), page_tables: Bytes(0) };
            let member = Member { growth: Bytes(growth), last: Some(last), ..Member::new(Instant::now()) };
            (named(pid), member)
        };
        let members = members.iter().map(member).collect();
        Family { alive: alive.iter().copied().map(named).collect(), members, ..Family::of(1, Kinship::WithDescendants) }
    }

    #[test]
    fn an_allowance_is_shared_with_those_that_live() {
        let family = family(&[(1, 10, 100), (2, 20, 200), (3, 40, 400)], &[1, 2]);
        let spent = |pid| {
            let spent = family.spent(Process { pid, start_ticks: 7 });
            (spent.growth.0, spent.growth_elsewhere.0, spent.huge_elsewhere.0)
        };
        assert_eq!((spent(1), spent(2), spent(9)), ((10, 20, 200), (20, 10, 100), (0, 30, 300)));
    }

    #[test]
    fn growth_is_that_of_regions_that_were_promoted() {
        let growth: Vec<_> = (0..4).map(|number| (Address(number), Bytes(1 << number))).collect();
        let mut outcome = Outcome { tried: 2, applied: 2, ..Outcome::default() };
        outcome.leave_changed(Address(1));
        assert_eq!(grown(&growth, &outcome), Bytes(0b101));
    }

    #[test]
    fn a_family_that_stayed_small_says_how_small() {
        let small = || Family { largest: Bytes(5), ..Family::of(1, Kinship::WithDescendants) };
        let too_small =
            |family: Family, seconds| family.land(Flight::default(), Duration::from_secs(seconds)).too_small;
        assert_eq!(too_small(small(), 2), Some(Bytes(5)));
        assert_eq!(too_small(small(), 0), None, "it hardly lived");
        assert_eq!(too_small(family(&[(1, 0, 0)], &[1]), 2), None);
    }
}
