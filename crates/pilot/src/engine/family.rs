//! A process with its children: what all of them lose on the memory they share.
//!
//! Owns: which children are observed on behalf of all, and combining their losses. Never touches: memory, or what is promoted.
//!
//! One observation of the process, and one of each of a few children: with hundreds of children it takes no longer than with four.

use std::collections::BTreeSet;
use std::time::Instant;

use heat::Heat;
use heat::clearing::ClearPolicy;
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};
use hugepilot_os::stop::Stop;
use kernel::KernelError;
use kernel::process::{FamilyUsage, ProcessStatus};
use kernel::target::Process;
use observe::{FaultRates, ObserveError, ObserveOptions, Whose, faults};

use crate::engine::shared::{SAMPLE_OF_FAMILY, SharedView, add_others, hash, is_helper};
use crate::world::World;

/// The processes that share memory with a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// The process and its descendants.
    pub processes: u64,
    /// Those that were observed.
    pub observed: u64,
    /// Memory in the page tables of all of them.
    pub page_tables: Bytes,
    /// Memory covered by the page tables that they use, all together: the cost of a walk depends on this size.
    pub footprint: Bytes,
    /// The share of their page faults taken by processes that have since ended, whose mappings are gone.
    pub unmapped_share: f64,
    /// The descendants, whether they count or not.
    pub children: Children,
}

/// The descendants of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// How many have memory of their own.
    pub processes: u64,
    /// What they hold beside what is resident of the process itself; shared memory counts once.
    pub hold: Bytes,
}

impl Family {
    /// One process, with this much memory in its page tables, of which it uses the footprint.
    pub fn alone(page_tables: Bytes, footprint: Bytes) -> Self {
        Self { processes: 1, observed: 1, page_tables, footprint, unmapped_share: 0.0, children: Children::default() }
    }
}

/// Memory whose page-table entries share a cache line.
const OF_A_LINE: f64 = 8.0 * BASE_PAGE as f64;
/// Seconds within which use is observed.
const TENTH: f64 = 0.1;

/// One descendant.
struct Relative {
    process: Process,
    status: ProcessStatus,
}

/// What a process and its descendants do from now on.
pub struct FamilyWatch {
    process: Process,
    began: Instant,
    before: FamilyUsage,
}

impl FamilyWatch {
    /// Errors: the processes cannot be listed.
    pub fn begin(world: &mut dyn World, process: Process, with_children: bool) -> Result<Self, KernelError> {
        let before = world.family_usage(process)?;
        if with_children {
            let mut family = world.descendants(process)?;
            family.push(process);
            world.count_faults(&family, Whose::AndTheirChildren);
        } else {
            world.count_faults(&[process], Whose::Theirs);
        }
        Ok(Self { process, began: world.now(), before })
    }

    /// The page faults of each region, the CPUs kept busy, and the share of page faults whose pages are unmapped again. All are exact, and include
    /// processes too short-lived to be observed.
    fn end(self, world: &mut dyn World) -> Result<(FaultRates, f64, f64), KernelError> {
        let rates = world.faults();
        let usage = world.family_usage(self.process)?.since(self.before);
        let busy_cpus = usage.cpu_time.seconds() / (world.now() - self.began).as_secs_f64();
        Ok((rates, busy_cpus, usage.minor_faults_of_ended as f64 / usage.minor_faults.max(1) as f64))
    }
}

