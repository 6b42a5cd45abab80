//! Whether a large program is observed completely, or by a sample first.
//!
//! Owns: this choice, a pure function of earlier observations. Never touches: how a sample is drawn or used.
//!
//! Observing costs a program by the pages that it walks again, and thus by its size. A sample costs the same for any size, and suffices to show that
//! a program spends next to no time on page walks, or that nothing has changed since it was observed completely.
//!
//! A program that may be slowed down only a little is observed slowly. A pilot of many programs does not wait minutes for a complete observation of a
//! large one: it observes as much as time allows, and acts on that.

use std::hash::{BuildHasher, RandomState};

use heat::units::{Bytes, Nanos};
use heat::{Coverage, Estimate, Heat};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use observe::{ObserveError, ObserveOptions};

use crate::decide::Limits;
use crate::world::World;

/// The sample size. A program with up to four times as many base pages is observed completely.
const SAMPLE: Bytes = Bytes(2 << 30);
/// A pilot of many programs observes one for no longer than this, except that a complete observation may take up to four times as long.
const LONGEST: Nanos = Nanos(15_000_000_000);
/// Rates scatter by a fifth from one observation to the next even when everything is observed.
const RISES: f64 = 1.25;

/// What is known of a program from earlier complete observations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Known {
    /// Nothing: it was never observed completely, or has become another program.
    #[default]
    Nothing,
    /// The last one led to a promotion; the next one may, too.
    Changing,
    /// The last one led to nothing; it saw this many page walks a second on base pages.
    Steady(f64),
}

/// How much is observed when that may lead to a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Most {
    /// All of it, however long that takes.
    Everything,
    /// As much as time allows.
    InTime,
}

impl Most {
    fn coverage(self) -> Coverage {
        match self {
            Most::Everything => Coverage::Everything,
            Most::InTime => in_time(LONGEST),
        }
    }
}

/// Enough for an overall figure, at a cost that does not grow with the program.
pub(super) fn some() -> Coverage {
    match in_time(LONGEST) {
        Coverage::Sample { longest, seed, .. } => Coverage::Sample { size: SAMPLE, longest, seed },
        everything => everything,
    }
}

/// As much as can be observed in so long; all of it if that takes four times as long at most.
pub(super) fn in_time(longest: Nanos) -> Coverage {
    // A different draw each time: what one misses, the next may catch.
    Coverage::Sample { size: Bytes(u64::MAX), longest: Some(longest), seed: RandomState::new().hash_one(0) }
}

impl Known {
    /// How to observe it next.
    fn coverage(self, most: Most) -> Coverage {
        match self {
            Known::Changing => most.coverage(),
            Known::Nothing | Known::Steady(_) => some(),
        }
    }

    /// Whether a sample's result calls for observing as much as possible now; not if everything was observed.
    fn calls_for_everything(self, heat: &Heat) -> bool {
        heat.sample.is_some_and(|sample| {
            is_worth_it(sample.walks_per_second, heat.busy_cpus)
                && match self {
                    Known::Nothing | Known::Changing => true,
                    Known::Steady(walks) => sample.walks_per_second.low() > walks * RISES,
                }
        })
    }

    /// What is known after this observation; `acted`: whether it led to a promotion.
    pub(super) fn after(self, heat: &Heat, acted: bool) -> Self {
        match (heat.sample, acted) {
            (_, true) => Known::Changing,
            // There was no time for more.
            (Some(sample), false) if self == Known::Changing || self.calls_for_everything(heat) => {
                Known::Steady(sample.walks_per_second.value)
            }
            (Some(_), false) => self,
            (None, false) => {
                let base = heat.regions.iter().filter(|region| !region.huge);
                Known::Steady(base.map(|region| region.walks_per_second).sum())
            }
        }
    }
}

/// Whether page walks may take enough of the program's time that promoting could pay, as [`crate::decide::decide`] judges it.
fn is_worth_it(walks_per_second: Estimate, busy_cpus: Option<f64>) -> bool {
    let share = |busy: f64| walks_per_second.high() * Limits::WALK_COST.seconds() / busy;
    busy_cpus.filter(|&busy| busy > 0.0).is_none_or(|busy| share(busy) >= Limits::MIN_WALK_SHARE)
}

