//! The share of the CPU time that observing clients may take.
//!
//! Owns: an account for each user who has clients. Never touches: the account of all CPU time ([`crate::engine::Budget`]), to which the same
//! time is charged.
//!
//! Beside targets clients take at most half of it, in equal parts for each user: no user can take from another, and whoever is a target has
//! the other half, however many clients there are. As there, what was not spent is saved up for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use heat::units::{CpuShare, Nanos};

use crate::engine::budget::SAVED_UP;

/// Of the CPU time for observing, where there are targets, too.
const SHARE: f64 = 0.5;

/// When each user's clients may be scanned again.
#[derive(Debug, Default)]
pub(super) struct ClientBudget {
    /// Of each user.
    share: CpuShare,
    free_at: BTreeMap<u32, Instant>,
}

impl ClientBudget {
    /// Divides the share of all observing among users who have clients. Those who have none any more are forgotten.
    pub(super) fn divide(&mut self, all: CpuShare, beside_targets: bool, users: &BTreeSet<u32>, now: Instant) {
        self.free_at.retain(|user, _| users.contains(user));
        users.iter().for_each(|user| _ = self.free_at.entry(*user).or_insert(saved_from(now)));
        let clients = if beside_targets { all.0 * SHARE } else { all.0 };
        self.share = CpuShare(clients / users.len().max(1) as f64);
    }

    pub(super) fn is_free(&self, user: u32, now: Instant) -> bool {
        self.free_at.get(&user).is_none_or(|free_at| *free_at <= now)
    }

    /// Enters what was spent for a client of this user.
    pub(super) fn charge(&mut self, user: u32, spent: Nanos, now: Instant) {
        if let Some(free_at) = self.free_at.get_mut(&user) {
            *free_at = saved_from(now).max(*free_at) + self.share.rest_after(spent);
        }
    }
}

/// What was not spent before is lost.
fn saved_from(now: Instant) -> Instant {
    now.checked_sub(SAVED_UP).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ALL: CpuShare = CpuShare(0.02);

    /// When a user is free, in seconds from a moment on.
    fn free_after(budget: &ClientBudget, user: u32, now: Instant) -> u64 {
        (0..).find(|&seconds| budget.is_free(user, now + Duration::from_secs(seconds))).expect("some time")
    }

    #[test]
    fn users_have_equal_parts_of_the_half_and_save_up() {
        let now = Instant::now() + SAVED_UP;
        let mut budget = ClientBudget::default();
        budget.divide(ALL, true, &BTreeSet::from([1, 2]), now);
        budget.charge(1, Nanos(150_000_000), now);
        assert!(budget.is_free(1, now), "30 s of half a per cent were saved up");
        budget.charge(1, Nanos(10_000_000), now);
        assert_eq!((free_after(&budget, 1, now), free_after(&budget, 2, now)), (2, 0), "each has an account");
        budget.divide(ALL, true, &BTreeSet::from([1]), now);
        budget.charge(1, Nanos(10_000_000), now + 2 * SECOND);
        assert_eq!(free_after(&budget, 1, now), 3, "alone it has the whole half");
        budget.divide(ALL, false, &BTreeSet::from([1]), now);
        budget.charge(1, Nanos(20_000_000), now + 3 * SECOND);
        assert_eq!(free_after(&budget, 1, now), 4, "and without targets all");
        budget.charge(2, Nanos(900_000_000), now);
        assert!(budget.is_free(2, now), "who left is forgotten");
    }
}
