//! Proactive reclaim: takes cold memory back, by use, at a limited rate.
//!
//! Owns: how much of which use is reclaimed ([`policy`]), how that is done ([`mechanism`]), and the loop over both, a few steps a second.
//! Never touches: huge pages. Both `hugepilot reclaim` and the daemon call it.
#![forbid(unsafe_code)]

mod at_work;
mod history;
pub mod mechanism;
pub mod policy;
mod state;
mod store;

use std::time::{Duration, Instant};

use at_work::AtWork;
pub use history::{History, MemoryReading};
pub use state::{ClassState, MechanismState, ReclaimState};
pub use store::Store;

use crate::mechanism::{
    DamonReclaim, DropBehind, DropBehindOptions, Effect, Mechanism, MechanismKind, MemoryReclaim, ReclaimError,
};
use crate::policy::{Policies, ReclaimPlan, ReclaimReason, Stock, UseDecision};
use heat::memory_use::{ByUse, MemoryUse};
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use kernel::buddy::Buddy;
use kernel::memory::Meminfo;
use kernel::{KernelError, Root, balloon};
use observe::census::ProgramFiles;

/// The interval between steps: the pace of the fastest mechanism.
pub const STEP: Duration = Duration::from_millis(250);

/// How often mapped files are read: that takes time for every mapping of many processes, and programs come and go.
const FILES_HOLD: Duration = Duration::from_secs(300);

/// The request.
#[derive(Clone, Debug, PartialEq)]
pub struct ReclaimOptions {
    /// For each use of memory, and when.
    pub policies: Policies,
    /// Named directories, and how to treat them.
    pub drop_behind: DropBehindOptions,
}

/// Mechanisms that are not in use, and why.
type Refused = Vec<(MechanismKind, String)>;

/// These take memory wherever it is, so they are not used if files must be spared.
const KNOWING_NO_FILES: [MechanismKind; 2] = [MechanismKind::Damon, MechanismKind::MemoryReclaim];
const SPARED_FILES: &str = "it tells no file from another, and --except names some that are to be left alone";

/// Facts that are not read at each step.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Code and read-only data among the mapped files.
    files: ProgramFiles,
    host_takes_free: bool,
}

/// Reclaim at work.
pub struct Reclaimer {
    root: Root,
    policies: Policies,
    mechanisms: Vec<AtWork>,
    refused: Refused,
    known: Known,
    files_read: Instant,
    before: Stock,
    first: MemoryReading,
    stock: Stock,
    applied: ByUse<Bytes>,
    reclaimed: ByUse<Bytes>,
    last: ByUse<UseDecision>,
    history: History,
    began: Instant,
}

impl Reclaimer {
    /// Opens the mechanisms that this machine has; reclaims nothing yet. `damon_taken` names another user of DAMON, if there is one.
    ///
    /// Errors: a directory cannot be opened, or there is no mechanism at all.
    pub fn begin(root: &Root, options: ReclaimOptions, damon_taken: Option<&str>) -> Result<Self, ReclaimError> {
        // A process that may not read others goes without: then all mapped files count as such.
        let files = ProgramFiles::read(root).unwrap_or_default();
        // If unknown, do not keep less memory free.
        let known = Known { files, host_takes_free: balloon::reports_free_memory(root).unwrap_or(false) };
        let before = stock(root, known)?;
        let (mechanisms, refused) = open(root, &options, &before, damon_taken)?;
        let first = MemoryReading::now(root)?;
        let mut history = History::default();
        history.add(first.clone());
        Ok(Self {
            root: root.clone(),
            policies: options.policies,
            mechanisms,
            refused,
            known,
            files_read: Instant::now(),
            before,
            first,
            stock: before,
            applied: ByUse::default(),
            reclaimed: ByUse::default(),
            last: ByUse::of(|_| UseDecision { bytes: Bytes(0), reason: ReclaimReason::CannotTellApart }),
            history,
            began: Instant::now(),
        })
    }

