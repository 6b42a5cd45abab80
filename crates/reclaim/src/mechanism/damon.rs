//! Reclaim by DAMON: its thread samples physical memory, and its schemes reclaim what was not accessed and passes their filters.
//!
//! Owns: the schemes of one thread, and the evaluation of their statistics. Never touches: a DAMON in use by someone else.
//!
//! The abilities of a kernel's DAMON are found by trying, never by version. All filters reject, and none allows: that means the same in
//! every kernel that has filters. The action `cold` is not used, because DAMON accepts it for physical addresses and does nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use damon::{Claim, DamonError, Deadline, Guardian, Intervals, Watched, number};
use heat::memory_use::{MemoryUse, Uses};
use heat::units::{Bytes, Nanos};
use hugepilot_os::stop::Stop;
use kernel::damon::Purpose;
use kernel::{Root, iomem};

use crate::mechanism::{Effect, Mechanism, MechanismKind, ReclaimError};
use crate::policy::Batch;

const INTERVALS: Intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };
/// Quotas apply to this interval, and are reset by DAMON's own clock.
const QUOTA_INTERVAL: Duration = Duration::from_secs(1);
/// How much of it DAMON's thread may spend on a scheme: reclaiming one page costs it a microsecond or two.
const QUOTA_MS: u64 = 100;
/// Aggregations without any access to a region, required if DAMON cannot check pages.
const UNUSED_AGGREGATIONS: u64 = 50;
/// A deadline switches DAMON off unless the next step comes within this time.
const LATEST: Duration = Duration::from_secs(3);
/// Quotas that may be used up until then: one of them started before, one while DAMON is being switched off, and another because quotas
/// stay in place although less would be right.
const MOST_QUOTAS: u64 = 6;
/// How much of the mapped, used memory a step scans to protect it.
const PROTECT_QUOTA: Bytes = Bytes(256 << 20);
/// The maximum ratio of scanned to reclaimed memory.
const MOST_EFFORT: f64 = 64.0;
/// A quota that changes by less than one part in this many stays as it is.
const SAME_QUOTA: u64 = 10;

/// DAMON in use by us.
#[derive(Debug)]
pub struct DamonReclaim {
    claim: Claim,
    deadline: Deadline,
    /// Present once DAMON has been switched on.
    guardian: Option<Guardian>,
    abilities: Abilities,
    schemes: Vec<Scheme>,
    /// The ratio of scanned to reclaimed memory, by the uses to be reclaimed.
    effort: BTreeMap<Uses, f64>,
    is_on: bool,
    counts: BTreeMap<&'static str, u64>,
}

/// What this kernel's DAMON supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Abilities {
    /// The directory of filters; None on a kernel without any.
    filters: Option<&'static str>,
    anon: bool,
    unmapped: bool,
    young: bool,
    active: bool,
    lru_deprio: bool,
    lru_prio: bool,
}

/// What happens to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// It is freed, after writeback if necessary.
    Pageout,
    /// It moves to the end of the inactive list, and is freed when the kernel needs memory.
    Deprioritize,
    /// It counts as in use.
    Prioritize,
}

/// One scheme.
#[derive(Clone, Debug, PartialEq)]
struct Scheme {
    action: Action,
    /// Its uses; none for a scheme that only protects.
    uses: Uses,
    /// Types of filter, each with whether matching pages are left alone, or all others.
    filters: Vec<(&'static str, bool)>,
    /// What it should reclaim in a step.
    wanted: Bytes,
    /// What it may scan in a step; DAMON's quota counts scanned memory, reclaimed or not.
    quota: Bytes,
    /// Statistics that were already accounted for.
    told: Statistics,
}

/// DAMON's statistics of a scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Statistics {
    tried: u64,
    applied: u64,
    quota_exceeded: u64,
}

impl DamonReclaim {
    /// Claims DAMON, and finds out what it can do; reclaims nothing yet.
    ///
    /// Errors: it is missing, in use, or cannot act on physical addresses; then nothing stays changed.
    pub fn open(root: &Root) -> Result<Self, ReclaimError> {
        Self::with(Claim::take(root, Purpose::Reclaim)?, root)
    }

