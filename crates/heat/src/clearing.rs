//! How accessed bits are cleared, and why: what the program would notice if all were cleared at once.
//!
//! Owns: the rule, a pure function of what the program was seen to do. Never touches: the system.
//!
//! `clear_refs` clears at once and flushes no TLB, so bits mean page walks. Memory accesses do not wait meanwhile; page faults, and calls such as
//! mmap and munmap, wait until it is done. What the program notices therefore depends on how often it makes them, not on its size. `MADV_COLD` on
//! slices makes nothing wait for long, but bits then mean accesses.
//!
//! The next walk to a page sets its bit again, which takes hundreds of nanoseconds on some machines. Clearing at once concentrates that in the
//! moments after it; slices can be spread over time. A limit on the slowdown applies here, too.

use serde::{Deserialize, Serialize};

use crate::Meaning;
use crate::Reclaim;
use crate::units::{Nanos, Pages, Slowdown};

/// The time that `clear_refs` takes per base page: 45 to 50 ns measured, plus a margin.
const CLEAR_REFS_PER_PAGE: Nanos = Nanos(60);
/// A stall that is always accepted: no longer than others on a busy machine.
pub const ACCEPTED_STALL: Nanos = Nanos(50_000_000);
/// At most this many calls may wait for one clearing, with 95 % confidence. Two are likely then, on average for half of its time; and a sample as
/// long as the clearing without a single call proves this much (the rule of three), so quiet programs pass.
const MOST_STALLED: f64 = 3.0;
/// The standard normal distribution's 95th percentile.
const CONFIDENCE: f64 = 1.645;
/// A sample is three times as long as the clearing, within these lengths: one or two chance calls then do not decide.
const SHORTEST_SAMPLE: Nanos = Nanos(100_000_000);
const LONGEST_SAMPLE: Nanos = Nanos(1_000_000_000);

/// What a program loses to setting bits again is averaged over this time: a quarter of a second shows at most twice as much.
const SLOWDOWN_COUNTED_OVER: Nanos = Nanos(500_000_000);

/// The requested way of clearing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClearPolicy {
    /// At once where hardly any call of the program waits for it, otherwise in slices.
    #[default]
    ByCalls,
    /// At once, however long calls of the program wait then.
    AtOnce,
    /// In slices, to compare the two ways.
    InSlices,
    /// In slices, because only a sample of the memory is cleared.
    OnlySome,
    /// At once, because other processes also map most of the memory, and slices skip its bits. The process is one of many that do the same work, so
    /// its loss is spread over all of them.
    OneOfMany,
}

/// A way of clearing accessed bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClearMethod {
    /// At once: one write to `/proc/PID/clear_refs`.
    ClearRefs,
    /// `MADV_COLD`, slice by slice.
    MadvCold,
}

/// Why a way of clearing was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClearReason {
    /// Clearing at once takes no longer than is always accepted.
    Short,
    /// The program makes so few calls that hardly any would wait.
    FewCalls,
    /// Too many calls would wait.
    ManyCalls,
    /// Setting the bits again would slow the program down by more than is allowed.
    BitsSetAgain,
    /// The kernel does not count the program's mmap calls, and the program had page faults or changed its mappings.
    UnknownCalls,
    /// The user accepts any stall.
    StallAllowed,
    /// The caller asked for slices.
    SlicesWanted,
    /// Only a sample of the memory is cleared.
    Sampled,
    /// Other processes map the same memory, and do the same work.
    OneOfMany,
}

/// How the accessed bits of a process were cleared, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clearing {
    /// The way.
    pub method: ClearMethod,
    /// Why that one.
    pub reason: ClearReason,
    /// How long clearing at once was expected to take.
    pub expected: Nanos,
    /// The most that the program loses to setting the bits again.
    #[serde(default)]
    pub bits_set_again: Nanos,
    /// The program's calls before the clearing; None where they did not matter.
    pub calls: Option<CallSample>,
    /// Why reclaim will miss the cleared bits; None where memory is plentiful.
    pub reclaim: Option<Reclaim>,
}