/// Adds to the heat of a process what its page tables (and, if wanted, its descendants') take for shared memory, and their page walks and page faults
/// there. They were watched since before the process was observed.
///
/// Errors: the tracker cannot observe any process. A process that has ended is no error.
pub fn add_family(
    heat: &mut Heat,
    process: Process,
    with_children: bool,
    world: &mut dyn World,
    options: &ObserveOptions,
    watch: FamilyWatch,
    stop: &Stop,
) -> Result<Family, ObserveError> {
    let own = SharedView::of(heat);
    let mut relatives = relatives(world, process)?;
    let children = Children::of(&relatives, heat, &world.status(process).unwrap_or_default());
    if !with_children {
        relatives.clear();
    }
    let mut views = Vec::new();
    let mut observed = Bytes(0);
    for relative in relatives.iter().filter(|relative| relative.status.rss_shmem > Bytes(0)) {
        if views.len() == SAMPLE_OF_FAMILY {
            break;
        }
        let view = view_of(relative, world, options, stop)?;
        if let Some(view) = view.filter(|view| view.meets(&own)) {
            observed += relative.status.rss_shmem;
            tracing::debug!(
                pid = relative.process.pid,
                shared = relative.status.rss_shmem.0,
                "observed for all: {:.0} walks a second",
                view.walks_per_second()
            );
            views.push(view);
        }
    }
    let (rates, busy_cpus, unmapped_share) = watch.end(world)?;
    faults::note(&rates, heat);
    let mine = world.status(process).unwrap_or_default();
    let all: Bytes = relatives.iter().map(|relative| relative.status.rss_shmem).sum();
    let times = ratio(all + mine.rss_shmem, observed + mine.rss_shmem);
    let times = if views.is_empty() { 1.0 } else { times };
    add_others(heat, views.iter(), times);
    if with_children {
        heat.busy_cpus = Some(busy_cpus);
    }
    let page_tables = mine.vm_pte + relatives.iter().map(|relative| relative.status.vm_pte).sum();
    let mapped = Bytes(page_tables.0.saturating_mul(HUGE_PAGE / BASE_PAGE));
    Ok(Family {
        processes: 1 + relatives.len() as u64,
        observed: 1 + views.len() as u64,
        footprint: if views.is_empty() { heat.footprint() } else { footprint(&views, times, mapped) },
        page_tables,
        unmapped_share: if with_children { unmapped_share } else { 0.0 },
        children,
    })
}

impl Children {
    /// The descendants of a process with this heat. Most shared memory that one of them has touched, or that is populated in what the process maps,
    /// counts for all; pages of files are mostly those of their common program, and do not count.
    fn of(relatives: &[Relative], heat: &Heat, own: &ProcessStatus) -> Self {
        let status = || relatives.iter().map(|relative| &relative.status);
        let Some(shared) = status().map(|status| status.rss_shmem).max() else { return Self::default() };
        let elsewhere = heat.promotable_here(&BTreeSet::new()).saturating_sub(heat.rss);
        let private: Bytes = status().map(|status| status.rss_anon).sum();
        Self { processes: relatives.len() as u64, hold: private + elsewhere.max(shared.saturating_sub(own.rss_shmem)) }
    }
}

/// The memory for whose page-table entries all processes compete: between what all of them use of their page tables within a tenth of a second, which
/// the caches may hold, and all that these map.
///
/// A process that briefly gets a processor now and then finds a page-table line in the caches if it used the line a moment before; a line that it
/// returns to later is gone, because the others had the caches meanwhile. The number of lines used, and how often, gives the share of walks of this
/// second kind. Costs go by the logarithm of the size.
fn footprint(views: &[SharedView], times: f64, mapped: Bytes) -> Bytes {
    let seen: Bytes = views.iter().map(|view| view.footprint).sum();
    let walks: f64 = views.iter().map(|view| view.all_walks_per_second).sum();
    let new_lines_per_second = seen.0 as f64 / OF_A_LINE / TENTH;
    let new = if walks > 0.0 { (new_lines_per_second / walks).min(1.0) } else { 1.0 };
    let log = |bytes: f64| bytes.max(1.0).ln();
    let (seen, mapped) = (log(seen.0 as f64 * times), log(mapped.0 as f64));
    Bytes((seen + new * (mapped - seen).max(0.0)).exp() as u64)
}

/// The factor by which the whole exceeds a part of it.
fn ratio(all: Bytes, part: Bytes) -> f64 {
    if part > Bytes(0) { (all.0 as f64 / part.0 as f64).max(1.0) } else { 1.0 }
}

