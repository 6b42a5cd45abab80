//! The verdict of a conflict test.
//!
//! Owns: the three answers, and what is known about the reason. Never touches: how it was measured.

use heat::statistics::{Interval, paired_ratio};
use heat::units::Bytes;
use kernel::cache::Cache;
use serde::Serialize;

/// If colors matter, reads of pages that share one take at least this many times as long. A set that overflows at every read makes them
/// several times as long; less than a tenth makes no noticeable difference to a program.
pub const MARGIN: f64 = 1.1;
/// Below this confidence there is no decision.
pub const CONFIDENCE: f64 = 0.95;

/// Whether colors are real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Pages of one color evict each other.
    Real,
    /// They evict each other no more than other pages do.
    NotObservable,
    /// The measurements allow both, or there are none.
    Undecided,
}

/// How the set of an address is determined, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Indexing {
    /// By plain bits of the address.
    BareBits,
    /// By a hash of the address: plain bits would not give this number of sets.
    #[serde(rename = "hashed")]
    HashedBySets,
    /// By a hash of the address: this is a physical machine, and plain bits do not explain the result.
    Hashed,
    /// By a hash, or by address bits that are hidden from a virtual machine.
    HashedOrHidden,
}

/// What prevented an answer, or gave it without a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorObstacle {
    /// Each page reaches every set.
    OneColor,
    /// The kernel does not report the shape of the level below; its colors would be mistaken for this level's.
    UnknownBelow,
    /// Pages of one color in the level below have so few colors here that they evict each other even when spread.
    FewColors,
    /// A first measurement observed colors, and a second one did not.
    NotConfirmed,
    /// Too few pages were left for the requested number of rounds.
    FewPages,
    /// The pages to choose from would need too much memory.
    Memory {
        /// The memory that they need.
        needed: Bytes,
        /// The memory available, of which at most a quarter is used.
        available: Bytes,
    },
}

/// The result for one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The cache.
    pub cache: Cache,
    /// Whether its colors are real.
    pub answer: Answer,
    /// How many times longer reads of pages that share a color take; None without a measurement.
    pub slowdown: Option<Interval>,
    /// How its sets are indexed; None if unknown.
    pub indexing: Option<Indexing>,
    /// What prevented an answer.
    pub obstacle: Option<ColorObstacle>,
}

/// The verdict from measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorVerdict {
    /// Whether colors are real.
    pub answer: Answer,
    /// From the deciding measurement; None if there was none.
    pub slowdown: Option<Interval>,
    /// What prevented an answer.
    pub obstacle: Option<ColorObstacle>,
}

/// The verdict from measurements of `rounds` pairs each, or fewer if pages run out.
///
/// A gain is claimed only if a second measurement confirms the first: from noise alone one interval in forty is too high.
///
/// Errors: those of `measure`.
pub fn verdict<E>(rounds: u32, mut measure: impl FnMut() -> Result<Vec<(f64, f64)>, E>) -> Result<ColorVerdict, E> {
    let first = paired_ratio(&measure()?);
    if judge(first.as_ref()) == Answer::Real {
        let second = paired_ratio(&measure()?);
        return Ok(match judge(second.as_ref()) {
            Answer::Real => ColorVerdict { answer: Answer::Real, slowdown: second, obstacle: None },
            _ => ColorVerdict {
                answer: Answer::Undecided,
                slowdown: second,
                obstacle: Some(ColorObstacle::NotConfirmed),
            },
        });
    }
    let answer = judge(first.as_ref());
    let pairs = first.map_or(0, |interval| interval.pairs);
    let few = answer == Answer::Undecided && pairs < rounds as usize;
    Ok(ColorVerdict { answer, slowdown: first, obstacle: few.then_some(ColorObstacle::FewPages) })
}

/// The answer that one measurement supports.
fn judge(slowdown: Option<&Interval>) -> Answer {
    match slowdown {
        Some(interval) if interval.confidence < CONFIDENCE => Answer::Undecided,
        Some(interval) if interval.low > MARGIN => Answer::Real,
        Some(interval) if interval.high < MARGIN => Answer::NotObservable,
        _ => Answer::Undecided,
    }
}