    fn with(claim: Claim, root: &Root) -> Result<Self, ReclaimError> {
        let memory = iomem::whole_pages(root)?;
        if memory.is_empty() {
            return Err(ReclaimError::HiddenMemory);
        }
        claim.watch(Watched::Physical(&memory), INTERVALS)?;
        let abilities = Abilities::probe(&claim)?;
        Ok(Self {
            claim,
            deadline: Deadline::default(),
            guardian: None,
            abilities,
            schemes: Vec::new(),
            effort: BTreeMap::new(),
            is_on: false,
            counts: BTreeMap::new(),
        })
    }

    /// The effects of the schemes since the last call.
    fn tell(&mut self) -> Result<Vec<Effect>, ReclaimError> {
        if !self.is_on || self.schemes.is_empty() {
            return Ok(Vec::new());
        }
        self.claim.write("0/state", "update_schemes_stats")?;
        let mut effects = Vec::new();
        for (number, scheme) in self.schemes.iter_mut().enumerate() {
            let now = Statistics::read(&self.claim, number)?;
            let since = now.since(scheme.told);
            scheme.told = now;
            let (tried, applied) = match scheme.action {
                Action::Prioritize => ("prioritized_tried_bytes", "prioritized_bytes"),
                Action::Pageout | Action::Deprioritize => ("tried_bytes", "applied_bytes"),
            };
            *self.counts.entry(tried).or_default() += since.tried;
            *self.counts.entry(applied).or_default() += since.applied;
            *self.counts.entry("quota_exceeded").or_default() += since.quota_exceeded;
            if scheme.action != Action::Prioritize {
                let effort = self.effort.entry(scheme.uses).or_insert(1.0);
                *effort = effort_after(*effort, scheme.wanted, since);
                let reclaimed = if scheme.action == Action::Pageout { since.applied } else { 0 };
                effects.push(Effect { uses: scheme.uses, applied: Bytes(since.applied), reclaimed: Bytes(reclaimed) });
            }
        }
        Ok(effects)
    }

    /// The schemes for these batches. Their quotas allow scanning as much as it took so far to reclaim that amount.
    fn schemes(&self, batches: &[Batch]) -> Vec<Scheme> {
        let mut schemes = self.abilities.schemes(batches);
        for (scheme, batch) in schemes.iter_mut().zip(batches) {
            let effort = self.effort.get(&scheme.uses).copied().unwrap_or(1.0);
            scheme.quota = Bytes((scheme.wanted.0 as f64 * effort) as u64).min(Bytes(batch.most.0 / MOST_QUOTAS));
        }
        schemes
    }

    /// Makes exactly these schemes active.
    fn set(&mut self, schemes: Vec<Scheme>) -> Result<(), DamonError> {
        let alike = schemes.len() == self.schemes.len()
            && schemes
                .iter()
                .zip(&self.schemes)
                .all(|(new, old)| (new.action, &new.filters) == (old.action, &old.filters));
        if self.is_on && alike && !schemes.is_empty() {
            return self.adjust(&schemes);
        }
        if self.is_on {
            self.is_on = false;
            self.claim.switch_off()?;
        }
        self.schemes.clear();
        if schemes.is_empty() {
            return Ok(());
        }
        self.claim.context("schemes/nr_schemes", &schemes.len().to_string())?;
        for (number, scheme) in schemes.iter().enumerate() {
            self.write(number, scheme)?;
        }
        self.switch_on()?;
        self.schemes = schemes;
        Ok(())
    }

    /// Switches DAMON on after ensuring that it does not stay on without us.
    fn switch_on(&mut self) -> Result<(), DamonError> {
        self.deadline.watch(self.claim.root());
        let guardian = match &mut self.guardian {
            Some(guardian) => guardian,
            none => none.insert(Guardian::post(self.claim.root())?),
        };
        guardian.expect(None)?;
        self.claim.switch_on()?;
        self.is_on = true;
        self.claim.thread().map_or(Ok(()), |thread| guardian.expect(Some(thread)))
    }

    /// Changes the schemes' quotas while they run.
    fn adjust(&mut self, schemes: &[Scheme]) -> Result<(), DamonError> {
        let mut changed = false;
        for (number, (old, new)) in self.schemes.iter_mut().zip(schemes).enumerate() {
            old.wanted = new.wanted;
            if old.quota.0.abs_diff(new.quota.0) > old.quota.0 / SAME_QUOTA {
                self.claim.context(&format!("schemes/{number}/quotas/bytes"), &new.quota.0.to_string())?;
                (old.quota, old.uses, changed) = (new.quota, new.uses, true);
            }
        }
        if changed { self.claim.write("0/state", "commit") } else { Ok(()) }
    }

