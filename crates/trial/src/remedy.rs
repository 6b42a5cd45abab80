//! What would have let a trial that ended with too few pairs have an answer.
//!
//! Owns: these times, from what was measured. Never touches: words, or the program.

use heat::units::{Nanos, Slowdown};

use crate::crossover::{Trial, TrialRules};

/// Pairs in which most gains that are worth it are found.
const ENOUGH_PAIRS: u64 = 8;

/// How memory last moved to huge pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// The share of the memory that was reached, above 0 and up to 1.
    pub share: f64,
    /// How long that took.
    pub took: Nanos,
    /// The part of it in which pages were prepared and collapsed: no pace makes it shorter.
    pub busy: Nanos,
    /// How much the program might be slowed down.
    pub max_slowdown: Slowdown,
    /// Whether less of that was used, because programs waited.
    pub is_reduced: bool,
}

/// How long a trial must be to have enough pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// As it went.
    pub as_it_went: Nanos,
    /// With memory moved as fast as [`Slowdown::FAST`] allows; None where that is hardly faster.
    pub fast: Option<Nanos>,
}

impl Moved {
    /// How long it takes for all memory.
    pub fn all(&self) -> Nanos {
        self.of_all(self.took)
    }

    /// The same where the program may be slowed down by [`Slowdown::FAST`].
    fn all_fast(&self) -> Nanos {
        let faster = (self.max_slowdown.0 / Slowdown::FAST.0).min(1.0);
        self.of_all(Nanos((self.took.0 as f64 * faster) as u64).max(self.busy.min(self.took)))
    }

    fn of_all(&self, part: Nanos) -> Nanos {
        Nanos((part.0 as f64 / self.share.max(f64::MIN_POSITIVE)) as u64)
    }
}

/// What would have given a trial by these rules enough pairs. `moved`: None where no memory was.
pub fn remedy(trial: &Trial, rules: &TrialRules, moved: Option<&Moved>) -> Remedy {
    let end_of =
        |windows: &[crate::TrialWindow]| windows.last().map_or(Nanos(0), |last| last.began_ns + last.elapsed_ns);
    let before = end_of(&trial.own);
    let moving = moved.map_or(Nanos(0), Moved::all);
    let pair = match trial.by_cpu.pairs() as u64 {
        0 => rules.shortest_pair(moving),
        pairs => Nanos(end_of(&trial.windows).saturating_sub(before).0 / pairs),
    };
    let enough = |pair: Nanos| before + Nanos(pair.0.saturating_mul(ENOUGH_PAIRS));
    let fast = moved.map(|moved| {
        let moving_fast = moved.all_fast();
        pair.saturating_sub(moving.saturating_sub(moving_fast)).max(rules.shortest_pair(moving_fast))
    });
    let as_it_went = enough(pair);
    Remedy { as_it_went, fast: fast.map(enough).filter(|fast| fast.0 < as_it_went.0 / 4 * 3) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crossover::{Arm, TrialWindow};

    const SECOND: u64 = 1_000_000_000;

    fn rules() -> TrialRules {
        TrialRules {
            window: Some(Nanos(10 * SECOND)),
            limit: Nanos(600 * SECOND),
            precision: None,
            own_pages: false,
            too_little_work: 0.0,
            without_work: "",
        }
    }

    /// A third of the memory in five minutes.
    fn third() -> Moved {
        let (took, busy) = (Nanos(300 * SECOND), Nanos(9 * SECOND));
        Moved { share: 1.0 / 3.0, took, busy, max_slowdown: Slowdown(0.05), is_reduced: false }
    }

    fn window(arm: Arm, began: u64) -> TrialWindow {
        let (cpu_ns, elapsed_ns) = (Nanos(SECOND), Nanos(10 * SECOND));
        let (memory_bytes, processor) = (heat::units::Bytes(1), None);
        TrialWindow { arm, began_ns: Nanos(began * SECOND), elapsed_ns, cpu_ns, work: 1.0, memory_bytes, processor }
    }

    #[test]
    fn a_promotion_that_was_not_over_tells_how_long_all_takes() {
        let found = remedy(&Trial::default(), &rules(), Some(&third()));
        // 900 s to move it, two windows of 10 s and two times 1 s to settle.
        assert_eq!(found.as_it_went, Nanos(8 * 922 * SECOND));
        let fast = found.fast.expect("an eighth of the time");
        assert!(fast.0.abs_diff(8 * (900 / 8 + 22) * SECOND) < 20 * SECOND, "{fast}");
        let busy = Moved { busy: Nanos(299 * SECOND), ..third() };
        assert_eq!(remedy(&Trial::default(), &rules(), Some(&busy)).fast, None, "no pace helps");
        let already = Moved { max_slowdown: Slowdown::FAST, ..third() };
        assert_eq!(remedy(&Trial::default(), &rules(), Some(&already)).fast, None);
    }

    #[test]
    fn pairs_that_were_measured_tell_how_long_more_take() {
        let mut trial = Trial { own: vec![window(Arm::Base, 0)], ..Trial::default() };
        trial.windows = vec![window(Arm::Huge, 120), window(Arm::Base, 200)];
        trial.by_cpu.add(1.0, 1.0);
        // The second promotion was under way.
        trial.elapsed = Nanos(600 * SECOND);
        let moved = Moved { share: 1.0, took: Nanos(100 * SECOND), ..third() };
        let found = remedy(&trial, &rules(), Some(&moved));
        assert_eq!(found.as_it_went, Nanos((10 + 8 * 200) * SECOND));
        let fast = found.fast.expect("an eighth of the time");
        assert!(fast.0.abs_diff((10 + 8 * 113) * SECOND) < 10 * SECOND, "{fast}");
        assert_eq!(remedy(&trial, &rules(), None).fast, None, "a placebo moves nothing");
    }
}
