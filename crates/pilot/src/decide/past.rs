//! What is remembered of a program's regions from one scan to the next.
//!
//! Owns: which regions we put on huge pages, what each is worth, and which must cool down. Never touches: the system; it is told what was seen and
//! done.
//!
//! A huge page that stays in the TLB is never walked and seems idle. A region's worth is therefore what was seen before it was promoted; only a scan
//! that flushed the TLB lowers it. A region that was given back, or split by others, cools down before it is promoted again, twice as long each time.
//! A mapping that loses many of them rests as a whole ([`super::churn`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use heat::units::{Address, Bytes, PAGES_PER_REGION};
use heat::{Heat, Region};
use launch::manager::MemoryManager;

use crate::decide::churn::Churn;
use crate::decide::keep::{is_in_order, walk_share};
use crate::decide::settling::Settling;
use crate::decide::{Limits, Reason};

/// Consecutive scans without access after which a region counts as cold.
const COLD_AFTER: usize = 3;
/// Consecutive scans that lower a region's worth to its own program while it is used at all: a single scan may come at a quiet moment.
const LOWERED_AFTER: usize = 2;
/// A region is given back for its empty base pages if it has at least this many: half of it.
const MOSTLY_EMPTY: u16 = PAGES_PER_REGION as u16 / 2;
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(20 * 60);

/// What is remembered of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    regions: BTreeMap<Address, Known>,
    churn: Churn,
    settling: Settling,
    /// Page walks a second of regions on base pages in the last two scans that observed them, the latest first; empty while we hold nothing whose place
    /// they could take.
    walked: BTreeMap<Address, [f32; 2]>,
    /// Whether the walks of the last two scans that could tell went along addresses, the latest first.
    in_order: [bool; 2],
    /// When the last scan was.
    now: Option<Instant>,
}

/// What is remembered of one region.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    promoted: bool,
    /// Page walks a second when it was promoted.
    walks_per_second: f64,
    /// Upper bounds of accesses a second from the last scans that could tell, the latest first.
    at_most: [Option<f32>; COLD_AFTER],
    /// Consecutive scans that saw no access.
    unused: u8,
    /// Its all-zero base pages, once its contents were read.
    empty: Option<u16>,
    /// How often it was promoted in vain.
    setbacks: u8,
    cooling_down_until: Option<Instant>,
}

/// A region that we put on a huge page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldRegion {
    /// Where it starts.
    pub start: Address,
    /// Page walks a second that its huge page saves, as far as is known; 0 if the last scan saw no access.
    pub worth: f64,
    /// The same, as a claim against other programs: lowered only by three scans, because a program may be idle during one.
    pub claim: f64,
    /// Whether it is cold, and most of it empty: giving it back frees memory and costs nothing.
    pub is_waste: bool,
}

impl Known {
    fn worth(&self) -> f64 {
        if self.unused > 0 { 0.0 } else { self.bounded_by(LOWERED_AFTER) }
    }

    /// Its initial worth, or less if this many scans agree.
    fn bounded_by(&self, scans: usize) -> f64 {
        let bounds: Option<Vec<f64>> = self.at_most[..scans].iter().map(|bound| bound.map(f64::from)).collect();
        let bound = bounds.map_or(f64::INFINITY, |bounds| bounds.into_iter().fold(0.0, f64::max));
        self.walks_per_second.min(bound)
    }

    fn set_back(&mut self, now: Instant) {
        let rest = FIRST_REST * (1 << self.setbacks.min(7));
        self.setbacks = self.setbacks.saturating_add(1);
        self.cooling_down_until = Some(now + rest.min(LONGEST_REST));
        self.promoted = false;
    }

    /// Whether nothing is left to remember: it can be dropped as if never seen.
    fn is_forgotten(&self, now: Instant) -> bool {
        !self.promoted && self.cooling_down_until.is_none_or(|until| now > until + LONGEST_REST)
    }
}

impl Past {
    /// Records the page faults that the program has had so far, and its resident memory, after each scan.
    pub fn notice_faults(&mut self, faults: u64, rss: Bytes, now: Instant) {
        self.settling.notice_faults(faults, rss, now);
    }

