//! Mappings whose program splits or releases what we put on huge pages.
//!
//! Owns: which mappings rest, and which are left alone. Never touches: single regions; [`super::Past`] remembers those.
//!
//! Allocators give free memory back to the kernel by the page, which splits huge pages or empties them, and soon take it again. Promoting there is
//! work for nothing. A mapping that lost more than one promotion in twenty rests, four times as long each time, and in the end is left alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heat::Mapping;
use heat::units::Address;

use crate::decide::Reason;

/// A mapping rests once it lost more than this share of its promotions,
const MOST_LOST: f64 = 0.05;
/// and at least this many: one alone says nothing.
const FEWEST_LOST: u32 = 2;
/// Within this time: a huge page that lived longer has paid.
const WITHIN: Duration = Duration::from_secs(10 * 60);
const FIRST_REST: Duration = Duration::from_secs(10);
/// After so many it is left alone.
const MOST_RESTS: u32 = 4;

/// The mappings that lose huge pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Churn {
    /// By the start of the mapping.
    mappings: BTreeMap<Address, Losses>,
    /// All losses so far.
    lost: u64,
}

/// What a mapping lost.
#[derive(Clone, Debug, PartialEq)]
struct Losses {
    /// Mappings grow at either end and merge; they hold what they held before.
    somewhere_in: Address,
    end: Address,
    /// Promotions lost since then.
    lost: u32,
    since: Instant,
    /// Regions that are on huge pages still.
    held: u32,
    rests: u32,
    rests_until: Option<Instant>,
}

impl Losses {
    fn at(start: Address, now: Instant) -> Self {
        Self { somewhere_in: start, end: start, lost: 0, since: now, held: 0, rests: 0, rests_until: None }
    }

    fn merge(&mut self, other: &Losses) {
        self.lost += other.lost;
        self.rests = self.rests.max(other.rests);
        self.rests_until = self.rests_until.max(other.rests_until);
    }

    fn judge(&mut self, now: Instant) {
        let share = f64::from(self.lost) / f64::from(self.lost + self.held).max(1.0);
        if self.lost >= FEWEST_LOST && share > MOST_LOST {
            self.rests_until = Some(now + FIRST_REST * 4u32.pow(self.rests.min(MOST_RESTS)));
            self.rests += 1;
            (self.lost, self.since) = (0, now);
        } else if now > self.since + WITHIN {
            (self.lost, self.since) = (0, now);
        }
    }

    fn reason_to_wait(&self, now: Instant) -> Option<Reason> {
        match self.rests_until {
            _ if self.rests > MOST_RESTS => Some(Reason::KeptSplitting),
            Some(until) if now < until => Some(Reason::CoolingDown),
            _ => None,
        }
    }

    fn says_nothing(&self) -> bool {
        self.lost == 0 && self.rests == 0
    }
}

impl Churn {
    /// Records a scan. `held`: regions that we promoted, on huge pages still; `lost`: those that the last scan saw there, and this one does not.
    pub(super) fn notice(
        &mut self,
        mappings: &[Mapping],
        held: impl Iterator<Item = Address>,
        lost: &[Address],
        now: Instant,
    ) {
        if lost.is_empty() && self.mappings.is_empty() {
            return;
        }
        let mapping_of = |address: Address| {
            let index = mappings.partition_point(|mapping| mapping.range.end <= address);
            mappings.get(index).filter(|mapping| mapping.range.contains(address))
        };
        let mut noticed: BTreeMap<Address, Losses> = BTreeMap::new();
        for before in std::mem::take(&mut self.mappings).into_values() {
            let Some(mapping) = mapping_of(before.somewhere_in) else { continue };
            let unchanged = Losses { end: mapping.range.end, held: 0, ..before.clone() };
            noticed.entry(mapping.range.start).and_modify(|losses| losses.merge(&before)).or_insert(unchanged);
        }
        for &start in lost {
            // With the mapping went what a rest could be good for.
            let Some(mapping) = mapping_of(start) else { continue };
            let losses = noticed.entry(mapping.range.start).or_insert_with(|| Losses::at(start, now));
            (losses.lost, losses.end) = (losses.lost + 1, mapping.range.end);
            self.lost += 1;
        }
        for start in held {
            if let Some((_, losses)) = noticed.range_mut(..=start).next_back().filter(|(_, losses)| start < losses.end)
            {
                losses.held += 1;
            }
        }
        noticed.values_mut().for_each(|losses| losses.judge(now));
        noticed.retain(|_, losses| !losses.says_nothing());
        self.mappings = noticed;
    }

