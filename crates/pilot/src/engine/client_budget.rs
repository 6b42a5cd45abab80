//! The share of the CPU time that observing clients may take.
//!
//! Owns: an account for each user who has clients. Never touches: the account of all CPU time ([`crate::engine::Budget`]), to which the same
//! time is charged.
//!
//! Clients take at most half of it, in equal parts for each user: no user can take from another, and whoever is a target has the other half,
//! however many clients there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use heat::units::{CpuShare, Nanos};

/// Of the CPU time for observing.
const SHARE: f64 = 0.5;

/// When each user's clients may be scanned again.
#[derive(Debug, Default)]
pub(super) struct ClientBudget {
    free_at: BTreeMap<u32, Option<Instant>>,
}

impl ClientBudget {
    /// Forgets users who have no clients any more; who comes anew is free.
    pub(super) fn divide_among(&mut self, users: &BTreeSet<u32>) {
        self.free_at.retain(|user, _| users.contains(user));
        users.iter().for_each(|user| _ = self.free_at.entry(*user).or_default());
    }

    pub(super) fn is_free(&self, user: u32, now: Instant) -> bool {
        self.free_at.get(&user).copied().flatten().is_none_or(|free_at| free_at <= now)
    }

    /// Enters what was spent for a client of this user, of the share for all observing.
    pub(super) fn charge(&mut self, user: u32, spent: Nanos, share: CpuShare, now: Instant) {
        let own = CpuShare(share.0 * SHARE / self.free_at.len().max(1) as f64);
        let free_at = self.free_at.entry(user).or_default();
        *free_at = Some(free_at.map_or(now, |free_at| free_at.max(now)) + own.rest_after(spent));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn users_have_equal_parts_of_the_half() {
        let (now, share) = (Instant::now(), CpuShare(0.02));
        let mut budget = ClientBudget::default();
        budget.divide_among(&BTreeSet::from([1, 2]));
        budget.charge(1, Nanos(10_000_000), share, now);
        assert!(!budget.is_free(1, now + 2 * SECOND - SECOND / 10) && budget.is_free(1, now + 2 * SECOND), "of 0.5 %");
        assert!(budget.is_free(2, now), "another user's account");
        budget.charge(2, Nanos(10_000_000), share, now);
        budget.charge(2, Nanos(10_000_000), share, now);
        assert!(!budget.is_free(2, now + 3 * SECOND) && budget.is_free(2, now + 4 * SECOND), "debts add up");
        budget.divide_among(&BTreeSet::from([1]));
        budget.charge(1, Nanos(10_000_000), share, now + 9 * SECOND);
        assert!(budget.is_free(1, now + 10 * SECOND), "alone it has the whole half, and saves nothing up");
        assert!(budget.is_free(2, now), "who left is forgotten");
    }
}
