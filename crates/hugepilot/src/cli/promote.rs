//! `hugepilot promote`: observe, decide, act once; prove it.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;

use super::args::PromoteArgs;
use super::{require, terminal};
use crate::act::{Outcome, Pace};
use crate::calibrate;
use crate::decide::{Plan, WalkCost, expected_gain};
use crate::observe::{ObserveError, PageWalk};
use crate::pilot::{Pilot, Round};
use crate::report::{Expectation, PlanReport, PromoteReport, Snapshot, json, text};
use crate::stop::Stop;
use crate::target::Target;
use crate::units::{Address, Bytes, Nanos};

pub(super) fn promote(args: &PromoteArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let target = Target::open(args.pid)?;
    require::capabilities(require::OBSERVE)?;
    require::capabilities(require::ACT)?;
    require::huge_pages_enabled(&target)?;
    let mut tracker = PageWalk::new()?;
    let mut pilot = Pilot {
        tracker: &mut tracker,
        watch: args.watch.options(),
        limits: &|rss| args.spend.limits(rss),
        pace: args.pace.pace(),
        stop: Stop::on_signals()?,
    };
    let round = pilot.look(&target, Bytes(0))?;
    if args.dry_run {
        return show_plan(&round, args.json);
    }
    terminal::ensure_read()?;
    let outcome = act(&pilot, &target, &round.plan, args.json)?;
    let after = look_again(&mut pilot, &target, &outcome, round.before)?;
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
    let cost = calibrate::walk_cost().unwrap_or_else(|error| {
        tracing::warn!("the cost of a page walk could not be measured ({error}); using what other machines showed");
        WalkCost::UNCALIBRATED
    });
    let gain = expected_gain(&round.plan, cost, round.heat.busy_cpus);
    let report = PlanReport { plan: &round.plan, gain, expectation: None };
    terminal::print(&if as_json { json::plan(&report) } else { text::plan(&report) })?;
    Ok(ExitCode::SUCCESS)
}

/// Promotes the regions, and says after the first one what all of them will take.
fn act(pilot: &Pilot<'_>, target: &Target, plan: &Plan, quiet: bool) -> anyhow::Result<Outcome> {
    let regions: Vec<Address> = plan.promotions().map(|decision| decision.start).collect();
    let progress = terminal::Progress::over(regions.len());
    let (mut said_once, mut said) = (false, Ok(()));
    // One run of actions, so that the gentle pace rests after the first region too.
    let outcome = pilot.act(target, &regions, |outcome| {
        if outcome.applied == 1 && !said_once && !quiet {
            said_once = true;
            let expected = expect(outcome, regions.len() as u64, plan.growth(), pilot.pace);
            said = terminal::print(&text::expectation(&expected));
            if said.is_err() {
                pilot.stop.request();
            }
        }
        progress.show(outcome);
    });
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
    before: Snapshot,
) -> anyhow::Result<Option<Snapshot>> {
    if outcome.tried == 0 {
        return Ok(Some(before));
    }
    match pilot.look_again(target) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(ObserveError::Stopped) => Ok(None),
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
