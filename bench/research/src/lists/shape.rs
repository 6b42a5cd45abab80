//! The shape of the paper's figures next to the model's. Differences are reported, too.
//!
//! Owns: the paper's statements, and the criteria for seeing them. Never touches: runs.
//!
//! The paper's figures come from real machines; their numbers were not published as a table. So only shapes are compared: higher or lower, growing or
//! not.

use std::fmt;

use heat::units::Bytes;

use super::policy::PolicyKind;
use super::simulation::SimulationOutcome;

/// Where the paper's throughput begins to fall.
const KNEE: u64 = 4 << 30;
/// Differences below one per cent do not count.
const MARGIN: f64 = 0.01;

/// A statement of the paper, and the model's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The paper's statement.
    pub theirs: &'static str,
    /// The lists that are held against it.
    pub policy: PolicyKind,
    /// The model's result, in words and numbers.
    pub ours: String,
    /// Whether they agree.
    pub verdict: ShapeVerdict,
}

/// Whether the model shows what the paper states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeVerdict {
    /// At every size to which it applies.
    Seen,
    /// At some sizes.
    InPart,
    /// Nowhere.
    NotSeen,
}

impl fmt::Display for ShapeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ShapeVerdict::Seen => "seen",
            ShapeVerdict::InPart => "in part",
            ShapeVerdict::NotSeen => "NOT SEEN",
        })
    }
}

impl ShapeVerdict {
    fn of(seen: impl IntoIterator<Item = bool>) -> Self {
        let seen: Vec<bool> = seen.into_iter().collect();
        match (seen.iter().any(|&each| each), seen.iter().all(|&each| each)) {
            (true, true) => ShapeVerdict::Seen,
            (true, false) => ShapeVerdict::InPart,
            (false, _) => ShapeVerdict::NotSeen,
        }
    }
}

/// A number of an outcome.
type Number<'a> = &'a dyn Fn(&SimulationOutcome) -> Option<f64>;

/// The paper's statements compared with the outcomes of one trace; only those that have outcomes.
pub fn shapes(outcomes: &[&SimulationOutcome], disk: Bytes) -> Vec<Shape> {
    let throughput = |outcome: &SimulationOutcome| Some(outcome.mean_throughput(disk));
    let scanned = |outcome: &SimulationOutcome| outcome.account.scanned_per_reclaimed();
    let variation = |outcome: &SimulationOutcome| Some(outcome.variation());
    let (is_higher, is_lower) = (
        "figure 5: split, mapped pages not aged, throughput is higher",
        "split, mapped pages not aged, less is scanned",
    );
    let falling =
        [PolicyKind::Mixed, PolicyKind::MixedLater].into_iter().map(|mixed| falls(outcomes, mixed, &throughput));
    // The paper's implementation, and its design.
    let splits = [PolicyKind::Split(100), PolicyKind::split_by_use(100)].into_iter().flat_map(|split| {
        [
            ratio(outcomes, split, &throughput, is_higher, |ratio| ratio > 1.0 + MARGIN),
            varies_less(outcomes, split, &variation),
            scans_more_with_more_memory(outcomes, split, &scanned),
            ratio(outcomes, split, &scanned, is_lower, |ratio| ratio < 1.0 - MARGIN),
        ]
    });
    falling.chain(splits).flatten().collect()
}

/// A policy's number by memory size.
fn line(outcomes: &[&SimulationOutcome], policy: PolicyKind, number: Number) -> Vec<(u64, f64)> {
    let of_policy = outcomes.iter().filter(|outcome| outcome.policy == policy);
    of_policy.filter_map(|outcome| Some((outcome.memory_bytes, number(outcome)?))).collect()
}

/// The number of the unsplit lists and of a split, at each size that has both.
fn pairs(outcomes: &[&SimulationOutcome], split: PolicyKind, number: Number) -> Option<Vec<(f64, f64)>> {
    let split = line(outcomes, split, number);
    let partner = |memory| split.iter().find(|(size, _)| *size == memory).map(|(_, number)| *number);
    let mixed = line(outcomes, PolicyKind::Mixed, number).into_iter();
    let pairs: Vec<_> = mixed.filter_map(|(memory, number)| Some((number, partner(memory)?))).collect();
    (!pairs.is_empty()).then_some(pairs)
}

fn falls(outcomes: &[&SimulationOutcome], mixed: PolicyKind, throughput: Number) -> Option<Shape> {
    let line = line(outcomes, mixed, throughput);
    let &(knee, at_knee) = line.iter().find(|(memory, _)| *memory >= KNEE)?;
    let beyond: Vec<f64> = line.iter().filter(|(memory, _)| *memory > knee).map(|(_, each)| each / at_knee).collect();
    let &last = beyond.last()?;
    let (memory, _) = *line.last()?;
    Some(Shape {
        theirs: "figure 1: unsplit, throughput falls beyond 4 GB",
        policy: mixed,
        ours: format!("{last:.3} at {} of that at {}", Bytes(memory), Bytes(knee)),
        verdict: ShapeVerdict::of(beyond.iter().map(|&share| share < 1.0 - MARGIN)),
    })
}

