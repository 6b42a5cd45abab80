//! `hugepilot promote`: observes, decides, acts once, and proves the effect.

use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use daemon::control::{ControlClient, SOCKET};
use heat::Snapshot;
use heat::units::{CpuShare, HUGE_PAGE, Nanos};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::target::{Process, Target};
use observe::ObserveError;
use pilot::act::Outcome;
use pilot::decide::{Decision, GuestMemory, Spent};
use pilot::engine::{Pilot, Round, candidate};
use pilot::forecast::{Forecast, ForecastBasis, Gauged, Gauges};
use pilot::machine::{Machine, ensure_no_trial, require};

use super::args::PromoteArgs;
use super::forecast::estimator;
use super::pilot_summary::say_if_fast;
use super::settings::settings;
use super::target::{self, Named};
use super::{guest, piloted, terminal};
use crate::report::{Expectation, GuestReport, PlanReport, PromoteReport, json, text};

pub(super) fn promote(args: &PromoteArgs) -> anyhow::Result<()> {
    require::acting(args.watch.tracker)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let open: target::Open = if args.guest { Target::open_to_act } else { Target::open };
    target::for_each(&args.target, open, &stop, |named| promote_one(args, &named, &stop))
}

fn promote_one(args: &PromoteArgs, Named { target, has_children }: &Named, stop: &Stop) -> anyhow::Result<()> {
    let started = Instant::now();
    let _elsewhere = observe::keep_away_from(target.pid());
    target.ensure_huge_pages_enabled()?;
    let settings = settings(&args.watch, &args.spend, &args.pace, CpuShare::default())?;
    let mut machine = Machine::new(observe::open(args.watch.tracker)?, settings.max_slowdown);
    let mut pilot = Pilot::once(&mut machine, settings, stop.clone());
    let process = target.process();
    if !args.dry_run {
        ensure_no_trial(process)?;
    }
    let observing =
        terminal::spinner(format!("observing process {}, spread over time where it would notice;", process.pid));
    let mut gauges = Gauges::start(process.pid);
    let round = match args.guest {
        true => pilot.scan_guest(process, &Spent::default())?,
        false => pilot.scan(process, *has_children, &Spent::default())?,
    };
    let gauged = gauges.read();
    drop(observing);
    let guest = args.guest.then(|| guest::memory_of(target, &round)).transpose()?;
    let expectation = expect(&round, &mut pilot);
    if args.dry_run {
        return match &guest {
            Some(guest) => guest::show_plan(&round, guest, expectation, args.json),
            None => show_plan(process, &round, gauged, expectation, args),
        };
    }
    terminal::ensure_read()?;
    say_if_piloted(process);
    if let Some(expectation) = expectation.filter(|_| !args.json) {
        say_if_fast(expectation.max_slowdown);
        // Nobody outside knows where a guest walks page tables.
        let forecast = guest.is_none().then(|| forecast(process, &round, gauged, args).0);
        terminal::print(&text::expectation(&expectation, forecast))?;
    }
    let promotes = round.plan.promotions().next().is_some();
    // Held until the program has been scanned again.
    let _unreported = promotes.then(|| pilot.world.hold_reporting_back());
    let outcome = act(&mut pilot, process, &round)?;
    let before = Moment { snapshot: round.before, guest };
    let after = scan_again(&mut pilot, process, &outcome, &round, &before)?;
    let guest_after = after.as_ref().and_then(|after| after.guest.as_ref());
    let report = PromoteReport {
        plan: &round.plan,
        processes: round.family.processes,
        growth_limit: round.growth_limit,
        outcome: &outcome,
        before: before.snapshot,
        after: after.as_ref().map(|after| after.snapshot),
        guest: before.guest.as_ref().map(|before| GuestReport { before, after: guest_after }),
        elapsed: Nanos::from_duration(started.elapsed()),
    };
    terminal::print(&if args.json { json::promote(&report) } else { text::promote(&report) })?;
    judge(&pilot, process.pid, &outcome)
}

/// What a daemon promotes and gives back meanwhile counts against its own limits.
fn say_if_piloted(process: Process) {
    let target = piloted::target_of(&ControlClient::at(Path::new(SOCKET)), process).ok().flatten();
    if target.is_some_and(|target| piloted::acts_on(&target)) {
        terminal::note(&format!(
            "hugepilotd pilots process {pid}, too, and may split what it finds idle; `hugepilot status` shows what it does",
            pid = process.pid
        ));
    }
}

