//! Steps: one region after the other, at a pace, until time is up.
//!
//! Owns: the order of steps and the rests between them. Never touches: the choice of regions, or what a step is.

use std::time::Instant;

use heat::units::Address;
use hugepilot_os::stop::Stop;
use kernel::target::Process;

use crate::act::pace::Pacer;
use crate::act::result::{Action, RegionResult};
use crate::world::{Candidate, Step, World};

/// The bounds of a turn of acting.
pub struct ActBounds {
    /// No step begins later: the plan is too old then.
    pub until: Instant,
    /// Ends it early.
    pub stop: Stop,
}

/// Promotes the regions in the order given, at this pace, until all are done or the turn or the process ends. Returns the result for each region
/// reached, and passes it to `progress`.
pub fn promote(
    world: &mut dyn World,
    process: Process,
    regions: &[Candidate],
    pacer: &mut Pacer,
    turn: &ActBounds,
    progress: &mut dyn FnMut(&RegionResult),
) -> Vec<RegionResult> {
    let mut results = Vec::new();
    for &region in regions {
        let next = pacer.next_step().max(world.now());
        if next >= turn.until || world.sleep_until(next, &turn.stop).is_err() {
            break;
        }
        let step = world.collapse(process, region, &turn.stop);
        if let Some(waited) = world.waited() {
            pacer.adapt(waited);
        }
        pacer.stepped(step.held_up, step.preparing, &step.result, world.now());
        if has_ended(region.start, Action::Promote, &step, &mut results, progress) {
            break;
        }
    }
    results
}

/// Splits the huge pages in these regions one after the other, until all are done, the process ends, or a stop is requested. A split takes less than
/// a millisecond, so it has no pace.
pub fn give_back(
    world: &mut dyn World,
    process: Process,
    regions: &[Address],
    stop: &Stop,
    progress: &mut dyn FnMut(&RegionResult),
) -> Vec<RegionResult> {
    let mut results = Vec::new();
    for &start in regions {
        let is_over = stop.requested()
            || has_ended(start, Action::GiveBack, &world.split(process, start), &mut results, progress);
        if is_over {
            break;
        }
    }
    results
}

/// Keeps the result of a step. Returns whether the process turned out to have ended.
fn has_ended(
    start: Address,
    action: Action,
    step: &Step,
    results: &mut Vec<RegionResult>,
    progress: &mut dyn FnMut(&RegionResult),
) -> bool {
    let result = RegionResult::of(start, action, step);
    progress(&result);
    results.push(result);
    result.target_exited()
}
