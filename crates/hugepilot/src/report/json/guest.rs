//! A virtual machine's memory from its host.

use pilot::decide::{Decision, GuestBlock, GuestMemory};
use serde::Serialize;

use super::{ReportKind, document};
use crate::report::{GuestPlanReport, GuestReport, VirtualMachineReport};

/// The dry run, each decision listed. Page walks are left out, because none are known.
pub fn guest_plan(report: &GuestPlanReport) -> String {
    let decision = |decision: &Decision| {
        object! {
            start: decision.start,
            verdict: decision.verdict,
            reason: decision.reason,
            growth_bytes: decision.growth,
        }
    };
    document(
        ReportKind::GuestPlan,
        &object! {
            pid: report.plan.pid,
            dry_run: true,
            guest: memory(report.guest),
            growth_bytes: report.plan.growth(),
            expected_seconds: report.expectation.map(|expectation| expectation.elapsed.seconds()),
            expected_longest_stall_ns: report.expectation.map(|expectation| expectation.longest_stall),
            decisions: report.plan.decisions.iter().map(decision).collect::<Vec<_>>(),
        },
    )
}

/// A guest's memory before and after a promotion.
pub(super) fn before_and_after(report: GuestReport) -> impl Serialize {
    object! { before: memory(report.before), after: report.after.map(memory) }
}

/// What `explain` tells of a guest: its memory, and what `promote --guest` would put on huge pages.
pub(super) fn explained(machine: VirtualMachineReport) -> impl Serialize {
    object! {
        memory: memory(machine.guest),
        can_be_promoted_bytes: machine.can_be_promoted(),
        walks_are_seen: machine.walks_are_seen,
    }
}

fn memory(guest: &GuestMemory) -> impl Serialize {
    object! {
        populated_bytes: guest.populated(),
        huge_bytes: guest.huge(),
        blocks: guest.blocks.iter().map(block).collect::<Vec<_>>(),
    }
}

fn block(block: &GuestBlock) -> impl Serialize {
    object! {
        start: block.range.start,
        size_bytes: block.range.len(),
        name: &block.name,
        populated_bytes: block.populated,
        huge_bytes: block.huge,
        incongruent_by_bytes: block.incongruent_by(),
        obstacle: block.obstacle,
        userfaultfd: block.userfaultfd,
        unreserved: block.unreserved,
    }
}
