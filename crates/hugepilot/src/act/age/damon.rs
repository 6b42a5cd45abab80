//! Aging by DAMON: its thread samples physical memory, and its schemes take what was not accessed and passes their filters.
//!
//! Owns: the schemes of one thread, and what their statistics tell. Never touches: a DAMON in use by someone else.
//!
//! What a kernel's DAMON can do is found out by what it takes, never by version. All filters reject, and none allows: that means the same in
//! every kernel that has filters. The action `cold` is not used, because on physical addresses DAMON takes it and does nothing.

use std::collections::BTreeMap;

use super::{AgeError, Effect, Mechanism, MechanismKind, Order};
use crate::damon::{Claim, DamonError, Intervals, Watched, number};
use crate::decide::age::Stroke;
use crate::kernel::damon::Purpose;
use crate::kernel::{Root, iomem};
use crate::memory_use::{MemoryUse, Uses};
use crate::stop::Stop;
use crate::units::{Bytes, Nanos};

const INTERVALS: Intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };
/// Quotas are for so long, which is the time of a step.
const QUOTA_INTERVAL_MS: u64 = 1000;
/// Of it, so long DAMON's thread may spend on a scheme: taking one page costs it a microsecond or two.
const QUOTA_MS: u64 = 100;
/// Aggregations in which nothing of a region may have been accessed, where pages cannot be asked.
const UNUSED_AGGREGATIONS: u64 = 50;
/// Free memory, in thousandths, above the mark up to which a scheme that rests stays so.
const WATERMARK_GAP: u64 = 20;
/// What is mapped and used is looked at for its protection, so much in a step.
const PROTECT_QUOTA: Bytes = Bytes(256 << 20);
/// The most that is looked at to take one part.
const MOST_EFFORT: f64 = 64.0;
/// A quota that is another by less than one part in so many is left as it is.
const SAME_QUOTA: u64 = 10;

/// DAMON at work for us.
#[derive(Debug)]
pub struct Damon {
    claim: Claim,
    abilities: Abilities,
    /// Free memory, in thousandths, below which schemes act; None if they are not to decide that.
    free_below: Option<u64>,
    schemes: Vec<Scheme>,
    /// How much must be looked at for so much to be taken, by what is to be taken.
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
    /// What it may look at in a step, as DAMON counts it: whether it takes that or not.
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

impl Damon {
    /// Takes DAMON, and finds out what it can do; nothing is aged yet.
    ///
    /// Errors: it is missing, in use, or cannot act on physical addresses; then nothing is left changed.
    pub fn open(root: &Root) -> Result<Self, AgeError> {
        Self::with(Claim::take(root, Purpose::Age)?, root)
    }

    fn with(claim: Claim, root: &Root) -> Result<Self, AgeError> {
        let memory = iomem::whole_pages(root)?;
        if memory.is_empty() {
            return Err(AgeError::HiddenMemory);
        }
        claim.watch(Watched::Physical(&memory), INTERVALS)?;
        let abilities = Abilities::probe(&claim)?;
        Ok(Self {
            claim,
            abilities,
            free_below: None,
            schemes: Vec::new(),
            effort: BTreeMap::new(),
            is_on: false,
            counts: BTreeMap::new(),
        })
    }

