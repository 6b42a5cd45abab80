//! Plans and outcomes for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::{CacheOutcome, CacheReport, PilotReport, PromoteReport};
use color::Probe;
use color::answer::{Answer, ColorObstacle, Finding, Indexing};
use heat::memory_use::{ByUse, MemoryUse};
use heat::samples::{MEMFD, at, heat_of, huge, mixed_heat, region};
use heat::statistics::Interval;
use heat::units::{Address, AddressRange, Bytes, Nanos, SizeOrShare};
use heat::{Heat, HeldBack, Mapping, PageSizes, RefusalReason, Region, Shared, Snapshot, TrackerKind};
use kernel::cache::Cache;
use launch::Prepared;
use launch::cached_file::{CacheError, CachedFile};
use launch::counts::{InTheWay, PlacedText};
use launch::machine::MachineFacts;
use launch::manager::{Managed, ManagerSetting, ManagerVersion, MemoryManager, SettingEffect, SettingState};
use launch::program::{Linking, Program, ProgramFamily, TUNABLE};
use launch::recipe::{ArgumentPlace, Insert, Memory, MemoryMechanism, Recipe, Remark, Variable};
use launch::request::{LaunchRequest, PageKind};
use launch::verify::{By, NotHugeReason, Verification};
use launch::watch::{Seen, TreeSample};
use observe::census::Fixed;
use observe::{Census, Spare, Waited};
use pilot::act::{Outcome, Refusal, Times};
use pilot::decide::{
    Allowance, Fairness, GainPercent, GrowthLimit, GuestMemory, Limits, Past, Plan, Reason, Spent, decide,
};
use pilot::engine::shared_state::{
    BudgetState, ClientState, Counts, DecisionResult, DecisionState, ForecastState, State, TargetState,
};
use pilot::group::GroupSeen;
use pilot::scope::PilotMode;
use reclaim::{ClassState, MechanismState, MemoryReading, ReclaimState};

/// Snapshots before and after a promotion.
pub(super) const BEFORE: Snapshot = Snapshot {
    walks_per_second: Some(12.5e6),
    busy_cpus: Some(0.5),
    rss: Bytes(3 << 30),
    huge: Bytes(2 << 20),
    page_tables: Bytes(6 << 20),
};
pub(super) const AFTER: Snapshot = Snapshot {
    walks_per_second: Some(125e3),
    busy_cpus: Some(1.0),
    rss: Bytes((3 << 30) + (1 << 20)),
    huge: Bytes(3 << 30),
    page_tables: Bytes(60 << 10),
};

/// An allowance of 1 MiB of growth.
fn one_mebibyte() -> Allowance {
    Allowance { max_growth: SizeOrShare::Size(Bytes(1 << 20)), ..Allowance::default() }
}

/// The growth that it allows.
pub(super) fn growth_limit() -> GrowthLimit {
    one_mebibyte().growth_limit(Bytes(0))
}

/// One of its settings is set, the other is not.
pub(super) fn jemalloc() -> Managed {
    let setting =
        |name: &str, effect, state| ManagerSetting { setting: name.to_owned(), effect, state, requires: None };
    Managed {
        manager: MemoryManager::Jemalloc,
        version: ManagerVersion::at_start(b"5.3.0"),
        habit: "gives unused pages back one by one, which splits huge pages",
        settings: vec![
            setting("thp:always in MALLOC_CONF", SettingEffect::AsksForHugePages, SettingState::Set),
            setting("dirty_decay_ms:-1 in MALLOC_CONF", SettingEffect::KeepsUnused, SettingState::NotSet),
        ],
    }
}

/// The plan for mixed heat with 1 MiB of growth allowed.
pub(super) fn mixed_plan() -> Plan {
    let heat = mixed_heat();
    let limits = one_mebibyte().limits(heat.rss, &Spent::default());
    decide(&heat, &Limits { coverage: 1.0, ..limits }, &Past::default())
}

