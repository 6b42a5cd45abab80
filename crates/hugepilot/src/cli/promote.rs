//! `hugepilot promote`: observe, decide, act once; prove it.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;

use super::args::PromoteArgs;
use super::{require, terminal};
use crate::act::{Outcome, Pace, Pacer};
use crate::calibrate;
use crate::decide::{Spent, expected_gain};
use crate::observe::{self, ObserveError};
use crate::pilot::{Budget, Pilot, Round, on_this_machine};
use crate::report::{Expectation, PlanReport, PromoteReport, Snapshot, json, text};
use crate::stop::{SecondSignal, Stop};
use crate::target::Target;
use crate::units::{Bytes, CpuShare, Nanos};

pub(super) fn promote(args: &PromoteArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let target = Target::open(args.pid)?;
    require::observing(args.watch.tracker)?;
    require::capabilities(require::ACT)?;
    target.ensure_huge_pages_enabled()?;
    let mut tracker = observe::open(args.watch.tracker)?;
    let mut pilot = Pilot {
        tracker: &mut *tracker,
        watch: args.watch.options(),
        budget: Budget::new(CpuShare::default()),
        allowance: on_this_machine(args.spend.allowance())?,
        pacer: Pacer::new(args.pace.pace()),
        stop: Stop::on_signals(SecondSignal::Ends)?,
        began: started,
    };
    let round = pilot.look(&target, &Spent::default())?;
    if args.dry_run {
        return show_plan(&round, args.json);
    }
    terminal::ensure_read()?;
    let outcome = act(&mut pilot, &target, &round, args.json)?;
    let after = look_again(&mut pilot, &target, &outcome, &round)?;
    let report = PromoteReport {
        plan: &round.plan,
        outcome: &outcome,
        before: round.before,
        after,
        elapsed: Nanos::from_duration(started.elapsed()),
    };
    terminal::print(&if args.json { json::promote(&report) } else { text::promote(&report) })?;
    judge(&pilot, args.pid, &outcome)
}

fn show_plan(round: &Round, as_json: bool) -> anyhow::Result<ExitCode> {
    let (cost, _) = calibrate::walk_cost(round.heat.footprint(), terminal::say_measuring);
    let gain = expected_gain(&round.plan, &cost, round.heat.busy_cpus);
    let report = PlanReport { plan: &round.plan, gain, expectation: None };
    terminal::print(&if as_json { json::plan(&report) } else { text::plan(&report) })?;
    Ok(ExitCode::SUCCESS)
}

/// Promotes the regions, and says after the first one what all of them will take.
fn act(pilot: &mut Pilot<'_>, target: &Target, round: &Round, quiet: bool) -> anyhow::Result<Outcome> {
    let regions = round.plan.promotions().count();
    let progress = terminal::Progress::over(regions, "regions");
    let (pace, stop) = (pilot.pacer.pace(), pilot.stop.clone());
    let (mut said_once, mut said) = (false, Ok(()));
    let outcome = pilot.act(target, round, |outcome| {
        if outcome.applied == 1 && !said_once && !quiet {
            said_once = true;
            let expected = expect(outcome, regions as u64, round.plan.growth(), pace);
            said = terminal::print(&text::expectation(&expected));
            if said.is_err() {
                stop.request();
            }
        }
        progress.show(outcome.tried);
    })?;
    said.map(|()| outcome)
}

/// What all regions will take if they are like the first.
fn expect(trial: &Outcome, regions: u64, growth: Bytes, pace: Pace) -> Expectation {
    let busy = Nanos(trial.busy.0 / trial.tried.max(1) * regions);
    Expectation { regions, growth, elapsed: pace.elapsed(busy), longest_stall: trial.longest }
}

/// The target afterwards; None if it has ended, or if nobody waits for the answer.
fn look_again(
    pilot: &mut Pilot<'_>,
    target: &Target,
    outcome: &Outcome,
    round: &Round,
) -> anyhow::Result<Option<Snapshot>> {
    if outcome.tried == 0 {
        return Ok(Some(round.before));
    }
    match pilot.look_again(target, round) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(ObserveError::Stopped(_)) => Ok(None),
        Err(_) if target.handle().has_exited() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Success, unless it was stopped or nothing that was tried could be done.
fn judge(pilot: &Pilot<'_>, pid: u32, outcome: &Outcome) -> anyhow::Result<ExitCode> {
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
    Ok(ExitCode::SUCCESS)
}
