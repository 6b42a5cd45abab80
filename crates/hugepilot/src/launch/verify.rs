//! What became of a wish: how much of the memory that could be huge was, by which mechanism, and why the rest was not.
//!
//! Owns: the account, a pure function of what was seen, done and counted. Never touches: the system, and the words of the report.

use std::collections::BTreeMap;

use super::counts::{InTheWay, Placed, Placing};
use super::machine::Machine;
use super::recipe::{Mechanism, Memory, Recipe};
use super::watch::{Sample, Seen};
use super::wish::Wish;
use crate::units::Bytes;

/// Who put memory on huge pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// One of the recipe's mechanisms, or several that cannot be told apart.
    Recipe(Vec<Mechanism>),
    /// The pilot, from outside.
    Pilot,
    /// The program, or the kernel by itself.
    Itself,
}

/// Why memory was not on huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Transparent huge pages were switched off.
    SwitchedOff,
    /// The pool had nothing to give out when the program started.
    PoolEmpty,
    /// The pool had nothing left at some time.
    PoolUsedUp,
    /// The preload library was hindered.
    Hindered(InTheWay),
    /// No mechanism reaches that memory.
    NotReached(Vec<String>),
    /// It comes in pieces too small, or was mapped by the program itself past all mechanisms; and it is walked too little for the pilot.
    NotWorthIt,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// What the account is about.
    pub seen: Seen,
    /// Who did it, the most first; sums up to [`Sample::huge`] of the largest.
    pub by: Vec<(By, Bytes)>,
    /// Why the rest was not, in the order in which it can be helped; empty where there is no rest to speak of.
    pub rest: Vec<Why>,
    /// The share that was asked for, in percent.
    pub required: Option<f64>,
}

/// Less than this part of the memory needs no explanation.
const NEXT_TO_NOTHING: f64 = 0.02;

impl Account {
    /// Draws the account up. `promoted` is what the pilot has put on huge pages and not given back.
    pub fn of(
        seen: Seen,
        (wish, recipe, machine): (&Wish, &Recipe, &Machine),
        placed: Option<&Placed>,
        promoted: Bytes,
        required: Option<f64>,
    ) -> Self {
        let sample = &seen.largest;
        let lacking = sample.could - sample.huge();
        let rest = match lacking > sample.could.share(NEXT_TO_NOTHING) {
            true => reasons(wish, recipe, machine, &seen, placed),
            false => Vec::new(),
        };
        Self { by: shares(sample, recipe, placed, promoted), seen, rest, required }
    }

    /// The share of the memory that was on huge pages, in percent; None if there was none that could be.
    pub fn percent(&self) -> Option<f64> {
        let Sample { could, .. } = self.seen.largest;
        (could > Bytes(0)).then(|| 100.0 * self.seen.largest.huge().0 as f64 / could.0 as f64)
    }

    /// Whether what was asked for was reached. A share of nothing was not.
    pub fn is_met(&self) -> bool {
        self.required.is_none_or(|required| self.percent().is_some_and(|percent| percent >= required))
    }
}

/// Divides what was huge among those who may have done it: the pilot and the library say how much they did, and the rest is the
/// allocator's, or the program's own.
fn shares(sample: &Sample, recipe: &Recipe, placed: Option<&Placed>, promoted: Bytes) -> Vec<(By, Bytes)> {
    let mut shares = BTreeMap::new();
    let mut give = |by: By, bytes: Bytes| {
        if bytes > Bytes(0) {
            *shares.entry(by).or_insert(Bytes(0)) += bytes;
        }
    };
    let mechanisms = recipe.mechanisms();
    for is_reserved in [false, true] {
        let mut left = if is_reserved { sample.reserved } else { sample.transparent };
        if !is_reserved {
            let bytes = promoted.min(left);
            give(By::Pilot, bytes);
            left = left - bytes;
        }
        for mechanism in mechanisms.iter().filter(|mechanism| mechanism.name == Mechanism::PRELOAD) {
            let placing = placed.map(|placed| of_memory(placed, mechanism.memory)).unwrap_or_default();
            let said = if is_reserved { placing.reserved } else { placing.transparent };
            let bytes = said.min(left);
            give(By::Recipe(vec![Mechanism { is_reserved, ..*mechanism }]), bytes);
            left = left - bytes;
        }
        let others = mechanisms.iter().filter(|mechanism| mechanism.name != Mechanism::PRELOAD);
        let others: Vec<Mechanism> = others.filter(|mechanism| mechanism.is_reserved == is_reserved).copied().collect();
        give(if others.is_empty() { By::Itself } else { By::Recipe(others) }, left);
    }
    let mut shares: Vec<(By, Bytes)> = shares.into_iter().collect();
    shares.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    shares
}

fn of_memory(placed: &Placed, memory: Memory) -> Placing {
    match memory {
        Memory::Mmap => placed.mmap,
        Memory::Shm => placed.shm,
        Memory::Text => placed.text,
        Memory::Heap | Memory::Buffers => Placing::default(),
    }
}