/// Three processes, two of which share memory that is partly on a huge page in one of them, and two processes that were left out.
pub(super) fn group_seen() -> GroupSeen {
    let sharing = |pid, shared: Vec<Region>, offset| {
        let mut heat = Heat { pid, ..heat_of(shared) };
        let range = AddressRange { start: at(0), end: at(4) };
        heat.mappings[0] = Mapping {
            range,
            name: "/dev/zero (deleted)".to_owned(),
            shared: Some(Shared { offset, ..MEMFD }),
            ..heat.mappings[0].clone()
        };
        heat
    };
    let mut seen = GroupSeen::default();
    seen.group.add("postgres", &sharing(11, vec![region(0, 9e4, 0), region(1, 1e4, 12), region(2, 0.0, 0)], 0));
    seen.group.add("postgres", &sharing(12, vec![huge(0, 50.0), region(1, 3e4, 500)], 2 << 20));
    seen.group.add("logger", &Heat { pid: 13, ..mixed_heat() });
    seen.left_out.push((2, "process 2 (kthreadd) is a kernel thread".to_owned()));
    seen.left_out.push((14, "process 14 exited while it was observed; nothing was changed".to_owned()));
    seen
}

/// A target that gains, and the actions on it.
fn memcached() -> TargetState {
    TargetState {
        pid: 4242,
        start_ticks: 100,
        name: "memcached".to_owned(),
        uid: 112,
        weight: 1.0,
        rss_bytes: Bytes(3 << 30),
        huge_bytes: Bytes(1 << 30),
        promoted_bytes: Bytes(1 << 30),
        growth_bytes: Bytes(3 << 20),
        may_have_bytes: Some(Bytes(2 << 30)),
        walks_per_second_before: Some(12.5e6),
        walks_per_second: Some(125e3),
        walks_saved_per_second: 12e6,
        faults_per_second: 40e3,
        smaller_huge_bytes: Some({
            let mut sizes = PageSizes::default();
            sizes.add(Bytes(1 << 16), Bytes(5 << 20));
            sizes
        }),
        page_tables_bytes: Bytes(8 << 20),
        scanned_ns_ago: Some(Nanos(12_000_000_000)),
        next_scan_in_ns: Nanos(48_000_000_000),
        last_decisions: vec![
            decided(130, DecisionResult::Promoted, Reason::Pays),
            decided(12, DecisionResult::GivenBack, Reason::OverQuota),
        ],
        ..TargetState::default()
    }
}

/// A target that is only observed.
fn observed() -> TargetState {
    TargetState {
        pid: 4343,
        start_ticks: 100,
        name: "java".to_owned(),
        mode: PilotMode::Observe,
        forecast: Some(ForecastState {
            gain_percent: Some(GainPercent { low: 3.0, likely: 6.0, high: 9.0 }),
            waited_share: None,
            would_pay_bytes: Bytes(2 << 30),
            growth_bytes: Bytes(1 << 20),
        }),
        rss_bytes: Bytes(3 << 30),
        scanned_ns_ago: Some(Nanos(12_000_000_000)),
        ..TargetState::default()
    }
}

/// An action this many seconds ago.
fn decided(seconds: u64, done: DecisionResult, reason: Reason) -> DecisionState {
    DecisionState {
        ns_ago: Nanos(seconds * 1_000_000_000),
        start: Address(0x7f81_ee60_0000),
        done,
        reason,
        refused: (done == DecisionResult::Refused).then_some(RefusalReason::NoContiguousMemory),
        walks_per_second: 4500.0,
    }
}

