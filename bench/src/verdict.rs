//! Verdicts: whether a figure is met, as far as its interval and the machine's noise allow a conclusion.
//!
//! Owns: what counts as met. Never touches: which figures there are, or measurements.
//!
//! A figure is met if the whole interval of its ratio meets it, and missed if the whole interval misses it. If default against default scatters by
//! more than the figure's margin, there is no conclusion, unless the interval clears the figure by more than that scatter. "At least level" means
//! within one per cent, the margin that the figures also grant elsewhere.

use std::fmt;

use heat::statistics::Interval;

use crate::table::{cell, interval};

/// Fewer pairs do not give a 95 % interval.
const CONFIDENCE: f64 = 0.95;

/// No noise: for comparisons with a fixed number.
pub const EXACT: Interval = Interval { estimate: 1.0, low: 1.0, high: 1.0, confidence: 1.0, pairs: 0 };

/// The required range of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// This much or more.
    AtLeast(f64),
    /// This much or less.
    AtMost(f64),
}

/// The conclusion about a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureVerdict {
    /// Reached.
    Met,
    /// Not reached.
    NotMet,
    /// The interval contains the bound; more rounds would decide.
    Open,
    /// Default against default scatters by this much, which is more than the margin.
    NotResolvable(f64),
    /// The reference gained nothing in some round, because of noise.
    NoGain,
    /// Memory that should be on large pages was not, or not all of it.
    NoLargePages,
    /// Too few rounds for a 95 % interval, or a configuration is missing.
    NotMeasured,
}

/// A figure to reach, with its result.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedFigure {
    /// Its description.
    pub text: String,
    /// The measured numbers.
    pub numbers: String,
    /// Whether it was reached.
    pub verdict: FigureVerdict,
}

impl JudgedFigure {
    /// For a ratio; `noise` is the same quantity measured against itself.
    pub fn of_ratio(text: impl Into<String>, seen: Option<Interval>, noise: Option<Interval>, bound: Bound) -> Self {
        let judged = seen.zip(noise).map(|(seen, noise)| FigureVerdict::of(&seen, &noise, bound));
        let verdict = judged.unwrap_or(FigureVerdict::NotMeasured);
        Self { text: text.into(), numbers: interval(seen), verdict }
    }

    /// Met if `is_so`; None if that is unknown.
    pub fn of_fact(text: impl Into<String>, numbers: Option<String>, is_so: Option<bool>) -> Self {
        Self { text: text.into(), numbers: cell(numbers), verdict: FigureVerdict::of_fact(is_so) }
    }

    /// Its line in a report, with these widths for description and numbers.
    pub fn line(&self, words: usize, columns: usize) -> String {
        // Columns stand two spaces apart, also after a long description.
        let words = words.max(self.text.chars().count() + 1);
        format!("  {:<words$} {:<columns$} {}\n", self.text, self.numbers, self.verdict)
    }
}

impl FigureVerdict {
    /// For a ratio that should be at least this much; `noise` is the same quantity measured against itself.
    pub fn at_least(limit: f64, seen: &Interval, noise: &Interval) -> Self {
        Self::of(seen, noise, Bound::AtLeast(limit))
    }

    /// Met if `is_so`; None if that is unknown.
    pub fn of_fact(is_so: Option<bool>) -> Self {
        match is_so {
            Some(true) => FigureVerdict::Met,
            Some(false) => FigureVerdict::NotMet,
            None => FigureVerdict::NotMeasured,
        }
    }

    /// For a ratio within a bound.
    pub fn of(seen: &Interval, noise: &Interval, bound: Bound) -> Self {
        if seen.confidence < CONFIDENCE || noise.confidence < CONFIDENCE {
            return FigureVerdict::NotMeasured;
        }
        // By how much the interval is on the right side of the figure, and by how much on the wrong side.
        let (limit, right, wrong) = match bound {
            Bound::AtLeast(limit) => (limit, seen.low / limit - 1.0, 1.0 - seen.high / limit),
            Bound::AtMost(limit) => (limit, 1.0 - seen.high / limit, seen.low / limit - 1.0),
        };
        let (met, missed) = (right >= 0.0, wrong > 0.0);
        let margin = (limit - 1.0).abs().max(right).max(wrong);
        match (met, missed) {
            _ if noise.reach() > margin => FigureVerdict::NotResolvable(noise.reach()),
            (true, _) => FigureVerdict::Met,
            (_, true) => FigureVerdict::NotMet,
            _ => FigureVerdict::Open,
        }
    }
}

impl fmt::Display for FigureVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FigureVerdict::Met => f.write_str("met"),
            FigureVerdict::NotMet => f.write_str("NOT MET"),
            FigureVerdict::Open => f.write_str("open: more rounds would tell"),
            FigureVerdict::NotResolvable(reach) => write!(f, "not resolvable here, +/- {:.3} %", reach * 100.0),
            FigureVerdict::NoGain => {
                f.write_str("not resolvable here: what it is held against gained nothing in some round")
            }
            FigureVerdict::NoLargePages => f.write_str("not measured: not all of it was on large pages"),
            FigureVerdict::NotMeasured => {
                f.write_str("not measured: needs 6 rounds, or starts, with every configuration named")
            }
        }
    }
}
