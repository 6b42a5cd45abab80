//! What a page walk and a page fault cost a program, according to this machine's calibration.
//!
//! Owns: the figures of a calibration, and the model from walks a second to a share of the time. Never touches: how they are measured, or a plan.
//!
//! The cost of a walk to a program depends on how many walks the processor overlaps, and on how much of the page tables its caches hold. Neither is
//! visible from outside, but how often the program walks hints at both: walks that wait for each other cannot come fast, and a program that walks
//! rarely has other work, which evicts the page tables from the caches. Four chases over the same memory are calibrated: reads in order, whose walks
//! share cache lines of the page table; independent random reads; dependent ones; and occasional ones, with other work in between.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};

/// The cost of a page fault where it was not measured.
pub const FAULT_COST: Nanos = Nanos(2000);

/// The duration of a read that needs a page walk, and of one without, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTimes {
    /// On base pages.
    pub base_ns: f64,
    /// On huge pages.
    pub huge_ns: f64,
}

/// The part of a walk's cost that a program pays, where the chase that walks as often pays all of it: at least, likely, and at most.
#[derive(Clone, Copy, Debug)]
struct Paid {
    low: f64,
    likely: f64,
    high: f64,
}

/// For walks that the processor overlaps. Random sweeps over 1 GiB, which have other work, paid 0.3 to 1.1 (AMD Zen 4, Intel Emerald Rapids and Ice
/// Lake). Chases of 2 and 4 GiB, which do nothing else, paid 1.0 to 1.2 times the calibration's cost, and Faiss, which searches a graph, 1.3 (1.0 to
/// 1.7; AMD Zen 4).
const OVERLAPPED: Paid = Paid { low: 0.35, likely: 0.7, high: 1.3 };
/// For walks that are waited for. Ten trials of real programs (memcached, RocksDB, H2, Redis, SQLite; AMD Zen 4), each known to some ± 0.4, found 0.45
/// to 0.63 eight times, and 0.85 and 1.2. Faiss, XGBoost and LightGBM were tried afterwards, and walk in other ways. Chases of 2 and 4 GiB paid 1.2 to 1.4.
const WAITED_FOR: Paid = Paid { low: 0.35, likely: 0.55, high: 1.0 };
/// For occasional walks. No program of this kind was measured closely enough.
const OCCASIONAL: Paid = Paid { low: 0.35, likely: 0.65, high: 1.1 };
/// For walks along addresses, which processors prefetch: PageRank, a stream of NumPy and a join in DuckDB gained nothing that could be told (trials
/// known to ± 5 to 9 %). Sequential sweeps over 1 GiB paid 0.25 to 1.4 of the ordered chase.
const ORDERED: Paid = Paid { low: 0.0, likely: 0.1, high: 1.0 };

/// The chases over memory of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCost {
    /// The memory that was read.
    pub footprint: Bytes,
    /// Page by page in order.
    pub ordered: ReadTimes,
    /// At random, addresses known ahead.
    pub independent: ReadTimes,
    /// At random, each address determined by the previous read.
    pub dependent: ReadTimes,
    /// At random, each after other work; the times include both.
    pub occasional: ReadTimes,
    /// A page fault on already present shared memory, in nanoseconds.
    pub page_fault_ns: f64,
    /// Unmapping what a page fault mapped, as when its process ends, in nanoseconds.
    pub unmap_ns: f64,
}

/// A calibration is valid for memory of its size, and up to this many times that: each doubling costs as much as the one before.
const FARTHEST: f64 = 8.0;

impl ReadTimes {
    /// The cost of a walk, in nanoseconds.
    fn walk_ns(self) -> f64 {
        (self.base_ns - self.huge_ns).max(0.0)
    }

    /// Walks a second of a program that does nothing else.
    fn rate(self) -> f64 {
        1e9 / self.base_ns
    }

    /// The share of time that walks take in a program that does nothing else.
    fn share(self) -> f64 {
        self.walk_ns() / self.base_ns
    }

    fn between(self, other: ReadTimes, weight: f64) -> ReadTimes {
        let mix = |one: f64, other: f64| one + weight * (other - one);
        ReadTimes { base_ns: mix(self.base_ns, other.base_ns), huge_ns: mix(self.huge_ns, other.huge_ns) }
    }
}

impl WalkCost {
    /// Without a calibration: values between those that chases and sweeps of 1 to 4 GiB showed on two virtual machines (AMD Zen 4, Intel Emerald
    /// Rapids).
    pub const UNCALIBRATED: WalkCost = WalkCost {
        footprint: Bytes(1 << 30),
        ordered: ReadTimes { base_ns: 18.0, huge_ns: 15.5 },
        independent: ReadTimes { base_ns: 22.0, huge_ns: 14.0 },
        dependent: ReadTimes { base_ns: 300.0, huge_ns: 215.0 },
        occasional: ReadTimes { base_ns: 1200.0, huge_ns: 1080.0 },
        page_fault_ns: FAULT_COST.0 as f64,
        unmap_ns: FAULT_COST.0 as f64,
    };

    /// Adds the cost of unmapping to page faults, for the share of mapped memory that is unmapped again.
    pub fn with_unmapping(self, share: f64) -> Self {
        Self { page_fault_ns: self.page_fault_ns + share * self.unmap_ns, ..self }
    }

    /// All four chases.
    pub fn chases(&self) -> [ReadTimes; 4] {
        [self.ordered, self.independent, self.dependent, self.occasional]
    }

