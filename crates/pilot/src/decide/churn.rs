//! Mappings that lose the huge pages that we put there.
//!
//! Owns: which mappings rest, and which are left alone. Never touches: single regions; [`super::Past`] remembers those.
//!
//! Allocators give free memory back to the kernel by the page, which splits huge pages or empties them, and soon take it again. Promoting there is
//! work for nothing. A mapping that lost more than one promotion in twenty rests, four times as long each time, and is then left alone for hours.
//! Ten quiet minutes take one rest back: a snapshot each hour is no reason to give up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heat::Mapping;
use heat::units::Address;

use crate::decide::Reason;

/// A mapping rests once it lost more than this share of its promotions,
const MOST_LOST: f64 = 0.05;
/// and at least this many: one alone says nothing.
const FEWEST_LOST: u32 = 2;
/// Within this time.
const WITHIN: Duration = Duration::from_secs(10 * 60);
const FIRST_REST: Duration = Duration::from_secs(10);
/// After so many it is left alone,
const MOST_RESTS: u32 = 4;
/// for this long.
const LEFT_ALONE: Duration = Duration::from_secs(6 * 60 * 60);

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
    end: Address,
    /// Promotions lost since then.
    lost: u32,
    since: Instant,
    /// Regions that are on huge pages still.
    held: u32,
    rests: u32,
    waits_until: Option<Instant>,
}

impl Losses {
    fn none(end: Address, now: Instant) -> Self {
        Self { end, lost: 0, since: now, held: 0, rests: 0, waits_until: None }
    }

    fn merge(&mut self, other: &Losses) {
        self.lost += other.lost;
        self.since = self.since.min(other.since);
        self.rests = self.rests.max(other.rests);
        self.waits_until = self.waits_until.max(other.waits_until);
    }

    fn judge(&mut self, now: Instant) {
        let share = f64::from(self.lost) / f64::from(self.lost + self.held).max(1.0);
        if self.waits_until.is_some_and(|until| now < until) {
            // What goes now was promoted before the rest, which is the answer to it.
            (self.lost, self.since) = (0, now);
        } else if self.lost >= FEWEST_LOST && share > MOST_LOST {
            let rest = if self.rests < MOST_RESTS { FIRST_REST * 4u32.pow(self.rests) } else { LEFT_ALONE };
            self.waits_until = Some(now + rest);
            self.rests = (self.rests + 1).min(MOST_RESTS + 1);
            (self.lost, self.since) = (0, now);
        } else if now > self.since + WITHIN {
            self.rests = if self.held > 0 { self.rests.saturating_sub(1) } else { self.rests };
            (self.lost, self.since) = (0, now);
        }
    }