/// The indexing, if the answer reveals it.
pub fn indexing(answer: Answer, cache: &Cache, virtual_machine: bool) -> Option<Indexing> {
    match answer {
        Answer::Undecided => None,
        Answer::Real => Some(Indexing::BareBits),
        Answer::NotObservable if !cache.may_be_indexed_by_bits() => Some(Indexing::HashedBySets),
        Answer::NotObservable if virtual_machine => Some(Indexing::HashedOrHidden),
        Answer::NotObservable => Some(Indexing::Hashed),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use fastrand::Rng;

    fn answer(pairs: &[(f64, f64)]) -> Answer {
        judge(paired_ratio(pairs).as_ref())
    }

    #[test]
    fn answers_follow_the_interval() {
        let pairs = |ratios: &[f64]| ratios.iter().map(|&ratio| (10.0 * ratio, 10.0)).collect::<Vec<_>>();
        assert_eq!(answer(&pairs(&[3.0, 2.5, 3.2, 2.8, 3.0, 2.9, 3.1])), Answer::Real);
        assert_eq!(answer(&pairs(&[1.0, 0.98, 1.02, 1.01, 0.99, 1.0, 1.03])), Answer::NotObservable);
        assert_eq!(answer(&pairs(&[1.0, 1.4, 0.9, 1.2, 1.3, 1.0, 1.1])), Answer::Undecided);
        assert_eq!(answer(&pairs(&[3.0; 5])), Answer::Undecided, "too few to be sure");
        assert_eq!(answer(&[]), Answer::Undecided);
    }

    /// The verdict if the two measurements give these ratios.
    fn said(rounds: u32, measurements: [&[f64]; 2]) -> (Answer, Option<ColorObstacle>) {
        let mut measurements = measurements.into_iter();
        let measure = || {
            let ratios = measurements.next().expect("it measures twice at most");
            Ok::<_, Infallible>(ratios.iter().map(|&ratio| (10.0 * ratio, 10.0)).collect())
        };
        let Ok(ColorVerdict { answer, obstacle, .. }) = verdict(rounds, measure);
        (answer, obstacle)
    }

    #[test]
    fn a_gain_is_claimed_only_if_it_is_confirmed() {
        let (real, not, neither) = ([3.0; 8], [1.0; 8], [1.0, 1.3, 0.9, 1.2, 1.3, 1.0, 1.1, 1.2]);
        assert_eq!(said(8, [&real, &real]), (Answer::Real, None));
        assert_eq!(said(8, [&real, &not]), (Answer::Undecided, Some(ColorObstacle::NotConfirmed)));
        assert_eq!(said(8, [&real, &neither]), (Answer::Undecided, Some(ColorObstacle::NotConfirmed)));
        assert_eq!(said(8, [&not, &real]), (Answer::NotObservable, None));
        assert_eq!(said(8, [&neither, &real]), (Answer::Undecided, None));
        assert_eq!(said(30, [&neither, &real]), (Answer::Undecided, Some(ColorObstacle::FewPages)));
        assert_eq!(said(30, [&[], &[]]), (Answer::Undecided, Some(ColorObstacle::FewPages)));
    }

    #[test]
    fn noise_alone_makes_no_colors() {
        let mut random = Rng::with_seed(1);
        // Each time is off by up to a factor of sixteen, in either direction.
        let mut time = || 10.0 * 16_f64.powf(random.usize(..2001) as f64 / 1000.0 - 1.0);
        let mut measure = || (0..30).map(|_| (time(), time())).collect::<Vec<_>>();
        let once = (0..500).filter(|_| answer(&measure()) == Answer::Real).count();
        let mut confirmed = || {
            let Ok(said) = verdict(30, || Ok::<_, Infallible>(measure()));
            said.answer == Answer::Real
        };
        let twice = (0..500).filter(|_| confirmed()).count();
        assert!((1..=13).contains(&once) && twice == 0, "{once} and {twice} of 500");
    }

    #[test]
    fn a_reason_is_given_where_it_can_be_told() {
        let cache = Cache { level: 2, size: Bytes(2 << 20), ways: 16, line: Bytes(64), sets: 2048 };
        let odd = Cache { sets: 212_992, ..cache };
        let not = Answer::NotObservable;
        assert_eq!(indexing(not, &odd, true), Some(Indexing::HashedBySets));
        assert_eq!(indexing(not, &cache, true), Some(Indexing::HashedOrHidden));
        assert_eq!(indexing(not, &cache, false), Some(Indexing::Hashed));
        assert_eq!(indexing(Answer::Real, &cache, true), Some(Indexing::BareBits));
        assert_eq!(indexing(Answer::Undecided, &odd, false), None);
    }
}