/// A pilot with four targets: one gains, one is paused, one cannot be observed and has a malicious name, one is only observed.
pub(super) fn pilot_state() -> State {
    let paused = TargetState {
        pid: 77,
        name: "redis-server".to_owned(),
        paused: true,
        last_decisions: vec![decided(60, DecisionResult::Refused, Reason::Pays)],
        ..memcached()
    };
    let left_alone = TargetState {
        pid: 123_456,
        name: "evil\x1b[31m".to_owned(),
        left_alone: Some("process 123456 runs a virtual machine (KVM)".to_owned()),
        ..TargetState::default()
    };
    State {
        version: 1,
        tracker: Some(TrackerKind::PageWalk),
        max_slowdown: 0.01,
        fairness: Fairness::Benefit,
        up_ns: Nanos(7_300_000_000_000),
        taken_ns_ago: Nanos(100_000_000),
        last_step_ns_ago: Some(Nanos(200_000_000)),
        held_back: Some(HeldBack::Pressure),
        frees_empty_pages: Some(true),
        budget: BudgetState {
            max_huge_bytes: Some(Bytes(8 << 30)),
            max_growth_bytes: None,
            huge_bytes: Bytes(2 << 30),
            growth_bytes: Bytes(6 << 20),
            max_cpu: 0.01,
            cpu_ns: Nanos(36_500_000_000),
            busy_ns: Nanos(4_000_000_000),
        },
        counts: Counts {
            scans: 1204,
            promoted: 1024,
            refused: [(RefusalReason::NoContiguousMemory, 3), (RefusalReason::Busy, 1)].into(),
            given_back: 1,
            lost: 2,
            collapse_classes: vec![0, 0, 1000, 24, 0, 0, 0, 0, 0],
        },
        targets: vec![memcached(), paused, left_alone, observed()],
        clients: vec![ClientState {
            pid: 900,
            start_ticks: 3,
            uid: 112,
            resting: true,
            active_pages: 123_456,
            lists: 7,
            left_alone: None,
        }],
        reclaim: None,
        ..State::default()
    }
}

/// A search on a pool's pages: other programs hold some of the pages, two arguments were added, and the library does not reach one part.
pub(super) fn prepared_search() -> Prepared {
    let by = |memory, name| Some(MemoryMechanism { memory, name, is_reserved: true });
    let variable =
        |name, value: &str, why: &str, by| Variable { name, value: value.to_owned(), why: why.to_owned(), by };
    let recipe = Recipe {
        obstacles: vec![Remark {
            what: "the pool of 2M pages can give out none (it is empty): the program gets transparent huge pages or ordinary ones".to_owned(),
            next_step: Some("hugepilot pool set 2M=512".to_owned()),
        }],
        variables: vec![
            variable("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2097152", "malloc takes pages", by(Memory::Heap, TUNABLE)),
            variable(
                "LD_PRELOAD",
                "/usr/lib/a's.so",
                "hugepilot's library places the rest",
                by(Memory::Mmap, "preload"),
            ),
        ],
        arguments: vec![Insert {
            words: vec!["-L".to_owned()],
            place: ArgumentPlace::First,
            why: "larger pieces".to_owned(),
            by: None,
        }],
        named: vec![Remark { what: "NODE_OPTIONS is set already; it stays as it is".to_owned(), next_step: None }],
        left_to_pilot: vec!["text: nothing can be preloaded, because it is linked statically".to_owned()],
    };
    let program = Program {
        path: "/usr/bin/search".into(),
        script: None,
        family: ProgramFamily::Other,
        linking: Linking::Glibc,
        allocators: BTreeSet::new(),
        mentions: BTreeSet::new(),
        gains_rights: false,
        has_tunable: Ok(true),
        code: Vec::new(),
    };
    Prepared {
        request: LaunchRequest::of(PageKind::Huge),
        program,
        machine: MachineFacts::default(),
        recipe,
        counts: true,
    }
}