/// Calls of a program that would wait for `clear_refs`, counted for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSample {
    /// How long they were counted.
    pub length: Nanos,
    /// Page faults, minor and major.
    pub faults: u64,
    /// Calls that take the lock of the address space: mmap, munmap, brk, mprotect, madvise, .. None where the kernel cannot tell.
    pub mmap_calls: Option<u64>,
    /// Whether the size of the address space changed.
    pub resized: bool,
}

impl ClearPolicy {
    /// What `--allow-stall` means.
    pub fn allowing_stalls(allowed: bool) -> Self {
        if allowed { Self::AtOnce } else { Self::ByCalls }
    }
}

impl ClearMethod {
    /// What a set bit means after clearing this way.
    pub fn meaning(self) -> Meaning {
        match self {
            ClearMethod::ClearRefs => Meaning::Walked,
            ClearMethod::MadvCold => Meaning::Accessed,
        }
    }
}

impl ClearReason {
    /// The way that follows from this reason.
    pub fn method(self) -> ClearMethod {
        match self {
            ClearReason::Short | ClearReason::FewCalls | ClearReason::StallAllowed | ClearReason::OneOfMany => {
                ClearMethod::ClearRefs
            }
            ClearReason::ManyCalls
            | ClearReason::UnknownCalls
            | ClearReason::BitsSetAgain
            | ClearReason::SlicesWanted
            | ClearReason::Sampled => ClearMethod::MadvCold,
        }
    }
}

impl Clearing {
    /// How long clearing this many base pages at once will take.
    pub fn expected(base_pages: Pages) -> Nanos {
        Nanos(base_pages.0.saturating_mul(CLEAR_REFS_PER_PAGE.0))
    }

    /// The reason that needs no count of the program's calls; None where they must be counted. `bits_set_again`: the most that the program loses to
    /// that; `max_slowdown`: how much it may be slowed down, if limited.
    pub fn reason_without_sample(
        expected: Nanos,
        policy: ClearPolicy,
        bits_set_again: Nanos,
        max_slowdown: Option<Slowdown>,
    ) -> Option<ClearReason> {
        let allowed = max_slowdown.map(|max| SLOWDOWN_COUNTED_OVER.seconds() * max.0);
        let is_felt = allowed.is_some_and(|allowed| bits_set_again.seconds() > allowed);
        match policy {
            ClearPolicy::InSlices => Some(ClearReason::SlicesWanted),
            ClearPolicy::OnlySome => Some(ClearReason::Sampled),
            ClearPolicy::OneOfMany => Some(ClearReason::OneOfMany),
            ClearPolicy::ByCalls if is_felt => Some(ClearReason::BitsSetAgain),
            _ if expected <= ACCEPTED_STALL => Some(ClearReason::Short),
            ClearPolicy::AtOnce => Some(ClearReason::StallAllowed),
            ClearPolicy::ByCalls => None,
        }
    }
}

impl CallSample {
    /// How long to count before a clearing that takes this long.
    pub fn length_for(clearing: Nanos) -> Nanos {
        Nanos(clearing.0.saturating_mul(3)).clamp(SHORTEST_SAMPLE, LONGEST_SAMPLE)
    }

    /// Whether there are already too many calls, whatever the rest of the sample brings.
    pub fn is_decided(&self, clearing: Nanos) -> bool {
        let whole = Self { length: Self::length_for(clearing).max(self.length), ..*self };
        whole.reason(clearing) == ClearReason::ManyCalls
    }

    /// The reason for a clearing that takes this long.
    /// A program that made no call at all in the longest sample is cleared at once at any size: a longer sample would not be worth the wait.
    pub fn reason(&self, clearing: Nanos) -> ClearReason {
        let quiet = self.counted() == 0 && self.length >= Self::length_for(clearing);
        match self.mmap_calls {
            _ if !quiet && self.stalled_at_most(clearing) > MOST_STALLED => ClearReason::ManyCalls,
            None if !quiet || self.resized => ClearReason::UnknownCalls,
            _ => ClearReason::FewCalls,
        }
    }