    /// What came of the schemes since that was last told.
    fn tell(&mut self) -> Result<Vec<Effect>, AgeError> {
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
                effects.push(Effect { uses: scheme.uses, aged: Bytes(since.applied), reclaimed: Bytes(reclaimed) });
            }
        }
        Ok(effects)
    }

    /// The schemes that carry these strokes out, allowed to look at as much as it took so far to take what is wanted.
    fn schemes(&self, strokes: &[Stroke]) -> Vec<Scheme> {
        let mut schemes = self.abilities.schemes(strokes);
        for (scheme, stroke) in schemes.iter_mut().zip(strokes) {
            let effort = self.effort.get(&scheme.uses).copied().unwrap_or(1.0);
            scheme.quota = Bytes((scheme.wanted.0 as f64 * effort) as u64).min(stroke.most);
        }
        schemes
    }

    /// Has these schemes at work, and no others.
    fn set(&mut self, schemes: Vec<Scheme>, free_below: Option<u64>) -> Result<(), DamonError> {
        let alike = schemes.len() == self.schemes.len()
            && free_below == self.free_below
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
        self.free_below = free_below;
        if schemes.is_empty() {
            return Ok(());
        }
        self.claim.context("schemes/nr_schemes", &schemes.len().to_string())?;
        for (number, scheme) in schemes.iter().enumerate() {
            self.write(number, scheme)?;
        }
        self.claim.switch_on()?;
        (self.is_on, self.schemes) = (true, schemes);
        Ok(())
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
        self.claim.heed_all_regions(number)?;
        if !self.abilities.young {
            // No page is asked whether it was used, so its region must say that nothing there was, for five seconds.
            write("access_pattern/nr_accesses/max", "0")?;
            write("access_pattern/age/min", &UNUSED_AGGREGATIONS.to_string())?;
        }
        if self.claim.context_path(&format!("schemes/{number}/apply_interval_us")).exists() {
            write("apply_interval_us", &(QUOTA_INTERVAL_MS * 1000).to_string())?;
        }
        write("quotas/bytes", &scheme.quota.0.to_string())?;
        write("quotas/ms", &QUOTA_MS.to_string())?;
        write("quotas/reset_interval_ms", &QUOTA_INTERVAL_MS.to_string())?;
        // Of regions that are more than the quota, those go first that were accessed least and longest ago.
        for (weight, permil) in [("sz", 0), ("nr_accesses", 500), ("age", 500)] {
            write(&format!("quotas/weights/{weight}_permil"), &permil.to_string())?;
        }
        match self.free_below {
            None => write("watermarks/metric", "none")?,
            Some(mark) => {
                write("watermarks/metric", "free_mem_rate")?;
                write("watermarks/interval_us", "1000000")?;
                write("watermarks/high", &(mark + WATERMARK_GAP).min(1000).to_string())?;
                write("watermarks/mid", &mark.to_string())?;
                write("watermarks/low", "0")?;
            }
        }
        let Some(folder) = self.abilities.filters else { return Ok(()) };
        write(&format!("{folder}/nr_filters"), &scheme.filters.len().to_string())?;
        for (filter, (kind, matching)) in scheme.filters.iter().enumerate() {
            write(&format!("{folder}/{filter}/type"), kind)?;
            write(&format!("{folder}/{filter}/matching"), if *matching { "Y" } else { "N" })?;
        }
        Ok(())
    }
}

impl Mechanism for Damon {
    fn kind(&self) -> MechanismKind {
        MechanismKind::Damon
    }

    fn reach(&self) -> Vec<Uses> {
        self.abilities.reach()
    }

