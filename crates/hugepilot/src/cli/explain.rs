//! `hugepilot explain`: which memory is on huge pages, why the rest is not, and whether more would help.

use std::path::Path;

use heat::Obstacle;
use heat::units::{Bytes, HUGE_PAGE, Slowdown};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::target::Target;
use kernel::thp::Thp;
use launch::cached_file::{PROBED_FILES, probe_files};
use launch::manager;
use observe::{ObserveError, calibrate};
use pilot::decide::{GuestMemory, Plan};
use pilot::explain::{self, Surroundings};
use pilot::forecast::{Estimator, ForecastBasis, Observation};
use pilot::machine::{Machine, require};
use pilot::world::World;

use super::args::ExplainArgs;
use super::forecast::past_trials;
use super::target::{self, Named};
use super::terminal;
use crate::report::{AfterRestart, ExplainReport, VirtualMachineReport, json, text};

pub(super) fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    require::observing(args.watch.tracker)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    target::for_each(&args.target, Target::open_to_act, &stop, |named| explain_one(args, &named, &stop))
}

fn explain_one(args: &ExplainArgs, Named { target, has_children }: &Named, stop: &Stop) -> anyhow::Result<()> {
    let _elsewhere = observe::keep_away_from(target.pid());
    let walks_are_seen = target.ensure_walks_are_seen().is_ok();
    let mut machine = Machine::new(observe::open(args.watch.tracker)?, Slowdown::UNASKED);
    let (machine, process): (&mut dyn World, _) = (&mut machine, target.process());
    let mut observation = match walks_are_seen {
        true => Observation::of(machine, process, *has_children, &args.watch.options(), stop)?,
        false => Observation::of_unseen(machine, process)?,
    };
    let guest = target
        .seems_virtual_machine()
        .then(|| (GuestMemory::of(&observation.heat), Observation::plan_for_guest(&observation.heat)));
    let virtual_machine = guest.as_ref().map(|(guest, plan)| VirtualMachineReport { guest, plan, walks_are_seen });
    let plan = match &guest {
        Some((_, plan)) if !walks_are_seen => plan.clone(),
        _ => Observation::plan_for(&observation.heat),
    };
    observation.gauged = observation.gauged.with_smaller_pages(&Root::host(), &observation.heat, &plan);
    let (heat, family) = (&observation.heat, observation.family);
    let smaller = match observe::on_smaller_huge_pages_by_mapping(&Root::host(), heat) {
        Err(ObserveError::FrameTable { .. } | ObserveError::HiddenFrames) => None,
        told => Some(told?),
    };
    let explanation = explain::explain(heat, &plan, smaller.as_deref(), &surroundings(target)?);
    let (cost, cost_from) = calibrate::walk_cost(family.footprint, terminal::say_measuring);
    let estimator = Estimator::of(cost, &past_trials(&args.forecast), process);
    let would_pay = |plan: &Plan| Bytes(plan.promotions().count() as u64 * HUGE_PAGE);
    let after_restart = heat.as_if_without(&[Obstacle::Misaligned, Obstacle::ReadOnlyFile]).map(|restarted| {
        let plan = Observation::plan_for(&restarted);
        AfterRestart { would_pay: would_pay(&plan), gain: observation.forecast(&plan, &estimator).gain() }
    });
    let managers = manager::managers_of(&Root::host(), process.pid, &heat.mappings);
    let collapses_files = explanation.has_files_to_cache().then(collapses_files).flatten();
    let forecast = observation.forecast(&plan, &estimator);
    let basis = ForecastBasis::of(&plan, heat, &family, observation.gauged, &cost);
    let report = ExplainReport {
        heat,
        explanation: &explanation,
        family,
        forecast,
        basis,
        doubt: basis.doubt(forecast, heat),
        after_restart: after_restart.filter(|restarted| restarted.would_pay > would_pay(&plan)),
        fault_share: observation.share_of_page_faults(&cost),
        cost_from,
        walk_share: observation.gauged.walk_share,
        virtual_machine,
        collapses_files,
        managers: &managers,
    };
    terminal::print(&if args.json { json::explain(&report) } else { text::explain(&report, terminal::detail()) })
}

/// Whether base pages of files can be replaced beneath a program; None if that cannot be tried.
fn collapses_files() -> Option<bool> {
    Some(probe_files(Path::new(PROBED_FILES)).ok()??.collapses)
}

fn surroundings(target: &Target) -> anyhow::Result<Surroundings> {
    let settings = Thp::read(&Root::host())?;
    Ok(Surroundings {
        enabled: settings.as_ref().map(|settings| settings.enabled.chosen.clone()),
        shmem_enabled: settings.and_then(|settings| settings.shmem_enabled).map(|setting| setting.chosen),
        switched_off: target.huge_pages_enabled == Some(false),
    })
}
