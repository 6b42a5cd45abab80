//! Whether huge pages would help a program, from one short observation of its busiest process.
//!
//! Owns: how briefly a program is observed, and what should be done next. Never touches: memory placement, or how a finding is worded.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE, Nanos};
use heat::{Coverage, Heat, Obstacle};
use hugepilot_os::stop::{Stop, Stopped};
use observe::{ObserveError, ObserveOptions};
use serde::Serialize;

use super::RunningProgram;
use crate::decide::Reason;
use crate::forecast::{Estimator, Forecast, Observation};
use crate::world::World;

/// A program that keeps less of a CPU busy gains nothing that anybody would notice.
pub const IDLE_CPUS: f64 = 0.01;
/// Gains below this many percent are not worth a trial.
pub const WORTH_A_TRIAL: f64 = 1.0;
/// Page tables that are worth freeing.
const MUCH_IN_PAGE_TABLES: Bytes = Bytes(64 << 20);
/// Page walks that take less of a program's CPU time are few.
const NOTICED: f64 = 0.005;
/// A program with this share of its memory on huge pages is done.
const MOSTLY_HUGE: f64 = 0.9;
const WINDOW: Nanos = Nanos(200_000_000);
/// At most so much is observed of a program that has more than four times as many base pages.
const LARGEST_SAMPLE: Bytes = Bytes(1 << 30);
/// At least so much is observed.
const SMALLEST_SAMPLE: Bytes = Bytes(8 << 20);
/// The share of its CPU time that a program may lose; up to four times that where its sample is a quarter of its base pages or more, so that
/// everything is observed. With 0.25 % six of 43 scans of programs that read 64 to 80 MiB at random, and are hardly busy, took that for a pass along
/// memory; with 0.4 % one of 44 did.
const UNNOTICED: f64 = 0.004;
/// The time over which that share is taken.
const UNNOTICED_OVER: Nanos = Nanos(10_000_000_000);
/// The CPU time that a page costs a program once its accessed bit was cleared, because the next access walks page tables and sets the bit: programs
/// lost 1.7 % of their work while 80 MiB of each were observed, which is 0.19 us a page (`hugepilot-bench crowd`, AMD Zen 4).
const NEXT_ACCESS: Nanos = Nanos(200);
/// A sample may take this long to be cleared.
const LONGEST: Nanos = Nanos(1_000_000_000);

/// What a program's scan found.
#[derive(Clone, Debug, PartialEq)]
pub enum ScanFinding {
    /// It was not observed, because it hardly uses CPU time.
    Idle,
    /// It could not be observed.
    Refused(String),
    /// What was observed of its busiest process.
    Observed(ObservedProgram),
}

/// What was observed of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedProgram {
    /// Its memory, file pages included.
    pub resident: Bytes,
    /// The part on huge pages.
    pub huge: Bytes,
    /// The share of its CPU time that page walks take: as the processor counts it, or an estimate. None if it used no CPU time.
    pub walk_share: Option<f64>,
    /// Memory that promoting would put on huge pages.
    pub would_pay: Bytes,
    /// Memory growth by promoting.
    pub growth: Bytes,
    /// Page tables that promoting would free.
    pub page_tables_freed: Bytes,
    /// The speed that it would gain.
    pub forecast: Forecast,
    /// Why most of its page walks would stay; None if promoting would save most of them, or nearly all of it is on huge pages.
    pub kept: Option<Reason>,
    /// What it would gain by a restart, where that removes what stands in the way.
    pub after_restart: Option<GainByRestart>,
    /// The share of its CPU time that page faults take at most which promoting does not save; None if they are few.
    pub fault_share: Option<f64>,
    /// Whether huge pages from the start would mostly be empty.
    pub is_sparse: bool,
}

/// What a restart brings once the one thing is removed that keeps most from huge pages.
#[derive(Clone, Debug, PartialEq)]
pub struct GainByRestart {
    /// What must be removed.
    pub first: RestartRemedy,
    /// The speed that it would then gain.
    pub forecast: Forecast,
}

/// What is done before a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartRemedy {
    /// Its shared memory is aligned.
    AlignSharedMemory,
    /// This file, of those that it maps only for reading the one whose pages are walked most, is put into the page cache on huge pages.
    CacheFile(String),
}