    /// Continues with other options. Errors: a directory cannot be opened; then nothing has changed.
    pub fn change(&mut self, options: ReclaimOptions) -> Result<(), ReclaimError> {
        let spares_files = !options.drop_behind.except.is_empty();
        let behind = match options.drop_behind.paths.is_empty() {
            true => None,
            false => Some(DropBehind::open(&self.root, options.drop_behind)?),
        };
        if spares_files {
            let of_all = self.mechanisms.extract_if(.., |at_work| KNOWING_NO_FILES.contains(&at_work.kind()));
            self.refused.extend(of_all.map(|at_work| (at_work.kind(), SPARED_FILES.to_owned())));
        }
        self.mechanisms.retain(|at_work| at_work.kind() != MechanismKind::DropBehind);
        self.refused.retain(|(kind, _)| *kind != MechanismKind::DropBehind);
        if let Some(behind) = behind {
            self.mechanisms.insert(0, AtWork::begin(Box::new(behind)));
        }
        self.policies = options.policies;
        Ok(())
    }

    /// Plans the next second without changing anything else.
    ///
    /// Errors: `/proc/meminfo` or `/proc/buddyinfo` cannot be read, or is malformed.
    pub fn preview(&mut self) -> Result<(), ReclaimError> {
        self.stock = stock(&self.root, self.known)?;
        self.mechanisms.iter_mut().for_each(|at_work| at_work.preview(&self.policies, &self.stock));
        self.judge();
        Ok(())
    }

    /// Reclaims what is due, each mechanism at its own pace. A mechanism that fails is no longer used.
    ///
    /// Errors: `/proc/meminfo` or `/proc/buddyinfo` cannot be read or is malformed, or the last mechanism has failed.
    pub fn step(&mut self, stop: &Stop) -> Result<(), ReclaimError> {
        if self.files_read.elapsed() >= FILES_HOLD {
            self.known.files = ProgramFiles::read(&self.root).unwrap_or(self.known.files);
            self.files_read = Instant::now();
        }
        self.stock = stock(&self.root, self.known)?;
        let (mut left, mut freed, mut failed) = (self.stock, ByUse::default(), Vec::new());
        for (number, at_work) in self.mechanisms.iter_mut().enumerate() {
            match at_work.step(&self.policies, (&left, &freed), stop) {
                Ok(effects) => {
                    for effect in &effects {
                        account(effect, &self.stock, &mut self.applied, &mut self.reclaimed);
                        pass_on(effect, &mut left, &mut freed);
                    }
                }
                Err(error) => failed.push((number, error)),
            }
        }
        self.judge();
        self.history.note(&self.root);
        self.give_up(failed)
    }

    /// The last decisions of all mechanisms, combined for each use.
    fn judge(&mut self) {
        self.last = together(self.mechanisms.iter().filter_map(AtWork::plan)).unwrap_or(self.last);
    }

    /// Stops reclaiming, and accounts for the remaining effects.
    pub fn finish(&mut self) {
        for at_work in &mut self.mechanisms {
            match at_work.finish() {
                Ok(effects) => {
                    for effect in &effects {
                        account(effect, &self.stock, &mut self.applied, &mut self.reclaimed);
                    }
                }
                Err(error) => tracing::debug!("the last account is missing: {error}"),
            }
        }
        if let Ok(stock) = stock(&self.root, self.known) {
            self.stock = stock;
        }
        if let Ok(moment) = MemoryReading::now(&self.root) {
            self.history.add(moment);
        }
    }

    /// The alternative to DAMON was not tried while DAMON worked.
    fn replace_damon(&mut self) {
        match memory_reclaim(&self.root, &self.policies, &self.stock) {
            Ok(mechanism) => {
                tracing::info!("{} takes over", mechanism.kind());
                self.mechanisms.push(mechanism);
            }
            Err(why) => self.refused.push((MechanismKind::MemoryReclaim, why)),
        }
    }

