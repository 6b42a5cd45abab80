//! A running total, made of what a meter reads.
//!
//! Owns: telling totals from rates. Never touches: where numbers come from.

use heat::units::Nanos;

use crate::meter::{Meter, MeterError};

/// Readings by which a total is told from a rate.
const FEWEST: usize = 8;

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// It only grows: requests answered so far.
    Total,
    /// A speed: requests a second.
    Rate,
}

/// Work so far, by a meter.
pub struct RunningTotal {
    meter: Box<dyn Meter>,
    kind: NumberKind,
    /// The last reading of a rate.
    last: Option<(Nanos, f64)>,
    work: f64,
}

impl NumberKind {
    /// Tells from readings of a program at work: eight that never fall and nearly always grow are a total. A rate that varies by chance does so once
    /// in 40,000 times.
    pub fn of(readings: &[f64]) -> Self {
        let steps = || readings.windows(2);
        let grown = steps().filter(|step| step[1] > step[0]).count();
        let is_total = steps().all(|step| step[1] >= step[0]) && grown + 1 >= steps().count() && grown > 0;
        if is_total { NumberKind::Total } else { NumberKind::Rate }
    }

    /// How many readings tell.
    pub const READINGS: usize = FEWEST;
}

impl RunningTotal {
    /// Counts from now on.
    pub fn new(meter: Box<dyn Meter>, kind: NumberKind) -> Self {
        Self { meter, kind, last: None, work: 0.0 }
    }

    /// Work so far. A rate counts for half of the time to its neighbors each. Errors: those of the meter.
    pub fn read(&mut self, now: Nanos) -> Result<f64, MeterError> {
        let number = self.meter.read()?;
        match (self.kind, self.last.replace((now, number))) {
            // A total that begins anew, as after a restart, has lost only what was counted before.
            (NumberKind::Total, Some((_, before))) => {
                self.work += if number >= before { number - before } else { number }
            }
            (NumberKind::Rate, Some((at, before))) => {
                self.work += (number + before) / 2.0 * now.saturating_sub(at).seconds()
            }
            (_, None) => {}
        }
        Ok(self.work)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Numbers(VecDeque<f64>);

    impl Meter for Numbers {
        fn read(&mut self) -> Result<f64, MeterError> {
            Ok(self.0.pop_front().expect("another number"))
        }
    }

    fn totals(kind: NumberKind, numbers: &[f64]) -> Vec<f64> {
        let mut total = RunningTotal::new(Box::new(Numbers(numbers.iter().copied().collect())), kind);
        let second = |number: usize| Nanos(number as u64 * 1_000_000_000);
        (0..numbers.len()).map(|number| total.read(second(number)).unwrap()).collect()
    }

    #[test]
    fn totals_and_rates_are_told_apart() {
        assert_eq!(NumberKind::of(&[100.0, 130.0, 160.0, 160.0, 210.0, 240.0, 250.0, 290.0]), NumberKind::Total);
        assert_eq!(NumberKind::of(&[30.0, 31.0, 29.0, 33.0, 34.0, 35.0, 36.0, 37.0]), NumberKind::Rate);
        assert_eq!(NumberKind::of(&[30.0; 8]), NumberKind::Rate, "a rate may stand still");
    }

    #[test]
    fn both_add_up_to_work() {
        assert_eq!(totals(NumberKind::Total, &[100.0, 130.0, 170.0]), [0.0, 30.0, 70.0]);
        assert_eq!(totals(NumberKind::Total, &[100.0, 130.0, 10.0]), [0.0, 30.0, 40.0], "the program began anew");
        assert_eq!(totals(NumberKind::Rate, &[10.0, 20.0, 30.0]), [0.0, 15.0, 40.0]);
    }
}
