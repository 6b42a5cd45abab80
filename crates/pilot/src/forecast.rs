//! What putting a program's memory on huge pages would gain: one observation, the plan for it, and the estimate.
//!
//! Owns: the one way from an observation to a forecast, which all commands share. Never touches: memory placement, or how a forecast is worded.

use std::collections::BTreeSet;
use std::time::Instant;

use heat::units::{Address, BASE_PAGE, Bytes, Nanos, PAGES_PER_REGION, Pages};
use heat::{Heat, PageSizes, WalkCost, WalkShare};
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::{ProcessStatus, Stat, cpu_time};
use kernel::target::Process;
use observe::walk_cycles::WalkCycles;
use observe::{ObserveError, ObserveOptions};
use serde::{Deserialize, Serialize};

use crate::decide::{Allowance, GainPercent, Limits, Past, Plan, SavedWork, Spent, decide, expected_gain};
use crate::engine::{Family, FamilyWatch, add_family};
use crate::past_trials::{Correction, EstimatedFrom, PastTrials, TriedProgram};
use crate::world::World;

/// A program that spends more than this share of its time ready to run but without a processor shows the machine's load, not its own walks.
const MOST_WAITED: f64 = 0.75;

/// Page faults that take a smaller share of a program's CPU time are few.
const MANY_PAGE_FAULTS: f64 = 0.05;

/// A forecast of less is one of nothing.
pub const NOTICED_PERCENT: f64 = 0.5;

/// What is promoted must stay for so many seconds to gain all that was forecast.
const STAYS_SECONDS: f64 = 10.0;
/// If it stays for at least this share of that time, little is lost.
const MOSTLY: f64 = 0.9;
/// Regions that are read to judge how much is on smaller huge pages.
const MOST_READ: usize = 32;

/// What a plan would gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Forecast {
    /// A range, and what it rests on.
    Gain(GainPercent, EstimatedFrom),
    /// Unknown, because the program used no CPU time.
    Idle,
    /// Unknown, because the program waited for a processor for this share of the time in which it was ready to run.
    Contended(f64),
}

/// What the gain of one program is estimated with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimator {
    /// What page walks and page faults cost here, for memory of the program's size.
    pub cost: WalkCost,
    /// How past trials correct what follows from that.
    pub correction: Correction,
}

/// What a forecast rests on, so that it can be compared with what came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForecastBasis {
    /// What the plan saves.
    #[serde(flatten)]
    pub saved: SavedWork,
    /// The processors that the program kept busy; None if that could not be told.
    pub busy_cpus: Option<f64>,
    /// The memory for which it walks.
    pub footprint_bytes: Bytes,
    /// The share of its ready time in which it waited for a processor.
    pub waited_share: Option<f64>,
    /// What a walk and a page fault cost here.
    pub cost: WalkCost,
    /// The share of ten seconds for which what is promoted stays, if the memory that the program maps anew takes its place; None where that is not
    /// known, and in earlier records.
    #[serde(default)]
    pub stays: Option<f64>,
    /// The share of these walks that smaller huge pages (mTHP) save already, if the processor keeps each of those in its TLB as one: accessed bits,
    /// which are per base page, do not tell whether it does. None where that was not read, and in earlier records.
    #[serde(default)]
    pub saved_already: Option<f64>,
}

/// Why the range of a forecast begins at nothing, where that is for want of knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// Whether page walks go along addresses, and cost next to nothing, could not be told.
    Order,
    /// The program maps so much new memory that what is promoted may soon be gone.
    NewMemory,
    /// The same, and it fills so little of its memory that huge pages from the start would mostly be empty.
    #[serde(rename = "new_memory")]
    SparseNewMemory,
}

/// What the processor and the kernel count of a process while it is observed.
pub struct Gauges {
    pid: u32,
    cycles: Option<WalkCycles>,
    cpu_time_before: Option<Nanos>,
    pages_before: Option<PagesMapped>,
    began: Instant,
}

/// What a process has mapped so far.
#[derive(Clone, Copy, Debug)]
struct PagesMapped {
    faults: u64,
    /// At most, at once.
    resident: Pages,
}