    /// Page faults a second.
    pub fn faults_per_second(&self) -> f64 {
        self.faults as f64 / self.length.seconds()
    }

    /// Calls a second that take the lock of the address space; None where the kernel cannot tell.
    pub fn mmap_calls_per_second(&self) -> Option<f64> {
        self.mmap_calls.map(|calls| calls as f64 / self.length.seconds())
    }

    /// How many calls are likely to wait for a clearing that takes this long.
    pub fn stalled(&self, clearing: Nanos) -> f64 {
        self.counted() as f64 * clearing.seconds() / self.length.seconds()
    }

    /// The most calls, with 95 % confidence: where none was seen, three per sample may still come.
    fn stalled_at_most(&self, clearing: Nanos) -> f64 {
        upper_bound(self.counted()) * clearing.seconds() / self.length.seconds()
    }

    fn counted(&self) -> u64 {
        self.faults.saturating_add(self.mmap_calls.unwrap_or(0))
    }
}

/// The 95 % upper bound of the mean of a Poisson distribution with this count, by Wilson and Hilferty's approximation (within 1 %).
fn upper_bound(count: u64) -> f64 {
    let next = count as f64 + 1.0;
    next * (1.0 - 1.0 / (9.0 * next) + CONFIDENCE / (3.0 * next.sqrt())).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BASE_PAGE;
    use proptest::prelude::*;

    const MILLI: u64 = 1_000_000;

    fn gib(size: u64) -> Nanos {
        Clearing::expected(Pages((size << 30) / BASE_PAGE))
    }

    /// A complete sample before clearing this many GiB.
    fn sample(size: u64, faults: u64, mmap_calls: Option<u64>) -> CallSample {
        CallSample { length: CallSample::length_for(gib(size)), faults, mmap_calls, resized: false }
    }

    #[test]
    fn short_clearings_and_allowed_stalls_need_no_sample() {
        use ClearPolicy::{AtOnce, ByCalls, InSlices};
        let reason = |size, policy| Clearing::reason_without_sample(gib(size), policy, Nanos(u64::MAX), None);
        assert_eq!([reason(2, ByCalls), reason(2, AtOnce)], [Some(ClearReason::Short); 2]);
        assert_eq!(reason(64, AtOnce), Some(ClearReason::StallAllowed));
        assert_eq!([reason(2, InSlices), reason(64, InSlices)], [Some(ClearReason::SlicesWanted); 2]);
        assert_eq!(reason(4, ByCalls), None);
    }

    #[test]
    fn one_of_many_is_cleared_at_once_whatever_it_loses() {
        let reason = Clearing::reason_without_sample(
            gib(64),
            ClearPolicy::OneOfMany,
            Nanos(1000 * MILLI),
            Some(Slowdown(0.001)),
        );
        assert_eq!(reason.map(ClearReason::method), Some(ClearMethod::ClearRefs));
    }

    #[test]
    fn a_promised_slowdown_is_kept() {
        let reason = |policy, lost, max| {
            Clearing::reason_without_sample(gib(1), policy, Nanos(lost * MILLI), max).map(ClearReason::method)
        };
        let (at_once, in_slices) = (Some(ClearMethod::ClearRefs), Some(ClearMethod::MadvCold));
        let five = Some(Slowdown(0.05));
        assert_eq!(reason(ClearPolicy::ByCalls, 25, five), at_once);
        assert_eq!(reason(ClearPolicy::ByCalls, 26, five), in_slices);
        assert_eq!(reason(ClearPolicy::ByCalls, 26, None), at_once, "nothing was promised");
        assert_eq!(reason(ClearPolicy::AtOnce, 1000, five), at_once, "the user accepts it");
    }

    #[test]
    fn a_quiet_program_is_cleared_at_once_at_any_size() {
        for size in [4, 16, 64, 128, 1 << 14] {
            assert_eq!(sample(size, 0, Some(0)).reason(gib(size)), ClearReason::FewCalls, "{size} GiB");
            assert_eq!(sample(size, 0, None).reason(gib(size)), ClearReason::FewCalls, "{size} GiB");
            let early = CallSample { length: Nanos(MILLI), ..sample(size, 0, Some(0)) };
            assert!(!early.is_decided(gib(size)), "{size} GiB");
        }
    }

    #[test]
    fn a_few_calls_decide_by_the_length_of_the_clearing() {
        // A sample of 755 ms for a clearing of 252 ms; of 1 s for one of 2 s.
        assert_eq!(sample(16, 1, Some(2)).reason(gib(16)), ClearReason::FewCalls);
        assert_eq!(sample(16, 3, Some(3)).reason(gib(16)), ClearReason::ManyCalls);
        assert_eq!(sample(16, 0, Some(200)).reason(gib(16)), ClearReason::ManyCalls);
        assert_eq!(sample(128, 0, Some(1)).reason(gib(128)), ClearReason::ManyCalls);
    }

    #[test]
    fn half_a_sample_of_no_call_proves_nothing() {
        let half = CallSample { length: Nanos(100 * MILLI), ..sample(16, 0, Some(0)) };
        assert_eq!(half.reason(gib(16)), ClearReason::ManyCalls);
    }

    #[test]
    fn unknown_calls_are_no_calls_only_where_nothing_else_happens() {
        assert_eq!(sample(16, 1, None).reason(gib(16)), ClearReason::UnknownCalls);
        assert_eq!(CallSample { resized: true, ..sample(16, 0, None) }.reason(gib(16)), ClearReason::UnknownCalls);
        assert_eq!(CallSample { resized: true, ..sample(16, 0, Some(0)) }.reason(gib(16)), ClearReason::FewCalls);
        assert_eq!(sample(16, 500, None).reason(gib(16)), ClearReason::ManyCalls);
    }

    #[test]
    fn samples_are_bounded() {
        let length = |clearing| CallSample::length_for(Nanos(clearing * MILLI)).0 / MILLI;
        assert_eq!([length(1), length(60), length(250), length(5000)], [100, 180, 750, 1000]);
    }

    #[test]
    fn the_bound_is_that_of_the_poisson_distribution() {
        // Half of the 95th percentile of chi square with 2 (count + 1) degrees of freedom.
        for (count, exact) in [(0, 2.996), (1, 4.744), (2, 6.296), (5, 10.513), (10, 16.962), (100, 118.08)] {
            assert!((upper_bound(count) / exact - 1.0).abs() < 0.01, "{count}: {}", upper_bound(count));
        }
    }

    #[test]
    fn rates_and_stalled_calls_are_told() {
        let sample = CallSample { length: Nanos(500 * MILLI), faults: 1700, mmap_calls: Some(1), resized: false };
        assert_eq!((sample.faults_per_second(), sample.mmap_calls_per_second()), (3400.0, Some(2.0)));
        assert!((sample.stalled(Nanos(100 * MILLI)) - 340.2).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn more_calls_never_lead_from_slices_to_at_once(
            clearing in 50 * MILLI..20_000 * MILLI,
            faults in 0..40u64,
            calls in prop::option::of(0..40u64),
            more_faults in 0..1000u64,
            more_calls in 0..1000u64,
            resized: bool,
        ) {
            let clearing = Nanos(clearing);
            let few = CallSample { length: CallSample::length_for(clearing), faults, mmap_calls: calls, resized };
            let mmap_calls = calls.map(|calls| calls + more_calls);
            let many = CallSample { faults: faults + more_faults, mmap_calls, ..few };
            if few.reason(clearing).method() == ClearMethod::MadvCold {
                prop_assert_eq!(many.reason(clearing).method(), ClearMethod::MadvCold);
            }
            let early = CallSample { length: Nanos(1), ..few };
            if early.is_decided(clearing) {
                prop_assert_eq!(few.reason(clearing), ClearReason::ManyCalls, "decided too early");
            }
        }
    }
}
