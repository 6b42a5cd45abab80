//! What a conflict test says.
//!
//! Owns: three answers, and what can be told of the reason. Never touches: how it was measured.

use crate::kernel::cache::Cache;
use crate::statistics::Interval;
use crate::units::Bytes;

/// Reads of pages that share a color take so much longer where colors count. A set that overflows at every read makes them take several
/// times as long; what stays below a tenth gains nothing that a program would notice.
pub const MARGIN: f64 = 1.1;
/// What is less sure than this is not decided.
pub const CONFIDENCE: f64 = 0.95;

/// Whether colors are real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Pages of one color evict each other.
    Real,
    /// They do so no more than others.
    NotObservable,
    /// The measurements allow both, or there are none.
    Undecided,
}

/// How the set of an address is told, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// By bits of the address as they are.
    BareBits,
    /// By a hash of the address: bits as they are do not make so many sets.
    HashedBySets,
    /// By a hash of the address: this is the machine itself, and its bits as they are do not tell it.
    Hashed,
    /// By a hash, or by bits of an address that a virtual machine does not see.
    HashedOrHidden,
}

/// Why nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// Each page reaches every set.
    OneColor,
    /// The pages to choose from would take too much.
    Memory {
        /// What they take.
        needed: Bytes,
        /// What there is, of which a quarter is taken at most.
        available: Bytes,
    },
}

/// What came out for one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The cache.
    pub cache: Cache,
    /// Whether its colors are real.
    pub answer: Answer,
    /// How much longer reads take of pages that share a color; None where nothing was measured.
    pub slowdown: Option<Interval>,
    /// How its sets are told; None where that is not known.
    pub indexing: Option<Indexing>,
    /// Why nothing was measured.
    pub obstacle: Option<Unmeasured>,
}

/// The answer that the measurements allow.
pub fn judge(slowdown: Option<&Interval>) -> Answer {
    match slowdown {
        Some(interval) if interval.confidence < CONFIDENCE => Answer::Undecided,
        Some(interval) if interval.low > MARGIN => Answer::Real,
        Some(interval) if interval.high < MARGIN => Answer::NotObservable,
        _ => Answer::Undecided,
    }
}

/// How the set is told, where the answer shows it.
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
    use super::*;
    use crate::statistics::paired_ratio;

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