/// The readings of [`Gauges`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauged {
    /// The share of the process's cycles in which a page walk was under way; None where the processor does not count them.
    pub walk_share: Option<WalkShare>,
    /// Page faults for each second of its CPU time; None if it used none.
    pub faults_per_cpu_second: Option<f64>,
    /// Pages that it mapped each second in place of others: page faults, less the growth of the most memory that it ever had. None if it has ended.
    /// Faults by which the kernel balances memory nodes count, too: they cannot be told apart.
    pub new_pages_per_second: Option<f64>,
    /// See [`ForecastBasis::saved_already`].
    pub saved_already: Option<f64>,
}

/// One observation of a program.
pub struct Observation {
    /// What the tracker observed.
    pub heat: Heat,
    /// The processes that share its memory.
    pub family: Family,
    /// What was counted meanwhile.
    pub gauged: Gauged,
}

impl Forecast {
    /// The forecast of a plan.
    pub fn of(plan: &Plan, heat: &Heat, family: &Family, gauged: Gauged, estimator: &Estimator) -> Self {
        if let Some(waited) = heat.waited_share.filter(|&waited| waited > MOST_WAITED) {
            return Forecast::Contended(waited);
        }
        ForecastBasis::of(plan, heat, family, gauged, &estimator.cost).gain().map_or(Forecast::Idle, |gain| {
            let (gain, from) = estimator.correction.apply(gain);
            Forecast::Gain(gauged.walk_share.map_or(gain, |share| gain.within(share, plan)), from)
        })
    }

    /// The range, if it is known.
    pub fn gain(self) -> Option<GainPercent> {
        match self {
            Forecast::Gain(gain, _) => Some(gain),
            Forecast::Idle | Forecast::Contended(_) => None,
        }
    }

    /// What the range rests on, if it is known.
    pub fn from(self) -> Option<EstimatedFrom> {
        match self {
            Forecast::Gain(_, from) => Some(from),
            Forecast::Idle | Forecast::Contended(_) => None,
        }
    }
}

impl Estimator {
    /// By page walks and their cost alone.
    pub fn of_model(cost: WalkCost) -> Self {
        Self { cost, correction: Correction::None }
    }

    /// With what past trials showed of the process, or of others.
    pub fn of(cost: WalkCost, past: &PastTrials, process: Process) -> Self {
        let program = if past.is_empty() { None } else { TriedProgram::of(&Root::host(), process) };
        Self { cost, correction: past.correction(program.as_ref()) }
    }
}

/// The plan is of what was observed; the rest of a sampled program walks as often.
fn busy_cpus(heat: &Heat) -> Option<f64> {
    heat.busy_cpus.map(|cpus| cpus / heat.times_observed())
}

impl ForecastBasis {
    /// Of a plan.
    pub fn of(plan: &Plan, heat: &Heat, family: &Family, gauged: Gauged, cost: &WalkCost) -> Self {
        Self {
            saved: SavedWork::of(plan),
            busy_cpus: busy_cpus(heat),
            footprint_bytes: family.footprint,
            waited_share: heat.waited_share,
            cost: cost.with_unmapping(family.unmapped_share),
            stays: stays(plan, heat, gauged),
            saved_already: gauged.saved_already,
        }
    }

    /// The gain by today's model; None if the program used no CPU time.
    ///
    /// A program that works in new memory again and again, as one does that allocates an array for each step, walks for memory that is gone before
    /// a huge page pays. Which of its memory that is cannot be seen: perhaps all that would be promoted, perhaps none.
    pub fn gain(&self) -> Option<GainPercent> {
        let gain = expected_gain(&self.saved, &self.cost, self.busy_cpus)?;
        let gain = GainPercent { low: gain.low * (1.0 - self.saved_already.unwrap_or(0.0)), ..gain };
        Some(match self.stays.filter(|_| self.is_soon_gone()) {
            Some(stays) => GainPercent { low: 0.0, likely: stays * gain.likely, high: gain.high },
            None => gain,
        })
    }

    /// Whether what is promoted may soon be gone.
    pub fn is_soon_gone(&self) -> bool {
        self.stays.is_some_and(|stays| stays < MOSTLY)
    }