    /// The least cost of a walk.
    pub fn low(&self) -> Nanos {
        Nanos(self.chases().map(ReadTimes::walk_ns).into_iter().fold(f64::INFINITY, f64::min).round() as u64)
    }

    /// The highest cost of a walk.
    pub fn high(&self) -> Nanos {
        Nanos(self.chases().map(ReadTimes::walk_ns).into_iter().fold(0.0, f64::max).round() as u64)
    }

    /// The cost with this much memory, interpolated between the two nearest calibrations by the logarithm of the size, as caches go. Calibrations are
    /// in the order of their footprints. None if there are none.
    pub fn at(calibrations: &[WalkCost], footprint: Bytes) -> Option<WalkCost> {
        let (first, last) = (calibrations.first()?, calibrations.last()?);
        let next_to = |pair: &&[WalkCost]| footprint <= pair[1].footprint;
        let around = calibrations.windows(2).find(next_to).or(calibrations.windows(2).last());
        let (smaller, larger) = around.map_or((last, last), |pair| (&pair[0], &pair[1]));
        let log = |bytes: Bytes| (bytes.0.max(1) as f64).log2();
        let known = log(footprint).clamp(log(first.footprint), log(last.footprint) + FARTHEST.log2());
        let distance = log(larger.footprint) - log(smaller.footprint);
        let weight = if distance > 0.0 { (known - log(smaller.footprint)) / distance } else { 0.0 };
        Some(WalkCost {
            footprint,
            ordered: smaller.ordered.between(larger.ordered, weight),
            independent: smaller.independent.between(larger.independent, weight),
            dependent: smaller.dependent.between(larger.dependent, weight),
            occasional: smaller.occasional.between(larger.occasional, weight),
            page_fault_ns: smaller.page_fault_ns,
            unmap_ns: smaller.unmap_ns,
        })
    }

    /// The cost of a walk to a program that makes this many in each second of its CPU time, if the occasional, the dependent and the independent
    /// chase pay these shares.
    fn walk_ns_at(&self, walks_per_second: f64, paid: [f64; 3]) -> f64 {
        let log = |number: f64| number.max(0.1).ln();
        let knot = |chase: ReadTimes, paid: f64| (log(chase.rate()), log(paid * chase.walk_ns()));
        let [occasional, dependent, independent] = paid;
        let mut knots =
            [knot(self.occasional, occasional), knot(self.dependent, dependent), knot(self.independent, independent)];
        knots.sort_by(|one, other| one.0.total_cmp(&other.0));
        let rate = log(walks_per_second).clamp(knots[0].0, knots[2].0);
        let [slow, fast] = if rate <= knots[1].0 { [knots[0], knots[1]] } else { [knots[1], knots[2]] };
        let span = fast.0 - slow.0;
        let weight = if span > 0.0 { (rate - slow.0) / span } else { 0.0 };
        (slow.1 + weight * (fast.1 - slow.1)).exp()
    }

    /// Shares of the time that these walks take: at least, likely, at most. `most_times`: the factor by which the program may walk more often;
    /// `scattered`: the share of walks that do not go along addresses, as far as it was measured.
    pub fn shares(&self, walks_per_second: f64, most_times: f64, scattered: Option<f64>) -> [f64; 3] {
        let Scatter(scattered) = scattered.map_or(Scatter::UNKNOWN, Scatter::of);
        let rates = [1.0, most_times.sqrt(), most_times].map(|times| walks_per_second * times);
        let paid: [fn(Paid) -> f64; 3] = [|paid| paid.low, |paid| paid.likely, |paid| paid.high];
        std::array::from_fn(|end| {
            let at_random = self.share_at_random(rates[end], paid[end]);
            let in_order = (rates[end] * self.ordered.walk_ns() * 1e-9).min(self.ordered.share()) * paid[end](ORDERED);
            (scattered[end] * at_random + (1.0 - scattered[end]) * in_order).clamp(0.0, MOST_COUNTED)
        })
    }

    /// The share of the time that scattered walks take, by the chases that walk as often. No program walks more often than the independent chase, so
    /// a rate above that one's says no more.
    fn share_at_random(&self, walks_per_second: f64, paid: fn(Paid) -> f64) -> f64 {
        let rate = walks_per_second.min(self.independent.rate());
        let [occasional, overlapped, waited_for] = [OCCASIONAL, OVERLAPPED, WAITED_FOR].map(paid);
        rate * self.walk_ns_at(rate, [occasional, waited_for, overlapped]) * 1e-9
    }
}

/// A processor that counts walks in nearly all cycles includes those that overlap with work; f / (1 - f) would run away.
pub const MOST_COUNTED: f64 = 0.9;

/// Share of a process's cycles in which a page walk was under way, 0 to 1, as the processor counted it: at least and at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkShare {
    /// At least this.
    pub low: f64,
    /// At most this.
    pub high: f64,
}

/// Shares of walks that are scattered: at least, likely, at most.
struct Scatter([f64; 3]);

impl Scatter {
    /// What could not be measured was not seen to go along addresses either.
    const UNKNOWN: Self = Self([0.0, 1.0, 1.0]);

    /// From a measurement. A count of some thousand lines is accurate to a tenth: above nine tenths all walks may be scattered, and below one tenth
    /// nearly none.
    fn of(measured: f64) -> Self {
        let ramp = |from: f64, to: f64| ((measured - from) / (to - from)).clamp(0.0, 1.0);
        Self([ramp(0.2, 0.9), ramp(0.1, 0.9), ramp(0.0, 0.7)])
    }
}