    fn give_up(&mut self, failed: Vec<(usize, ReclaimError)>) -> Result<(), ReclaimError> {
        for (number, error) in failed.into_iter().rev() {
            let kind = self.mechanisms.remove(number).kind();
            tracing::warn!("{kind} is given up: {error}");
            self.refused.push((kind, error.to_string()));
            if kind == MechanismKind::Damon {
                self.replace_damon();
            }
        }
        if self.mechanisms.is_empty() { Err(nobody(&self.refused)) } else { Ok(()) }
    }
}

/// The best mechanism that covers all memory, or why the last of them cannot be used; the reasons of those before it go to `refused`.
fn of_all_memory(
    root: &Root,
    policies: &Policies,
    stock: &Stock,
    damon_taken: Option<&str>,
    refused: &mut Refused,
) -> Result<AtWork, String> {
    let damon = match damon_taken {
        Some(who) => Err(who.to_owned()),
        None => DamonReclaim::open(root).map_err(|error| error.to_string()),
    };
    damon.and_then(|damon| serving(Box::new(damon), policies, stock)).or_else(|why| {
        refused.push((MechanismKind::Damon, why));
        memory_reclaim(root, policies, stock)
    })
}

/// The second-best mechanism that covers all memory, or why it cannot be used.
fn memory_reclaim(root: &Root, policies: &Policies, stock: &Stock) -> Result<AtWork, String> {
    let mechanism = MemoryReclaim::open(root).map_err(|error| error.to_string())?;
    serving(Box::new(mechanism), policies, stock)
}

/// A mechanism, if it can do anything that is requested; otherwise the reason.
fn serving(mechanism: Box<dyn Mechanism>, policies: &Policies, stock: &Stock) -> Result<AtWork, String> {
    let reach = mechanism.reach();
    if policies.are_served_by(stock, &reach) {
        return Ok(AtWork::begin(mechanism));
    }
    let in_the_way: Vec<&str> = policies.in_the_way(stock, &reach).iter().map(MemoryUse::name).collect();
    Err(match in_the_way.first() {
        None => "nothing of what it could take is to be reclaimed".to_owned(),
        Some(first) => format!(
            "it cannot leave {} alone and take what is requested; let that be reclaimed a little, too (--class {first}=1% --mapped-page-cost 90), or \
             name directories whose files may leave memory (--drop-behind)",
            in_the_way.join(", ")
        ),
    })
}

/// Drop-behind comes first, because the user has named its directories; then the best mechanism that covers all memory and can do anything
/// that is requested.
fn open(
    root: &Root,
    options: &ReclaimOptions,
    stock: &Stock,
    damon_taken: Option<&str>,
) -> Result<(Vec<AtWork>, Refused), ReclaimError> {
    let (mut mechanisms, mut refused) = (Vec::new(), Refused::new());
    if !options.drop_behind.paths.is_empty() {
        mechanisms.push(AtWork::begin(Box::new(DropBehind::open(root, options.drop_behind.clone())?)));
    }
    if options.drop_behind.except.is_empty() {
        match of_all_memory(root, &options.policies, stock, damon_taken, &mut refused) {
            Ok(mechanism) => mechanisms.push(mechanism),
            Err(why) => refused.push((MechanismKind::MemoryReclaim, why)),
        }
    } else {
        refused.extend(KNOWING_NO_FILES.map(|kind| (kind, SPARED_FILES.to_owned())));
    }
    if options.drop_behind.paths.is_empty() {
        refused.push((MechanismKind::DropBehind, "no directory is named (--drop-behind)".to_owned()));
    }
    if mechanisms.is_empty() { Err(nobody(&refused)) } else { Ok((mechanisms, refused)) }
}

fn nobody(refused: &[(MechanismKind, String)]) -> ReclaimError {
    let why: Vec<String> = refused.iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
    ReclaimError::NoMechanism { why: why.join("; ") }
}

