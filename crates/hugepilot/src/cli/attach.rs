//! `hugepilot attach`: pilot a process that runs already.
//!
//! Owns: its beginning and end. Never touches: when it is looked at; the pilot knows that.

use std::process::ExitCode;
use std::time::Instant;

use heat::units::Nanos;
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::{Process, Target};
use observe::{Faults, Options, Waits};
use pilot::act::{Pacer, Promoter};
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Budget, Fleet, Pilot, Rules, Scope, on_this_machine};

use super::args::AttachArgs;
use super::pilot_summary::{report_of, say_if_fast};
use super::{require, terminal};
use crate::report::{json, text};

pub(super) fn attach(args: &AttachArgs) -> anyhow::Result<ExitCode> {
    let target = Target::open(args.pid)?;
    let elsewhere = observe::keep_away_from(target.pid());
    require::observing(args.watch.tracker)?;
    require::capabilities(require::ACT)?;
    target.ensure_huge_pages_enabled()?;
    terminal::ensure_read()?;
    let mut tracker = observe::open(args.watch.tracker)?;
    let started = Instant::now();
    let mut pilot = Pilot {
        tracker: &mut *tracker,
        watch: Options { max_slowdown: Some(args.pace.max_slowdown()), ..args.watch.options() },
        budget: Budget::saving(args.budget.max_cpu, args.pace.max_slowdown()),
        allowance: on_this_machine(args.spend.allowance())?,
        promoter: Promoter::new(Pacer::backing_off(args.pace.max_slowdown())),
        faults: Faults::default(),
        waits: Waits::new(),
        stop: Stop::on_signals(SecondSignal::Ends)?,
        began: started,
    };
    say_if_fast(args.pace.max_slowdown());
    // From here on each round sees to that itself.
    drop(elsewhere);
    let until = args.length.map(|length| started + length.duration());
    let line = terminal::StatusLine::begin("Ctrl-C ends piloting, and what was promoted stays");
    let elapsed = || Nanos::from_duration(started.elapsed());
    let process = Process { pid: args.pid, start_ticks: target.start_time };
    let fleet = Fleet::new(Scope::process(process, args.children), Rules::default(), SharedState::default());
    let pilot_summary = fleet.fly(&mut pilot, until, |fleet| {
        line.show(&text::under_way(&report_of(&fleet.summary(), elapsed())));
    });
    drop(line);
    let report = report_of(&pilot_summary, elapsed());
    terminal::print(&if args.json { json::attach(args.pid, &report) } else { text::pilot_summary(&report) })?;
    Ok(ExitCode::SUCCESS)
}
