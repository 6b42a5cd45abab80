//! Reclaim by DAMON: its thread samples physical memory, and its schemes take what was not accessed and passes their filters.
//!
//! Owns: the schemes of one thread, and what their statistics tell. Never touches: a DAMON in use by someone else.
//!
//! What a kernel's DAMON can do is found out by what it takes, never by version. All filters reject, and none allows: that means the same in
//! every kernel that has filters. The action `cold` is not used, because on physical addresses DAMON takes it and does nothing.

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
/// Quotas are for so long, and begin anew by DAMON's own clock.
const QUOTA_INTERVAL: Duration = Duration::from_secs(1);
/// Of it, so long DAMON's thread may spend on a scheme: taking one page costs it a microsecond or two.
const QUOTA_MS: u64 = 100;
/// Aggregations in which nothing of a region may have been accessed, where pages cannot be asked.
const UNUSED_AGGREGATIONS: u64 = 50;
/// A step that comes later than this after the one before finds DAMON switched off.
const LATEST: Duration = Duration::from_secs(3);
/// So many quotas may be used up until then, one of them begun before and one while DAMON is being switched off, and another for those that
/// are left as they are though less would be right.
const MOST_QUOTAS: u64 = 6;
/// What is mapped and used is scanned for its protection, so much in a step.
const PROTECT_QUOTA: Bytes = Bytes(256 << 20);
/// The most that is scanned to take one part.
const MOST_EFFORT: f64 = 64.0;
/// A quota that is another by less than one part in so many is left as it is.
const SAME_QUOTA: u64 = 10;

/// DAMON at work for us.
#[derive(Debug)]
pub struct DamonReclaim {
    claim: Claim,
    deadline: Deadline,
    /// There from when DAMON is first switched on.
    guardian: Option<Guardian>,
    abilities: Abilities,
    schemes: Vec<Scheme>,
    /// How much must be scanned for so much to be taken, by what is to be taken.
    effort: BTreeMap<Uses, f64>,
    is_on: bool,
    counts: BTreeMap<&'static str, u64>,
}

/// What this kernel's DAMON takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Abilities {
    /// Where filters are; None on a kernel without any.
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
    /// It is written back if need be, and freed.
    Pageout,
    /// It goes to the end of the kernel's list of what is not in use, and leaves memory when the kernel needs some.
    Deprioritize,
    /// It counts as in use.
    Prioritize,
}

/// One scheme.
#[derive(Clone, Debug, PartialEq)]
struct Scheme {
    action: Action,
    /// What it is for; none for one that only protects.
    uses: Uses,
    /// Kinds of pages, each with whether those of that kind are left alone, or all others.
    filters: Vec<(&'static str, bool)>,
    /// What it is to take in a step.
    wanted: Bytes,
    /// What it may scan in a step, as DAMON counts it: whether it takes that or not.
    quota: Bytes,
    /// Statistics told of already.
    told: Statistics,
}

/// What DAMON counts of a scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Statistics {
    tried: u64,
    applied: u64,
    quota_exceeded: u64,
}

impl DamonReclaim {
    /// Takes DAMON, and finds out what it can do; nothing is reclaimed yet.
    ///
    /// Errors: it is missing, in use, or cannot act on physical addresses; then nothing is left changed.
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

    /// What came of the schemes since that was last told.
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

    /// The schemes that carry these batches out, allowed to scan as much as it took so far to take what is wanted.
    fn schemes(&self, batches: &[Batch]) -> Vec<Scheme> {
        let mut schemes = self.abilities.schemes(batches);
        for (scheme, batch) in schemes.iter_mut().zip(batches) {
            let effort = self.effort.get(&scheme.uses).copied().unwrap_or(1.0);
            scheme.quota = Bytes((scheme.wanted.0 as f64 * effort) as u64).min(Bytes(batch.most.0 / MOST_QUOTAS));
        }
        schemes
    }

    /// Has these schemes at work, and no others.
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

