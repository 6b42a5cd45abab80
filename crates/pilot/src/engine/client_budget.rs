//! The share of the CPU time and of the loop's time that observing clients may take, and the memory that it may take.
//!
//! Owns: an account for each user with clients, one for all but root together, and each client's part of the memory. Never touches: the account of all CPU time
//! ([`crate::engine::Budget`]), to which the same time is charged.
//!
//! While there are targets, clients take at most half of it, in equal parts for each user: no user can take from another, and targets keep the other
//! half, however many clients there are. All but root's together have no more, so that many user ids of one person have no more either. A scan mostly waits,
//! and nobody else is scanned meanwhile, so the same holds for the time that it takes. As in the account of all CPU time, a user's unspent time is saved
//! up: a program that has just begun needs several lists at once.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;
use std::time::Instant;

use heat::units::{Bytes, CpuShare, Nanos};

use crate::engine::budget::Account;

const ROOT: u32 = 0;
/// The clients' part of the CPU time for observing, while there are targets.
const BESIDE_TARGETS: f64 = 0.5;
/// The clients' part of the loop's time, while there are targets.
const TIME_BESIDE_TARGETS: CpuShare = CpuShare(0.15);
/// The most regions of a client, by its page tables: those of 128 GiB.
pub(super) const MOST_REGIONS: u64 = 1 << 16;
/// What all clients may take, of the 256 MiB that the shipped unit allows: each region takes some 300 bytes while its pages are read.
const OF_ALL: Room = Room { list: Bytes(64 << 20), regions: 4 * MOST_REGIONS };
/// What one user's clients may take.
const OF_ONE: Room = Room { list: Bytes(16 << 20), regions: MOST_REGIONS };

/// Memory of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// Of lists that were written.
    pub(super) list: Bytes,
    /// Regions whose pages are being read.
    pub(super) regions: u64,
}

impl Room {
    /// The room for a client. For its list: its part of what its user's lists may take, if so much is left of all. For its regions: what its user's
    /// other clients leave. `of_user` is the number of this user's clients, `taken_by_user` what the other ones take, and `taken` what all others take.
    pub(super) fn of_client(users: usize, of_user: usize, taken_by_user: Room, taken: Room) -> Room {
        let users = users.max(1) as u64;
        let of_one = OF_ONE.list.0.min(OF_ALL.list.0 / users);
        // What others of the user took when there were fewer of them is taken.
        let list = (of_one / of_user.max(1) as u64).min(of_one.saturating_sub(taken_by_user.list.0));
        let regions = OF_ONE.regions.min(OF_ALL.regions / users).saturating_sub(taken_by_user.regions);
        Room {
            list: Bytes(list.min(OF_ALL.list.0.saturating_sub(taken.list.0))),
            regions: regions.min(OF_ALL.regions.saturating_sub(taken.regions)),
        }
    }
}

impl Sum for Room {
    fn sum<I: Iterator<Item = Room>>(rooms: I) -> Room {
        rooms.fold(Room::default(), |sum, each| Room {
            list: Bytes(sum.list.0 + each.list.0),
            regions: sum.regions + each.regions,
        })
    }
}

/// When each user's clients may be scanned again.
#[derive(Debug, Default)]
pub(super) struct ClientBudget {
    /// Each user's share of CPU time, and of the loop's time.
    share: CpuShare,
    time_share: CpuShare,
    accounts: BTreeMap<u32, ClientAccount>,
    /// The shares of all together, and what all but root's clients took: one person may have thousands of user ids (man 5 subuid), each with a new
    /// account.
    all: (CpuShare, CpuShare),
    everyone: Option<ClientAccount>,
}

/// What clients took.
#[derive(Debug)]
struct ClientAccount {
    cpu: Account,
    time: Account,
}

impl ClientAccount {
    fn new(now: Instant) -> Self {
        Self { cpu: Account::usual(now), time: Account::unsaved(now) }
    }

    fn is_free(&self, now: Instant) -> bool {
        self.cpu.is_free(now) && self.time.is_free(now)
    }

    /// Whether it is as a new one.
    fn owes_nothing(&self, now: Instant) -> bool {
        self.cpu.is_full(now) && self.time.is_free(now)
    }

    fn enter(&mut self, (cpu, time): (CpuShare, CpuShare), spent: Nanos, took: Nanos, now: Instant) {
        self.cpu.enter(cpu.rest_after(spent), now);
        self.time.enter(time.rest_after(took), now);
    }
}

impl ClientBudget {
    /// Divides the share among users with clients. A user without clients is forgotten only once a new account would be no better; otherwise leaving
    /// and coming back would cancel the debt.
    pub(super) fn divide(&mut self, all: CpuShare, has_targets: bool, users: &BTreeSet<u32>, now: Instant) {
        self.accounts.retain(|user, account| users.contains(user) || !account.owes_nothing(now));
        users.iter().for_each(|user| _ = self.accounts.entry(*user).or_insert_with(|| ClientAccount::new(now)));
        let (part, time) = if has_targets { (BESIDE_TARGETS, TIME_BESIDE_TARGETS) } else { (1.0, CpuShare(1.0)) };
        let of_each = |share: f64| CpuShare(share / users.len().max(1) as f64);
        (self.share, self.time_share) = (of_each(all.0 * part), of_each(time.0));
        self.all = (CpuShare(all.0 * part), time);
    }

    pub(super) fn is_free(&self, user: u32, now: Instant) -> bool {
        let is_free = |account: &ClientAccount| account.is_free(now);
        self.accounts.get(&user).is_none_or(is_free) && (user == ROOT || self.everyone.as_ref().is_none_or(is_free))
    }