    /// Why the forecast may be nothing, if that is for want of knowledge.
    pub fn doubt(&self, forecast: Forecast, heat: &Heat) -> Option<Doubt> {
        let gain = forecast.gain()?;
        if gain.low > 0.0 || gain.high < NOTICED_PERCENT || forecast.from() == Some(EstimatedFrom::ItsTrial) {
            None
        } else if self.is_soon_gone() {
            Some(if heat.is_sparse() { Doubt::SparseNewMemory } else { Doubt::NewMemory })
        } else {
            self.saved.scattered_share.is_none().then_some(Doubt::Order)
        }
    }
}

/// See [`ForecastBasis::stays`]. New memory of a program's own does not take the place of what it shares.
fn stays(plan: &Plan, heat: &Heat, gauged: Gauged) -> Option<f64> {
    // Faults on shared memory that promoting saves map nothing new.
    let new_pages = gauged.new_pages_per_second? / heat.times_observed() - heat.faults_per_second();
    let (shared, own): (Vec<_>, Vec<_>) = plan.promotions().partition(|decision| heat.is_shared(decision.start));
    let [shared, own] = [shared, own].map(|regions| (regions.len() * PAGES_PER_REGION) as f64);
    let own_stays = if new_pages > 0.0 { (own / (STAYS_SECONDS * new_pages)).min(1.0) } else { 1.0 };
    (shared + own > 0.0).then(|| (shared + own_stays * own) / (shared + own))
}

impl Gauged {
    /// With what smaller huge pages may save already, judged by some of the regions that would be promoted. That is unknown where frames cannot be
    /// read.
    pub fn with_smaller_pages(self, root: &Root, heat: &Heat, plan: &Plan) -> Self {
        let promoted: Vec<Address> = plan.promotions().map(|decision| decision.start).collect();
        let starts = promoted.iter().step_by(promoted.len().div_ceil(MOST_READ).max(1)).copied();
        let sizes = observe::on_smaller_huge_pages(root, heat.pid, starts.clone()).ok();
        let region = |start| heat.regions.binary_search_by_key(&start, |region| region.start).ok();
        let present = |start| {
            let pages = region(start).and_then(|at| heat.regions.get(at)).map_or(0, |region| region.present.len());
            Pages(pages as u64).bytes()
        };
        Self { saved_already: sizes.map(|sizes| saved_already(&sizes, starts.map(present).sum())), ..self }
    }
}

/// One walk for each smaller huge page is left of those for its base pages.
fn saved_already(sizes: &[PageSizes], present: Bytes) -> f64 {
    let saved = |(page, memory): (Bytes, Bytes)| memory.0 as f64 * (1.0 - BASE_PAGE as f64 / page.0 as f64);
    let saved: f64 = sizes.iter().flat_map(PageSizes::iter).map(saved).sum();
    if present > Bytes(0) { (saved / present.0 as f64).min(1.0) } else { 0.0 }
}

impl Gauges {
    /// Begins to count.
    pub fn start(pid: u32) -> Self {
        Self { cycles: WalkCycles::start(&Root::host(), pid), ..Self::of_kernel(pid) }
    }

    /// The same without the processor's counters, which take three descriptors for each thread: for who observes many programs of other users.
    pub fn of_kernel(pid: u32) -> Self {
        let cpu_time_before = cpu_time(&Root::host(), pid).ok();
        Self { pid, cycles: None, cpu_time_before, pages_before: PagesMapped::of(pid), began: Instant::now() }
    }

    /// What they say so far.
    pub fn read(&mut self) -> Gauged {
        let ran =
            self.cpu_time_before.zip(cpu_time(&Root::host(), self.pid).ok()).map(|(had, has)| has.saturating_sub(had));
        let pages = self.pages_before.zip(PagesMapped::of(self.pid));
        let faults = pages.map(|(before, now)| now.faults.saturating_sub(before.faults));
        let grown = pages.map(|(before, now)| now.resident.0.saturating_sub(before.resident.0));
        let elapsed = self.began.elapsed().as_secs_f64();
        Gauged {
            walk_share: self.cycles.as_mut().and_then(WalkCycles::share),
            faults_per_cpu_second: faults
                .zip(ran.filter(|&ran| ran > Nanos(0)))
                .map(|(faults, ran)| faults as f64 / ran.seconds()),
            new_pages_per_second: faults
                .zip(grown)
                .map(|(faults, grown)| faults.saturating_sub(grown) as f64 / elapsed),
            saved_already: None,
        }
    }
}

