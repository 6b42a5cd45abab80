//! Memory pressure, from `/proc/pressure/memory` (Documentation/accounting/psi.rst).
//!
//! Owns: that file's format. Never touches: what to do about it.

use super::{KernelError, Malformed, Root};

/// How much time was lost to waiting for memory, over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Share of the time in which at least one task waited, 0 to 1.
    pub some: f64,
}

impl Pressure {
    /// Reads it; None where the kernel does not tell (`CONFIG_PSI`, or `psi=0`).
    pub fn read(root: &Root) -> Result<Option<Self>, KernelError> {
        match root.parsed("proc/pressure/memory", Root::LIMIT, Self::parse) {
            Ok(pressure) => Ok(Some(pressure)),
            Err(error) if error.is_absent() || error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Understands the text of the file.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let line = text.lines().position(|line| line.starts_with("some "));
        let wrong = |number: usize| {
            let line = text.lines().nth(number).unwrap_or_default();
            Malformed::new(number + 1, "a line such as 'some avg10=0.00 avg60=0.00 ..'", line)
        };
        let number = line.ok_or_else(|| wrong(0))?;
        let words = text.lines().nth(number).unwrap_or_default().split(' ');
        let percent = words.filter_map(|word| word.strip_prefix("avg10=")).find_map(|value| value.parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| wrong(number))?;
        Ok(Self { some: percent / 100.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_seconds_count() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=3\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(Pressure::parse(text).unwrap(), Pressure { some: 0.125 });
    }

    #[test]
    fn anything_else_is_an_error_that_shows_the_line() {
        for text in
            ["", "full avg10=0.00\n", "some avg10=lots\n", "some avg10=NaN\n", "some avg10=101\n", "some avg60=1\n"]
        {
            assert!(Pressure::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_no_error() {
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(Pressure::read(&Root::at(nowhere.path())).unwrap(), None);
    }
}