/// What should be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatNext {
    /// Nothing.
    Nothing,
    /// Prove the gain by a trial.
    Trial,
    /// Promote what its processes share, which frees page tables.
    FreePageTables,
    /// Restart it with its shared memory aligned.
    Restart,
    /// Restart it after a file that it maps was put into the page cache on huge pages.
    CacheFile,
    /// Start it so that its new memory is on huge pages from the first touch, for which promoting comes too late.
    StartOnHugePages,
    /// Restart it without the setting by which it switches huge pages off.
    AllowHugePages,
    /// Observe it again when less is running.
    ObserveAgain,
}

/// Observes a program's busiest process for a fifth of a second. `estimator` is what to estimate its gain with if it walks for so much memory.
///
/// Errors: a signal ended it.
pub fn scan(
    program: &RunningProgram,
    world: &mut dyn World,
    estimator: impl Fn(Bytes) -> Estimator,
    stop: &Stop,
) -> Result<ScanFinding, Stopped> {
    if program.busy_cpus < IDLE_CPUS {
        return Ok(ScanFinding::Idle);
    }
    match observe(program, world, stop) {
        Ok(observation) => Ok(ScanFinding::Observed(ObservedProgram::of(&observation, estimator))),
        Err(ObserveError::Stopped(stopped)) => Err(stopped),
        Err(error) => Ok(ScanFinding::Refused(error.to_string())),
    }
}

fn observe(program: &RunningProgram, world: &mut dyn World, stop: &Stop) -> Result<Observation, ObserveError> {
    let seed = RandomState::new().hash_one(program.busiest);
    let coverage = Coverage::Sample { size: unnoticed(program), longest: Some(LONGEST), seed };
    let options = ObserveOptions { window: WINDOW, coverage, ..ObserveOptions::default() };
    Observation::of(world, program.busiest, false, &options, stop)
}

/// As much memory of its busiest process as can be observed without being noticed.
fn unnoticed(program: &RunningProgram) -> Bytes {
    let cpu = UNNOTICED_OVER.0 as f64 * program.busy_cpus * program.share_of_busiest;
    let pages = (UNNOTICED * cpu / NEXT_ACCESS.0 as f64) as u64;
    Bytes(pages * BASE_PAGE).clamp(SMALLEST_SAMPLE, LARGEST_SAMPLE)
}

impl ObservedProgram {
    fn of(observation: &Observation, estimator: impl Fn(Bytes) -> Estimator) -> Self {
        let heat = &observation.heat;
        let (plan, estimator) = (Observation::plan_for(heat), estimator(observation.family.footprint));
        let times = heat.times_observed();
        let of_all = |observed: Bytes| Bytes((observed.0 as f64 * times) as u64);
        let walk_share = observation.share_of_walks(&plan, &estimator);
        let in_pool = heat.regions.iter().filter(|region| region.huge && region.obstacle == Some(Obstacle::Hugetlb));
        let resident = heat.rss + Bytes(in_pool.count() as u64 * HUGE_PAGE);
        let huge = heat.huge_bytes();
        let few = walk_share.is_some_and(|share| share < NOTICED);
        // What little is left beside huge pages needs no reason.
        let is_done = few && huge >= resident.share(MOSTLY_HUGE);
        Self {
            resident,
            huge,
            walk_share,
            would_pay: of_all(Bytes(plan.promotions().count() as u64 * HUGE_PAGE)),
            growth: of_all(plan.growth()),
            page_tables_freed: of_all(plan.page_tables_freed()),
            forecast: observation.forecast(&plan, &estimator),
            kept: plan.mostly_kept(few).filter(|_| !is_done),
            after_restart: GainByRestart::of(observation, &estimator),
            fault_share: observation.share_of_page_faults(&estimator.cost),
            is_sparse: observation.heat.is_sparse(),
        }
    }
}

impl GainByRestart {
    /// The remedy that gains more; None where nothing is in the way that a restart removes.
    fn of(observation: &Observation, estimator: &Estimator) -> Option<Self> {
        let heat = &observation.heat;
        let after = |obstacle, first| {
            let plan = Observation::plan_for(&heat.as_if_without(&[obstacle])?);
            Some(Self { first, forecast: observation.forecast(&plan, estimator) })
        };
        let aligned = after(Obstacle::Misaligned, RestartRemedy::AlignSharedMemory);
        let cached = most_walked_file(heat)
            .and_then(|file| after(Obstacle::ReadOnlyFile, RestartRemedy::CacheFile(file.to_owned())));
        let likely = |after: &Self| after.forecast.gain().map_or(0.0, |gain| gain.likely);
        aligned.into_iter().chain(cached).max_by(|one, other| likely(one).total_cmp(&likely(other)))
    }
}