/// The current memory, from the kernel's counters.
fn stock(root: &Root, Known { files, host_takes_free }: Known) -> Result<Stock, KernelError> {
    let (memory, buddy) = (Meminfo::read(root)?, Buddy::read(root)?);
    let mapped = memory.mapped_files(files.shared);
    let (code, read_only) = (mapped.share(files.code), mapped.share(files.read_only));
    let held = ByUse::of(|class| match class {
        MemoryUse::Code => code,
        MemoryUse::ReadOnlyData => read_only,
        MemoryUse::Anonymous => memory.anonymous,
        MemoryUse::Shared => memory.shared,
        MemoryUse::MappedFiles => mapped.saturating_sub(code).saturating_sub(read_only),
        MemoryUse::UnmappedCache => memory.unmapped_cache(files.shared),
    });
    Ok(Stock {
        total: memory.total,
        free: memory.free,
        free_huge: buddy.free_huge(),
        held,
        swap: memory.swap_free > Bytes(0),
        host_takes_free,
    })
}

/// Distributes an effect over its uses in proportion to what they hold.
fn account(effect: &Effect, stock: &Stock, applied: &mut ByUse<Bytes>, reclaimed: &mut ByUse<Bytes>) {
    let all: Bytes = effect.uses.iter().map(|class| stock.held[class]).sum();
    let (mut applied_left, mut reclaimed_left) = (effect.applied, effect.reclaimed);
    let last = effect.uses.iter().last();
    for class in effect.uses.iter() {
        let share = if all == Bytes(0) { 0.0 } else { stock.held[class].0 as f64 / all.0 as f64 };
        let part = |of: Bytes, left: Bytes| if Some(class) == last { left } else { of.share(share).min(left) };
        let (more_applied, more_reclaimed) =
            (part(effect.applied, applied_left), part(effect.reclaimed, reclaimed_left));
        applied[class] += more_applied;
        reclaimed[class] += more_reclaimed;
        (applied_left, reclaimed_left) =
            (applied_left.saturating_sub(more_applied), reclaimed_left.saturating_sub(more_reclaimed));
    }
}

/// Memory that one mechanism has freed, the next one neither frees again nor counts on.
fn pass_on(effect: &Effect, left: &mut Stock, freed: &mut ByUse<Bytes>) {
    for class in effect.uses.iter() {
        left.held[class] = left.held[class].saturating_sub(effect.reclaimed);
        freed[class] += effect.reclaimed;
    }
}