    fn write(&self, number: usize, scheme: &Scheme) -> Result<(), DamonError> {
        let write = |name: &str, value: &str| self.claim.context(&format!("schemes/{number}/{name}"), value);
        write("action", scheme.action.name())?;
        self.claim.follow_all_regions(number)?;
        if !self.abilities.young {
            // DAMON cannot check single pages, so the region must have had no access at all for five seconds.
            write("access_pattern/nr_accesses/max", "0")?;
            write("access_pattern/age/min", &UNUSED_AGGREGATIONS.to_string())?;
        }
        write("quotas/bytes", &scheme.quota.0.to_string())?;
        write("quotas/ms", &QUOTA_MS.to_string())?;
        write("quotas/reset_interval_ms", &QUOTA_INTERVAL.as_millis().to_string())?;
        // If regions exceed the quota, the least accessed and those unused for longest come first.
        for (weight, permil) in [("sz", 0), ("nr_accesses", 500), ("age", 500)] {
            write(&format!("quotas/weights/{weight}_permil"), &permil.to_string())?;
        }
        // With a watermark, changing a deactivated scheme would block uninterruptibly (Linux 6.12).
        write("watermarks/metric", "none")?;
        let Some(folder) = self.abilities.filters else { return Ok(()) };
        write(&format!("{folder}/nr_filters"), &scheme.filters.len().to_string())?;
        for (filter, (kind, matching)) in scheme.filters.iter().enumerate() {
            write(&format!("{folder}/{filter}/type"), kind)?;
            write(&format!("{folder}/{filter}/matching"), if *matching { "Y" } else { "N" })?;
        }
        Ok(())
    }
}

impl Mechanism for DamonReclaim {
    fn kind(&self) -> MechanismKind {
        MechanismKind::Damon
    }

    fn reach(&self) -> Vec<Uses> {
        self.abilities.reach()
    }

    fn pace(&self) -> Duration {
        QUOTA_INTERVAL
    }

    /// However late a step comes, its quotas apply to each of the coming intervals.
    fn span(&self, _elapsed: Duration) -> Duration {
        QUOTA_INTERVAL
    }

    fn step(&mut self, batches: &[Batch], _stop: &Stop) -> Result<Vec<Effect>, ReclaimError> {
        let deadline = self.deadline.clone();
        let mut until = deadline.hold();
        if self.is_on && until.is_none() {
            self.is_on = false;
            *self.counts.entry("switched_off_late").or_default() += 1;
        }
        let effects = self.tell()?;
        self.set(self.schemes(batches))?;
        *until = self.is_on.then(|| Instant::now() + LATEST);
        Ok(effects)
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let Abilities { anon, unmapped, young, active, .. } = self.abilities;
        let filters =
            [("filter_anon", anon), ("filter_unmapped", unmapped), ("filter_young", young), ("filter_active", active)];
        let known = filters.into_iter().filter(|(_, known)| *known).map(|(name, _)| (name, 1));
        self.counts.iter().map(|(name, count)| (*name, *count)).chain(known).collect()
    }
}

impl Drop for DamonReclaim {
    fn drop(&mut self) {
        // DAMON may belong to somebody else as soon as it is restored.
        *self.deadline.hold() = None;
    }
}

impl Abilities {
    /// Tries keywords on a scheme that is not switched on.
    fn probe(claim: &Claim) -> Result<Self, DamonError> {
        claim.context("schemes/nr_schemes", "1")?;
        let takes = |name: &str, word: &str| claim.context(&format!("schemes/0/{name}"), word).is_ok();
        let (lru_prio, lru_deprio) = (takes("action", "lru_prio"), takes("action", "lru_deprio"));
        // A refusal of what every scheme needs is an error.
        claim.context("schemes/0/action", Action::Pageout.name())?;
        let folders = ["ops_filters", "filters"].into_iter();
        let folder = folders
            .filter(|folder| claim.context_path(&format!("schemes/0/{folder}")).is_dir())
            .find(|folder| takes(&format!("{folder}/nr_filters"), "1"));
        let filters = |kind: &str| folder.is_some_and(|folder| takes(&format!("{folder}/0/type"), kind));
        let [anon, unmapped, young, active] = ["anon", "unmapped", "young", "active"].map(filters);
        Ok(Self { filters: folder, anon, unmapped, young, active, lru_deprio, lru_prio })
    }

