//! `hugepilot give-back`: undoes a promotion, through the daemon if it pilots the process.

use anyhow::bail;
use daemon::control::ControlClient;
use heat::units::Slowdown;
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use observe::TrackerChoice;
use pilot::act::Outcome;
use pilot::engine::{Pilot, Settings};
use pilot::machine::{Machine, ensure_no_trial, require};

use super::args::GiveBackArgs;
use super::{piloted, target, terminal};
use crate::report::{GiveBackReport, json, text};

pub(super) fn give_back(args: &GiveBackArgs) -> anyhow::Result<()> {
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    target::for_each(&args.target, Target::open_to_act, &stop, |named| give_back_one(args, &named.target, &stop))
}

fn give_back_one(args: &GiveBackArgs, target: &Target, stop: &Stop) -> anyhow::Result<()> {
    let pid = target.pid();
    if let Some(regions) = through_daemon(args, target)? {
        let note = text::given_back_by_daemon(pid, regions);
        if !args.all {
            terminal::print(&if args.json { json::given_back_by_daemon(pid, regions) } else { note })?;
            return Ok(());
        }
        // The daemon splits only what it promoted; the rest is split here, as without a daemon.
        terminal::note(note.trim_end());
    }
    give_back_here(args, target, stop)
}

/// The number of regions that the daemon gave back in the process; None if no daemon pilots it.
fn through_daemon(args: &GiveBackArgs, target: &Target) -> anyhow::Result<Option<u64>> {
    let (daemon, process) = (ControlClient::at(&args.daemon.socket), target.process());
    if piloted::target_of(&daemon, process)?.is_none() {
        return Ok(None);
    }
    terminal::ensure_read()?;
    Ok(Some(daemon.give_back(process.pid)?))
}

fn give_back_here(args: &GiveBackArgs, target: &Target, stop: &Stop) -> anyhow::Result<()> {
    let pid = target.pid();
    ensure_no_trial(target.process())?;
    require::acting(TrackerChoice::Auto)?;
    let mut machine = Machine::new(observe::open(TrackerChoice::Auto)?, Slowdown::ASKED_FOR);
    let mut pilot = Pilot::once(&mut machine, Settings::default(), stop.clone());
    let recorded = pilot.world.promotions(target.process())?;
    let round = pilot.plan_to_give_back(target.process(), args.all)?;
    if round.plan.give_backs().next().is_none() && !args.all {
        // Undoing what is undone already is no failure.
        terminal::note(&format!(
            "hugepilot promoted nothing in process {pid} that is still on huge pages; `hugepilot give-back {pid} --all` splits \
             every huge page of the process"
        ));
    }
    terminal::ensure_read()?;
    let frees_empty_pages = pilot.world.frees_empty_pages();
    let progress = terminal::progress(round.plan.give_backs().count() as u64, "regions");
    let mut reached = 0;
    let outcome = pilot.carry_out_give_backs(target.process(), &round.plan, &mut |_| {
        reached += 1;
        progress.set_position(reached);
    });
    drop(progress);
    let after = pilot.settle_record(target.process(), &recorded)?;
    let report = GiveBackReport { pid, outcome: &outcome, before: round.before, after, frees_empty_pages };
    terminal::print(&if args.json { json::give_back(&report) } else { text::give_back(&report) })?;
    judge(pid, &outcome, &pilot.stop)
}

/// Success, unless it was stopped or most of what was tried failed: single regions are busy now and then.
fn judge(pid: u32, outcome: &Outcome, stop: &Stop) -> anyhow::Result<()> {
    if outcome.tried > 0 && outcome.applied == 0 {
        bail!("the kernel refused all {} regions of process {pid}, for the reasons above", outcome.tried);
    }
    let refused = outcome.refused.len() as u64;
    if refused > outcome.applied {
        bail!("the kernel refused {refused} of {} regions of process {pid}, for the reasons above", outcome.tried);
    }
    if stop.requested() {
        bail!("stopped by a signal; {} regions were not reached, run the command again for them", outcome.not_reached);
    }
    Ok(())
}
