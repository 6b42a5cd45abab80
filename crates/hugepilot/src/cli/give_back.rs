//! `hugepilot give-back`: undo a promotion, through the daemon where that pilots the process.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::bail;
use daemon::control::{Client, ControlError};
use heat::units::Address;
use heat::{Heat, Obstacle, Snapshot};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::{Process, Target};
use observe::Choice;
use pilot::act::{self, Record};
use pilot::engine::page_tables;

use super::args::GiveBackArgs;
use super::{require, terminal};
use crate::report::{GiveBackReport, json, text};

pub(super) fn give_back(args: &GiveBackArgs) -> anyhow::Result<ExitCode> {
    let target = Target::open(args.pid)?;
    if let Some(regions) = through_daemon(args, &target)? {
        let (pid, note) = (args.pid, text::given_back_by_daemon(args.pid, regions));
        if !args.all {
            terminal::print(&if args.json { json::given_back_by_daemon(pid, regions) } else { note })?;
            return Ok(ExitCode::SUCCESS);
        }
        // What the daemon did not make is split here, as without a daemon.
        eprint!("hugepilot: {note}");
    }
    give_back_here(args, &target)
}

/// How many regions the daemon gave back in the process; None if no daemon pilots it.
fn through_daemon(args: &GiveBackArgs, target: &Target) -> anyhow::Result<Option<u64>> {
    let daemon = Client::at(&args.daemon.socket);
    let state = match daemon.status() {
        Err(ControlError::NoDaemon { .. }) => return Ok(None),
        told => told?,
    };
    let process = Process { pid: target.pid(), start_ticks: target.start_time };
    if !state.targets.iter().any(|each| each.process() == process) {
        return Ok(None);
    }
    terminal::ensure_read()?;
    Ok(Some(daemon.give_back(process.pid)?))
}

fn give_back_here(args: &GiveBackArgs, target: &Target) -> anyhow::Result<ExitCode> {
    require::observing(Choice::Auto)?;
    require::capabilities(require::ACT)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut tracker = observe::open(Choice::Auto)?;
    let heat = tracker.survey(target)?;
    let record = Record::of(target)?;
    let regions = wanted(&heat, &record, args.all);
    if regions.is_empty() && !args.all {
        bail!(
            "hugepilot promoted nothing in process {pid} that is still on huge pages; `hugepilot give-back {pid} --all` splits \
             every huge page of the process. Nothing was changed",
            pid = args.pid
        );
    }
    terminal::ensure_read()?;
    let frees_empty_pages = act::frees_empty_pages().ok();
    let progress = terminal::Progress::over(regions.len(), "regions");
    let outcome = act::give_back(target.handle(), &regions, &stop, |outcome| {
        progress.show(outcome.tried);
    });
    drop(progress);
    let after = tracker.survey(target).ok();
    if let Some(after) = &after {
        // What is huge still, the kernel did not split, whatever it answered; it can be tried again.
        let huge: BTreeSet<Address> =
            after.regions.iter().filter(|region| region.huge).map(|each| each.start).collect();
        Record::update(target, |regions| regions.retain(|region, _| huge.contains(region)))?;
    }
    let after = after.map(|heat| snapshot(&heat, target));
    let report =
        GiveBackReport { pid: args.pid, outcome: &outcome, before: snapshot(&heat, target), after, frees_empty_pages };
    terminal::print(&if args.json { json::give_back(&report) } else { text::give_back(&report) })?;
    if outcome.tried > 0 && outcome.applied == 0 {
        bail!("the kernel refused all {} regions of process {}, for the reasons above", outcome.tried, args.pid);
    }
    if stop.requested() {
        bail!("stopped by a signal; {} regions were not reached, run the command again for them", outcome.not_reached);
    }
    Ok(ExitCode::SUCCESS)
}

/// Regions on huge pages that can be split: those on record, or all. Pages of a hugetlb pool cannot be split.
fn wanted(heat: &Heat, record: &Record, all: bool) -> Vec<Address> {
    let splittable = |obstacle| !matches!(obstacle, Some(Obstacle::Hugetlb | Obstacle::Special));
    let huge = heat.regions.iter().filter(|region| region.huge && splittable(region.obstacle));
    huge.map(|region| region.start).filter(|start| all || record.regions.contains_key(start)).collect()
}

/// Nobody watched, so no walks are told.
fn snapshot(heat: &Heat, target: &Target) -> Snapshot {
    Snapshot { walks_per_second: None, ..Snapshot::of(heat, page_tables(target)) }
}
