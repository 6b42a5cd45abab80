//! Whether a program's hot memory has moved, from how fast pages are walked for the first time.
//!
//! Owns: the comparison of an interval with the one before. Never touches: the system.
//!
//! After bits are cleared, new pages are walked at an ever lower rate, as long as the program keeps doing the same. When the rate rises, it does
//! something else.

use std::time::Instant;

use heat::Heat;
use heat::units::Pages;

/// What was seen of a program since its bits were cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trend {
    last: Option<(Instant, Pages)>,
    /// New pages a second in the last interval.
    rate: f64,
}

/// New pages come this many times as fast as before.
const RISES: f64 = 2.0;
/// In an interval, fewer new pages than the TLB holds say nothing.
const ENOUGH: u64 = 1024;

impl Trend {
    /// After a scan: pages walked by its end, and the rate of new ones at that time.
    pub fn after_scan(now: Instant, walked: Pages, new_per_second: f64) -> Self {
        Self { last: Some((now, walked)), rate: new_per_second }
    }

    /// After a scan, from the pages walked between its read at 100 ms and its end.
    pub fn after(heat: &Heat, now: Instant) -> Self {
        let base = || heat.regions.iter().filter(|region| !region.huge);
        let by_end: u64 = base().map(|region| u64::from(region.walked_in_window)).sum();
        let early: u64 = base().map(|region| region.walked.len() as u64).sum();
        // Their bits may have been set all along, so they are not new when a poll counts them.
        let unobserved: u64 = base().map(|region| u64::from(region.unobserved)).sum();
        let between = (heat.window.seconds() - 0.1).max(0.1);
        Self::after_scan(now, Pages(by_end + unobserved), by_end.saturating_sub(early) as f64 / between)
    }

    /// Takes note of how many pages have been walked by now; returns whether new ones come clearly faster than before.
    pub fn rises(&mut self, now: Instant, walked: Pages) -> bool {
        let Some((before, known)) = self.last.replace((now, walked)) else { return false };
        let new = walked.0.saturating_sub(known.0);
        let rate = new as f64 / (now - before).as_secs_f64().max(1e-3);
        let rises = new >= ENOUGH && rate > self.rate * RISES;
        self.rate = rate;
        rises
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_program_that_goes_on_walks_ever_fewer_new_pages() {
        let start = Instant::now();
        let mut trend = Trend::after_scan(start, Pages(50_000), 30_000.0);
        for (second, walked) in [(2, 90_000), (4, 110_000), (6, 115_000), (8, 115_900)] {
            assert!(!trend.rises(start + second * SECOND, Pages(walked)));
        }
        assert!(trend.rises(start + 10 * SECOND, Pages(180_000)), "another part of its memory is hot");
        assert!(!trend.rises(start + 12 * SECOND, Pages(190_000)));
    }

    #[test]
    fn what_the_tlb_holds_says_nothing() {
        let start = Instant::now();
        let mut trend = Trend::after_scan(start, Pages(10), 0.0);
        assert!(!trend.rises(start + SECOND, Pages(1033)));
        assert!(trend.rises(start + 2 * SECOND, Pages(1033 + 3000)));
    }

    #[test]
    fn without_a_scan_before_nothing_is_compared() {
        let start = Instant::now();
        let mut trend = Trend::default();
        assert!(!trend.rises(start + SECOND, Pages(1 << 20)));
        // Bits lost to a collapse or cleared meanwhile are no news.
        assert!(!trend.rises(start + 2 * SECOND, Pages(0)));
    }
}