    /// The sets of uses that can be reclaimed separately.
    fn reach(&self) -> Vec<Uses> {
        let of = |holds: fn(MemoryUse) -> bool| Uses::that(holds);
        let anonymous = of(|class| class == MemoryUse::Anonymous);
        // For this filter shared memory counts as file memory.
        let files = Uses::ALL.without(anonymous);
        match (self.anon, self.unmapped) {
            (true, true) => vec![
                of(|class| matches!(class, MemoryUse::UnmappedCache | MemoryUse::Shared)),
                files.without(of(|class| class == MemoryUse::UnmappedCache)),
                files,
                anonymous,
            ],
            (true, false) => vec![files, anonymous],
            (false, _) => vec![Uses::ALL],
        }
    }

    /// The schemes for these batches.
    fn schemes(&self, batches: &[Batch]) -> Vec<Scheme> {
        let mut schemes: Vec<Scheme> = batches.iter().map(|batch| self.scheme(batch)).collect();
        let spares_mapped = schemes.iter().all(|scheme| scheme.filters.contains(&("unmapped", false)));
        if !schemes.is_empty() && spares_mapped && self.young && self.lru_prio {
            // Pages that processes map and use should outlive unmapped ones, whatever the kernel itself reclaims meanwhile.
            schemes.push(Scheme {
                action: Action::Prioritize,
                uses: Uses::default(),
                filters: vec![("anon", true), ("unmapped", true), ("young", false)],
                wanted: Bytes(0),
                quota: PROTECT_QUOTA,
                told: Statistics::default(),
            });
        }
        schemes
    }

    fn scheme(&self, batch: &Batch) -> Scheme {
        let uses = batch.uses;
        let anonymous = uses.has(MemoryUse::Anonymous);
        // Shared memory may be mapped or not: a scheme for only one of the two takes only that part of it.
        let (mapped, unmapped) = (!uses.and(Uses::MAPPED_FILES).is_empty(), uses.has(MemoryUse::UnmappedCache));
        let only_mapped = !unmapped && !anonymous;
        // Pages used in between are skipped: the second scan finds them young.
        let mut filters: Vec<(&str, bool)> = Vec::new();
        let kinds = [
            (self.anon && !anonymous, "anon", true),
            (self.anon && anonymous && uses.iter().count() == 1, "anon", false),
            (self.unmapped && unmapped && !mapped, "unmapped", false),
            (self.unmapped && only_mapped, "unmapped", true),
            (self.young, "young", true),
            (self.active && unmapped, "active", true),
        ];
        filters.extend(kinds.iter().filter(|(wanted, ..)| *wanted).map(|&(_, kind, matching)| (kind, matching)));
        // A mapped page is not evicted at once: it goes when the kernel needs memory, unless it is used before.
        let action = if only_mapped && self.lru_deprio { Action::Deprioritize } else { Action::Pageout };
        Scheme { action, uses, filters, wanted: batch.bytes, quota: batch.bytes, told: Statistics::default() }
    }
}

/// The new ratio after a step that was meant to reclaim `wanted`: DAMON's quotas count scanned memory, and filters pass only part of it.
fn effort_after(effort: f64, wanted: Bytes, since: Statistics) -> f64 {
    if since.tried == 0 || wanted == Bytes(0) {
        return effort;
    }
    let change = wanted.0 as f64 / since.applied.max(1) as f64;
    (effort * change.clamp(0.5, 2.0)).clamp(1.0, MOST_EFFORT)
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Pageout => "pageout",
            Action::Deprioritize => "lru_deprio",
            Action::Prioritize => "lru_prio",
        }
    }
}

impl Statistics {
    fn read(claim: &Claim, scheme: usize) -> Result<Self, DamonError> {
        let read = |name: &str| number(&claim.context_path(&format!("schemes/{scheme}/stats/{name}")));
        Ok(Self { tried: read("sz_tried")?, applied: read("sz_applied")?, quota_exceeded: read("qt_exceeds")? })
    }

    /// The difference; a kernel that restarts its counters after a change begins at 0.
    fn since(self, before: Self) -> Self {
        let anew = self.tried < before.tried || self.applied < before.applied;
        let before = if anew { Self::default() } else { before };
        Self {
            tried: self.tried - before.tried,
            applied: self.applied - before.applied,
            quota_exceeded: self.quota_exceeded.saturating_sub(before.quota_exceeded),
        }
    }
}

#[cfg(test)]
mod tests;
