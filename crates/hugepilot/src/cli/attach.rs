//! `hugepilot attach`: pilots a process that is already running.
//!
//! Owns: its beginning and end. Never touches: when it is scanned; the pilot knows that.

use std::time::Instant;

use heat::units::Nanos;
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, Rules};
use pilot::machine::{Machine, ensure_no_trial, require};
use pilot::scope::{Matcher, PilotMode, Rule, Scope};

use super::args::AttachArgs;
use super::pilot_summary::{report_of, say_if_fast};
use super::settings::settings;
use super::target::{self, Named};
use super::terminal;
use crate::report::{json, text};

pub(super) fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    require::acting(args.watch.tracker)?;
    let named = target::find_all(&args.target, Target::open)?;
    let pids: Vec<u32> = named.iter().map(|each| each.target.pid()).collect();
    let elsewhere = observe::keep_away_from(pids[0]);
    named.iter().try_for_each(|each| each.target.ensure_huge_pages_enabled())?;
    named.iter().try_for_each(|each| ensure_no_trial(each.target.process()))?;
    terminal::ensure_read()?;
    let settings = settings(&args.watch, &args.spend, &args.pace, args.budget.max_cpu)?;
    let mut machine = Machine::new(observe::open(args.watch.tracker)?, settings.max_slowdown);
    let started = Instant::now();
    let mut pilot = Pilot::lasting(&mut machine, settings, Stop::on_signals(SecondSignal::Ends)?);
    say_if_fast(args.pace.max_slowdown());
    // From here on each round does that itself.
    drop(elsewhere);
    let until = args.length.map(|length| started + length.duration());
    let line = terminal::StatusLine::begin("Ctrl-C ends piloting, and what was promoted stays");
    let elapsed = || Nanos::from_duration(started.elapsed());
    let scope = scope(args, &named);
    let fleet = Fleet::begin(scope, Rules::default(), SharedState::default(), &mut pilot);
    let pilot_summary = fleet.run(&mut pilot, until, |fleet| {
        line.show(&text::under_way(&report_of(&fleet.summary(), elapsed())));
    });
    drop(line);
    let report = report_of(&pilot_summary, elapsed());
    terminal::print(&if args.json {
        json::attach(&pids, &report)
    } else {
        text::pilot_summary(&report, explain(&named).as_deref())
    })
}

/// The command that says more about those that still run.
fn explain(named: &[Named]) -> Option<String> {
    let targets = named.iter().map(|each| &each.target).filter(|target| !target.handle().has_exited());
    let pids: Vec<String> = targets.map(|target| target.pid().to_string()).collect();
    (!pids.is_empty()).then(|| format!("`hugepilot explain {}` says more", pids.join(" ")))
}

/// What is found by a name or a unit is found again when it is started anew; a process that was named by its id is this one only.
fn scope(args: &AttachArgs, named: &[Named]) -> Scope {
    let rule = args.target.rule(PilotMode::Promote);
    if args.target.pids.is_empty() {
        let children = rule.children || named.iter().any(|each| each.has_children);
        return Scope::new(vec![Rule { children, ..rule }], Vec::new());
    }
    let of = |each: &Named| Rule { matcher: Matcher::process(each.target.process()), ..rule.clone() };
    Scope::new(named.iter().map(of).collect(), Vec::new())
}