/// The descendants of a process that have memory of their own, helpers last, in an order independent of their age.
fn relatives(world: &dyn World, process: Process) -> Result<Vec<Relative>, KernelError> {
    let read = |process: Process| {
        let status = world.status(process)?;
        (!status.is_zombie()).then_some(Relative { process, status })
    };
    let mut relatives: Vec<Relative> = world.descendants(process)?.into_iter().filter_map(read).collect();
    let largest = relatives.iter().map(|relative| relative.status.rss_shmem).max().unwrap_or_default();
    let is_helper = |relative: &Relative| is_helper(relative.status.rss_shmem, largest);
    relatives.sort_by_key(|relative| (is_helper(relative), hash(&relative.process)));
    Ok(relatives)
}

/// One process's part of shared memory; None if it has ended, or may not be observed.
fn view_of(
    relative: &Relative,
    world: &mut dyn World,
    options: &ObserveOptions,
    stop: &Stop,
) -> Result<Option<SharedView>, ObserveError> {
    let is_one_of_many = relative.status.rss_shmem > relative.status.rss_anon;
    let clearing = if is_one_of_many { ClearPolicy::OneOfMany } else { options.clearing };
    match world.observe(relative.process, &ObserveOptions { clearing, ..*options }, stop) {
        Ok(heat) => Ok(Some(SharedView::of(&heat))),
        // A process that has given back its memory has not necessarily ended according to its handle.
        Err(ObserveError::Exec { .. } | ObserveError::Exited { .. } | ObserveError::Target(_)) => Ok(None),
        Err(_) if !world.lives(relative.process) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use heat::Region;
    use heat::samples::{MEMFD, at, heat_of, region};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn relative(private: u64, shared: u64) -> Relative {
        let (rss_anon, rss_shmem) = (Bytes(private * MIB), Bytes(shared * MIB));
        let status = ProcessStatus { rss_anon, rss_shmem, rss_file: Bytes(9 * MIB), ..ProcessStatus::default() };
        Relative { process: Process { pid: 7, start_ticks: 7 }, status }
    }

    #[test]
    fn children_hold_shared_memory_once() {
        let mut heat = heat_of(vec![region(0, 0.0, 0), Region::blank(at(1), Some(0)), Region::blank(at(2), Some(0))]);
        let own = relative(0, 1).status;
        let hold = |relatives: &[Relative], heat: &Heat| Children::of(relatives, heat, &own).hold.0 / MIB;
        let backends = [relative(10, 100), relative(20, 301), relative(30, 301)];
        assert_eq!(hold(&backends, &heat), 60 + 300, "without what the process has of it");
        heat.mappings[0].shared = Some(MEMFD);
        assert_eq!(hold(&[relative(1, 1), relative(1, 0)], &heat), 2 + 4, "what ended processes left populated");
        assert_eq!(Children::of(&[], &heat, &own), Children::default(), "strangers populated it");
    }

    #[test]
    fn page_tables_that_are_used_again_soon_are_cached_and_others_are_not() {
        let (mib, mapped) = (1 << 20, Bytes(400 << 30));
        // 512 lines in a tenth of a second.
        let view = |walks: f64| {
            let mut view = SharedView::default();
            (view.footprint, view.all_walks_per_second) = (Bytes(16 * mib), walks);
            view
        };
        let of = |walks| footprint(&[view(walks), view(walks)], 50.0, mapped);
        let near = |found: Bytes, expected: u64| {
            assert!((found.0 as f64 / expected as f64 - 1.0).abs() < 1e-4, "{found}, not {}", Bytes(expected));
        };
        near(of(5120.0), mapped.0);
        near(of(100.0), mapped.0);
        near(of(5.12e9), 1600 * mib);
        // Half of the walks go to lines not used before: half-way on a logarithmic scale.
        near(of(10_240.0), (1600.0 * mib as f64 * mapped.0 as f64).sqrt() as u64);
        near(footprint(&[], 1.0, mapped), mapped.0);
    }
}
