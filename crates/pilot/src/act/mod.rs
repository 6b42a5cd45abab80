//! Act: carry a plan out, in bounded steps that can be stopped.
//!
//! Owns: the order and the pace of steps, and the result of each. Never touches: the choice of what to change, or the calls to the kernel; the world
//! makes them.

mod pace;
mod result;
mod steps;
mod times;

pub use pace::Pacer;
pub use result::{Action, Outcome, Refusal, RegionResult};
pub use steps::{ActBounds, give_back, promote};
pub use times::Times;