    /// Records a scan. Regions that are gone are forgotten. A promoted region that is no longer huge was split by others: by a write after a fork, by
    /// reclaim, or by the program's own advice. Returns those, and those that hold nothing any more; [`Past::lose`] is to be told which of them nobody
    /// gave back on purpose.
    #[must_use]
    pub fn notice(&mut self, heat: &Heat, now: Instant) -> Vec<Address> {
        self.now = Some(now);
        self.settling.notice(heat, now);
        self.walked = self.walked_lately(heat);
        if let Some(in_order) = is_in_order(heat, walk_share(heat, Limits::WALK_COST)) {
            self.in_order = [in_order, self.in_order[0]];
        }
        let find = |start| heat.regions.binary_search_by_key(&start, |region| region.start).ok();
        let mut lost = Vec::new();
        for (&start, known) in self.regions.iter_mut().filter(|(_, known)| known.promoted) {
            match find(start).map(|index| &heat.regions[index]) {
                Some(region) if region.huge => known.observe(region),
                Some(_) => {
                    known.set_back(now);
                    lost.push(start);
                }
                None => {
                    known.promoted = false;
                    lost.push(start);
                }
            }
        }
        self.regions.retain(|_, known| !known.is_forgotten(now));
        lost
    }

    fn walked_lately(&self, heat: &Heat) -> BTreeMap<Address, [f32; 2]> {
        if !self.regions.values().any(|known| known.promoted) {
            return BTreeMap::new();
        }
        let on_base_pages = heat.regions.iter().filter(|region| !region.huge);
        let walked = on_base_pages.filter_map(|region| {
            let known = self.walked.get(&region.start).copied();
            let is_observed = region.unobserved == 0 || region.walks_per_second > 0.0;
            let seen = || [Limits::worth_of_walks(region) as f32, known.map_or(0.0, |[latest, _]| latest)];
            Some((region.start, if is_observed { seen() } else { known? }))
        });
        walked.filter(|(_, walked)| *walked != [0.0; 2]).collect()
    }

    /// What page walks of a region on base pages are worth by the last two scans that observed it: the lower of both.
    pub(super) fn surely_walked(&self, start: Address) -> f64 {
        self.walked.get(&start).map_or(0.0, |&[latest, before]| f64::from(latest.min(before)))
    }

    /// These regions lost their huge pages to their program, or for lack of memory, since the scan before this one.
    pub fn lose(&mut self, heat: &Heat, lost: &[Address], now: Instant) {
        let held = self.regions.iter().filter(|(_, known)| known.promoted).map(|(&start, _)| start);
        self.churn.notice(&heat.mappings, held, lost, now);
    }

    /// Another program has replaced this one in the process (exec), with these allocators in its own file.
    pub fn forget(&mut self, linked_in: BTreeSet<MemoryManager>) {
        self.regions.clear();
        self.walked.clear();
        self.churn.forget();
        self.settling = Settling::of(linked_in);
        self.in_order = [false; 2];
    }

    /// A region was promoted, at this many walks a second.
    pub fn promoted(&mut self, start: Address, walks_per_second: f64) {
        let setbacks = self.regions.get(&start).map_or(0, |known| known.setbacks);
        let known = Known { promoted: true, walks_per_second, setbacks, ..Known::default() };
        self.regions.insert(start, known);
    }

    /// A region was given back.
    pub fn given_back(&mut self, start: Address, now: Instant) {
        self.regions.entry(start).or_default().set_back(now);
    }

    /// The kernel refused to promote a region.
    pub fn refused(&mut self, start: Address, now: Instant) {
        self.regions.entry(start).or_default().set_back(now);
    }

    /// Whether a region must not be promoted yet.
    pub fn is_cooling_down(&self, start: Address) -> bool {
        self.regions.get(&start).is_some_and(|known| !known.promoted && self.now < known.cooling_down_until)
    }

    /// Why a region must not be promoted yet, for itself, its mapping or its program; None if it may.
    pub fn reason_to_wait(&self, start: Address) -> Option<Reason> {
        if self.is_cooling_down(start) {
            return Some(Reason::CoolingDown);
        }
        let now = self.now?;
        self.churn.reason_to_wait(start, now).or(self.settling.reason_to_wait(now))
    }

    /// When a program that is watched before anything of it is promoted will have been watched for long enough.
    pub fn is_known_at(&self, now: Instant) -> Option<Instant> {
        self.settling.is_known_at(now)
    }

    /// Whether a scan lately found that walks go along addresses, and nothing is promoted yet. One scan of some dozens takes a pass for random reads,
    /// so that two must agree before what was seen in order is promoted for the first time.
    pub fn was_in_order(&self) -> bool {
        self.in_order.contains(&true) && !self.regions.values().any(|known| known.promoted)
    }

