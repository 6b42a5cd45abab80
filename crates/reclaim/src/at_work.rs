//! A mechanism in use: when its next turn is, and what is due then.
//!
//! Owns: its pace, its last plan, and what other mechanisms have freed meanwhile. Never touches: memory.

use std::time::{Duration, Instant};

use heat::memory_use::ByUse;
use heat::units::{Bytes, Nanos};
use hugepilot_os::stop::Stop;

use crate::mechanism::{Effect, Mechanism, MechanismKind, ReclaimError};
use crate::policy::{Policies, ReclaimPlan, Stock, plan};

const SECOND: Duration = Duration::from_secs(1);

/// One mechanism.
pub(super) struct AtWork {
    mechanism: Box<dyn Mechanism>,
    next: Instant,
    stepped: Option<Instant>,
    /// What the mechanisms before it have freed since its last turn.
    freed: ByUse<Bytes>,
    plan: Option<ReclaimPlan>,
}

impl AtWork {
    /// Its first turn is due at once.
    pub fn begin(mechanism: Box<dyn Mechanism>) -> Self {
        Self { mechanism, next: Instant::now(), stepped: None, freed: ByUse::default(), plan: None }
    }

    pub fn kind(&self) -> MechanismKind {
        self.mechanism.kind()
    }

    pub fn mechanism(&self) -> &dyn Mechanism {
        &*self.mechanism
    }

    /// Its last plan.
    pub fn plan(&self) -> Option<&ReclaimPlan> {
        self.plan.as_ref()
    }

    /// Plans the next second; changes nothing else.
    pub fn preview(&mut self, policies: &Policies, stock: &Stock) {
        self.plan = Some(self.due(SECOND, policies, stock));
    }

    /// Does what is due if it is its turn. Other mechanisms have `freed` this much in this step; `stock` no longer
    /// contains it.
    ///
    /// Errors: as [`Mechanism::step`].
    pub fn step(
        &mut self,
        policies: &Policies,
        (stock, freed): (&Stock, &ByUse<Bytes>),
        stop: &Stop,
    ) -> Result<Vec<Effect>, ReclaimError> {
        self.freed = ByUse::of(|class| self.freed[class] + freed[class]);
        let now = Instant::now();
        if now < self.next {
            return Ok(Vec::new());
        }
        let pace = self.mechanism.pace();
        // On a fixed schedule, so a turn that is a little late does not delay the next.
        self.next = (self.next + pace).max(now);
        let elapsed = self.stepped.map_or(pace, |before| now - before);
        self.stepped = Some(now);
        let plan = self.due(self.mechanism.span(elapsed), policies, stock);
        self.freed = ByUse::default();
        let done = self.mechanism.step(&plan.batches, stop);
        self.plan = Some(plan);
        done
    }

    /// Stops it, and returns the remaining effects.
    ///
    /// Errors: as [`Mechanism::step`].
    pub fn finish(&mut self) -> Result<Vec<Effect>, ReclaimError> {
        self.mechanism.step(&[], &Stop::default())
    }

    fn due(&self, elapsed: Duration, policies: &Policies, stock: &Stock) -> ReclaimPlan {
        let all_due = policies.due(stock, Nanos::from_duration(elapsed));
        let due = ByUse::of(|class| all_due[class].saturating_sub(self.freed[class]));
        plan(policies, stock, &due, &self.mechanism.reach())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heat::memory_use::{MemoryUse, Uses};

    use super::*;
    use crate::mechanism::LONGEST_PAUSE;
    use crate::policy::{Batch, Preset};

    /// Does everything at once.
    struct Obedient(Duration);

    impl Mechanism for Obedient {
        fn kind(&self) -> MechanismKind {
            MechanismKind::DropBehind
        }

        fn pace(&self) -> Duration {
            self.0
        }

        fn reach(&self) -> Vec<Uses> {
            vec![[MemoryUse::UnmappedCache].into_iter().collect()]
        }

        fn step(&mut self, batches: &[Batch], _: &Stop) -> Result<Vec<Effect>, ReclaimError> {
            let effect = |batch: &crate::policy::Batch| Effect {
                uses: batch.uses,
                applied: batch.bytes,
                reclaimed: batch.bytes,
            };
            Ok(batches.iter().map(effect).collect())
        }

        fn counts(&self) -> BTreeMap<&'static str, u64> {
            BTreeMap::new()
        }
    }

    fn freed_by(at_work: &mut AtWork, freed: u64) -> Option<u64> {
        let mut stock = Stock { total: Bytes(1 << 30), ..Stock::default() };
        stock.held[MemoryUse::UnmappedCache] = Bytes(600 << 20);
        let freed = ByUse::of(|_| Bytes(freed));
        // A fifth per minute.
        let effects = at_work.step(&Preset::Database.policies(), (&stock, &freed), &Stop::default()).unwrap();
        effects.first().map(|effect| effect.reclaimed.0)
    }

    #[test]
    fn each_has_its_turn_at_its_own_pace() {
        let mut slow = AtWork::begin(Box::new(Obedient(Duration::from_secs(600))));
        assert_eq!(freed_by(&mut slow, 0), Some(10 << 20), "after five seconds at most");
        assert_eq!(freed_by(&mut slow, 0), None);
        let mut fast = AtWork::begin(Box::new(Obedient(Duration::ZERO)));
        assert_eq!(freed_by(&mut fast, 0), None, "nothing is due yet");
        std::thread::sleep(Duration::from_millis(20));
        assert!(freed_by(&mut fast, 0).is_some());
    }

    #[test]
    fn what_others_have_freed_since_its_last_turn_is_not_due() {
        let mut slow = AtWork::begin(Box::new(Obedient(Duration::from_secs(600))));
        assert_eq!(freed_by(&mut slow, 4 << 20), Some(6 << 20));
        assert_eq!((freed_by(&mut slow, 3 << 20), freed_by(&mut slow, 4 << 20)), (None, None));
        slow.next = Instant::now();
        slow.stepped = Instant::now().checked_sub(LONGEST_PAUSE);
        assert_eq!(freed_by(&mut slow, 1 << 20), Some(2 << 20), "of 10, less 3, 4 and 1");
    }
}