fn show_plan(
    process: Process,
    round: &Round,
    gauged: Gauged,
    expectation: Option<Expectation>,
    args: &PromoteArgs,
) -> anyhow::Result<()> {
    let (forecast, basis) = forecast(process, round, gauged, args);
    let report = PlanReport {
        plan: &round.plan,
        family: round.family,
        growth_limit: round.growth_limit,
        clearing: round.heat.clearing,
        forecast,
        basis: Some(basis),
        doubt: basis.doubt(forecast, &round.heat),
        expectation,
    };
    terminal::print(&if args.json { json::plan(&report) } else { text::plan(&report) })
}

/// The forecast, and what it rests on.
fn forecast(process: Process, round: &Round, gauged: Gauged, args: &PromoteArgs) -> (Forecast, ForecastBasis) {
    let estimator = estimator(process, round.family.footprint, &args.forecast);
    let Round { plan, heat, family, .. } = round;
    let gauged = gauged.with_smaller_pages(&Root::host(), heat, plan);
    let forecast = Forecast::of(plan, heat, family, gauged, &estimator);
    (forecast, ForecastBasis::of(plan, heat, family, gauged, &estimator.cost))
}

/// What promoting should take, estimated from collapses of our own memory; None if nothing is promoted, or no collapse could be tried.
pub(super) fn expect(round: &Round, pilot: &mut Pilot<'_>) -> Option<Expectation> {
    let regions = round.plan.promotions().count() as u64;
    let times = (regions > 0).then(|| pilot.collapse_times())??;
    let takes = |decision: &Decision| {
        pilot.time_for(candidate(decision.start, &round.heat).who_waits, decision.page_tables.into(), &times)
    };
    Some(Expectation {
        regions,
        growth: round.plan.growth(),
        elapsed: round.plan.promotions().map(takes).fold(Nanos(0), |sum, each| sum + each),
        max_slowdown: pilot.max_slowdown(),
        longest_stall: times.slowest(),
    })
}

/// Promotes the regions.
fn act(pilot: &mut Pilot<'_>, process: Process, round: &Round) -> anyhow::Result<Outcome> {
    let progress = terminal::memory_progress(round.plan.promotions().count() as u64 * HUGE_PAGE);
    let mut reached = 0;
    Ok(pilot.act(process, round, &mut |_| {
        reached += HUGE_PAGE;
        progress.set_position(reached);
    })?)
}

/// The target at one moment, and its guest if it is a virtual machine.
#[derive(Clone)]
struct Moment {
    snapshot: Snapshot,
    guest: Option<GuestMemory>,
}

/// The target afterwards; None if it has ended, or if the user stopped waiting.
fn scan_again(
    pilot: &mut Pilot<'_>,
    process: Process,
    outcome: &Outcome,
    round: &Round,
    before: &Moment,
) -> anyhow::Result<Option<Moment>> {
    if outcome.tried == 0 {
        return Ok(Some(before.clone()));
    }
    let again = match &before.guest {
        Some(_) => pilot
            .scan_guest(process, &Spent::default())
            .map(|round| Moment { snapshot: round.before, guest: Some(GuestMemory::of(&round.heat)) }),
        None => pilot.scan_again(process, round).map(|snapshot| Moment { snapshot, guest: None }),
    };
    match again {
        Ok(moment) => Ok(Some(moment)),
        Err(ObserveError::Stopped(_)) => Ok(None),
        Err(_) if !pilot.world.lives(process) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Success, unless it was stopped or everything that was tried failed.
fn judge(pilot: &Pilot<'_>, pid: u32, outcome: &Outcome) -> anyhow::Result<()> {
    if pilot.stop.requested() {
        bail!(
            "stopped by a signal after {} of {} regions; what was done stays, and `hugepilot give-back {pid}` undoes it",
            outcome.tried,
            outcome.tried + outcome.not_reached
        );
    }
    if outcome.tried > 0 && outcome.applied == 0 {
        bail!(
            "the kernel refused all {} regions of process {pid}, for the reasons above; nothing was changed",
            outcome.tried
        );
    }
    Ok(())
}