/// Its account: nearly all memory is huge, by three mechanisms.
pub(super) fn account_of_a_search() -> Verification {
    let heap = MemoryMechanism { memory: Memory::Heap, name: TUNABLE, is_reserved: true };
    let mmap = MemoryMechanism { memory: Memory::Mmap, name: MemoryMechanism::PRELOAD, is_reserved: true };
    let largest = TreeSample {
        processes: 2,
        switched_off: 0,
        could: Bytes(3 << 30),
        transparent: Bytes(512 << 20),
        placed: None,
        smaller: None,
        reserved: Bytes(2 << 30),
        pool_left: Some(0),
    };
    let in_the_way = InTheWay { pool_empty: Bytes(24 << 20), fork_copies: Bytes(2 << 20), ..InTheWay::default() };
    Verification {
        seen: Seen {
            scans: 7,
            largest,
            last: TreeSample { pool_left: Some(3), ..TreeSample::default() },
            most: largest.could,
        },
        from_pool: Some(Bytes(2 << 30)),
        by: vec![
            (By::Recipe(vec![heap]), Bytes(3 << 29)),
            (By::Recipe(vec![mmap]), Bytes(1 << 29)),
            (By::Pilot, Bytes(1 << 28)),
            (By::Itself, Bytes(1 << 28)),
        ],
        rest: vec![
            NotHugeReason::PoolUsedUp,
            NotHugeReason::Hindered(in_the_way),
            NotHugeReason::NotReached(vec!["text: it is static".to_owned()]),
        ],
        required: Some(90.0),
        text: Some(PlacedText { eligible: Bytes(8 << 20), of_file: Bytes(4 << 20), copied: Bytes(2 << 20) }),
    }
}

/// Two regions applied, three refused, one not reached.
pub(super) fn outcome() -> Outcome {
    let refused = |number, reason, errno| Refusal { start: at(number), reason, errno };
    let mut times = Times::default();
    [600_000, 700_000, 900_000, 2_800_000, 4_000_000].into_iter().for_each(|took| times.add(Nanos(took)));
    Outcome {
        tried: 5,
        applied: 2,
        refused: vec![
            refused(0, RefusalReason::NoContiguousMemory, 12),
            refused(1, RefusalReason::NotEligible, 22),
            refused(2, RefusalReason::NoContiguousMemory, 12),
        ],
        not_reached: 1,
        busy: Nanos(9_000_000),
        preparing: Nanos(21_000_000),
        prepared_on: BTreeMap::new(),
        longest: Nanos(4_000_000),
        times,
        waited: Some(Waited { total: Nanos(3_000_000), longest: Nanos(1_200_000), ran: Nanos(97_000_000) }),
        elapsed: Nanos(11_000_000),
    }
}

/// A promotion with this outcome.
pub(super) fn promotion<'a>(plan: &'a Plan, outcome: &'a Outcome) -> PromoteReport<'a> {
    PromoteReport {
        plan,
        processes: 1,
        growth_limit: growth_limit(),
        outcome,
        before: BEFORE,
        after: Some(AFTER),
        elapsed: Nanos(1_500_000_000),
        guest: None,
    }
}

/// A virtual machine: guest memory of which the last region is hardly populated, more that is mapped askew, and a heap.
pub(super) fn virtual_machine() -> Heat {
    let mut regions: Vec<Region> = (0..4).map(|number| region(number, 0.0, 0)).collect();
    regions.extend([huge(4, 0.0), region(5, 0.0, 300)]);
    regions.extend([1000, 2000].map(|number| Region { mapping: Some(number as u32 / 1000), ..region(number, 0.0, 0) }));
    let mapping = |number, askew: u64, size, name: &str| Mapping {
        range: AddressRange::new(Address(at(number).0 + askew), Bytes(size)),
        name: name.to_owned(),
        unreserved: askew > 0,
        ..Mapping::default()
    };
    let mappings = vec![
        mapping(0, 0, 1 << 30, "/memfd:memory-backend-memfd (deleted)"),
        mapping(999, 0x3000, 128 << 20, ""),
        mapping(2000, 0, 128 << 20, "[heap]"),
    ];
    Heat { mappings, rss: Bytes(1 << 30), ..heat_of(regions) }
}

