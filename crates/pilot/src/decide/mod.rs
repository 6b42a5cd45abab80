//! Decide: which regions should be on huge pages, and why?
//!
//! Owns: limits, plans, the pure function from heat to plan, and the estimate of what a plan gains. Never touches: the system; it imports only units,
//! heat and the uses of memory, and the same input gives the same plan.

mod back_off;
mod budget;
mod choose;
mod churn;
mod estimate;
mod guest;
mod keep;
mod limits;
mod past;
mod plan;
mod settling;
mod share;
mod throttle;
mod trend;

pub use back_off::{BackOff, Collapse, OwnPressure};
pub use choose::{claim, decide, give_back_on_request};
pub use estimate::{GainPercent, SavedWork, expected_gain};
pub use guest::{GuestBlock, GuestMemory};
pub use limits::{Allowance, GrowthLimit, Limits, Spent};
pub use past::{HeldRegion, Past};
pub use plan::{Decision, Plan, PlanReasons, Reason, Verdict};
pub use share::{Demand, Fairness, divide};
pub use throttle::{Throttle, WhoWaits};
pub use trend::Trend;