    /// Enters what a client of this user has cost: CPU time, and time of the loop.
    pub(super) fn charge(&mut self, user: u32, spent: Nanos, time: Nanos, now: Instant) {
        if let Some(account) = self.accounts.get_mut(&user) {
            account.enter((self.share, self.time_share), spent, time, now);
        }
        if user != ROOT {
            self.everyone.get_or_insert_with(|| ClientAccount::new(now)).enter(self.all, spent, time, now);
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
        budget.charge(1, earned_in(29, 0.25), Nanos(0), now);
        assert_eq!((free_after(&budget, 1, now), free_after(&budget, 2, now)), (0, 0), "half a minute is saved up");
        budget.charge(1, earned_in(3, 0.25), Nanos(0), now);
        assert_eq!((free_after(&budget, 1, now), free_after(&budget, 2, now)), (2, 0), "each has an account");
        budget.charge(1, earned_in(4, 0.25), Nanos(0), now);
        assert_eq!(free_after(&budget, 1, now), 6, "debts add up");
        budget.divide(ALL, true, &BTreeSet::from([1]), now);
        budget.charge(1, earned_in(4, 0.5), Nanos(0), now);
        assert_eq!(free_after(&budget, 1, now), 10, "alone it has the whole half");
        budget.divide(ALL, false, &BTreeSet::from([1]), now);
        budget.charge(1, earned_in(4, 1.0), Nanos(0), now);
        assert_eq!(free_after(&budget, 1, now), 14, "and without targets all");
    }

    #[test]
    fn users_have_equal_parts_of_the_time() {
        let now = Instant::now();
        let mut budget = ClientBudget::default();
        budget.divide(ALL, true, &BTreeSet::from([1, 2]), now);
        budget.charge(1, Nanos(0), Nanos(300_000_000), now);
        assert_eq!(
            (free_after(&budget, 1, now), free_after(&budget, 2, now)),
            (4, 2),
            "nothing is saved up, and all wait for all"
        );
        let mut budget = ClientBudget::default();
        budget.divide(ALL, false, &BTreeSet::from([2]), now);
        budget.charge(2, Nanos(0), Nanos(3_000_000_000), now);
        assert_eq!(free_after(&budget, 2, now), 3, "without targets it is all theirs");
    }

    #[test]
    fn clients_share_a_memory_that_has_a_bound() {
        const MIB: u64 = 1 << 20;
        let nothing = Room::default();
        assert_eq!(Room::of_client(1, 1, nothing, nothing), OF_ONE);
        let lists = |users, of_user, taken| {
            Room::of_client(users, of_user, nothing, Room { list: Bytes(taken), regions: 0 }).list
        };
        assert_eq!(lists(4, 8, 0), Bytes(2 * MIB), "a user's clients share");
        assert_eq!(lists(64, 1, 0), Bytes(MIB), "users share");
        assert_eq!(lists(1, 1, OF_ALL.list.0 - 5), Bytes(5), "what others have is taken");
        assert_eq!(lists(1, 1, OF_ALL.list.0 + 5), Bytes(0));
        let taken_by_user = Room { list: Bytes(15 * MIB), regions: 0 };
        assert_eq!(
            Room::of_client(1, 2, taken_by_user, taken_by_user).list,
            Bytes(MIB),
            "the first took more than half"
        );
        let regions = |users, of_user, of_all| {
            let taken = |regions| Room { list: Bytes(0), regions };
            Room::of_client(users, 1, taken(of_user), taken(of_all)).regions
        };
        assert_eq!(regions(3, 0, 2 * MOST_REGIONS), MOST_REGIONS, "a few large ones are read at once");
        assert_eq!(regions(8, 0, 0), MOST_REGIONS / 2, "users share");
        assert_eq!(regions(1, MOST_REGIONS - 7, MOST_REGIONS - 7), 7, "a user's clients wait for each other");
        assert_eq!(regions(1, 0, OF_ALL.regions - 9), 9);
    }

    #[test]
    fn who_leaves_and_comes_back_still_owes() {
        let now = Instant::now();
        let (mut budget, user) = (ClientBudget::default(), BTreeSet::from([1]));
        budget.divide(ALL, true, &user, now);
        budget.charge(1, earned_in(40, 0.5), Nanos(0), now);
        budget.divide(ALL, true, &BTreeSet::new(), now + 11 * SECOND);
        budget.divide(ALL, true, &user, now + 11 * SECOND);
        budget.charge(1, earned_in(3, 0.5), Nanos(0), now + 11 * SECOND);
        assert_eq!(free_after(&budget, 1, now), 13, "what was saved up before is spent");
        budget.divide(ALL, true, &BTreeSet::new(), now + 44 * SECOND);
        assert!(budget.accounts.is_empty(), "a new account would be as full");
        budget.divide(CpuShare(0.5), true, &user, now + 50 * SECOND);
        budget.charge(1, Nanos(0), Nanos(3_000_000_000), now + 50 * SECOND);
        budget.divide(CpuShare(0.5), true, &BTreeSet::new(), now + 51 * SECOND);
        budget.divide(CpuShare(0.5), true, &user, now + 51 * SECOND);
        assert_eq!(free_after(&budget, 1, now + 51 * SECOND), 19, "time of the loop, too");
    }

    #[test]
    fn many_user_ids_have_no_more_than_all_together() {
        let now = Instant::now();
        let mut budget = ClientBudget::default();
        for user in 1..=100 {
            budget.divide(ALL, true, &BTreeSet::from([0, user, user + 1]), now);
            budget.charge(user, Nanos(0), Nanos(150_000_000), now);
        }
        budget.divide(ALL, true, &BTreeSet::from([0, 777]), now);
        assert_eq!(
            free_after(&budget, 777, now),
            60,
            "a new user waits for the debt of all, which is a minute at most"
        );
        assert!(budget.is_free(ROOT, now), "root does not");
    }
}
