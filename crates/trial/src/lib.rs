//! A trial: huge pages tried on a running program, in windows with and without them, until the difference is known.
//!
//! Owns: the order of windows ([`crossover`]), when the difference is known ([`judge`]), what helps where it is not ([`remedy`]), and how a program's work is counted ([`meter`]). Never touches:
//! memory; [`crossover::UnderTrial`] switches it.
//!
//! Windows come in pairs, one with huge pages and one without, next to each other in time: whatever slows the machine for longer than a pair slows
//! both. Which comes first is drawn anew for each pair, so a rhythm of the machine favors neither. What is compared is work for each second of the
//! program's CPU time; a busy neighbor takes time from the program, and hardly work from its CPU time.

pub mod crossover;
mod interval;
pub mod judge;
pub mod meter;
mod remedy;
pub mod replicas;
mod settle;

pub use crossover::{
    Arm, CountedCycles, ProcessorCounts, Trial, TrialEnd, TrialError, TrialRules, TrialWindow, UnderTrial, WorkReading,
    run,
};
pub use interval::{PairedDifferences, SpeedChange};
pub use judge::{TrialVerdict, is_known, judge, time_until};
pub use remedy::{Moved, Remedy, remedy};