/// The name of the file mapped only for reading whose pages are walked most.
fn most_walked_file(heat: &Heat) -> Option<&str> {
    let mut walks: BTreeMap<&str, f64> = BTreeMap::new();
    let of_files = heat.regions.iter().filter(|region| region.obstacle == Some(Obstacle::ReadOnlyFile));
    for region in of_files {
        let Some(mapping) = heat.mapping_of(region) else { continue };
        *walks.entry(&mapping.name).or_default() += region.walks_per_second;
    }
    walks.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(file, _)| file)
}

impl ObservedProgram {
    /// Page tables that promoting would free in all processes of its program, if each has as many.
    pub fn page_tables_freed_by(&self, program: &RunningProgram) -> Bytes {
        Bytes(self.page_tables_freed.0.saturating_mul(program.processes))
    }
}

impl ScanFinding {
    /// The share of the program's CPU time that it would save, likely: f / (1 + f) of a gain of f. None if that is unknown.
    pub fn time_saved(&self) -> Option<f64> {
        match self {
            ScanFinding::Observed(observed) => observed.forecast.gain().map(|gain| gain.likely / (100.0 + gain.likely)),
            ScanFinding::Idle => Some(0.0),
            ScanFinding::Refused(_) => None,
        }
    }
}

/// What should be done next about a program.
pub fn next_step(program: &RunningProgram, finding: &ScanFinding) -> WhatNext {
    let ScanFinding::Observed(observed) = finding else { return WhatNext::Nothing };
    let pays = |forecast: Forecast| forecast.gain().is_some_and(|gain| gain.likely >= WORTH_A_TRIAL);
    if matches!(observed.forecast, Forecast::Contended(_)) {
        WhatNext::ObserveAgain
    } else if pays(observed.forecast) {
        if program.switched_off == Some(true) { WhatNext::AllowHugePages } else { WhatNext::Trial }
    } else if let Some(after) = observed.after_restart.as_ref().filter(|after| pays(after.forecast)) {
        match after.first {
            RestartRemedy::AlignSharedMemory => WhatNext::Restart,
            RestartRemedy::CacheFile(_) => WhatNext::CacheFile,
        }
    } else if observed.page_tables_freed_by(program) >= MUCH_IN_PAGE_TABLES {
        WhatNext::FreePageTables
    } else if observed.fault_share.is_some() && !observed.is_sparse {
        if program.switched_off == Some(true) { WhatNext::AllowHugePages } else { WhatNext::StartOnHugePages }
    } else {
        WhatNext::Nothing
    }
}

/// Sorts programs with their findings: those first that would save most CPU time, then those of which it is unknown.
pub fn rank(found: &mut [(RunningProgram, ScanFinding)]) {
    let saved = |(program, finding): &(RunningProgram, ScanFinding)| match finding.time_saved() {
        Some(share) => share * program.busy_cpus,
        // Above all that gain nothing.
        None => f64::MIN_POSITIVE,
    };
    found.sort_by(|one, other| saved(other).total_cmp(&saved(one)).then(other.0.memory.cmp(&one.0.memory)));
}

#[cfg(test)]
mod tests {
    use heat::samples::{heat_of, huge, region};
    use heat::{Estimate, Mapping, Sample, WalkCost};
    use kernel::target::Process;

    use super::*;
    use crate::decide::GainPercent;
    use crate::engine::Family;
    use crate::forecast::Gauged;
    use crate::past_trials::EstimatedFrom;

    #[test]
    fn less_is_observed_of_one_that_is_less_busy() {
        let of = |busy_cpus| unnoticed(&program(busy_cpus));
        assert_eq!(of(1.0), Bytes(200_000 * BASE_PAGE));
        assert_eq!(of(0.02), Bytes(4_000 * BASE_PAGE));
        assert_eq!([of(0.01), of(8.0)], [SMALLEST_SAMPLE, LARGEST_SAMPLE]);
        let shared = RunningProgram { share_of_busiest: 0.1, ..program(1.0) };
        assert_eq!(unnoticed(&shared), Bytes(20_000 * BASE_PAGE));
    }

    fn program(busy_cpus: f64) -> RunningProgram {
        RunningProgram {
            name: "db".to_owned(),
            place: None,
            processes: 1,
            busiest: Process { pid: 7, start_ticks: 1 },
            busiest_name: "db".to_owned(),
            share_of_busiest: 1.0,
            busy_cpus,
            memory: Bytes(1 << 30),
            page_tables: Bytes(2 << 20),
            switched_off: Some(false),
        }
    }

