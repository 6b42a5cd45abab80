//! When the machine is short of memory.
//!
//! Owns: that judgement. Never touches: the system; readings are given to it.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The state of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryState {
    /// Usable memory.
    pub total: Bytes,
    /// What programs could get without swapping.
    pub available: Bytes,
    /// Share of the last ten seconds in which some task waited for memory; None where the kernel does not tell.
    pub pressure: Option<f64>,
}

/// Why nothing is promoted at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBack {
    /// Programs wait for memory.
    Pressure,
    /// Little memory is available.
    LittleAvailable,
    /// The last collapses found no contiguous memory.
    NoContiguousMemory,
}

impl MemoryState {
    /// Some task waits for memory a tenth of the time: far above a busy but healthy machine (below 1 %).
    const MOST_PRESSURE: f64 = 0.10;
    /// With less than 5 % of memory available the kernel soon reclaims what others use.
    const LEAST_AVAILABLE: f64 = 0.05;

    /// Why the machine has no memory to spare; None if it has some.
    pub fn shortage(&self) -> Option<HeldBack> {
        if self.pressure.is_some_and(|share| share >= Self::MOST_PRESSURE) {
            return Some(HeldBack::Pressure);
        }
        let least = self.total.0 as f64 * Self::LEAST_AVAILABLE;
        ((self.available.0 as f64) < least).then_some(HeldBack::LittleAvailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_short_of_memory_is_left_alone() {
        let state = |available, pressure| MemoryState { total: Bytes(100), available: Bytes(available), pressure };
        assert_eq!(state(50, Some(0.01)).shortage(), None);
        assert_eq!(state(50, None).shortage(), None, "what is unknown is not pressure");
        assert_eq!(state(50, Some(0.10)).shortage(), Some(HeldBack::Pressure));
        assert_eq!(state(4, Some(0.0)).shortage(), Some(HeldBack::LittleAvailable));
        assert_eq!(state(5, None).shortage(), None);
    }
}