    /// Why nothing in the mapping of this region may be promoted now; None if it may.
    pub(super) fn reason_to_wait(&self, start: Address, now: Instant) -> Option<Reason> {
        let (_, losses) = self.mappings.range(..=start).next_back()?;
        (start < losses.end).then(|| losses.reason_to_wait(now)).flatten()
    }

    /// Another program has replaced this one in the process (exec). What was lost stays counted.
    pub(super) fn forget(&mut self) {
        self.mappings.clear();
    }

    /// Promotions that were lost so far while their mappings stayed.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::samples::{at, heat_of, region};

    /// Mappings of these regions, by number, each as the samples make them: one mapping.
    fn mappings() -> Vec<Mapping> {
        heat_of((0..100).map(|number| region(number, 0.0, 0)).collect()).mappings
    }

    fn regions(numbers: std::ops::Range<u64>) -> Vec<Address> {
        numbers.map(at).collect()
    }

    fn noticed(churn: &mut Churn, held: std::ops::Range<u64>, lost: std::ops::Range<u64>, now: Instant) {
        churn.notice(&mappings(), regions(held).into_iter(), &regions(lost), now);
    }

    #[test]
    fn one_in_twenty_is_no_reason_to_wait_and_two_are() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        noticed(&mut churn, 0..95, 95..100, now);
        assert_eq!(churn.reason_to_wait(at(3), now), None, "5 of 100");
        noticed(&mut churn, 0..94, 94..95, now);
        assert_eq!(churn.reason_to_wait(at(3), now), Some(Reason::CoolingDown), "6 of 100, anywhere in the mapping");
        assert_eq!(churn.reason_to_wait(at(3), now + FIRST_REST), None);
        assert_eq!(churn.lost(), 6);
    }

    #[test]
    fn a_single_loss_says_nothing_and_slow_ones_are_forgotten() {
        let (mut churn, mut now) = (Churn::default(), Instant::now());
        for number in 0..20 {
            noticed(&mut churn, 0..0, number..number + 1, now);
            assert_eq!(churn.reason_to_wait(at(50), now), None, "loss {number}");
            now += WITHIN + Duration::from_secs(1);
            noticed(&mut churn, 0..0, 0..0, now);
        }
        assert!(churn.mappings.is_empty());
    }

    #[test]
    fn rests_grow_and_then_it_is_left_alone() {
        let (mut churn, mut now) = (Churn::default(), Instant::now());
        for seconds in [10, 40, 160, 640] {
            noticed(&mut churn, 0..0, 0..2, now);
            let rest = Duration::from_secs(seconds);
            assert_eq!(churn.reason_to_wait(at(0), now + rest - Duration::from_nanos(1)), Some(Reason::CoolingDown));
            assert_eq!(churn.reason_to_wait(at(0), now + rest), None, "after {seconds} s");
            now += rest;
        }
        noticed(&mut churn, 0..0, 0..2, now);
        assert_eq!(churn.reason_to_wait(at(0), now + Duration::from_secs(1 << 30)), Some(Reason::KeptSplitting));
    }

    #[test]
    fn a_mapping_may_grow_downwards_and_when_it_goes_all_is_forgotten() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        noticed(&mut churn, 0..0, 10..12, now);
        let mut grown = mappings();
        grown[0].range.start = Address(grown[0].range.start.0 - (1 << 30));
        churn.notice(&grown, std::iter::empty(), &[], now);
        assert_eq!(churn.reason_to_wait(grown[0].range.start, now), Some(Reason::CoolingDown));
        churn.notice(&[], std::iter::empty(), &[], now);
        assert_eq!(churn.reason_to_wait(at(10), now), None);
        assert!(churn.mappings.is_empty());
    }
}