    fn step(&mut self, order: Order<'_>, _stop: &Stop) -> Result<Vec<Effect>, AgeError> {
        let effects = self.tell()?;
        let free_below = order.free_below.map(|share| (share * 1000.0) as u64);
        self.set(self.schemes(order.strokes), free_below)?;
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

    /// The schemes that carry these strokes out.
    fn schemes(&self, strokes: &[Stroke]) -> Vec<Scheme> {
        let mut schemes: Vec<Scheme> = strokes.iter().map(|stroke| self.scheme(stroke)).collect();
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

    fn scheme(&self, stroke: &Stroke) -> Scheme {
        let uses = stroke.uses;
        let anonymous = uses.has(MemoryUse::Anonymous);
        // Shared memory may be either: whoever takes it with one of the two takes only that part of it.
        let (mapped, unmapped) = (!uses.and(Uses::MAPPED_FILES).is_empty(), uses.has(MemoryUse::UnmappedCache));
        let only_mapped = !unmapped && !anonymous;
        // What was used in between is passed over: the second look finds it young.
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
        Scheme { action, uses, filters, wanted: stroke.bytes, quota: stroke.bytes, told: Statistics::default() }
    }
}

/// How much must be looked at, after a step in which so much was wanted: DAMON's quotas count what it looks at, of which filters pass some.
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
mod tests {
    use super::*;
    use crate::damon::samples::{Release, text};
    use crate::kernel::damon::{DIRECTORY, NOTE};
    use std::fs;

    fn open(release: Release) -> (tempfile::TempDir, Root, Damon) {
        let (folder, root, claim) = release.claim();
        let damon = Damon::with(claim.unwrap(), &root).unwrap();
        (folder, root, damon)
    }

    fn step(damon: &mut Damon, strokes: &[Stroke]) -> Vec<Effect> {
        damon.step(Order { strokes, free_below: None }, &Stop::default()).unwrap()
    }

    fn stroke(classes: &[MemoryUse], mib: u64) -> Stroke {
        Stroke { uses: classes.iter().copied().collect(), bytes: Bytes(mib << 20), most: Bytes(120 << 20) }
    }

    fn scheme(root: &Root, number: usize, name: &str) -> String {
        text(root, &format!("0/contexts/0/schemes/{number}/{name}"))
    }

    #[test]
    fn what_a_kernel_can_do_is_found_out_by_what_it_takes() {
        let abilities = |release| open(release).2.abilities;
        let oldest = abilities(Release::Linux61);
        assert_eq!((oldest.filters, oldest.anon, oldest.lru_deprio), (None, false, true));
        let middle = abilities(Release::Linux612);
        assert_eq!((middle.filters, middle.anon, middle.young, middle.unmapped), (Some("filters"), true, true, false));
        let newest = abilities(Release::Linux618);
        assert_eq!((newest.filters, newest.unmapped, newest.active), (Some("ops_filters"), true, true));
        let counts = open(Release::Linux612).2.counts();
        assert_eq!(counts.into_keys().collect::<Vec<_>>(), ["filter_anon", "filter_young"]);
    }

    #[test]
    fn what_is_reached_follows_from_the_filters() {
        let reach = |release| open(release).2.reach();
        assert_eq!(reach(Release::Linux61), [Uses::ALL]);
        assert_eq!(reach(Release::Linux612).len(), 2);
        let cache = reach(Release::Linux618)[0];
        assert!(cache.has(MemoryUse::UnmappedCache) && !cache.has(MemoryUse::MappedFiles));
    }

    #[test]
    fn a_scheme_is_set_up_switched_on_told_of_and_taken_away() {
        let (_folder, root, mut damon) = open(Release::Linux618);
        let order = Order { strokes: &[stroke(&[MemoryUse::UnmappedCache], 64)], free_below: Some(0.3) };
        assert_eq!(damon.step(order, &Stop::default()).unwrap(), []);
        assert_eq!(scheme(&root, 0, "action"), "pageout");
        let filter = |scheme_number, number: usize| {
            let part = |name| scheme(&root, scheme_number, &format!("ops_filters/{number}/{name}"));
            (part("type"), part("matching"))
        };
        let expected = [("anon", "Y"), ("unmapped", "N"), ("young", "Y"), ("active", "Y")];
        for (number, (kind, matching)) in expected.into_iter().enumerate() {
            assert_eq!(filter(0, number), (kind.to_owned(), matching.to_owned()));
        }
        assert_eq!(
            (scheme(&root, 0, "quotas/bytes"), scheme(&root, 0, "quotas/ms")),
            ("67108864".into(), "100".into())
        );
        assert_eq!(scheme(&root, 0, "watermarks/metric"), "free_mem_rate");
        let marks = ["high", "mid", "low"].map(|mark| scheme(&root, 0, &format!("watermarks/{mark}")));
        assert_eq!(marks, ["320", "300", "0"]);
        assert_eq!((scheme(&root, 1, "action"), filter(1, 2)), ("lru_prio".into(), ("young".into(), "N".into())));
        assert_eq!(text(&root, "0/state"), "on");
        for (name, value) in [("sz_tried", 9000), ("sz_applied", 8000), ("qt_exceeds", 2)] {
            fs::write(root.path(&format!("{DIRECTORY}/0/contexts/0/schemes/0/stats/{name}")), value.to_string())
                .unwrap();
        }
        let effects = step(&mut damon, &[]);
        let uses = [MemoryUse::UnmappedCache].into_iter().collect();
        assert_eq!(effects, [Effect { uses, aged: Bytes(8000), reclaimed: Bytes(8000) }]);
        assert_eq!((text(&root, "0/state").as_str(), damon.counts()["quota_exceeded"]), ("off", 2));
        drop(damon);
        assert_eq!((text(&root, "nr_kdamonds").as_str(), root.path(NOTE).exists()), ("0", false));
    }

    #[test]
    fn quotas_follow_while_it_goes_on() {
        let (_folder, root, mut damon) = open(Release::Linux612);
        let files: Vec<MemoryUse> = Uses::OF_FILES.iter().collect();
        step(&mut damon, &[stroke(&files, 100)]);
        assert_eq!(
            (scheme(&root, 0, "filters/nr_filters"), scheme(&root, 0, "watermarks/metric")),
            ("2".into(), "none".into())
        );
        let counted = |applied: u64| {
            for name in ["sz_tried", "sz_applied"] {
                fs::write(root.path(&format!("{DIRECTORY}/0/contexts/0/schemes/0/stats/{name}")), applied.to_string())
                    .unwrap();
            }
        };
        counted(100 << 20);
        step(&mut damon, &[stroke(&files, 105)]);
        assert_eq!(text(&root, "0/state"), "update_schemes_stats", "as good as the same");
        counted(205 << 20);
        let told = step(&mut damon, &[stroke(&files, 50)]);
        assert_eq!((told[0].aged, text(&root, "0/state").as_str()), (Bytes(105 << 20), "commit"));
        assert_eq!(scheme(&root, 0, "quotas/bytes"), (50 << 20).to_string());
        counted(30);
        assert_eq!(step(&mut damon, &[])[0].aged, Bytes(30), "the kernel counted anew");
    }

    #[test]
    fn more_is_looked_at_where_little_of_it_can_be_taken_but_never_more_than_may_be_lost() {
        let (_folder, root, mut damon) = open(Release::Linux618);
        let cache = [MemoryUse::UnmappedCache];
        step(&mut damon, &[stroke(&cache, 40)]);
        let counted = |tried: u64, applied: u64| {
            for (name, count) in [("sz_tried", tried), ("sz_applied", applied)] {
                let path = format!("{DIRECTORY}/0/contexts/0/schemes/0/stats/{name}");
                fs::write(root.path(&path), (count << 20).to_string()).unwrap();
            }
        };
        let quota = |damon: &mut Damon| {
            step(damon, &[stroke(&cache, 40)]);
            scheme(&root, 0, "quotas/bytes").parse::<u64>().unwrap() >> 20
        };
        counted(40, 10);
        assert_eq!(quota(&mut damon), 80);
        counted(120, 30);
        assert_eq!(quota(&mut damon), 120, "all that may be lost");
        counted(120, 30);
        assert_eq!(quota(&mut damon), 120, "it rests by its watermark, which tells nothing");
        let (tried, applied) = (100 << 20, 160 << 20);
        assert_eq!(effort_after(4.0, Bytes(80 << 20), Statistics { tried, applied, quota_exceeded: 0 }), 2.0);
    }

    #[test]
    fn without_a_filter_for_what_is_in_use_only_idle_regions_are_heeded() {
        let limits = |release| {
            let (_folder, root, mut damon) = open(release);
            step(&mut damon, &[stroke(&MemoryUse::ALL, 1)]);
            (scheme(&root, 0, "access_pattern/nr_accesses/max"), scheme(&root, 0, "access_pattern/age/min"))
        };
        assert_eq!(limits(Release::Linux61), ("0".into(), "50".into()));
        assert_eq!(limits(Release::Linux612), (u32::MAX.to_string(), "0".into()));
    }

    #[test]
    fn what_is_mapped_is_not_torn_out() {
        let abilities = open(Release::Linux618).2.abilities;
        let made = abilities.scheme(&stroke(&[MemoryUse::MappedFiles, MemoryUse::Code], 1));
        assert_eq!(
            (made.action, made.filters),
            (Action::Deprioritize, vec![("anon", true), ("unmapped", true), ("young", true)])
        );
        let made = abilities.scheme(&stroke(&[MemoryUse::Anonymous], 1));
        assert_eq!((made.action, made.filters), (Action::Pageout, vec![("anon", false), ("young", true)]));
        let made = abilities.scheme(&stroke(&[MemoryUse::Shared, MemoryUse::UnmappedCache], 1));
        assert_eq!(
            made.filters[1],
            ("unmapped", false),
            "files that are mapped stay, though shared memory may be mapped"
        );
        let cache = stroke(&[MemoryUse::UnmappedCache], 1);
        assert_eq!(abilities.schemes(&[cache]).len(), 2, "and what is mapped and used is protected");
        assert_eq!(abilities.schemes(&[cache, stroke(&[MemoryUse::Code], 1)]).len(), 2, "unless it is aged as well");
    }

    #[test]
    fn who_may_not_know_where_memory_is_is_told() {
        let (folder, root, claim) = Release::Linux612.claim();
        fs::write(folder.path().join("proc/iomem"), "00000000-00000000 : System RAM\n").unwrap();
        let error = Damon::with(claim.unwrap(), &root).unwrap_err();
        assert!(matches!(error, AgeError::HiddenMemory), "{error}");
        assert_eq!(text(&root, "nr_kdamonds"), "0", "nothing is left changed");
    }
}
