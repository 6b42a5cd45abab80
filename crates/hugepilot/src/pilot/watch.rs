//! Piloting a program and its descendants for as long as they run.
//!
//! Owns: whom to look at, and when. Never touches: how a single round goes; that is [`Pilot`].
//!
//! Often while promoting still pays, then ever more rarely; often again when a process has grown.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use super::{Pilot, Round};
use crate::act::Outcome;
use crate::kernel::Root;
use crate::kernel::process::{self, Status};
use crate::report::Snapshot;
use crate::target::Target;
use crate::units::{Address, Bytes};

/// Below this a process is left alone: its page tables fit in the TLB or nearly so, and looking costs more than it gains.
const SMALLEST: Bytes = Bytes(16 << 20);
/// From one look to the next while promoting still pays.
const SOONEST: Duration = Duration::from_secs(1);
/// The longest from one look to the next.
const LATEST: Duration = Duration::from_secs(60);
/// How often resident memory is checked for growth meanwhile; one small file is read.
const GLANCE: Duration = Duration::from_millis(250);
/// Growth of resident memory by this share makes the next look due.
const GROWN: f64 = 0.05;

/// A program and its descendants.
pub struct Family {
    pid: u32,
    members: BTreeMap<u32, Member>,
}

/// One process of the family.
struct Member {
    next_look: Instant,
    interval: Duration,
    rss: Bytes,
    /// Growth already taken in this process, which later rounds may not spend again.
    growth: Bytes,
    first: Option<Snapshot>,
    last: Option<Snapshot>,
}

/// What came of piloting.
#[derive(Default)]
pub struct Flight {
    /// How often a process was observed.
    pub rounds: u32,
    /// All promotions together.
    pub outcome: Outcome,
    /// Memory growth that they took.
    pub growth: Bytes,
    ends: Vec<(Option<Snapshot>, Option<Snapshot>)>,
}

impl Family {
    /// The family of this process.
    pub fn of(pid: u32) -> Self {
        Self { pid, members: BTreeMap::new() }
    }

    /// Pilots the family until stopping is requested.
    pub fn fly(mut self, pilot: &mut Pilot<'_>) -> Flight {
        let mut flight = Flight::default();
        while !pilot.stop.requested() {
            for pid in self.due() {
                let member = self.members.get_mut(&pid).expect("due means known");
                match member.round(pid, pilot, &mut flight) {
                    Ok(()) => {}
                    Err(_) if pilot.stop.requested() => break,
                    Err(error) => {
                        tracing::debug!(pid, "left alone for a while: {error:#}");
                        member.wait_longer();
                    }
                }
            }
            pilot.stop.sleep_until(Instant::now() + GLANCE);
        }
        flight.ends = self.members.values().map(|member| (member.first, member.last)).collect();
        flight
    }

    /// Processes that are large enough and whose look is due. Newcomers are due at once.
    fn due(&mut self) -> Vec<u32> {
        let root = Root::host();
        let mut family = process::descendants(&root, self.pid).unwrap_or_default();
        family.push(self.pid);
        let now = Instant::now();
        family.retain(|&pid| {
            let rss = Status::read(&root, pid).map_or(Bytes(0), |status| status.vm_rss);
            if rss < SMALLEST {
                return false;
            }
            let member = self.members.entry(pid).or_insert_with(|| Member::new(now));
            member.notice_growth(rss);
            member.next_look <= now
        });
        family
    }
}

impl Member {
    fn new(now: Instant) -> Self {
        Self { next_look: now, interval: SOONEST, rss: Bytes(0), growth: Bytes(0), first: None, last: None }
    }

    fn notice_growth(&mut self, rss: Bytes) {
        if self.rss.0 > 0 && rss.0 as f64 > self.rss.0 as f64 * (1.0 + GROWN) {
            self.look_soon();
        }
    }

    fn look_soon(&mut self) {
        self.interval = SOONEST;
        self.next_look = self.next_look.min(Instant::now() + SOONEST);
    }

    fn wait_longer(&mut self) {
        self.interval = (self.interval * 2).min(LATEST);
        self.next_look = Instant::now() + self.interval;
    }

    /// Observes, decides and acts once, and says when to look again.
    fn round(&mut self, pid: u32, pilot: &mut Pilot<'_>, flight: &mut Flight) -> anyhow::Result<()> {
        let target = Target::open(pid)?;
        let Round { heat, plan, before } = pilot.look(&target, self.growth)?;
        flight.rounds += 1;
        self.rss = heat.rss;
        self.first.get_or_insert(before);
        self.last = Some(before);
        let promotions: Vec<(Address, Bytes)> =
            plan.promotions().map(|decision| (decision.start, decision.growth)).collect();
        if promotions.is_empty() || target.huge_pages_enabled == Some(false) {
            self.wait_longer();
            return Ok(());
        }
        let regions: Vec<Address> = promotions.iter().map(|&(start, _)| start).collect();
        let outcome = pilot.act(&target, &regions, |_| ());
        let tried = promotions.iter().take(outcome.tried as usize);
        let refused: HashSet<Address> = outcome.refused.iter().map(|refusal| refusal.start).collect();
        let grown = tried.filter(|(start, _)| !refused.contains(start)).map(|&(_, growth)| growth).sum::<Bytes>();
        self.growth += grown;
        flight.growth += grown;
        if outcome.applied > 0 {
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

    fn promoted(&mut self) {
        self.interval = SOONEST;
        self.next_look = Instant::now() + SOONEST;
    }
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