    fn reason_to_wait(&self, now: Instant) -> Option<Reason> {
        self.waits_until.filter(|&until| now < until)?;
        Some(if self.rests > MOST_RESTS { Reason::KeptSplitting } else { Reason::CoolingDown })
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
        let first_beyond = |address: Address| mappings.partition_point(|mapping| mapping.range.end <= address);
        let mapping_of =
            |address: Address| mappings.get(first_beyond(address)).filter(|mapping| mapping.range.contains(address));
        let mut noticed: BTreeMap<Address, Losses> = BTreeMap::new();
        // Mappings grow at either end, merge and are split: whatever lies where one was takes its losses over.
        for (start, before) in std::mem::take(&mut self.mappings) {
            let overlaps = |mapping: &&Mapping| mapping.range.start < before.end;
            for mapping in mappings[first_beyond(start)..].iter().take_while(overlaps) {
                let unchanged = Losses { end: mapping.range.end, held: 0, ..before.clone() };
                noticed.entry(mapping.range.start).and_modify(|losses| losses.merge(&before)).or_insert(unchanged);
            }
        }
        for &start in lost {
            // With the mapping went what a rest could be good for.
            let Some(mapping) = mapping_of(start) else { continue };
            let new = || Losses::none(mapping.range.end, now);
            noticed.entry(mapping.range.start).or_insert_with(new).lost += 1;
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
    use heat::units::AddressRange;

    const SECOND: Duration = Duration::from_secs(1);

    /// Mappings of these regions, by number.
    fn mappings(ranges: &[(u64, u64)]) -> Vec<Mapping> {
        let [one] = &heat_of(vec![region(0, 0.0, 0)]).mappings[..] else { panic!("the samples make one") };
        let of = |&(start, end)| Mapping { range: AddressRange { start: at(start), end: at(end) }, ..one.clone() };
        ranges.iter().map(of).collect()
    }

    fn regions(numbers: std::ops::Range<u64>) -> Vec<Address> {
        numbers.map(at).collect()
    }

    /// A scan of one mapping of a hundred regions.
    fn noticed(churn: &mut Churn, held: std::ops::Range<u64>, lost: std::ops::Range<u64>, now: Instant) {
        churn.notice(&mappings(&[(0, 100)]), regions(held).into_iter(), &regions(lost), now);
    }

    #[test]
    fn one_in_twenty_is_no_reason_to_wait_and_more_are() {
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
            now += WITHIN + SECOND;
            noticed(&mut churn, 0..0, 0..0, now);
        }
        assert!(churn.mappings.is_empty());
    }

    #[test]
    fn rests_grow_and_then_it_is_left_alone_for_hours() {
        let (mut churn, mut now) = (Churn::default(), Instant::now());
        for seconds in [10, 40, 160, 640] {
            noticed(&mut churn, 0..0, 0..2, now);
            let rest = seconds * SECOND;
            assert_eq!(churn.reason_to_wait(at(0), now + rest - Duration::from_nanos(1)), Some(Reason::CoolingDown));
            assert_eq!(churn.reason_to_wait(at(0), now + rest), None, "after {seconds} s");
            now += rest;
        }
        for _ in 0..2 {
            noticed(&mut churn, 0..0, 0..2, now);
            assert_eq!(churn.reason_to_wait(at(0), now + LEFT_ALONE - SECOND), Some(Reason::KeptSplitting));
            assert_eq!(churn.reason_to_wait(at(0), now + LEFT_ALONE), None, "tried once more");
            now += LEFT_ALONE;
        }
    }

    #[test]
    fn what_goes_bit_by_bit_is_one_finding() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        for second in 0..10 {
            noticed(&mut churn, 0..0, 10 * u64::from(second)..10 * u64::from(second) + 10, now + second * SECOND);
        }
        let later = now + FIRST_REST;
        assert_eq!(churn.reason_to_wait(at(0), later - SECOND), Some(Reason::CoolingDown));
        assert_eq!(churn.reason_to_wait(at(0), later), None, "the first rest, and no other");
    }

    #[test]
    fn quiet_time_takes_rests_back() {
        let (mut churn, mut now) = (Churn::default(), Instant::now());
        for hour in 0..10 {
            noticed(&mut churn, 0..50, 50..100, now);
            assert_eq!(churn.reason_to_wait(at(0), now), Some(Reason::CoolingDown), "hour {hour}");
            for _ in 0..6 {
                now += WITHIN + SECOND;
                noticed(&mut churn, 0..100, 0..0, now);
            }
            assert_eq!(churn.reason_to_wait(at(0), now), None, "hour {hour}");
        }
        assert!(churn.mappings.is_empty(), "a snapshot each hour is forgotten each hour");
    }

    #[test]
    fn mappings_may_grow_merge_and_be_split() {
        let (mut churn, now) = (Churn::default(), Instant::now());
        churn.notice(&mappings(&[(0, 20), (30, 40)]), std::iter::empty(), &regions(10..12), now);
        assert_eq!(churn.reason_to_wait(at(0), now), Some(Reason::CoolingDown));
        assert_eq!(churn.reason_to_wait(at(30), now), None, "another mapping");
        let quiet = |churn: &mut Churn, ranges: &[(u64, u64)]| {
            churn.notice(&mappings(ranges), std::iter::empty(), &[], now);
        };
        // The one that lost is trimmed, then split, then all are one.
        quiet(&mut churn, &[(0, 9), (30, 40)]);
        quiet(&mut churn, &[(0, 3), (5, 9), (30, 40)]);
        for (number, waits) in [(1, true), (7, true), (35, false)] {
            assert_eq!(churn.reason_to_wait(at(number), now).is_some(), waits, "{number}");
        }
        quiet(&mut churn, &[(0, 40)]);
        assert_eq!(churn.reason_to_wait(at(35), now), Some(Reason::CoolingDown));
        quiet(&mut churn, &[]);
        assert!(churn.mappings.is_empty(), "with the mapping all is forgotten");
    }
}
