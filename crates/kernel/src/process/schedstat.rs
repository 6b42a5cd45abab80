//! `/proc/PID/task/TID/schedstat`: how long a thread ran, and how long it waited for a processor.
//!
//! Owns: the file's format (Documentation/scheduler/sched-stats.rst). Never touches: the thread.

use std::collections::BTreeMap;

use heat::units::Nanos;

use crate::{KernelError, Malformed, Root, unless_ended};

/// The most threads that are read; those of larger processes are similar.
const MOST_THREADS: usize = 64;

/// A thread's use of processors so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// CPU time.
    pub ran: Nanos,
    /// Time on a run queue, ready to run.
    pub waited: Nanos,
}

impl ThreadTime {
    /// Parses the text of a `schedstat` file.
    ///
    /// Errors: the text does not begin with two numbers.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().map(Nanos));
        match (numbers.next(), numbers.next()) {
            (Some(Ok(ran)), Some(Ok(waited))) => Ok(Self { ran, waited }),
            _ => Err(Malformed::new(1, "three numbers", text.trim_end())),
        }
    }
}

/// The first 64 threads of a process, by id; leaves out those that end meanwhile.
///
/// Errors: the process has ended (`is_gone`), or the kernel does not provide this (`is_absent`).
pub fn thread_times(root: &Root, pid: u32) -> Result<BTreeMap<u32, ThreadTime>, KernelError> {
    let mut times = BTreeMap::new();
    for thread in crate::process::threads(root, pid)?.into_iter().take(MOST_THREADS) {
        let name = format!("proc/{pid}/task/{thread}/schedstat");
        if let Some(time) = unless_ended(root.parsed(&name, Root::LIMIT, ThreadTime::parse))? {
            times.insert(thread, time);
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_the_numbers_count() {
        let time = ThreadTime { ran: Nanos(7_000_000), waited: Nanos(2_307_596) };
        assert_eq!(ThreadTime::parse("7000000 2307596 41\n").unwrap(), time);
        for text in ["", "1", "1 x 2", "-1 2 3"] {
            assert!(ThreadTime::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn our_own_threads_are_told() {
        let times = thread_times(&Root::host(), std::process::id()).unwrap();
        assert!(times.values().any(|time| time.ran > Nanos(0)), "{times:?}");
    }
}