    fn gaining(likely: f64) -> ObservedProgram {
        ObservedProgram {
            resident: Bytes(1 << 30),
            huge: Bytes(0),
            walk_share: Some(0.1),
            would_pay: Bytes(1 << 29),
            growth: Bytes(0),
            page_tables_freed: Bytes(0),
            forecast: Forecast::Gain(GainPercent { low: 0.0, likely, high: 2.0 * likely }, EstimatedFrom::Model),
            kept: None,
            after_restart: None,
            fault_share: None,
            is_sparse: false,
        }
    }

    #[test]
    fn what_saves_most_cpu_time_comes_first() {
        let observed = |likely| ScanFinding::Observed(gaining(likely));
        let mut found = vec![
            (program(0.0), ScanFinding::Idle),
            (program(1.0), ScanFinding::Refused("no".to_owned())),
            (program(8.0), observed(2.0)),
            (program(0.1), observed(50.0)),
            (program(1.0), observed(25.0)),
        ];
        rank(&mut found);
        let saved: Vec<Option<f64>> = found
            .iter()
            .map(|(program, finding)| finding.time_saved().map(|share| (share * program.busy_cpus * 1000.0).round()))
            .collect();
        assert_eq!(saved, [Some(200.0), Some(157.0), Some(33.0), None, Some(0.0)]);
    }

    #[test]
    fn the_next_step_follows_from_what_was_found() {
        let step =
            |program: &RunningProgram, observed: ObservedProgram| next_step(program, &ScanFinding::Observed(observed));
        let busy = program(1.0);
        assert_eq!(step(&busy, gaining(5.0)), WhatNext::Trial);
        assert_eq!(step(&busy, gaining(0.5)), WhatNext::Nothing);
        assert_eq!(
            step(&RunningProgram { switched_off: Some(true), ..busy.clone() }, gaining(5.0)),
            WhatNext::AllowHugePages
        );
        let restarted = |first| ObservedProgram {
            after_restart: Some(GainByRestart { first, forecast: gaining(9.0).forecast }),
            ..gaining(0.0)
        };
        assert_eq!(step(&busy, restarted(RestartRemedy::AlignSharedMemory)), WhatNext::Restart);
        let file = RestartRemedy::CacheFile("/srv/index".to_owned());
        assert_eq!(step(&busy, restarted(file)), WhatNext::CacheFile);
        let many = RunningProgram { processes: 100, ..busy.clone() };
        let tables = ObservedProgram { page_tables_freed: Bytes(4 << 20), ..gaining(0.0) };
        assert_eq!((step(&many, tables.clone()), step(&busy, tables)), (WhatNext::FreePageTables, WhatNext::Nothing));
        let faulting = ObservedProgram { fault_share: Some(0.2), ..gaining(0.0) };
        assert_eq!(step(&busy, faulting.clone()), WhatNext::StartOnHugePages);
        assert_eq!(step(&busy, ObservedProgram { is_sparse: true, ..faulting }), WhatNext::Nothing);
        let contended = ObservedProgram { forecast: Forecast::Contended(0.9), ..gaining(0.0) };
        assert_eq!(step(&busy, contended), WhatNext::ObserveAgain);
        assert_eq!(next_step(&busy, &ScanFinding::Idle), WhatNext::Nothing);
    }

    #[test]
    fn the_file_that_is_walked_most_is_named() {
        let of_file = |number, mapping, walks| heat::Region {
            obstacle: Some(Obstacle::ReadOnlyFile),
            mapping: Some(mapping),
            ..region(number, walks, 0)
        };
        let regions = [region(0, 9e3, 0), of_file(1, 1, 2e6), of_file(2, 2, 1e6), of_file(3, 2, 15e5)];
        let mut heat = heat_of(regions.to_vec());
        let obstacle = Some(Obstacle::ReadOnlyFile);
        heat.mappings.extend(["/srv/one", "/srv/two"].map(|name| Mapping {
            name: name.to_owned(),
            obstacle,
            ..Mapping::default()
        }));
        let after_restart = |heat: &Heat| {
            let family = Family::alone(Bytes(0), heat.footprint());
            let observation = Observation { heat: heat.clone(), family, gauged: Gauged::default() };
            GainByRestart::of(&observation, &Estimator::of_model(WalkCost::UNCALIBRATED))
        };
        let first = after_restart(&heat).map(|after| after.first);
        assert_eq!(first, Some(RestartRemedy::CacheFile("/srv/two".to_owned())));
        heat.regions.truncate(1);
        assert_eq!(after_restart(&heat), None);
    }

