//! A virtual machine's memory from its host: what of it is populated, what is huge, and what cannot be known.

use heat::Obstacle;
use pilot::decide::{GuestBlock, GuestMemory, Plan, Reason};
use pilot::words::{mostly_kept, percent, printable};

use super::{expectation, joined, plan};
use crate::report::table::table;
use crate::report::{GuestPlanReport, GuestReport, VirtualMachineReport};

const NAME_LIMIT: usize = 40;

/// The dry run: guest memory, what is not known of it, and regions by reason.
pub fn guest_plan(report: &GuestPlanReport) -> String {
    let (plan, guest) = (report.plan, report.guest);
    let mut lines = vec![
        plan::would_promote(plan),
        format!("  guest memory      {}", memory(guest)),
        "  page walks        not known: the guest walks page tables of its own, so all that is populated is taken, in the order of addresses"
            .to_owned(),
        "  expected gain     not known here; measure it in the guest".to_owned(),
    ];
    lines.extend(report.expectation.iter().map(|expected| format!("  {}", expectation::expected(expected))));
    lines.push(String::new());
    lines.extend(blocks(guest));
    lines.extend(guest.blocks.iter().flat_map(remarks));
    lines.push(String::new());
    lines.extend(plan::by_reason(plan));
    lines.push(match nothing_to_do(plan) {
        None => format!("nothing was changed; `hugepilot promote --guest {}` does it", plan.pid),
        Some(why) => format!("`hugepilot promote --guest {}` would do nothing: {why}", plan.pid),
    });
    joined(lines)
}

/// Why nothing of the guest's memory would be promoted; None if something would be.
fn nothing_to_do(plan: &Plan) -> Option<String> {
    let mut reasons = plan.counts();
    reasons.remove(&Reason::NotGuestMemory);
    let why = || mostly_kept(&reasons, None).unwrap_or_else(|| "all of it is on huge pages already".to_owned());
    plan.promotions().next().is_none().then(why)
}

/// Whether more of a guest's memory can be on huge pages, where its page walks are not seen.
pub(super) fn worth(machine: &VirtualMachineReport) -> String {
    if machine.guest.blocks.is_empty() {
        return no_memory().to_owned();
    }
    match nothing_to_do(machine.plan) {
        Some(why) => format!("no more can be: {why}"),
        None => format!(
            "{} more can be; what that gains is unknown, because the guest walks page tables of its own\n                    \
             `hugepilot promote --guest {}` does it, `--dry-run` shows the plan",
            machine.can_be_promoted(),
            machine.plan.pid
        ),
    }
}

/// How much of a guest's memory is on huge pages.
pub(super) fn populated(machine: &VirtualMachineReport) -> Option<String> {
    let found = !machine.guest.blocks.is_empty();
    found.then(|| format!("guest memory        {}", memory(machine.guest)))
}

/// What else is known of a guest's memory, and what can be done with it.
pub(super) fn next_steps(machine: &VirtualMachineReport) -> Vec<String> {
    // Without KVM nobody maps the guest's memory a second time.
    let is_told = |block: &&GuestBlock| !machine.walks_are_seen || block.obstacle.is_some();
    let mut lines: Vec<String> = machine.guest.blocks.iter().filter(is_told).flat_map(remarks).collect();
    if machine.walks_are_seen {
        let pid = machine.plan.pid;
        lines.push(match nothing_to_do(machine.plan) {
            _ if machine.guest.blocks.is_empty() => format!("it is named as a virtual machine is: {}", no_memory()),
            Some(why) => format!("`hugepilot promote --guest {pid}` would do nothing: {why}"),
            None => format!(
                "it seems to be a virtual machine: `hugepilot promote --guest {pid}` puts what is populated of its guest's memory on huge pages"
            ),
        });
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn no_memory() -> &'static str {
    "no: it maps no memory that looks like a guest's (more than 64 MiB in one piece, or named as QEMU names it), so there is nothing for `--guest`"
}

/// What a promotion did to a guest.
pub(super) fn promoted(report: &GuestReport, pid: u32) -> Vec<String> {
    let mut lines = vec![format!("guest memory before: {}", memory(report.before))];
    lines.extend(report.after.map(|after| format!("guest memory after:  {}", memory(after))));
    lines.extend(report.before.blocks.iter().flat_map(remarks));
    lines.push(format!(
        "what that gains is not known here: measure it in the guest; `hugepilot give-back {pid}` undoes it"
    ));
    lines
}

fn memory(guest: &GuestMemory) -> String {
    let (populated, huge) = (guest.populated(), guest.huge());
    let share = percent(huge.0 as f64, populated.0 as f64);
    format!("{populated} populated, {huge} of it ({share}) on huge pages")
}

fn blocks(guest: &GuestMemory) -> Vec<String> {
    table(&guest.blocks)
        .right("start", |block| block.range.start)
        .right("size", |block| block.range.len())
        .right("populated", |block| block.populated)
        .right("huge", |block| block.huge)
        .left("mapping", |block| name(block))
        .lines()
}

fn name(block: &GuestBlock) -> String {
    if block.name.is_empty() { "(anonymous)".to_owned() } else { printable(&block.name, NAME_LIMIT) }
}

/// What else is known of a block, each with the next step if there is one.
fn remarks(block: &GuestBlock) -> Vec<String> {
    let start = block.range.start;
    let mut lines = vec![match block.incongruent_by().0 {
        0 => format!(
            "{start}: aligned to 2 MiB, so that KVM can map it by huge pages, provided that the guest sees its beginning at a multiple of 2 MiB, \
             such as 0 or 4 GiB (which cannot be seen from here)"
        ),
        _ => format!(
            "{start}: begins {} after a multiple of 2 MiB. If the guest sees its beginning at 0 or 4 GiB, the two addresses are not congruent, and \
             KVM maps it by 4 KiB whatever is done here. Next step: start the guest with aligned memory (QEMU: not \
             memory-backend-memfd, but memory-backend-file,mem-path=/dev/shm,share=on,align=2M)",
            block.incongruent_by()
        ),
    }];
    if block.unreserved {
        lines.push(format!(
            "{start}: no memory is reserved for it (MAP_NORESERVE). It may be memory that virtio-mem plugs and unplugs, or that its monitor just does \
             not reserve; what is not populated is left alone in either case"
        ));
    }
    if block.obstacle == Some(Obstacle::NoHugePage) && !block.userfaultfd && block.huge < block.populated {
        lines.push(format!(
            "{start}: its monitor switched huge pages off (MADV_NOHUGEPAGE), which nobody can undo from outside. Next step: if a migration is \
             coming in, run this again afterwards; otherwise start the guest without that setting of its monitor"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::{guest, guest_plan as sample};

    #[test]
    fn a_dry_run_tells_what_is_known_of_a_guest_and_what_is_not() {
        let (plan, guest) = (sample(), guest());
        insta::assert_snapshot!(guest_plan(&GuestPlanReport { plan: &plan, guest: &guest, expectation: None }));
    }

    #[test]
    fn a_promotion_tells_of_the_guest_before_and_after() {
        let before = guest();
        let mut after = before.clone();
        after.blocks.iter_mut().for_each(|block| block.huge = block.populated);
        let lines = promoted(&GuestReport { before: &before, after: Some(&after) }, 4242);
        assert!(lines[0].contains("(15.6 %) on huge pages") && lines[1].contains("(100.0 %)"), "{lines:?}");
        let gone = promoted(&GuestReport { before: &before, after: None }, 4242);
        assert_eq!(gone.len() + 1, lines.len());
    }
}
