//! What came of a request: how much of the eligible memory was on huge pages, by which mechanism, and why the rest was not.
//!
//! Owns: the account, a pure function of samples, actions and counts. Never touches: the system, or the wording of the report.

use std::collections::{BTreeMap, BTreeSet};

use heat::RefusalReason;
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};
use serde::Serialize;

use crate::counts::{InTheWay, Placed, PlacedText, Placing};
use crate::machine::MachineFacts;
use crate::recipe::{Memory, MemoryMechanism, Recipe};
use crate::request::{LaunchRequest, PageKind};
use crate::watch::{Seen, TreeSample};

/// What put memory on huge pages. Serialized by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// One of the recipe's mechanisms, or several that are indistinguishable.
    Recipe(#[serde(skip)] Vec<MemoryMechanism>),
    /// The pilot, from outside.
    Pilot,
    /// The program itself, or the kernel on its own.
    Itself,
}

/// Why memory was not on huge pages. Serialized by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotHugeReason {
    /// Transparent huge pages were switched off.
    SwitchedOff,
    /// This many of its processes disable transparent huge pages (`PR_SET_THP_DISABLE`).
    SwitchedOffForItself(#[serde(skip)] usize),
    /// Only root sees what is on smaller huge pages (CAP_SYS_ADMIN).
    NotSeen,
    /// The pool had no pages available when the program started.
    PoolEmpty,
    /// The pool was nearly empty at some time.
    PoolUsedUp,
    /// This control group's limit is below what the pool had available.
    Limited(#[serde(skip)] String),
    /// The preload library met obstacles.
    Hindered(#[serde(skip)] InTheWay),
    /// No mechanism reaches that memory.
    NotReached(#[serde(skip)] Vec<String>),
    /// The kernel refused the pilot.
    Refused(#[serde(skip)] BTreeSet<RefusalReason>),
    /// No mechanism of the recipe did it, and the pilot, which might have, did not run.
    NotPiloted,
    /// Unknown: it may be in pieces too small, or bypass all mechanisms and have too few page walks for the pilot.
    Unknown,
}

/// What the pilot did meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piloted {
    /// Memory that it put on huge pages and did not give back.
    pub promoted: Bytes,
    /// Why the kernel refused more.
    pub refused: BTreeSet<RefusalReason>,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// The memory that the account is about.
    pub seen: Seen,
    /// What came from the pool; None if nothing was to.
    pub from_pool: Option<Bytes>,
    /// The shares by mechanism, largest first; they add up to [`TreeSample::huge`] of the largest sample.
    pub by: Vec<(By, Bytes)>,
    /// Why the rest was not on huge pages, most easily fixed first; empty if the rest is negligible.
    pub rest: Vec<NotHugeReason>,
    /// The required share in percent.
    pub required: Option<f64>,
    /// What came of code; None unless it was to be on huge pages.
    pub text: Option<PlacedText>,
}

/// A smaller part of the memory needs no explanation.
const NEXT_TO_NOTHING: f64 = 0.02;
/// Pages that glibc takes at once for a thread's heap; a pool with fewer has none for it.
const AT_ONCE: u64 = 4;

impl Verification {
    /// Computes the account; `piloted` is None if no pilot ran.
    pub fn of(
        seen: Seen,
        (request, recipe, machine): (&LaunchRequest, &Recipe, &MachineFacts),
        placed: Option<&Placed>,
        piloted: Option<&Piloted>,
        required: Option<f64>,
    ) -> Self {
        let sample = &seen.largest;
        let lacking = sample.could.saturating_sub(sample.huge());
        let rest = match lacking > sample.could.share(NEXT_TO_NOTHING) {
            true => reasons((request, recipe, machine), &seen, placed, piloted),
            false => Vec::new(),
        };
        let promoted = piloted.map_or(Bytes(0), |piloted| piloted.promoted);
        let places_text = recipe.places_text();
        let text = placed.map(|placed| placed.text).filter(|_| places_text);
        let from_pool = request.pages.is_reserved().then_some(sample.reserved);
        Self { by: shares(sample, recipe, placed, promoted), seen, from_pool, rest, required, text }
    }

    /// The share of eligible memory that was on huge pages, in percent; None if no memory was eligible.
    pub fn percent(&self) -> Option<f64> {
        let TreeSample { could, .. } = self.seen.largest;
        (could > Bytes(0)).then(|| 100.0 * self.seen.largest.huge().0 as f64 / could.0 as f64)
    }

    /// First-touch page faults saved by huge pages: each huge page takes one fault instead of one per base page. Memory that the pilot
    /// promoted was populated before, so it does not count.
    pub fn faults_saved(&self) -> u64 {
        // With smaller pages it is known how much was on them, not by how many faults.
        if self.seen.largest.smaller.is_some() {
            return 0;
        }
        let is_early =
            |by: &By| matches!(by, By::Recipe(mechanisms) if mechanisms.iter().all(|each| each.memory != Memory::Text));
        let early: Bytes = self.by.iter().filter(|(by, _)| is_early(by)).map(|(_, bytes)| *bytes).sum();
        early.0 / BASE_PAGE - early.0.div_ceil(HUGE_PAGE)
    }

    /// Whether the required share was reached. If no memory was eligible, it was not.
    pub fn is_met(&self) -> bool {
        self.required.is_none_or(|required| self.percent().is_some_and(|percent| percent >= required))
    }
}

/// Attributes huge memory to mechanisms: the pilot and the library report their parts, and the rest belongs to the allocator or the program
/// itself.
fn shares(sample: &TreeSample, recipe: &Recipe, placed: Option<&Placed>, promoted: Bytes) -> Vec<(By, Bytes)> {
    let by_pilot = promoted.min(sample.transparent);
    let mut shares = BTreeMap::from([(By::Pilot, by_pilot)]);
    let placed = placed.map(|placed| resident(placed, sample));
    for (is_reserved, bytes) in [(true, sample.reserved), (false, sample.transparent.saturating_sub(by_pilot))] {
        for (by, bytes) in divided(bytes, is_reserved, recipe, placed.as_ref()) {
            *shares.entry(by).or_insert(Bytes(0)) += bytes;
        }
    }
    let mut shares: Vec<(By, Bytes)> = shares.into_iter().filter(|(_, bytes)| *bytes > Bytes(0)).collect();
    shares.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    shares
}

/// What is on huge pages of what the library placed: its counters say what was mapped, of which some was never touched, or is gone.
fn resident(placed: &Placed, sample: &TreeSample) -> Placed {
    let mmap = Placing { transparent: sample.placed.unwrap_or(placed.mmap.transparent), ..placed.mmap };
    Placed { mmap, ..*placed }
}

/// Memory on one kind of huge page, by mechanism. The library's counters only rise: if they exceed the memory that exists, some of it was
/// unmapped or never touched, and its part cannot be told from others'.
fn divided(bytes: Bytes, is_reserved: bool, recipe: &Recipe, placed: Option<&Placed>) -> Vec<(By, Bytes)> {
    let (libraries, others): (Vec<MemoryMechanism>, Vec<MemoryMechanism>) =
        recipe.mechanisms().into_iter().partition(|mechanism| mechanism.name == MemoryMechanism::PRELOAD);
    let others: Vec<MemoryMechanism> =
        others.into_iter().filter(|mechanism| mechanism.is_reserved == is_reserved).collect();
    let said = libraries.into_iter().filter_map(|mechanism| {
        let placing = of_memory(placed?, mechanism.memory);
        let said = if is_reserved { placing.reserved } else { placing.transparent };
        (said > Bytes(0)).then_some((MemoryMechanism { is_reserved, ..mechanism }, said))
    });
    let said: Vec<(MemoryMechanism, Bytes)> = said.collect();
    let all_said: Bytes = said.iter().map(|(_, bytes)| *bytes).sum();
    if all_said > bytes {
        let together = others.into_iter().chain(said.into_iter().map(|(mechanism, _)| mechanism));
        return vec![(By::Recipe(together.collect()), bytes)];
    }
    let left = if others.is_empty() { By::Itself } else { By::Recipe(others) };
    let each = said.into_iter().map(|(mechanism, bytes)| (By::Recipe(vec![mechanism]), bytes));
    each.chain([(left, bytes.saturating_sub(all_said))]).collect()
}

fn of_memory(placed: &Placed, memory: Memory) -> Placing {
    match memory {
        Memory::Mmap => placed.mmap,
        Memory::Shm => placed.shm,
        // Memory of the process is counted here, and huge pages of a file are not.
        Memory::Text => Placing { transparent: placed.text.copied, ..Placing::default() },
        Memory::Heap | Memory::Buffers => Placing::default(),
    }
}

fn reasons(
    (request, recipe, machine): (&LaunchRequest, &Recipe, &MachineFacts),
    seen: &Seen,
    placed: Option<&Placed>,
    piloted: Option<&Piloted>,
) -> Vec<NotHugeReason> {
    let mut reasons = Vec::new();
    if request.pages.is_reserved() {
        reasons.extend(of_the_pool(machine, seen));
    } else if !machine.honours_requests() {
        reasons.push(NotHugeReason::SwitchedOff);
    } else if seen.largest.switched_off > 0 {
        reasons.push(NotHugeReason::SwitchedOffForItself(seen.largest.switched_off));
    } else if matches!(request.pages, PageKind::Smaller(_)) && seen.largest.smaller.is_none() {
        reasons.push(NotHugeReason::NotSeen);
    }
    let hindered = placed.map(|placed| placed.in_the_way).filter(|in_the_way| *in_the_way != InTheWay::default());
    reasons.extend(hindered.map(NotHugeReason::Hindered));
    if !recipe.left_to_pilot.is_empty() {
        reasons.push(NotHugeReason::NotReached(recipe.left_to_pilot.clone()));
    }
    let refused = piloted.map(|piloted| &piloted.refused).filter(|refused| !refused.is_empty());
    reasons.extend(refused.cloned().map(NotHugeReason::Refused));
    if reasons.is_empty() {
        reasons.push(if piloted.is_some() { NotHugeReason::Unknown } else { NotHugeReason::NotPiloted });
    }
    reasons
}

fn of_the_pool(machine: &MachineFacts, seen: &Seen) -> Option<NotHugeReason> {
    let is_used_up = |sample: &TreeSample| sample.pool_left.is_some_and(|left| left < AT_ONCE);
    if let Some(limit) = machine.binding_limit() {
        Some(NotHugeReason::Limited(limit.cgroup.clone()))
    } else if machine.available() == 0 {
        Some(NotHugeReason::PoolEmpty)
    } else {
        (is_used_up(&seen.largest) || is_used_up(&seen.last)).then_some(NotHugeReason::PoolUsedUp)
    }
}

#[cfg(test)]
mod tests {
    use kernel::hugetlb_limits::Limit;
    use proptest::prelude::*;

    use super::*;
    use crate::recipe::Variable;

    const HEAP: MemoryMechanism =
        MemoryMechanism { memory: Memory::Heap, name: "glibc.malloc.hugetlb", is_reserved: false };
    const MMAP: MemoryMechanism =
        MemoryMechanism { memory: Memory::Mmap, name: MemoryMechanism::PRELOAD, is_reserved: false };

    fn recipe_with(mechanisms: &[MemoryMechanism]) -> Recipe {
        let variable =
            |&by: &MemoryMechanism| Variable { name: "X", value: String::new(), why: String::new(), by: Some(by) };
        Recipe { variables: mechanisms.iter().map(variable).collect(), ..Recipe::default() }
    }

    fn seen(could: u64, transparent: u64, reserved: u64) -> Seen {
        let sample = TreeSample {
            processes: 1,
            could: Bytes(could),
            transparent: Bytes(transparent),
            reserved: Bytes(reserved),
            ..TreeSample::default()
        };
        Seen { scans: 1, largest: sample, last: sample, ..Seen::default() }
    }

    fn madvise() -> MachineFacts {
        MachineFacts { transparent: Some("madvise".to_owned()), ..MachineFacts::default() }
    }

    fn account(seen: Seen, recipe: &Recipe, placed: Option<&Placed>, promoted: u64) -> Verification {
        let piloted = Piloted { promoted: Bytes(promoted), ..Piloted::default() };
        Verification::of(
            seen,
            (&LaunchRequest::of(PageKind::Transparent), recipe, &madvise()),
            placed,
            Some(&piloted),
            Some(90.0),
        )
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
    fn the_library_is_credited_with_what_was_touched() {
        let placing = Placing { transparent: Bytes(200), ..Placing::default() };
        let placed = Placed { mmap: placing, ..Placed::default() };
        let by = |resident| {
            let mut seen = seen(1000, 980, 0);
            seen.largest.placed = resident;
            account(seen, &recipe_with(&[HEAP, MMAP]), Some(&placed), 0).by
        };
        let (heap, mmap) = (|bytes| (By::Recipe(vec![HEAP]), Bytes(bytes)), By::Recipe(vec![MMAP]));
        assert_eq!(by(Some(Bytes(0))), [heap(980)], "buffers that nobody used");
        assert_eq!(by(Some(Bytes(50))), [heap(930), (mmap.clone(), Bytes(50))]);
        assert_eq!(by(None), [heap(780), (mmap, Bytes(200))]);
    }

    #[test]
    fn what_was_counted_and_is_gone_is_credited_to_nobody_in_particular() {
        // 300 in the heap, and 100 mappings of 64, one after another.
        let placing = Placing { transparent: Bytes(6400), ..Placing::default() };
        let placed = Placed { mmap: placing, ..Placed::default() };
        let account = account(seen(400, 400, 0), &recipe_with(&[HEAP, MMAP]), Some(&placed), 50);
        let expected = [(By::Recipe(vec![HEAP, MMAP]), 350), (By::Pilot, 50)];
        assert_eq!(account.by, expected.map(|(by, bytes)| (by, Bytes(bytes))));
    }

    #[test]
    fn huge_pages_from_the_first_touch_save_page_faults() {
        let saved = |promoted| account(seen(4 << 30, 1 << 30, 0), &recipe_with(&[HEAP]), None, promoted).faults_saved();
        assert_eq!(saved(0), 512 * 511);
        assert_eq!(saved(1 << 29), 256 * 511, "what the pilot promoted had had its page faults");
        assert_eq!(account(seen(4 << 30, 1 << 30, 0), &Recipe::default(), None, 0).faults_saved(), 0);
    }

    #[test]
    fn without_a_mechanism_it_was_the_program_itself() {
        let account = account(seen(1000, 300, 200), &Recipe::default(), None, 0);
        assert_eq!(account.by, [(By::Itself, Bytes(500))]);
        assert_eq!((account.is_met(), account.rest), (false, vec![NotHugeReason::Unknown]));
    }

    #[test]
    fn a_share_of_nothing_is_not_reached() {
        let account = account(Seen::default(), &Recipe::default(), None, 0);
        assert_eq!((account.percent(), account.is_met()), (None, false));
        assert!(Verification { required: None, ..account }.is_met());
    }

    #[test]
    fn why_the_rest_was_not_is_told() {
        let why =
            |request: PageKind, machine: MachineFacts, recipe: Recipe, placed: Option<Placed>, left: Option<u64>| {
                let mut seen = seen(1000, 0, 0);
                seen.last.pool_left = left;
                let piloted = Piloted::default();
                Verification::of(
                    seen,
                    (&LaunchRequest::of(request), &recipe, &machine),
                    placed.as_ref(),
                    Some(&piloted),
                    None,
                )
                .rest
            };
        let never = MachineFacts { transparent: Some("never".to_owned()), ..MachineFacts::default() };
        assert_eq!(why(PageKind::Transparent, never, Recipe::default(), None, None), [NotHugeReason::SwitchedOff]);
        assert_eq!(why(PageKind::Huge, madvise(), Recipe::default(), None, None), [NotHugeReason::PoolEmpty]);
        let pool = kernel::hugetlb::Pool {
            page_size: Bytes(HUGE_PAGE),
            total: 9,
            free: 9,
            reserved: 0,
            surplus: 0,
            overcommit: 0,
        };
        let machine = || MachineFacts { pool: Some(pool), ..madvise() };
        let with_left = |left| why(PageKind::Huge, machine(), Recipe::default(), None, Some(left));
        assert_eq!(
            [with_left(0), with_left(3)],
            [[NotHugeReason::PoolUsedUp], [NotHugeReason::PoolUsedUp]],
            "too few for a thread's heap"
        );
        assert_eq!(with_left(4), [NotHugeReason::Unknown]);
        let limit = Limit {
            cgroup: "/db".to_owned(),
            page_size: Bytes(HUGE_PAGE),
            of_reservations: true,
            limit: Bytes(0),
            usage: Bytes(0),
            refused: None,
        };
        let limited = MachineFacts { limits: vec![limit], ..machine() };
        assert_eq!(
            why(PageKind::Huge, limited, Recipe::default(), None, Some(9)),
            [NotHugeReason::Limited("/db".to_owned())]
        );
        let in_the_way = InTheWay { refused: Bytes(3), ..InTheWay::default() };
        let placed = Placed { in_the_way, ..Placed::default() };
        let recipe = Recipe { left_to_pilot: vec!["heap: static".to_owned()], ..Recipe::default() };
        let expected =
            [NotHugeReason::Hindered(in_the_way), NotHugeReason::NotReached(vec!["heap: static".to_owned()])];
        assert_eq!(why(PageKind::Huge, machine(), recipe, Some(placed), Some(5)), expected);
    }

    #[test]
    fn a_program_that_switches_huge_pages_off_for_itself_is_why() {
        let mut seen = seen(1000, 0, 0);
        seen.largest.switched_off = 1;
        let rest = |request, machine: MachineFacts| {
            let of = (&LaunchRequest::of(request), &Recipe::default(), &machine);
            Verification::of(seen, of, None, Some(&Piloted::default()), None).rest
        };
        assert_eq!(rest(PageKind::Transparent, madvise()), [NotHugeReason::SwitchedOffForItself(1)]);
        let never = MachineFacts { transparent: Some("never".to_owned()), ..MachineFacts::default() };
        assert_eq!(
            rest(PageKind::Transparent, never),
            [NotHugeReason::SwitchedOff],
            "the kernel says so of every process then"
        );
        assert_eq!(rest(PageKind::Huge, madvise()), [NotHugeReason::PoolEmpty], "a pool does not mind");
    }

    #[test]
    fn what_cannot_be_seen_is_no_pilots_fault() {
        let mut seen = seen(1000, 0, 0);
        let request = LaunchRequest::of(PageKind::Smaller(Bytes(64 << 10)));
        let rest = |seen| {
            Verification::of(seen, (&request, &Recipe::default(), &madvise()), None, Some(&Piloted::default()), None)
        };
        assert_eq!(rest(seen).rest, [NotHugeReason::NotSeen]);
        (seen.largest.transparent, seen.largest.smaller) = (Bytes(990), Some(Bytes(990)));
        assert_eq!((rest(seen).rest, rest(seen).percent(), rest(seen).faults_saved()), (Vec::new(), Some(99.0), 0));
    }

    #[test]
    fn the_pilots_refusals_are_reasons() {
        let refused = BTreeSet::from([RefusalReason::NoContiguousMemory]);
        let piloted = Piloted { refused: refused.clone(), ..Piloted::default() };
        let of = (&LaunchRequest::of(PageKind::Transparent), &Recipe::default(), &madvise());
        assert_eq!(
            Verification::of(seen(1000, 0, 0), of, None, Some(&piloted), None).rest,
            [NotHugeReason::Refused(refused)]
        );
        assert_eq!(Verification::of(seen(1000, 1000, 0), of, None, Some(&piloted), None).rest, [], "none was needed");
        assert_eq!(Verification::of(seen(1000, 0, 0), of, None, None, None).rest, [NotHugeReason::NotPiloted]);
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
            let all = [HEAP, MMAP, MemoryMechanism { is_reserved: true, ..HEAP }];
            let placing = Placing { reserved: Bytes(said.0), transparent: Bytes(said.1) };
            let placed = Placed { mmap: placing, ..Placed::default() };
            let seen = seen(transparent + reserved + rest, transparent, reserved);
            let account = account(seen, &recipe_with(&all[..which]), Some(&placed), promoted);
            prop_assert_eq!(account.by.iter().map(|(_, bytes)| *bytes).sum::<Bytes>(), seen.largest.huge());
            prop_assert!(account.by.iter().all(|(_, bytes)| *bytes > Bytes(0)));
        }
    }
}
