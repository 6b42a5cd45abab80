//! `hugepilot attach`: pilots a process that is already running.
//!
//! Owns: its beginning and end. Never touches: when it is scanned; the pilot knows that.

use std::time::Instant;

use heat::units::Nanos;
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, Rules};
use pilot::machine::{Machine, require};
use pilot::scope::Scope;

use super::args::AttachArgs;
use super::pilot_summary::{report_of, say_if_fast};
use super::settings::settings;
use super::terminal;
use crate::report::{json, text};

pub(super) fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    let target = Target::open(args.pid)?;
    let elsewhere = observe::keep_away_from(target.pid());
    require::acting(args.watch.tracker)?;
    target.ensure_huge_pages_enabled()?;
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
    let scope = Scope::process(target.process(), args.children);
    let fleet = Fleet::begin(scope, Rules::default(), SharedState::default(), &mut pilot);
    let pilot_summary = fleet.run(&mut pilot, until, |fleet| {
        line.show(&text::under_way(&report_of(&fleet.summary(), elapsed())));
    });
    drop(line);
    let report = report_of(&pilot_summary, elapsed());
    terminal::print(&if args.json { json::attach(args.pid, &report) } else { text::pilot_summary(&report) })
}
