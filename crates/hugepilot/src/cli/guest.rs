//! A virtual machine from its host: what `promote --guest` finds there, and what `explain` says of one whose page walks cannot be observed.
//!
//! Owns: refusing a process without guest memory, and showing the plan. Never touches: how it is carried out, which is as for any process.

use anyhow::bail;
use heat::units::Slowdown;
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use pilot::decide::{GuestMemory, Spent};
use pilot::engine::{Pilot, Round, Settings};
use pilot::machine::Machine;

use super::args::ExplainArgs;
use super::terminal;
use crate::report::{Expectation, GuestPlanReport, json, text};

/// Errors: the process has no memory that seems to be a guest's.
pub(super) fn memory_of(target: &Target, round: &Round) -> anyhow::Result<GuestMemory> {
    let guest = GuestMemory::of(&round.heat);
    if guest.blocks.is_empty() {
        bail!(
            "process {0} ({1}) has no memory that looks like a guest's: a mapping of more than 64 MiB, or one that is named as QEMU names it, \
             of no file on a disk. Nothing was changed; without --guest, `hugepilot explain {0}` says what there is",
            target.pid(),
            target.name
        );
    }
    Ok(guest)
}

/// Prints what would be done.
pub(super) fn show_plan(
    round: &Round,
    guest: &GuestMemory,
    expectation: Option<Expectation>,
    as_json: bool,
) -> anyhow::Result<()> {
    let report = GuestPlanReport { plan: &round.plan, guest, expectation };
    terminal::print(&if as_json { json::guest_plan(&report) } else { text::guest_plan(&report) })
}

/// Explains a virtual machine whose page walks cannot be observed.
pub(super) fn explain(args: &ExplainArgs, target: &Target, stop: &Stop) -> anyhow::Result<()> {
    let mut machine = Machine::new(observe::open(args.watch.tracker)?, Slowdown::UNASKED);
    let settings = Settings { watch: args.watch.options(), ..Settings::default() };
    let mut pilot = Pilot::once(&mut machine, settings, stop.clone());
    let round = pilot.scan_guest(target.process(), &Spent::default())?;
    show_plan(&round, &memory_of(target, &round)?, None, args.json)
}