    /// Promotions that were split or released so far while their mappings stayed, and that nobody gave back.
    pub fn lost(&self) -> u64 {
        self.churn.lost()
    }

    /// Whether some region has been unused lately, and the next scans will tell whether it is cold and what it holds.
    pub fn is_in_doubt(&self) -> bool {
        let is_unclear = |known: &Known| known.unused < COLD_AFTER as u8 || known.empty.is_none();
        self.regions.values().any(|known| known.promoted && known.unused > 0 && is_unclear(known))
    }

    /// Cold regions whose contents are not known yet, and must be before they may be given back.
    pub fn cold_and_unread(&self) -> impl Iterator<Item = Address> {
        let is_cold = |known: &Known| known.promoted && known.unused >= COLD_AFTER as u8;
        self.regions.iter().filter(move |(_, known)| is_cold(known) && known.empty.is_none()).map(|(&start, _)| start)
    }

    /// This many base pages of a region hold nothing but zeros.
    pub fn inspected(&mut self, start: Address, empty: u16) {
        if let Some(known) = self.regions.get_mut(&start) {
            known.empty = Some(empty);
        }
    }

    /// The regions that we put on huge pages, by address.
    pub fn held(&self) -> impl Iterator<Item = HeldRegion> {
        self.regions.iter().filter(|(_, known)| known.promoted).map(|(&start, known)| {
            let is_empty = known.empty.is_some_and(|empty| empty >= MOSTLY_EMPTY);
            let is_waste = known.unused >= COLD_AFTER as u8 && is_empty;
            HeldRegion { start, worth: known.worth(), claim: known.bounded_by(COLD_AFTER), is_waste }
        })
    }
}