    #[test]
    fn the_reason_of_most_page_walks_that_stay_is_told() {
        let of = |regions| Observation::plan_for(&heat_of(regions)).mostly_kept(false);
        let stack = |number, walks| heat::Region { obstacle: Some(Obstacle::Stack), ..region(number, walks, 0) };
        let beside = |stack| vec![region(0, 3e6, 0), region(1, 2e6, 0), stack];
        assert_eq!(of(beside(stack(2, 1e6))), None, "most of them are saved");
        assert_eq!(of(beside(stack(2, 9e6))), Some(Reason::Obstacle(Obstacle::Stack)));
        assert_eq!(of(vec![region(0, 0.0, 0)]), Some(Reason::NotWalked));
        assert_eq!(of(vec![huge(0, 1e6)]), None, "all of it is huge already");
        let special = heat::Region { obstacle: Some(Obstacle::Special), ..region(2, 9.0, 0) };
        let mostly_cold = || vec![region(0, 0.0, 0), region(1, 0.0, 0), special.clone()];
        assert_eq!(of(mostly_cold()), Some(Reason::Obstacle(Obstacle::Special)));
        let beside_a_stack = vec![special.clone(), stack(3, 9e6)];
        assert_eq!(
            of(beside_a_stack),
            Some(Reason::Obstacle(Obstacle::Special)),
            "nobody can do anything about a stack"
        );
        assert_eq!(
            Observation::plan_for(&heat_of(mostly_cold())).mostly_kept(true),
            Some(Reason::NotWalked),
            "few walks"
        );
    }

    #[test]
    fn what_is_nearly_all_on_huge_pages_needs_no_reason() {
        let kept = |stacks: u64| {
            let stack = |number| heat::Region { obstacle: Some(Obstacle::Stack), ..region(number, 0.0, 0) };
            let regions = (0..64).map(|number| if number < stacks { stack(number) } else { huge(number, 0.0) });
            let heat = heat_of(regions.collect());
            let family = Family::alone(Bytes(0), heat.footprint());
            let observation = Observation { heat, family, gauged: Gauged::default() };
            ObservedProgram::of(&observation, |_| Estimator::of_model(WalkCost::UNCALIBRATED)).kept
        };
        assert_eq!((kept(4), kept(32)), (None, Some(Reason::Obstacle(Obstacle::Stack))));
    }

    #[test]
    fn pages_of_a_pool_count_as_resident() {
        let in_pool = |number| heat::Region { obstacle: Some(Obstacle::Hugetlb), ..huge(number, 0.0) };
        let heat = Heat { rss: Bytes(HUGE_PAGE), ..heat_of((0..3).map(in_pool).collect()) };
        let family = Family::alone(Bytes(0), heat.footprint());
        let observation = Observation { heat, family, gauged: Gauged::default() };
        let observed = ObservedProgram::of(&observation, |_| Estimator::of_model(WalkCost::UNCALIBRATED));
        assert_eq!((observed.resident, observed.huge), (Bytes(4 * HUGE_PAGE), Bytes(3 * HUGE_PAGE)));
    }

    #[test]
    fn a_sample_stands_for_the_whole() {
        let mut heat = heat_of((0..64).map(|number| region(number, 5e3, 0)).collect());
        heat.busy_cpus = Some(1.0);
        heat.walks.scattered = Some(1.0);
        let observed = |heat: &Heat| {
            let family = Family::alone(Bytes(0), heat.footprint());
            let observation = Observation { heat: heat.clone(), family, gauged: Gauged::default() };
            ObservedProgram::of(&observation, |_| Estimator::of_model(WalkCost::UNCALIBRATED))
        };
        let whole = observed(&heat);
        assert_eq!(whole.would_pay, Bytes(64 * HUGE_PAGE));
        let nothing = Estimate::default();
        let (observed_bytes, of) = (Bytes(1 << 21), Bytes(4 << 21));
        let sample = Sample {
            observed: observed_bytes,
            of,
            walks_per_second: Estimate { value: 4.0 * 64.0 * 5e3, error: 0.0 },
            pages_walked: nothing,
        };
        heat.sample = Some(sample);
        let extrapolated = observed(&heat);
        assert_eq!(extrapolated.would_pay, Bytes(4 * 64 * HUGE_PAGE));
        let low = |observed: &ObservedProgram| observed.forecast.gain().expect("a gain").low;
        assert!(low(&extrapolated) > 3.0 * low(&whole), "{extrapolated:?} {whole:?}");
    }
}