    /// Switches DAMON on, once it is seen to that it does not stay so without us.
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

    /// Gives the schemes other quotas while they go on.
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
            // No page is asked whether it was used, so its region must say that nothing there was, for five seconds.
            write("access_pattern/nr_accesses/max", "0")?;
            write("access_pattern/age/min", &UNUSED_AGGREGATIONS.to_string())?;
        }
        write("quotas/bytes", &scheme.quota.0.to_string())?;
        write("quotas/ms", &QUOTA_MS.to_string())?;
        write("quotas/reset_interval_ms", &QUOTA_INTERVAL.as_millis().to_string())?;
        // Of regions that are more than the quota, those go first that were accessed least and longest ago.
        for (weight, permil) in [("sz", 0), ("nr_accesses", 500), ("age", 500)] {
            write(&format!("quotas/weights/{weight}_permil"), &permil.to_string())?;
        }
        // One would keep whoever changes a deactivated scheme waiting, beyond the reach of any signal (Linux 6.12).
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

    /// However late a step comes, the quotas that it sets are for each of the intervals to come.
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
        // DAMON may be somebody else's as soon as it is put back.
        *self.deadline.hold() = None;
    }
}

impl Abilities {
    /// Tries words on a scheme that is not switched on.
    fn probe(claim: &Claim) -> Result<Self, DamonError> {
        claim.context("schemes/nr_schemes", "1")?;
        let takes = |name: &str, word: &str| claim.context(&format!("schemes/0/{name}"), word).is_ok();
        let (lru_prio, lru_deprio) = (takes("action", "lru_prio"), takes("action", "lru_deprio"));
        // What every scheme needs is an error where it is refused.
        claim.context("schemes/0/action", Action::Pageout.name())?;
        let folders = ["ops_filters", "filters"].into_iter();
        let folder = folders
            .filter(|folder| claim.context_path(&format!("schemes/0/{folder}")).is_dir())
            .find(|folder| takes(&format!("{folder}/nr_filters"), "1"));
        let filters = |kind: &str| folder.is_some_and(|folder| takes(&format!("{folder}/0/type"), kind));
        let [anon, unmapped, young, active] = ["anon", "unmapped", "young", "active"].map(filters);
        Ok(Self { filters: folder, anon, unmapped, young, active, lru_deprio, lru_prio })
    }

    /// What can be taken without anything else.
    fn reach(&self) -> Vec<Uses> {
        let of = |holds: fn(MemoryUse) -> bool| Uses::that(holds);
        let anonymous = of(|class| class == MemoryUse::Anonymous);
        // Shared memory is of files, as far as this filter goes.
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

    /// The schemes that carry these batches out.
    fn schemes(&self, batches: &[Batch]) -> Vec<Scheme> {
        let mut schemes: Vec<Scheme> = batches.iter().map(|batch| self.scheme(batch)).collect();
        let spares_mapped = schemes.iter().all(|scheme| scheme.filters.contains(&("unmapped", false)));
        if !schemes.is_empty() && spares_mapped && self.young && self.lru_prio {
            // What processes map and use is to outlive what nobody maps, whatever the kernel itself reclaims meanwhile.
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
        // Shared memory may be either: whoever takes it with one of the two takes only that part of it.
        let (mapped, unmapped) = (!uses.and(Uses::MAPPED_FILES).is_empty(), uses.has(MemoryUse::UnmappedCache));
        let only_mapped = !unmapped && !anonymous;
        // What was used in between is passed over: the second scan finds it young.
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
        // What a process maps is not torn out of it: it leaves when the kernel needs memory, unless it is used until then.
        let action = if only_mapped && self.lru_deprio { Action::Deprioritize } else { Action::Pageout };
        Scheme { action, uses, filters, wanted: batch.bytes, quota: batch.bytes, told: Statistics::default() }
    }
}

/// How much must be scanned, after a step in which so much was wanted: DAMON's quotas count what it scans, of which filters pass some.
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

    /// What was added; a kernel that counts anew after a change begins at 0.
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
