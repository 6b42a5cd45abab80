//! Memory pressure, from `/proc/pressure/memory` and control groups' `memory.pressure` (Documentation/accounting/psi.rst).
//!
//! Owns: that file's format. Never touches: what to do about it.

use heat::units::Nanos;

use crate::cgroup::{Lineage, Version};
use crate::{KernelError, Malformed, Root};

/// The machine's.
const MACHINE: &str = "proc/pressure/memory";
const SHAPE: &str = "a line such as 'some avg10=0.00 avg60=0.00 ..'";

/// Time lost to waiting for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Share of the last ten seconds in which at least one task waited, 0 to 1.
    pub some: f64,
    /// The sum of such time so far; 0 where the kernel does not tell.
    pub waited: Nanos,
}

impl Pressure {
    /// Reads it; None where the kernel does not tell (`CONFIG_PSI`, or `psi=0`).
    ///
    /// Errors: `/proc/pressure/memory` exists but cannot be read, or is malformed.
    pub fn read(root: &Root) -> Result<Option<Self>, KernelError> {
        Self::read_from(root, MACHINE)
    }

    /// Reads that of a process's control group, or of the machine where groups have none (version 1); None where neither is available.
    ///
    /// Errors: the process has ended (`is_gone`).
    pub fn of_process(root: &Root, pid: u32) -> Result<Option<Self>, KernelError> {
        let lineage =
            Lineage::read(root, &pid.to_string(), "memory")?.filter(|lineage| lineage.version == Version::Two);
        let file = lineage
            .and_then(|lineage| Some(format!("{}{}/memory.pressure", lineage.mount.point, lineage.groups.first()?)));
        match file.map(|file| Self::read_from(root, &file)).transpose()?.flatten() {
            Some(pressure) => Ok(Some(pressure)),
            None => Self::read(root),
        }
    }

    fn read_from(root: &Root, file: &str) -> Result<Option<Self>, KernelError> {
        match root.parsed(file, Root::LIMIT, Self::parse) {
            Ok(pressure) => Ok(Some(pressure)),
            Err(error) if error.is_absent() || error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parses the text of the file.
    ///
    /// Errors: the line `some` is missing, or its `avg10` is not a percentage.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let found = text.lines().enumerate().find(|(_, line)| line.starts_with("some "));
        let (index, line) = found.ok_or_else(|| Malformed::missing(text, SHAPE))?;
        let value = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        let percent = value("avg10=").and_then(|value| value.parse::<f64>().ok());
        let percent = percent
            .filter(|percent| (0.0..=100.0).contains(percent))
            .ok_or_else(|| Malformed::new(index + 1, SHAPE, line))?;
        let micros = value("total=").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        Ok(Self { some: percent / 100.0, waited: Nanos(micros.saturating_mul(1000)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_seconds_count() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=3\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(Pressure::parse(text).unwrap(), Pressure { some: 0.125, waited: Nanos(3000) });
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
    fn a_process_has_the_pressure_of_its_group() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let pressure = |micros: u64| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n");
        write("proc/7/cgroup", "0::/a/b\n");
        write("proc/pressure/memory", &pressure(9));
        write("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let waited = || Pressure::of_process(&Root::at(root.path()), 7).unwrap().unwrap().waited;
        assert_eq!(waited(), Nanos(9000), "the group has none");
        write("sys/fs/cgroup/a/b/memory.pressure", &pressure(5));
        assert_eq!(waited(), Nanos(5000));
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_no_error() {
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(Pressure::read(&Root::at(nowhere.path())).unwrap(), None);
    }
}