/// Its guest's memory.
pub(super) fn guest() -> GuestMemory {
    GuestMemory::of(&virtual_machine())
}

/// The plan for it with the usual limits.
pub(super) fn guest_plan() -> Plan {
    let heat = virtual_machine();
    let limits = Allowance::default().limits(heat.rss, &Spent::default());
    decide(&heat, &Limits { guest: true, ..limits }, &Past::default())
}

static NO_REASONS: BTreeMap<Reason, u64> = BTreeMap::new();

/// The outcome of piloting a process.
pub(super) fn pilot_report<'a>(outcome: &'a Outcome, left_alone: &'a BTreeSet<String>) -> PilotReport<'a> {
    PilotReport {
        rounds: 3,
        processes: 1,
        left_alone,
        reasons: &NO_REASONS,
        mostly_kept: None,
        too_small: None,
        outcome,
        given_back: 2,
        lost: 1,
        growth: Bytes(4096),
        before: Some(BEFORE),
        after: Some(AFTER),
        pilot: Nanos(5),
        elapsed: Nanos(500_000_000),
    }
}

/// A census of 16 GiB.
pub(super) fn census() -> Census {
    let gib = |tenths: u64| Bytes((tenths << 30) / 10);
    let mut held = ByUse::<[Bytes; 4]>::default();
    held[MemoryUse::Code] = [gib(1), gib(1), gib(0), gib(0)];
    held[MemoryUse::Anonymous] = [gib(20), gib(5), gib(5), gib(0)];
    held[MemoryUse::UnmappedCache] = [gib(5), gib(15), gib(60), gib(0)];
    let fixed = Fixed { slab: gib(4), page_tables: gib(1), kernel: gib(3), ..Fixed::default() };
    let spare = Spare {
        free_blocks: gib(20),
        behind_cache: gib(30),
        beside_movable: gib(45),
        beside_unevictable: gib(1),
        beside_kernel: gib(4),
    };
    Census { total: gib(160), sampled: 0.25, held, fixed, free: gib(40), spare }
}

/// A machine with this many GiB free, half of them in huge pages.
pub(super) fn moment(free: u64) -> MemoryReading {
    MemoryReading {
        at_ns: Nanos((60 + free) * 1_000_000_000),
        free_bytes: Bytes(free << 30),
        free_huge_bytes: Bytes(free << 29),
        file_cache_bytes: Bytes((12 - free) << 30),
        unusable: 0.5,
        fragmentation_index: None,
        free_blocks: vec![1000, 7, 0, 0, 0, 0, 0, 0, 0, 3, 640],
    }
}

/// A reclaimer that has freed 3 GiB.
pub(super) fn reclaim_state() -> ReclaimState {
    let class = |class: MemoryUse| {
        let is_cache = class == MemoryUse::UnmappedCache;
        let gib = |gib: u64| Bytes(gib << 30);
        ClassState {
            class,
            rate: if is_cache { "200%" } else { "0 B" }.to_owned(),
            floor_bytes: if is_cache { Bytes(1 << 28) } else { Bytes(0) },
            held_before_bytes: gib(if is_cache { 8 } else { 1 }),
            held_bytes: gib(if is_cache { 5 } else { 1 }),
            step_bytes: Bytes(if is_cache { 170 << 20 } else { 0 }),
            reason: if is_cache { "reclaimed" } else { "not_requested" }.to_owned(),
            applied_bytes: gib(if is_cache { 3 } else { 0 }),
            reclaimed_bytes: gib(if is_cache { 3 } else { 0 }),
        }
    };
    let in_use =
        "DAMON is in use by someone else (1 of its threads are set up in /sys/kernel/mm/damon), and was left alone";
    let counts = [("dropped_bytes", 3 << 30), ("dropped_files", 1200), ("dirty_left_bytes", 0)];
    ReclaimState {
        version: 1,
        pid: 4242,
        start_ticks: 100,
        up_ns: Nanos(90_000_000_000),
        enough_free: false,
        mapped_page_cost: 100,
        free_below: Some("50%ram".to_owned()),
        huge_below: Some("30%ram".to_owned()),
        keeps_free_at_most_bytes: Some(Bytes(2 << 30)),
        classes: MemoryUse::ALL.map(class).to_vec(),
        mechanisms: vec![
            MechanismState {
                name: "drop-behind".to_owned(),
                refused: None,
                counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
            },
            MechanismState { name: "damon".to_owned(), refused: Some(in_use.to_owned()), ..MechanismState::default() },
        ],
        before: moment(1),
        after: moment(4),
        history: (1..=4).map(moment).collect(),
    }
}