/// The combined decision for each use: the largest of any mechanism, with its reason.
fn together<'a>(plans: impl Iterator<Item = &'a ReclaimPlan>) -> Option<ByUse<UseDecision>> {
    let rank = |decision: UseDecision| (decision.reason == ReclaimReason::Reclaimed, decision.bytes);
    let more = |before, new| if rank(before) > rank(new) { before } else { new };
    let both = |before: ByUse<UseDecision>, new: ByUse<_>| ByUse::of(|class| more(before[class], new[class]));
    plans.map(|plan| plan.decisions).reduce(both)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heat::memory_use::Uses;
    use heat::units::SizeOrShare;

    use super::*;
    use crate::policy::Batch;
    use crate::policy::Preset;

    #[test]
    fn what_is_there_follows_from_the_kernels_counts() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("proc")).unwrap();
        let meminfo = "MemTotal: 1000 kB\nMemFree: 100 kB\nActive(file): 300 kB\nInactive(file): 190 kB\nShmem: 20 kB\nMapped: 200 kB\n\
                       AnonPages: 70 kB\nSwapFree: 1 kB\n";
        std::fs::write(tree.path().join("proc/meminfo"), meminfo).unwrap();
        std::fs::write(tree.path().join("proc/buddyinfo"), "Node 0, zone DMA 1 0 0 0 0 0 0 0 0 3\n").unwrap();
        let files = ProgramFiles { code: 0.5, read_only: 0.25, shared: 0.05 };
        let stock = stock(&Root::at(tree.path()), Known { files, ..Known::default() }).unwrap();
        let held = MemoryUse::ALL.map(|class| stock.held[class].0 >> 10);
        // 10 of the 200 mapped are shared memory.
        assert_eq!(held, [95, 47, 70, 20, 47, 300]);
        assert_eq!((stock.free_huge, stock.swap), (Bytes(6 << 20), true));
    }

    /// DAMON while something else uses it.
    struct Refusing;

    impl Mechanism for Refusing {
        fn kind(&self) -> MechanismKind {
            MechanismKind::Damon
        }

        fn reach(&self) -> Vec<Uses> {
            vec![Uses::OF_FILES]
        }

        fn step(&mut self, _: &[Batch], _: &Stop) -> Result<Vec<Effect>, ReclaimError> {
            Err(ReclaimError::NoMemoryReclaim)
        }

        fn counts(&self) -> BTreeMap<&'static str, u64> {
            BTreeMap::new()
        }
    }

    /// A machine with half a GiB of unmapped cache, a little shared memory, swap, and a control group with `memory.reclaim`.
    fn machine() -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let meminfo = "MemTotal: 1000000 kB\nMemFree: 100 kB\nActive(file): 0 kB\nInactive(file): 500000 kB\nShmem: 20 kB\nMapped: 0 kB\n\
                       AnonPages: 70 kB\nSwapFree: 1 kB\n";
        let files = [
            ("proc/meminfo", meminfo),
            ("proc/buddyinfo", "Node 0, zone DMA 1 0 0 0 0 0 0 0 0 3\n"),
            ("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/a/memory.stat", "inactive_file 512000000\n"),
            ("sys/fs/cgroup/a/memory.reclaim", ""),
        ];
        for (name, text) in files {
            let path = tree.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(tree.path());
        (tree, root)
    }

    fn reclaimer(root: &Root, drop_behind: DropBehindOptions) -> Result<Reclaimer, ReclaimError> {
        let mut policies = Preset::Balanced.policies();
        (policies.free_below, policies.huge_below) = (None, None);
        policies.classes[MemoryUse::UnmappedCache].floor = SizeOrShare::Size(Bytes(0));
        Reclaimer::begin(root, ReclaimOptions { policies, drop_behind }, Some("taken"))
    }

    #[test]
    fn what_is_next_best_takes_over_from_a_damon_that_fails_at_work() {
        let (_tree, root) = machine();
        let mut reclaimer = reclaimer(&root, DropBehindOptions::default()).unwrap();
        reclaimer.mechanisms = vec![AtWork::begin(Box::new(Refusing))];
        reclaimer.refused.clear();
        reclaimer.step(&Stop::default()).unwrap();
        let at_work: Vec<_> = reclaimer.mechanisms.iter().map(AtWork::kind).collect();
        assert_eq!(at_work, [MechanismKind::MemoryReclaim]);
        assert_eq!(reclaimer.refused.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [MechanismKind::Damon]);
        reclaimer.step(&Stop::default()).unwrap();
        assert!(root.text("sys/fs/cgroup/a/memory.reclaim").unwrap().contains("swappiness=0"));
    }

    #[test]
    fn where_files_are_spared_nothing_takes_memory_that_knows_no_files() {
        let (tree, root) = machine();
        let spared = tree.path().join("proc");
        let drop_behind = DropBehindOptions {
            paths: vec![tree.path().to_path_buf()],
            except: vec![spared],
            ..DropBehindOptions::default()
        };
        let kinds = |reclaimer: &Reclaimer| reclaimer.mechanisms.iter().map(AtWork::kind).collect::<Vec<_>>();
        let mut from_the_start = reclaimer(&root, drop_behind.clone()).unwrap();
        assert_eq!(kinds(&from_the_start), [MechanismKind::DropBehind]);
        assert!(from_the_start.refused.iter().all(|(_, why)| why.contains("--except")), "{:?}", from_the_start.refused);
        from_the_start.step(&Stop::default()).unwrap();
        assert_eq!(root.text("sys/fs/cgroup/a/memory.reclaim").unwrap(), "");
        let mut changed = reclaimer(&root, DropBehindOptions::default()).unwrap();
        assert_eq!(kinds(&changed), [MechanismKind::MemoryReclaim]);
        let policies = changed.policies.clone();
        changed.change(ReclaimOptions { policies, drop_behind }).unwrap();
        assert_eq!(kinds(&changed), [MechanismKind::DropBehind]);
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let (_tree, root) = machine();
        let mut stock = stock(&root, Known::default()).unwrap();
        let mut policies = Preset::BackupServer.policies();
        let of_all = || Box::new(Refusing) as Box<dyn Mechanism>;
        assert!(serving(of_all(), &policies, &stock).is_ok(), "nothing else is held of what it takes");
        stock.held[MemoryUse::Code] = Bytes(1 << 20);
        let why = serving(of_all(), &policies, &stock).err().unwrap();
        assert!(why.contains("leave code alone") && why.contains("--class code=1%"), "{why}");
        policies.classes[MemoryUse::UnmappedCache].rate = SizeOrShare::Size(Bytes(0));
        assert!(serving(of_all(), &policies, &stock).err().unwrap().contains("nothing of what it could take"));
    }

    #[test]
    fn an_effect_is_entered_whole_under_its_uses() {
        let mut stock = Stock::default();
        stock.held[MemoryUse::MappedFiles] = Bytes(100);
        stock.held[MemoryUse::UnmappedCache] = Bytes(200);
        let uses = Uses::OF_FILES;
        let (mut applied, mut reclaimed) = (ByUse::default(), ByUse::default());
        account(&Effect { uses, applied: Bytes(31), reclaimed: Bytes(10) }, &stock, &mut applied, &mut reclaimed);
        let of = |sums: &ByUse<Bytes>| (sums[MemoryUse::MappedFiles].0, sums[MemoryUse::UnmappedCache].0);
        assert_eq!((of(&applied), of(&reclaimed)), ((10, 21), (3, 7)));
    }

    #[test]
    fn what_one_has_freed_the_next_does_not_count_on() {
        let uses = [MemoryUse::UnmappedCache].into_iter().collect();
        let (mut left, mut freed) = (Stock { held: ByUse::of(|_| Bytes(500)), ..Stock::default() }, ByUse::default());
        for _ in 0..2 {
            pass_on(&Effect { uses, applied: Bytes(20), reclaimed: Bytes(15) }, &mut left, &mut freed);
        }
        let of = |class| (left.held[class].0, freed[class].0);
        assert_eq!([MemoryUse::UnmappedCache, MemoryUse::Code].map(of), [(470, 30), (500, 0)]);
    }

    #[test]
    fn what_one_mechanism_does_is_done() {
        let of = |reason| ReclaimPlan {
            decisions: ByUse::of(|_| crate::policy::UseDecision {
                bytes: Bytes(u64::from(reason == ReclaimReason::Reclaimed)),
                reason,
            }),
            batches: Vec::new(),
        };
        let verdict = |plans: &[ReclaimReason]| {
            let plans: Vec<ReclaimPlan> = plans.iter().map(|&reason| of(reason)).collect();
            let UseDecision { bytes, reason } = together(plans.iter()).unwrap()[MemoryUse::Code];
            (bytes, reason)
        };
        assert_eq!(
            verdict(&[ReclaimReason::Reclaimed, ReclaimReason::CannotTellApart]),
            (Bytes(1), ReclaimReason::Reclaimed)
        );
        assert_eq!(
            verdict(&[ReclaimReason::CannotTellApart, ReclaimReason::Reclaimed]),
            (Bytes(1), ReclaimReason::Reclaimed)
        );
        assert_eq!(verdict(&[ReclaimReason::CannotTellApart, ReclaimReason::NoSwap]).1, ReclaimReason::NoSwap);
    }
}