impl PagesMapped {
    /// None if the process has ended.
    fn of(pid: u32) -> Option<Self> {
        let faults = Stat::read(&Root::host(), pid).ok()?.minor_faults;
        let resident = ProcessStatus::read(&Root::host(), pid).ok()?.vm_hwm;
        Some(Self { faults, resident: Pages(resident.0 / BASE_PAGE) })
    }
}

impl Observation {
    /// Observes a process once and, if wanted, what its children do with the memory that they share with it.
    ///
    /// Errors: as observing.
    pub fn of(
        world: &mut dyn World,
        process: Process,
        with_children: bool,
        options: &ObserveOptions,
        stop: &Stop,
    ) -> Result<Self, ObserveError> {
        let mut gauges = Gauges::start(process.pid);
        let family = FamilyWatch::begin(world, process, with_children)?;
        let mut heat = world.observe(process, options, stop)?;
        let gauged = gauges.read();
        world.complete(&mut heat);
        let family = add_family(&mut heat, process, with_children, world, options, family, stop)?;
        Ok(Self { heat, family, gauged })
    }

    /// A process whose page walks cannot be observed, such as a virtual machine under KVM: what is populated, and no heat.
    ///
    /// Errors: as observing.
    pub fn of_unseen(world: &mut dyn World, process: Process) -> Result<Self, ObserveError> {
        let mut heat = world.survey_growth(process)?;
        world.complete(&mut heat);
        let page_tables = world.status(process).map_or(Bytes(0), |status| status.vm_pte);
        Ok(Self { family: Family::alone(page_tables, heat.footprint()), heat, gauged: Gauged::default() })
    }

    /// What `promote --guest` would take of a virtual machine with the limits that hold by default.
    pub fn plan_for_guest(heat: &Heat) -> Plan {
        let limits = Allowance::default().limits(heat.rss, &Spent::default());
        decide(heat, &Limits { guest: true, ..limits }, &Past::default())
    }

    /// What would be promoted of such a heat with the limits that hold by default.
    pub fn plan_for(heat: &Heat) -> Plan {
        let memory = heat.promotable_here(&BTreeSet::new());
        decide(heat, &Allowance::default().limits(memory, &Spent::default()), &Past::default())
    }

    /// The share of CPU time in page walks: as the processor counts it, or of those on base pages as the forecast rates them. None where neither
    /// tells.
    pub fn share_of_walks(&self, plan: &Plan, estimator: &Estimator) -> Option<f64> {
        if let Some(counted) = self.gauged.walk_share {
            return Some(counted.high);
        }
        // Who used no CPU time, or waited for a processor, shows nothing.
        self.forecast(plan, estimator).gain()?;
        let mut basis = ForecastBasis::of(plan, &self.heat, &self.family, self.gauged, &estimator.cost);
        basis.saved.walks_saved_per_second = plan.base_walks_per_second();
        basis.saved.saved_share = Some(1.0);
        basis.saved.faults_saved_per_second = 0.0;
        basis.stays = None;
        let (if_all_were_saved, _) = estimator.correction.apply(basis.gain()?);
        Some(if_all_were_saved.likely / (100.0 + if_all_were_saved.likely))
    }

    /// The share of its CPU time that page faults take at most which promoting does not save; None if it is not worth a word.
    ///
    /// Memory that a program maps anew all the time is gone before it could be promoted: it must ask for huge pages itself. A fault on new memory
    /// is taken to cost what one on shared memory does ([`WalkCost::page_fault_ns`]); part of that, to zero the page, stays.
    pub fn share_of_page_faults(&self, cost: &WalkCost) -> Option<f64> {
        let saved = self.heat.faults_per_second() / busy_cpus(&self.heat).filter(|&cpus| cpus > 0.0)?;
        let share = (self.gauged.faults_per_cpu_second? - saved) * cost.page_fault_ns * 1e-9;
        (share >= MANY_PAGE_FAULTS).then_some(share.min(1.0))
    }