/// Probed colors: real, hidden, undecided, and too many to measure.
pub(super) fn color_probe() -> Probe {
    let cache = |level, size, ways, sets| Cache { level, size: Bytes(size), ways, line: Bytes(64), sets };
    let slowdown = |estimate| {
        Some(Interval { estimate, low: estimate - 0.05, high: estimate + 0.05, confidence: 0.954, pairs: 30 })
    };
    let finding = |cache, answer, slowdown, indexing| Finding { cache, answer, slowdown, indexing, obstacle: None };
    let (real, not) = (Answer::Real, Answer::NotObservable);
    let large = cache(4, 1 << 30, 16, 1 << 20);
    let memory = ColorObstacle::Memory { needed: Bytes(3 << 30), available: Bytes(4 << 30) };
    Probe {
        cpu: 1,
        model: "Some CPU".to_owned(),
        virtual_machine: true,
        findings: vec![
            finding(cache(2, 2 << 20, 16, 2048), real, slowdown(4.2), Some(Indexing::BareBits)),
            finding(cache(2, 1 << 20, 8, 2048), not, slowdown(1.01), Some(Indexing::HashedOrHidden)),
            finding(cache(3, 260 << 20, 20, 212_992), not, slowdown(1.0), Some(Indexing::HashedBySets)),
            finding(cache(3, 32 << 20, 16, 32768), Answer::Undecided, slowdown(1.1), None),
            Finding {
                obstacle: Some(ColorObstacle::NotConfirmed),
                ..finding(cache(3, 16 << 20, 16, 16384), Answer::Undecided, slowdown(1.0), None)
            },
            Finding {
                obstacle: Some(ColorObstacle::FewPages),
                ..finding(cache(3, 64 << 20, 16, 65536), Answer::Undecided, slowdown(1.1), None)
            },
            Finding { obstacle: Some(memory), ..finding(large, Answer::Undecided, None, None) },
        ],
    }
}

/// One file of each outcome.
pub(crate) fn cached() -> CacheReport<'static> {
    static FILES: LazyLock<Vec<(&Path, Result<CacheOutcome, CacheError>)>> = LazyLock::new(|| {
        let mebibytes = |count: u64| Bytes(count << 20);
        let (whole, huge, in_use, refused) = (mebibytes(512), mebibytes(300), mebibytes(200), mebibytes(2));
        let partly = CachedFile { whole, huge, in_use, refused, untold: mebibytes(10) };
        let written = PathBuf::from("/srv/written");
        vec![
            (
                Path::new("/srv/index"),
                Ok(CacheOutcome::Read(CachedFile { huge: whole, whole, ..CachedFile::default() })),
            ),
            (Path::new("/srv/partly"), Ok(CacheOutcome::Read(partly))),
            (Path::new("/srv/gone"), Ok(CacheOutcome::Dropped { stays: Some(Bytes(0)) })),
            (Path::new("/srv/mapped"), Ok(CacheOutcome::Dropped { stays: Some(mebibytes(4)) })),
            (Path::new("/srv/old-kernel"), Ok(CacheOutcome::Dropped { stays: None })),
            (Path::new("/srv/written"), Err(CacheError::Written { path: written })),
        ]
    });
    CacheReport { files: &FILES }
}
