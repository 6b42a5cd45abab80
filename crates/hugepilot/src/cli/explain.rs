//! `hugepilot explain`: which memory is on huge pages, why the rest is not, and whether that matters.

use std::process::ExitCode;

use super::args::ExplainArgs;
use super::{require, terminal};
use crate::calibrate;
use crate::decide::{Allowance, Past, Spent, decide, expected_gain};
use crate::explain::{self, Surroundings};
use crate::kernel::Root;
use crate::kernel::thp::Thp;
use crate::observe::{self, ObserveError};
use crate::pilot::page_tables;
use crate::report::{ExplainReport, json, text};
use crate::stop::{SecondSignal, Stop};
use crate::target::Target;
use crate::walk_cycles::WalkCycles;

pub(super) fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let target = Target::open(args.pid)?;
    let _elsewhere = observe::keep_away_from(target.pid());
    require::observing(args.watch.tracker)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut tracker = observe::open(args.watch.tracker)?;
    let mut walking = WalkCycles::start(&Root::host(), target.pid());
    let heat = tracker.observe(&target, &args.watch.options(), &stop)?;
    let walk_share = walking.as_mut().and_then(WalkCycles::share);
    let plan = decide(&heat, &Allowance::default().limits(heat.rss, &Spent::default()), &Past::default());
    let smaller = match observe::on_smaller_huge_pages(&Root::host(), &heat) {
        Err(ObserveError::FrameTable { .. }) => None,
        told => Some(told?),
    };
    let explanation = explain::explain(&heat, &plan, smaller.as_deref(), &surroundings(&target)?);
    let (cost, cost_from) = calibrate::walk_cost(heat.footprint(), terminal::say_measuring);
    let gain = expected_gain(&plan, &cost, heat.busy_cpus);
    let report = ExplainReport {
        heat: &heat,
        explanation: &explanation,
        page_tables: page_tables(&target),
        gain: walk_share.map_or(gain, |share| gain.map(|gain| gain.within(share, &plan))),
        cost,
        cost_from,
        walk_share,
    };
    terminal::print(&if args.json { json::explain(&report) } else { text::explain(&report) })?;
    Ok(ExitCode::SUCCESS)
}

fn surroundings(target: &Target) -> anyhow::Result<Surroundings> {
    let settings = Thp::read(&Root::host())?;
    Ok(Surroundings {
        enabled: settings.as_ref().map(|settings| settings.enabled.chosen.clone()),
        shmem_enabled: settings.and_then(|settings| settings.shmem_enabled).map(|setting| setting.chosen),
        switched_off: target.huge_pages_enabled == Some(false),
    })
}
