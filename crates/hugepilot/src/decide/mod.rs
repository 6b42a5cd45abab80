//! Decide: which regions should be on huge pages, and why?
//!
//! Owns: limits, plans and the pure function from heat to plan. Never touches: the system; it imports units and heat,
//! nothing else, and the same input gives the same plan.

mod plan;

pub use plan::{Decision, Limits, Plan, Reason, Verdict};
