//! The share of the CPU time that observing clients may take.
//!
//! Owns: an account for each user with clients. Never touches: the account of all CPU time ([`crate::engine::Budget`]), to which the same time is
//! charged.
//!
//! While there are targets, clients take at most half of it, in equal parts for each user: no user can take from another, and targets keep the other
//! half, however many clients there are. As in the account of all CPU time, a user's unspent time is saved up: a program that has just begun needs
//! several lists at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use heat::units::{CpuShare, Nanos};

use crate::engine::budget::Account;

/// The clients' part of the CPU time for observing, while there are targets.
const BESIDE_TARGETS: f64 = 0.5;

/// When each user's clients may be scanned again.
#[derive(Debug, Default)]
pub(super) struct ClientBudget {
    /// Each user's share.
    share: CpuShare,
    accounts: BTreeMap<u32, Account>,
}

impl ClientBudget {
    /// Divides the share among users with clients. A user without clients is forgotten only once a new account would be no better; otherwise leaving
    /// and coming back would cancel the debt.
    pub(super) fn divide(&mut self, all: CpuShare, has_targets: bool, users: &BTreeSet<u32>, now: Instant) {
        self.accounts.retain(|user, account| users.contains(user) || !account.is_full(now));
        users.iter().for_each(|user| _ = self.accounts.entry(*user).or_insert_with(|| Account::usual(now)));
        let part = if has_targets { BESIDE_TARGETS } else { 1.0 };
        self.share = CpuShare(all.0 * part / users.len().max(1) as f64);
    }

    pub(super) fn is_free(&self, user: u32, now: Instant) -> bool {
        self.accounts.get(&user).is_none_or(|account| account.is_free(now))
    }

    /// Enters what was spent for a client of this user.
    pub(super) fn charge(&mut self, user: u32, spent: Nanos, now: Instant) {
        if let Some(account) = self.accounts.get_mut(&user) {
            account.enter(self.share.rest_after(spent), now);
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

    /// What a part of the share earns in this many seconds.
    fn earned_in(seconds: u64, part: f64) -> Nanos {
        Nanos((seconds as f64 * ALL.0 * part * 1e9) as u64)
    }

    #[test]
    fn users_have_equal_parts_of_the_half() {
        let now = Instant::now();
        let mut budget = ClientBudget::default();
        budget.divide(ALL, true, &BTreeSet::from([1, 2]), now);
        budget.charge(1, earned_in(29, 0.25), now);
        assert_eq!((free_after(&budget, 1, now), free_after(&budget, 2, now)), (0, 0), "half a minute is saved up");
        budget.charge(1, earned_in(3, 0.25), now);
        assert_eq!((free_after(&budget, 1, now), free_after(&budget, 2, now)), (2, 0), "each has an account");
        budget.charge(1, earned_in(4, 0.25), now);
        assert_eq!(free_after(&budget, 1, now), 6, "debts add up");
        budget.divide(ALL, true, &BTreeSet::from([1]), now);
        budget.charge(1, earned_in(4, 0.5), now);
        assert_eq!(free_after(&budget, 1, now), 10, "alone it has the whole half");
        budget.divide(ALL, false, &BTreeSet::from([1]), now);
        budget.charge(1, earned_in(4, 1.0), now);
        assert_eq!(free_after(&budget, 1, now), 14, "and without targets all");
    }

    #[test]
    fn who_leaves_and_comes_back_still_owes() {
        let now = Instant::now();
        let (mut budget, user) = (ClientBudget::default(), BTreeSet::from([1]));
        budget.divide(ALL, true, &user, now);
        budget.charge(1, earned_in(40, 0.5), now);
        budget.divide(ALL, true, &BTreeSet::new(), now + 11 * SECOND);
        budget.divide(ALL, true, &user, now + 11 * SECOND);
        budget.charge(1, earned_in(3, 0.5), now + 11 * SECOND);
        assert_eq!(free_after(&budget, 1, now), 13, "what was saved up before is spent");
        budget.divide(ALL, true, &BTreeSet::new(), now + 44 * SECOND);
        assert!(budget.accounts.is_empty(), "a new account would be as full");
    }
}
