//! A virtual machine's memory from its host: what of it is populated, what is huge, and what cannot be known.

use pilot::decide::{GuestBlock, GuestMemory};
use pilot::words::{percent, printable};

use super::{expectation, joined, plan};
use crate::report::table::table;
use crate::report::{GuestPlanReport, GuestReport};

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
    lines.push(format!("nothing was changed; `hugepilot promote --guest {}` does it", plan.pid));
    joined(lines)
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
            "{start}: congruent with guest-physical addresses within 2 MiB, if it begins there at 0, at 4 GiB or at another multiple of 2 MiB"
        ),
        _ => format!(
            "{start}: {} beyond a multiple of 2 MiB, and so not congruent with guest-physical addresses if it begins there at 0 or 4 GiB: KVM \
             then maps it by 4 KiB, whatever is done here. Next step: start the guest with aligned memory (QEMU: not \
             memory-backend-memfd, but memory-backend-file,mem-path=/dev/shm,share=on,align=2M)",
            block.incongruent_by()
        ),
    }];
    if block.unreserved {
        lines.push(format!(
            "{start}: no memory is reserved for it, as for virtio-mem: what is unplugged is not populated, and stays so without anything to be done"
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
