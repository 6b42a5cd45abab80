//! The share of the CPU time that observing clients may take.
//!
//! Owns: an account for each user with clients. Never touches: the account of all CPU time ([`crate::engine::Budget`]), to which the same time is
//! charged.
//!
//! Clients take at most half of it, in equal parts for each user: no user can take from another, and targets keep the other half, however many
//! clients there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use heat::units::{CpuShare, Nanos};

/// The clients' part of the CPU time for observing.
const SHARE: f64 = 0.5;

/// When each user's clients may be scanned again.
#[derive(Debug, Default)]
pub(super) struct ClientBudget {
    /// Each user's share.
    share: CpuShare,
    free_at: BTreeMap<u32, Instant>,
}

impl ClientBudget {
    /// Divides the share among users with clients. A user without clients is forgotten only once nothing is owed; otherwise leaving and coming back
    /// would cancel the debt.
    pub(super) fn divide(&mut self, all: CpuShare, users: &BTreeSet<u32>, now: Instant) {
        self.free_at.retain(|user, free_at| users.contains(user) || *free_at > now);
        users.iter().for_each(|user| _ = self.free_at.entry(*user).or_insert(now));
        self.share = CpuShare(all.0 * SHARE / users.len().max(1) as f64);
    }

    pub(super) fn is_free(&self, user: u32, now: Instant) -> bool {
        self.free_at.get(&user).is_none_or(|free_at| *free_at <= now)
    }

    /// Enters what was spent for a client of this user; nothing is saved up.
    pub(super) fn charge(&mut self, user: u32, spent: Nanos, now: Instant) {
        if let Some(free_at) = self.free_at.get_mut(&user) {
            *free_at = now.max(*free_at) + self.share.rest_after(spent);
        }
    }
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
    fn users_have_equal_parts_of_the_half() {
        let now = Instant::now();
        let mut budget = ClientBudget::default();
        budget.divide(ALL, &BTreeSet::from([1, 2]), now);
        budget.charge(1, Nanos(10_000_000), now);
        assert_eq!((free_after(&budget, 1, now), free_after(&budget, 2, now)), (2, 0), "each has an account");
        budget.charge(2, Nanos(10_000_000), now);
        budget.charge(2, Nanos(10_000_000), now);
        assert_eq!(free_after(&budget, 2, now), 4, "debts add up");
        budget.divide(ALL, &BTreeSet::from([1]), now);
        budget.charge(1, Nanos(10_000_000), now + 9 * SECOND);
        assert_eq!(free_after(&budget, 1, now), 10, "alone it has the whole half, and saves nothing up");
    }

    #[test]
    fn who_leaves_and_comes_back_still_owes() {
        let now = Instant::now();
        let (mut budget, user) = (ClientBudget::default(), BTreeSet::from([1]));
        budget.divide(ALL, &user, now);
        budget.charge(1, Nanos(100_000_000), now);
        budget.divide(ALL, &BTreeSet::new(), now);
        budget.divide(ALL, &user, now);
        assert_eq!(free_after(&budget, 1, now), 10);
        budget.divide(ALL, &BTreeSet::new(), now + 11 * SECOND);
        assert!(budget.free_at.is_empty(), "nothing is owed any more");
    }
}