/// Observes a program: a large one first by a sample, and then as much as allowed if the sample calls for it.
pub(super) fn observe(
    world: &mut dyn World,
    process: Process,
    options: &ObserveOptions,
    known: Known,
    most: Most,
    stop: &Stop,
) -> Result<Heat, ObserveError> {
    let heat = world.observe(process, &ObserveOptions { coverage: known.coverage(most), ..*options }, stop)?;
    if !known.calls_for_everything(&heat) {
        return Ok(heat);
    }
    let mut whole = world.observe(process, &ObserveOptions { coverage: most.coverage(), ..*options }, stop)?;
    whole.cost.program += heat.cost.program;
    whole.cost.kernel += heat.cost.kernel;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use heat::Sample;
    use heat::samples::{heat_of, huge, region};

    use super::*;

    /// A sample that found this many walks a second, give or take a tenth.
    fn sampled(walks_per_second: f64) -> Heat {
        let walks_per_second = Estimate { value: walks_per_second, error: 0.1 * walks_per_second };
        let sample =
            Sample { observed: SAMPLE, of: Bytes(64 << 30), walks_per_second, pages_walked: Estimate::default() };
        Heat { sample: Some(sample), ..heat_of(Vec::new()) }
    }

    #[test]
    fn an_unknown_program_is_observed_wholly_where_page_walks_may_take_time() {
        // 0.2 % of one CPU are 66,667 walks a second at 30 ns; the upper bound is a fifth above the figure.
        assert!(!Known::Nothing.calls_for_everything(&sampled(55e3)));
        assert!(Known::Nothing.calls_for_everything(&sampled(56e3)));
        assert!(Known::Nothing.calls_for_everything(&Heat { busy_cpus: Some(0.1), ..sampled(6e3) }));
        assert!(
            Known::Nothing.calls_for_everything(&Heat { busy_cpus: None, ..sampled(1.0) }),
            "unknown is not little"
        );
        assert!(!Known::Nothing.calls_for_everything(&heat_of(vec![region(0, 1e9, 0)])), "it was");
    }

    #[test]
    fn a_steady_program_is_observed_wholly_when_its_walks_have_risen() {
        let steady = Known::Steady(1e6);
        // Even two standard errors below, it must still be a quarter more.
        assert!(!steady.calls_for_everything(&sampled(1.55e6)));
        assert!(steady.calls_for_everything(&sampled(1.57e6)));
        assert!(!Known::Steady(0.0).calls_for_everything(&sampled(55e3)), "risen, but to what is next to nothing");
    }

    #[test]
    fn while_promoting_goes_on_as_much_as_may_be_is_observed() {
        assert_eq!(Known::Changing.coverage(Most::Everything), Coverage::Everything);
        let in_time = |known: Known| match known.coverage(Most::InTime) {
            Coverage::Sample { size, longest: Some(LONGEST), .. } => size,
            other => panic!("{other:?}"),
        };
        assert_eq!((in_time(Known::Changing), in_time(Known::Nothing)), (Bytes(u64::MAX), SAMPLE));
        let draw = || Known::Steady(1.0).coverage(Most::InTime);
        assert_ne!(draw(), draw(), "another draw each time");
        let whole = heat_of(vec![region(0, 7e3, 0), huge(1, 9e9), region(2, 1e3, 0)]);
        assert_eq!(Known::Nothing.after(&whole, true), Known::Changing);
        assert_eq!(Known::Changing.after(&whole, false), Known::Steady(8e3));
        assert_eq!(Known::Steady(1e9).after(&sampled(1e9), false), Known::Steady(1e9));
        assert_eq!(Known::Steady(5.0).after(&sampled(1e9), false), Known::Steady(1e9), "as much as there was time for");
        assert_eq!(Known::Changing.after(&sampled(1.0), false), Known::Steady(1.0));
        assert_eq!(Known::Nothing.after(&sampled(1.0), false), Known::Nothing);
        assert_eq!(Known::Steady(5.0).after(&sampled(1e9), true), Known::Changing, "a sample may lead to a promotion");
    }
}