    /// The forecast of a plan for it.
    pub fn forecast(&self, plan: &Plan, estimator: &Estimator) -> Forecast {
        Forecast::of(plan, &self.heat, &self.family, self.gauged, estimator)
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::{heat_of, huge, region};
    use heat::units::Bytes;

    use super::*;

    #[test]
    fn a_program_without_a_processor_has_no_forecast() {
        let mut heat = heat_of(vec![region(0, 1e6, 0)]);
        heat.busy_cpus = Some(1.0);
        let (plan, family) = (Observation::plan_for(&heat), Family::alone(Bytes(0), Bytes(1 << 30)));
        let of = |heat: &Heat, waited_share| {
            let heat = Heat { waited_share, ..heat.clone() };
            Forecast::of(&plan, &heat, &family, Gauged::default(), &Estimator::of_model(WalkCost::UNCALIBRATED))
        };
        assert_eq!(of(&heat, Some(0.9)), Forecast::Contended(0.9));
        assert_eq!(of(&heat, Some(0.5)), of(&heat, None));
        assert!(of(&heat, None).gain().is_some());
        heat.busy_cpus = Some(0.0);
        assert_eq!(of(&heat, None), Forecast::Idle);
    }

    #[test]
    fn the_share_of_page_walks_is_counted_or_follows_from_the_forecast() {
        let mut regions: Vec<_> = (0..64).map(|number| region(number, 1e5, 0)).collect();
        regions.extend((64..128).map(|number| huge(number, 1e5)));
        let mut heat = heat_of(regions);
        heat.busy_cpus = Some(1.0);
        let (plan, family) = (Observation::plan_for(&heat), Family::alone(Bytes(0), Bytes(1 << 30)));
        let estimator = Estimator::of_model(WalkCost::UNCALIBRATED);
        let of = |walk_share, waited_share, scattered| {
            let mut heat = Heat { waited_share, ..heat.clone() };
            heat.walks.scattered = scattered;
            let plan = Observation::plan_for(&heat);
            let gauged = Gauged { walk_share, ..Gauged::default() };
            Observation { heat, family, gauged }.share_of_walks(&plan, &estimator)
        };
        let gauged = Gauged::default();
        let gain = Forecast::of(&plan, &heat, &family, gauged, &estimator).gain().expect("a gain").likely;
        let share = of(None, None, None).expect("a share");
        assert!((share - gain / (100.0 + gain)).abs() < 1e-9, "all on base pages are saved: {share}, {gain}");
        let counted = Some(WalkShare { low: 0.1, high: 0.3 });
        assert_eq!(of(counted, None, None), Some(0.3));
        assert_eq!(of(None, Some(0.9), None), None, "it waited for a processor");
        let in_order = of(None, None, Some(0.0)).expect("a share");
        assert!(in_order < share / 4.0, "{in_order}: nothing is promoted, and walks along addresses cost little");
    }

    #[test]
    fn memory_that_is_soon_gone_gains_little() {
        let heat = Heat { busy_cpus: Some(1.0), ..heat_of((0..64).map(|number| region(number, 1e5, 0)).collect()) };
        let (plan, family) = (Observation::plan_for(&heat), Family::alone(Bytes(0), Bytes(1 << 30)));
        let basis = |new_pages_per_second| {
            let gauged = Gauged { new_pages_per_second, ..Gauged::default() };
            ForecastBasis::of(&plan, &heat, &family, gauged, &WalkCost::UNCALIBRATED)
        };
        let gain = |new_pages_per_second| basis(new_pages_per_second).gain().expect("a gain");
        let (all, promoted) = (gain(None), (plan.promotions().count() * PAGES_PER_REGION) as f64);
        assert!(all.likely > 1.0);
        assert_eq!(gain(Some(promoted / 20.0)), all, "half of it is new after ten seconds");
        let soon_gone = gain(Some(promoted));
        assert!(soon_gone.low == 0.0 && soon_gone.high == all.high);
        assert!((soon_gone.likely - all.likely / 10.0).abs() < 1e-9, "{soon_gone:?}");

        let forecast = |low, high| Forecast::Gain(GainPercent { low, likely: 0.1, high }, EstimatedFrom::Model);
        let doubt = |new_pages, forecast| basis(new_pages).doubt(forecast, &heat);
        assert_eq!(doubt(None, forecast(0.0, 9.0)), Some(Doubt::Order));
        assert_eq!(doubt(Some(promoted), forecast(0.0, 9.0)), Some(Doubt::NewMemory));
        let sparse = heat_of((0..64).map(|number| region(number, 1e5, 300)).collect());
        let of_sparse = basis(Some(promoted)).doubt(forecast(0.0, 9.0), &sparse);
        assert_eq!(of_sparse, Some(Doubt::SparseNewMemory));
        assert_eq!(doubt(Some(promoted), forecast(0.0, 0.2)), None, "nothing is forecast");
        assert_eq!(doubt(Some(promoted), forecast(0.1, 9.0)), None);
        let tried = Forecast::Gain(GainPercent { low: 0.0, likely: 0.1, high: 9.0 }, EstimatedFrom::ItsTrial);
        assert_eq!(doubt(Some(promoted), tried), None, "a trial knows better");
        let scattered = SavedWork { scattered_share: Some(1.0), ..basis(None).saved };
        assert_eq!(ForecastBasis { saved: scattered, ..basis(None) }.doubt(forecast(0.0, 9.0), &heat), None);
    }

    #[test]
    fn what_smaller_huge_pages_save_already_lowers_the_low_end() {
        let mut sizes = PageSizes::default();
        sizes.add(Bytes(64 << 10), Bytes(1 << 20));
        assert_eq!(saved_already(&[sizes.clone(), PageSizes::default()], Bytes(4 << 20)), 0.25 * 15.0 / 16.0);
        assert_eq!((saved_already(&[sizes], Bytes(0)), saved_already(&[], Bytes(1 << 20))), (0.0, 0.0));
        let mut heat = heat_of((0..64).map(|number| region(number, 1e5, 0)).collect());
        (heat.busy_cpus, heat.walks.scattered) = (Some(1.0), Some(1.0));
        let (plan, family) = (Observation::plan_for(&heat), Family::alone(Bytes(0), Bytes(1 << 30)));
        let gain = |saved_already| {
            let gauged = Gauged { saved_already, ..Gauged::default() };
            ForecastBasis::of(&plan, &heat, &family, gauged, &WalkCost::UNCALIBRATED).gain().expect("a gain")
        };
        let (all, half) = (gain(None), gain(Some(0.5)));
        assert!(all.low > 0.0, "{all:?}");
        assert_eq!(half, GainPercent { low: all.low / 2.0, ..all });
    }

    #[test]
    fn page_faults_that_promoting_does_not_save_are_told_where_they_take_much() {
        let cost = WalkCost { page_fault_ns: 1000.0, ..WalkCost::UNCALIBRATED };
        let share = |faults, of_shared_memory| {
            let region = heat::Region { faults_per_second: of_shared_memory, ..region(0, 1e5, 0) };
            let heat = Heat { busy_cpus: Some(0.5), ..heat_of(vec![region]) };
            let gauged = Gauged { faults_per_cpu_second: faults, ..Gauged::default() };
            Observation { heat, family: Family::alone(Bytes(0), Bytes(0)), gauged }.share_of_page_faults(&cost)
        };
        assert_eq!(share(Some(200e3), 0.0), Some(0.2));
        assert_eq!(share(Some(200e3), 50e3), Some(0.1), "promoting saves those on shared memory");
        assert_eq!([share(Some(49e3), 0.0), share(Some(200e3), 100e3), share(None, 0.0)], [None; 3]);
        assert_eq!(share(Some(5e6), 0.0), Some(1.0), "a fault is cheaper than it was taken to be");
    }

    #[test]
    fn counted_cycles_bound_it() {
        let mut heat = heat_of((0..64).map(|number| region(number, 1e5, 0)).collect());
        heat.busy_cpus = Some(1.0);
        let plan = Observation::plan_for(&heat);
        let family = Family::alone(Bytes(0), Bytes(1 << 30));
        let of = |walk_share| {
            let gauged = Gauged { walk_share, ..Gauged::default() };
            Forecast::of(&plan, &heat, &family, gauged, &Estimator::of_model(WalkCost::UNCALIBRATED))
                .gain()
                .expect("a gain")
                .high
        };
        assert!(of(None) > 1.0, "without a bound");
        assert!(of(Some(WalkShare { low: 0.0, high: 0.001 })) <= 0.11);
    }
}