/// A split's number relative to that of the unsplit lists.
fn ratio(
    outcomes: &[&SimulationOutcome],
    split: PolicyKind,
    number: Number,
    theirs: &'static str,
    is_so: fn(f64) -> bool,
) -> Option<Shape> {
    let pairs = pairs(outcomes, split, number)?;
    let ratios: Vec<f64> = pairs.iter().map(|(mixed, split)| split / mixed).collect();
    let ours = format!("{} of mixed", range(&ratios));
    Some(Shape { theirs, policy: split, ours, verdict: ShapeVerdict::of(ratios.into_iter().map(is_so)) })
}

fn varies_less(outcomes: &[&SimulationOutcome], split: PolicyKind, variation: Number) -> Option<Shape> {
    let pairs = pairs(outcomes, split, variation)?;
    let percent = |which: fn(&(f64, f64)) -> f64| {
        let all: Vec<f64> = pairs.iter().map(|pair| 100.0 * which(pair)).collect();
        range(&all)
    };
    Some(Shape {
        theirs: "figure 5: split, mapped pages not aged, throughput varies less",
        policy: split,
        ours: format!("{} %, mixed {} %", percent(|pair| pair.1), percent(|pair| pair.0)),
        verdict: ShapeVerdict::of(pairs.iter().map(|(mixed, split)| mixed - split > MARGIN / 10.0)),
    })
}

fn scans_more_with_more_memory(outcomes: &[&SimulationOutcome], split: PolicyKind, scanned: Number) -> Option<Shape> {
    let growth = |policy| {
        let line = line(outcomes, policy, scanned);
        let (first, last) = (line.first()?, line.last()?);
        (last.0 > first.0).then(|| last.1 / first.1)
    };
    let (of_mixed, of_split) = (growth(PolicyKind::Mixed)?, growth(split)?);
    Some(Shape {
        theirs: "unsplit, more is scanned with more memory; split it is not",
        policy: split,
        ours: format!("from least to most memory x {of_split:.2}, mixed x {of_mixed:.2}"),
        verdict: ShapeVerdict::of([of_mixed > 1.0 + MARGIN && of_split <= 1.0 + MARGIN]),
    })
}

fn range(numbers: &[f64]) -> String {
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if high - low < 5e-4 { format!("{high:.3}") } else { format!("{low:.3} to {high:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::report::tests::outcome;

    const DISK: Bytes = Bytes(100 << 20);

    fn told(outcomes: &[SimulationOutcome]) -> Vec<ShapeVerdict> {
        let outcomes: Vec<&SimulationOutcome> = outcomes.iter().collect();
        shapes(&outcomes, DISK).iter().map(|shape| shape.verdict).collect()
    }

    /// Sizes in GiB, refaults that slow the disk down, and pages scanned per page reclaimed, with a thousand reclaimed.
    fn both(sizes: &[(u64, u64, f64)], split_scans: f64) -> Vec<SimulationOutcome> {
        let pair = |&(gib, refaults, scans): &(u64, u64, f64)| {
            [outcome(PolicyKind::Mixed, gib, refaults, scans), outcome(PolicyKind::Split(100), gib, 0, split_scans)]
        };
        sizes.iter().flat_map(pair).collect()
    }

    #[test]
    fn the_papers_shape_is_recognised() {
        let outcomes = both(&[(2, 1_000, 2.0), (4, 1_000, 3.0), (8, 9_000, 6.0)], 1.0);
        assert_eq!(told(&outcomes), [ShapeVerdict::Seen; 5]);
    }

    #[test]
    fn another_shape_is_not() {
        let outcomes = both(&[(2, 0, 1.5), (4, 0, 1.5), (8, 0, 1.5)], 1.5);
        assert_eq!(told(&outcomes), [ShapeVerdict::NotSeen; 5]);
        let outcomes = both(&[(4, 0, 1.5), (8, 9_000, 1.5)], 1.0);
        assert_eq!(told(&outcomes)[1..3], [ShapeVerdict::InPart, ShapeVerdict::InPart]);
    }

    #[test]
    fn nothing_is_said_without_the_runs_for_it() {
        assert!(told(&[outcome(PolicyKind::AnonFile, 2, 0, 1.0), outcome(PolicyKind::Mixed, 2, 0, 1.0)]).is_empty());
    }
}