impl Known {
    fn observe(&mut self, region: &Region) {
        let Some(at_most) = region.at_most_accesses_per_second else {
            // It may have been used since, so its contents are unknown.
            return self.empty = None;
        };
        self.at_most.rotate_right(1);
        self.at_most[0] = Some(at_most);
        self.unused = if at_most > 0.0 { 0 } else { self.unused.saturating_add(1) };
        // Any access may have changed its contents.
        self.empty = self.empty.filter(|_| self.unused > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::samples::{at, heat_of, huge, region};

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(number: u64, at_most: Option<f32>) -> Region {
        Region { at_most_accesses_per_second: at_most, ..huge(number, 0.0) }
    }

    fn worth(past: &Past) -> Vec<f64> {
        past.held().map(|held| held.worth).collect()
    }

    #[test]
    fn a_claim_against_others_outlasts_a_rest() {
        let mut past = Past::default();
        past.promoted(at(0), 900.0);
        let claims = [0.0, 0.0, 0.0, 50.0].map(|at_most| {
            _ = past.notice(&heat_of(vec![seen(0, Some(at_most))]), Instant::now());
            past.held().next().expect("held").claim
        });
        assert_eq!(claims, [900.0, 900.0, 0.0, 50.0]);
    }

    #[test]
    fn a_huge_page_is_worth_what_was_seen_before_unless_a_scan_could_tell() {
        let mut past = Past::default();
        past.promoted(at(0), 900.0);
        _ = past.notice(&heat_of(vec![seen(0, None)]), Instant::now());
        assert_eq!(worth(&past), [900.0], "it may stay in the TLB");
        _ = past.notice(&heat_of(vec![seen(0, Some(20.0))]), Instant::now());
        assert_eq!(worth(&past), [900.0], "one scan may have come at a quiet moment");
        _ = past.notice(&heat_of(vec![seen(0, Some(30.0))]), Instant::now());
        assert_eq!(worth(&past), [30.0]);
        _ = past.notice(&heat_of(vec![seen(0, Some(f32::INFINITY))]), Instant::now());
        assert_eq!(worth(&past), [900.0], "used again");
        _ = past.notice(&heat_of(vec![seen(0, Some(0.0))]), Instant::now());
        assert_eq!(worth(&past), [0.0]);
    }

    #[test]
    fn two_scans_agree_on_the_lower_of_what_they_saw() {
        let mut past = Past::default();
        let unobserved = Region { unobserved: 512, ..region(0, 0.0, 0) };
        let agree_on = |past: &mut Past, region: Region| {
            _ = past.notice(&heat_of(vec![region, huge(1, 0.0)]), Instant::now());
            past.surely_walked(at(0))
        };
        assert_eq!([80.0, 80.0].map(|walks| agree_on(&mut past, region(0, walks, 0))), [0.0; 2], "nothing is held");
        past.promoted(at(1), 1.0);
        let scans = [region(0, 80.0, 0), region(0, 60.0, 0), unobserved, region(0, 0.0, 0), region(0, 50.0, 0)];
        assert_eq!(scans.map(|region| agree_on(&mut past, region)), [0.0, 60.0, 60.0, 0.0, 0.0]);
        let passed = Region { in_order: true, ..region(0, 1e4, 0) };
        let found = [passed, region(0, 5e3, 0)].map(|region| agree_on(&mut past, region));
        assert!(
            (found[1] - 1e4 * Limits::IN_ORDER).abs() < 0.1,
            "walks along addresses are no walks at random: {found:?}"
        );
        agree_on(&mut past, huge(0, 0.0));
        assert!(past.walked.is_empty());
    }

    #[test]
    fn only_what_is_cold_and_mostly_empty_is_waste() {
        let mut past = Past::default();
        past.promoted(at(0), 900.0);
        let scan = |past: &mut Past, at_most| _ = past.notice(&heat_of(vec![seen(0, Some(at_most))]), Instant::now());
        let is_waste = |past: &Past| past.held().next().expect("held").is_waste;
        assert!(!past.is_in_doubt());
        scan(&mut past, 0.0);
        scan(&mut past, 0.0);
        assert!(past.cold_and_unread().count() == 0 && past.is_in_doubt());
        scan(&mut past, 0.0);
        assert!(past.is_in_doubt(), "what it holds is not known");
        assert_eq!(past.cold_and_unread().collect::<Vec<_>>(), [at(0)]);
        assert!(!is_waste(&past), "never on accessed bits alone");
        past.inspected(at(0), 255);
        assert!(!is_waste(&past) && !past.is_in_doubt());
        assert_eq!(past.cold_and_unread().count(), 0, "it is read once, so that others have their turn");
        past.inspected(at(0), 256);
        assert!(is_waste(&past));
        _ = past.notice(&heat_of(vec![seen(0, None)]), Instant::now());
        assert!(!is_waste(&past), "a scan that cannot tell whether it is used");
        past.inspected(at(0), 256);
        scan(&mut past, 1.0);
        assert!(!is_waste(&past) && past.cold_and_unread().count() == 0);
        for _ in 0..3 {
            scan(&mut past, 0.0);
        }
        assert!(!is_waste(&past), "what it holds must be read again");
    }

    #[test]
    fn setbacks_are_followed_by_ever_longer_cooldowns() {
        let mut past = Past::default();
        let mut now = Instant::now();
        for seconds in [10, 20, 40, 80] {
            _ = past.notice(&heat_of(vec![region(0, 0.0, 0)]), now);
            assert_eq!(past.reason_to_wait(at(0)), None);
            past.promoted(at(0), 1.0);
            past.given_back(at(0), now);
            let mut rests_at = |after: Duration| {
                _ = past.notice(&heat_of(vec![region(0, 0.0, 0)]), now + after);
                past.reason_to_wait(at(0)) == Some(Reason::CoolingDown)
            };
            assert!(rests_at(seconds * SECOND - Duration::from_nanos(1)) && !rests_at(seconds * SECOND));
            now += seconds * SECOND;
        }
        assert_eq!(past.held().count(), 0);
        _ = past.notice(&heat_of(vec![region(0, 0.0, 0)]), now + LONGEST_REST + SECOND);
        assert!(past.regions.is_empty(), "in the end all is forgotten");
    }

    #[test]
    fn what_somebody_split_is_a_setback_and_what_went_away_is_none() {
        let mut past = Past::default();
        past.promoted(at(0), 1.0);
        past.promoted(at(1), 1.0);
        let (heat, now) = (heat_of(vec![region(0, 5.0, 0)]), Instant::now());
        let lost = past.notice(&heat, now);
        assert_eq!((&lost[..], past.is_cooling_down(at(0))), (&[at(0), at(1)][..], true));
        assert_eq!(past.reason_to_wait(at(1)), None);
        past.lose(&heat, &lost, now);
        assert_eq!(past.lost(), 1, "the other went with its mapping");
        assert_eq!(past.held().count(), 0);
    }
}