fn reasons(wish: &Wish, recipe: &Recipe, machine: &Machine, seen: &Seen, placed: Option<&Placed>) -> Vec<Why> {
    let mut reasons = Vec::new();
    if wish.pages.is_reserved() {
        if machine.available() == 0 {
            reasons.push(Why::PoolEmpty);
        } else if seen.largest.pool_left == Some(0) || seen.last.pool_left == Some(0) {
            reasons.push(Why::PoolUsedUp);
        }
    } else if !machine.heeds_requests() {
        reasons.push(Why::SwitchedOff);
    }
    let hindered = placed.map(|placed| placed.in_the_way).filter(|in_the_way| *in_the_way != InTheWay::default());
    reasons.extend(hindered.map(Why::Hindered));
    if !recipe.left_to_pilot.is_empty() {
        reasons.push(Why::NotReached(recipe.left_to_pilot.clone()));
    }
    if reasons.is_empty() {
        reasons.push(Why::NotWorthIt);
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::recipe::Variable;
    use crate::launch::wish::PageKind;
    use crate::units::HUGE_PAGE;
    use proptest::prelude::*;

    const HEAP: Mechanism = Mechanism { memory: Memory::Heap, name: "glibc.malloc.hugetlb", is_reserved: false };
    const MMAP: Mechanism = Mechanism { memory: Memory::Mmap, name: Mechanism::PRELOAD, is_reserved: false };

    fn recipe_with(mechanisms: &[Mechanism]) -> Recipe {
        let variable = |&by: &Mechanism| Variable { name: "X", value: String::new(), why: String::new(), by: Some(by) };
        Recipe { variables: mechanisms.iter().map(variable).collect(), ..Recipe::default() }
    }

    fn seen(could: u64, transparent: u64, reserved: u64) -> Seen {
        let sample = Sample {
            processes: 1,
            could: Bytes(could),
            transparent: Bytes(transparent),
            reserved: Bytes(reserved),
            pool_left: None,
        };
        Seen { looks: 1, largest: sample, last: sample, ..Seen::default() }
    }

    fn madvise() -> Machine {
        Machine { transparent: Some("madvise".to_owned()), ..Machine::default() }
    }

    fn account(seen: Seen, recipe: &Recipe, placed: Option<&Placed>, promoted: u64) -> Account {
        Account::of(seen, (&Wish::of(PageKind::Transparent), recipe, &madvise()), placed, Bytes(promoted), Some(90.0))
    }

    #[test]
    fn each_gets_what_it_says_and_the_allocator_the_rest() {
        let placing = Placing { transparent: Bytes(200), ..Placing::default() };
        let placed = Placed { mmap: placing, ..Placed::default() };
        let account = account(seen(1000, 980, 0), &recipe_with(&[HEAP, MMAP]), Some(&placed), 100);
        let expected = [(By::Recipe(vec![HEAP]), 680), (By::Recipe(vec![MMAP]), 200), (By::Pilot, 100)];
        assert_eq!(account.by, expected.map(|(by, bytes)| (by, Bytes(bytes))));
        assert_eq!((account.percent(), account.is_met(), account.rest), (Some(98.0), true, Vec::new()));
    }

    #[test]
    fn without_a_mechanism_it_was_the_program_itself() {
        let account = account(seen(1000, 300, 200), &Recipe::default(), None, 0);
        assert_eq!(account.by, [(By::Itself, Bytes(500))]);
        assert_eq!((account.is_met(), account.rest), (false, vec![Why::NotWorthIt]));
    }

    #[test]
    fn a_share_of_nothing_is_not_reached() {
        let account = account(Seen::default(), &Recipe::default(), None, 0);
        assert_eq!((account.percent(), account.is_met()), (None, false));
        assert!(Account { required: None, ..account }.is_met());
    }

    #[test]
    fn why_the_rest_was_not_is_told() {
        let why = |wish: PageKind, machine: Machine, recipe: Recipe, placed: Option<Placed>, left: Option<u64>| {
            let mut seen = seen(1000, 0, 0);
            seen.last.pool_left = left;
            Account::of(seen, (&Wish::of(wish), &recipe, &machine), placed.as_ref(), Bytes(0), None).rest
        };
        let never = Machine { transparent: Some("never".to_owned()), ..Machine::default() };
        assert_eq!(why(PageKind::Transparent, never, Recipe::default(), None, None), [Why::SwitchedOff]);
        assert_eq!(why(PageKind::Huge, madvise(), Recipe::default(), None, None), [Why::PoolEmpty]);
        let pool = crate::kernel::hugetlb::Pool {
            page_size: Bytes(HUGE_PAGE),
            total: 9,
            free: 9,
            reserved: 0,
            surplus: 0,
            overcommit: 0,
        };
        let machine = || Machine { pool: Some(pool), ..madvise() };
        assert_eq!(why(PageKind::Huge, machine(), Recipe::default(), None, Some(0)), [Why::PoolUsedUp]);
        let in_the_way = InTheWay { refused: Bytes(3), ..InTheWay::default() };
        let placed = Placed { in_the_way, ..Placed::default() };
        let recipe = Recipe { left_to_pilot: vec!["heap: static".to_owned()], ..Recipe::default() };
        let expected = [Why::Hindered(in_the_way), Why::NotReached(vec!["heap: static".to_owned()])];
        assert_eq!(why(PageKind::Huge, machine(), recipe, Some(placed), Some(5)), expected);
    }

    proptest! {
        #[test]
        fn shares_sum_up_to_what_was_huge(
            transparent in 0u64..1000,
            reserved in 0u64..1000,
            rest in 0u64..1000,
            said in (0u64..1000, 0u64..1000),
            promoted in 0u64..1000,
            which in 0usize..4,
        ) {
            let all = [HEAP, MMAP, Mechanism { is_reserved: true, ..HEAP }];
            let placing = Placing { reserved: Bytes(said.0), transparent: Bytes(said.1) };
            let placed = Placed { mmap: placing, ..Placed::default() };
            let seen = seen(transparent + reserved + rest, transparent, reserved);
            let account = account(seen, &recipe_with(&all[..which]), Some(&placed), promoted);
            prop_assert_eq!(account.by.iter().map(|(_, bytes)| *bytes).sum::<Bytes>(), seen.largest.huge());
            prop_assert!(account.by.iter().all(|(_, bytes)| *bytes > Bytes(0)));
        }
    }
}
