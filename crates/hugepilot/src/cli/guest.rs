//! A virtual machine from its host: what `promote --guest` finds there.
//!
//! Owns: refusing a process without guest memory, and showing the plan. Never touches: how it is carried out, which is as for any process.

use anyhow::bail;
use kernel::target::Target;
use pilot::decide::GuestMemory;
use pilot::engine::Round;

use super::terminal;
use crate::report::{Expectation, GuestPlanReport, json, text};

/// Errors: the process has no memory that seems to be a guest's.
pub(super) fn memory_of(target: &Target, round: &Round) -> anyhow::Result<GuestMemory> {
    let guest = GuestMemory::of(&round.heat);
    if guest.blocks.is_empty() {
        bail!(
            "process {0} ({1}) has no memory that looks like a guest's: a mapping of more than 64 MiB, or one that is named as QEMU names it, \
             of no file on a disk. Nothing was changed; `hugepilot explain {0}` says what there is",
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
