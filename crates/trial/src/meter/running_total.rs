//! A running total, made of what a meter reads.
//!
//! Owns: telling totals from rates. Never touches: where numbers come from.

use std::cmp::Ordering;

use heat::units::Nanos;

use crate::meter::{Meter, MeterError};

/// A number that never fell and grew so often is a total: a rate that varies by chance does so once in 5,000 times.
const GROWN_TOTAL: usize = 7;
/// The same of a number that changes seldom, after the last reading: once in 120 times.
const GROWN_SELDOM: usize = 4;
/// Then what did not tell before does not tell at all.
const MOST_READINGS: usize = 40;

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
    /// Reads a program at work until its readings tell; `rest` passes time between two of them. A total stands still between two updates, but never
    /// falls. Errors: those of both, and that too few readings differ to tell.
    pub fn find_out<E: From<MeterError>>(
        meter: &mut dyn Meter,
        mut rest: impl FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        let (mut last, mut grown) = (meter.read()?, 0);
        for reading in 1..MOST_READINGS {
            rest()?;
            let number = meter.read()?;
            match number.total_cmp(&last) {
                Ordering::Less => return Ok(NumberKind::Rate),
                Ordering::Greater => grown += 1,
                Ordering::Equal => {}
            }
            last = number;
            if grown >= GROWN_TOTAL || reading + 1 == MOST_READINGS && grown >= GROWN_SELDOM {
                return Ok(NumberKind::Total);
            }
        }
        Err(MeterError::EitherKind { changes: grown, readings: MOST_READINGS }.into())
    }
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

    fn kind_of(numbers: impl IntoIterator<Item = f64>) -> Result<NumberKind, MeterError> {
        NumberKind::find_out(&mut Numbers(numbers.into_iter().collect()), || Ok(()))
    }

    fn totals(kind: NumberKind, numbers: &[f64]) -> Vec<f64> {
        let mut total = RunningTotal::new(Box::new(Numbers(numbers.iter().copied().collect())), kind);
        let second = |number: usize| Nanos(number as u64 * 1_000_000_000);
        (0..numbers.len()).map(|number| total.read(second(number)).unwrap()).collect()
    }

    #[test]
    fn totals_and_rates_are_told_apart() {
        assert_eq!(kind_of([100.0, 130.0, 160.0, 190.0, 210.0, 240.0, 250.0, 290.0]).unwrap(), NumberKind::Total);
        assert_eq!(kind_of([30.0, 31.0, 32.0, 29.0]).unwrap(), NumberKind::Rate);
        let updated_every = |readings: usize| kind_of((0..40).map(move |number| (number / readings * 1000) as f64));
        assert_eq!(updated_every(3).unwrap(), NumberKind::Total, "a total that is updated seldom");
        assert_eq!(updated_every(9).unwrap(), NumberKind::Total);
    }

    #[test]
    fn what_hardly_changes_is_not_guessed() {
        let steady = kind_of([30.0; 40]).unwrap_err().to_string();
        assert!(steady.contains("changed 0 times in 40 readings") && steady.contains("--number"), "{steady}");
        assert!(kind_of((0..40).map(|number| f64::from(number / 15))).is_err());
    }

    #[test]
    fn both_add_up_to_work() {
        assert_eq!(totals(NumberKind::Total, &[100.0, 130.0, 170.0]), [0.0, 30.0, 70.0]);
        assert_eq!(totals(NumberKind::Total, &[100.0, 130.0, 10.0]), [0.0, 30.0, 40.0], "the program began anew");
        assert_eq!(totals(NumberKind::Rate, &[10.0, 20.0, 30.0]), [0.0, 15.0, 40.0]);
    }
}
