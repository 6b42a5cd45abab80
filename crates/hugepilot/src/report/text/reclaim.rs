//! Reclaim: what memory is used for, what was reclaimed, and what that changed.

use std::iter::successors;

use heat::memory_use::MemoryUse;
use heat::units::{BASE_PAGE, Bytes};
use kernel::page_use::Age;
use observe::{Census, Spare};
use pilot::words::{count, duration, percent, printable};
use reclaim::{ClassState, MechanismState, MemoryReading, ReclaimState};

use super::joined;
use crate::report::ReclaimStatusReport;
use crate::report::table::table;

const REFUSAL_LIMIT: usize = 400;

/// What memory is used for, how it is reclaimed, and how much is available in huge pages.
pub fn reclaim_status(report: &ReclaimStatusReport<'_>) -> String {
    let mut lines = match report.census {
        Ok(census) => uses(census),
        Err(why) => vec![format!("what memory is used for cannot be told: {}", printable(why, REFUSAL_LIMIT))],
    };
    lines.push(String::new());
    lines.extend(contiguous(report.now));
    lines.push(String::new());
    match report.state {
        None => lines.push("nobody reclaims memory; `hugepilot reclaim --dry-run` shows what that would do".to_owned()),
        Some(state) => {
            let who = if report.is_alive { "reclaims memory" } else { "reclaimed memory and has ended; it ran" };
            lines.push(format!("process {} {who}, for {}", state.pid, duration(state.up_ns)));
            lines.extend(applied(state));
        }
    }
    joined(lines)
}

/// What would be reclaimed, and why not more.
pub fn reclaim_preview(state: &ReclaimState) -> String {
    let mut lines = work(state, "next second", |class| class.step_bytes);
    lines.push("nothing was changed".to_owned());
    joined(lines)
}

/// The account of what was reclaimed.
pub fn reclaimed(state: &ReclaimState) -> String {
    let mut lines = vec![format!("reclaimed for {}: {} freed", duration(state.up_ns), state.reclaimed())];
    lines.extend(applied(state));
    lines.push(String::new());
    lines.extend(before_and_after(state));
    joined(lines)
}

/// One line of progress.
pub fn reclaiming(state: &ReclaimState) -> String {
    let doing = if state.enough_free { "pauses, for enough is free" } else { "reclaims" };
    let MemoryReading { free_bytes, free_huge_bytes, .. } = &state.after;
    format!("{doing}: {} freed so far; {free_bytes} free, {free_huge_bytes} of it in huge pages", state.reclaimed())
}

fn applied(state: &ReclaimState) -> Vec<String> {
    work(state, "applied", |class| class.applied_bytes)
}

/// When memory is reclaimed, how much of each use, what was or would be reclaimed, and by which mechanism.
fn work(state: &ReclaimState, what: &str, bytes: fn(&ClassState) -> Bytes) -> Vec<String> {
    let mut lines = vec![when(state)];
    lines.extend(classes(state, what, bytes));
    lines.push(String::new());
    lines.extend(mechanisms(&state.mechanisms));
    lines
}

/// When memory is reclaimed, and by how much mapped pages are spared.
fn when(state: &ReclaimState) -> String {
    let marks = [(&state.free_below, "free"), (&state.huge_below, "free in huge pages")];
    let marks: Vec<String> =
        marks.iter().filter_map(|(mark, what)| Some(format!("less than {} is {what}", mark.as_ref()?))).collect();
    let when = if marks.is_empty() { "always".to_owned() } else { format!("while {}", marks.join(", or ")) };
    let cost = match state.mapped_page_cost {
        100 => "what processes map is not reclaimed at all".to_owned(),
        cost => format!("what processes map is reclaimed at {} % of its rates", 100u8.saturating_sub(cost)),
    };
    let rests = if state.enough_free { "; at present that is not so, and nothing is reclaimed" } else { "" };
    let host = match state.keeps_free_at_most_bytes.filter(|_| !marks.is_empty()) {
        Some(most) => format!(" ({most} at most, because this machine's host takes back what is free)"),
        None => String::new(),
    };
    format!("memory is reclaimed {when}{host}{rests}; {cost} (--mapped-page-cost {})", state.mapped_page_cost)
}

fn classes(state: &ReclaimState, what: &str, bytes: fn(&ClassState) -> Bytes) -> Vec<String> {
    table(&state.classes)
        .left("use", |class| class.class)
        .right("held before", |class| class.held_before_bytes)
        .right("now", |class| class.held_bytes)
        .right("a minute", |class| printable(&class.rate, 20))
        .right("floor", |class| class.floor_bytes)
        .right(what, |class| bytes(class))
        .right("freed", |class| class.reclaimed_bytes)
        .left("", |class| reason(&class.reason))
        .lines()
}

/// Why a use of memory is reclaimed, or not, for people; from the reason's short name.
fn reason(name: &str) -> &'static str {
    match name {
        "reclaimed" => "is reclaimed",
        "not_requested" => "is left alone: its rate is 0",
        "cost_forbids" => "is mapped, which --mapped-page-cost 100 leaves alone",
        "no_swap" => "could only be swapped, and there is no swap space",
        "enough_free" => "pauses: enough memory is free",
        "at_floor" => "is at its floor",
        "cannot_tell_apart" => "cannot be told from what must stay, by any mechanism here",
        _ => "",
    }
}

fn mechanisms(mechanisms: &[MechanismState]) -> Vec<String> {
    let line = |mechanism: &MechanismState| {
        let name = printable(&mechanism.name, 20);
        match &mechanism.refused {
            Some(why) => format!("{name:<15} not at work: {}", printable(why, REFUSAL_LIMIT)),
            None => format!("{name:<15} {}", counts(mechanism)),
        }
    };
    mechanisms.iter().map(line).collect()
}

/// A mechanism's counters; those at 0 are left out.
fn counts(mechanism: &MechanismState) -> String {
    let met =
        mechanism.counts.iter().filter(|(_, met)| **met > 0).map(|(name, &met)| match name.strip_suffix("_bytes") {
            Some(name) => format!("{} {}", name.replace('_', " "), Bytes(met)),
            None => format!("{} {}", name.replace('_', " "), count(met)),
        });
    let met: Vec<String> = met.collect();
    if met.is_empty() { "ready".to_owned() } else { met.join(", ") }
}

fn before_and_after(state: &ReclaimState) -> Vec<String> {
    type Figure = (&'static str, fn(&MemoryReading) -> String);
    let rows: [Figure; 4] = [
        ("free", |moment| moment.free_bytes.to_string()),
        ("free in huge pages", |moment| moment.free_huge_bytes.to_string()),
        ("files in memory", |moment| moment.file_cache_bytes.to_string()),
        ("free memory that is broken up", |moment| percent(moment.unusable, 1.0)),
    ];
    table(rows)
        .left("", |(name, _)| *name)
        .right("before", |(_, of)| of(&state.before))
        .right("after", |(_, of)| of(&state.after))
        .lines()
}

/// How much memory each use holds, by age, and what reclaim does not reach.
fn uses(census: &Census) -> Vec<String> {
    let held = table(MemoryUse::ALL).left("use", |class| *class).right("held", |class| census.held(*class));
    let by_age = Age::ALL
        .into_iter()
        .fold(held, |table, age| table.right(age.name(), |class| census.held[*class][age as usize]));
    let mut lines = vec![format!("{} of memory, of which {} was sampled", census.total, percent(census.sampled, 1.0))];
    lines.extend(by_age.lines());
    let fixed = &census.fixed;
    lines.push(format!(
        "besides: {} free, {} kept (locked, ramfs), {} in pools of huge pages, {} slab, {} page tables, {} other",
        census.free, fixed.unevictable, fixed.hugetlb, fixed.slab, fixed.page_tables, fixed.kernel
    ));
    lines.extend(spare(&census.spare));
    lines
}

/// How much of what is free, or could be, huge pages can have, and what keeps them from the rest.
fn spare(spare: &Spare) -> Vec<String> {
    let parts = [
        (spare.free_blocks, "in free blocks: huge pages can have it at once"),
        (spare.behind_cache, "in blocks that only such cache keeps from being free"),
        (spare.beside_movable, "beside memory that the kernel can move, or has to write first"),
        (spare.beside_unevictable, "beside locked memory"),
        (spare.beside_kernel, "beside memory of the kernel, which cannot be moved"),
    ];
    let mut lines = vec![format!("{} is free, or clean unmapped cache; in blocks of 2 MiB it lies", spare.all())];
    lines.extend(parts.map(|(size, place)| format!("  {:>10} {place}", size.to_string())));
    lines
}

/// Free memory by block size.
fn contiguous(now: &MemoryReading) -> Vec<String> {
    let sizes = successors(Some(BASE_PAGE), |size| size.checked_mul(2)).map(|size| Bytes(size).to_string());
    let blocks =
        sizes.zip(&now.free_blocks).fold(table([()]).left("free blocks of", |()| ""), |table, (size, blocks)| {
            table.right(&size, |()| count(*blocks))
        });
    let index = match now.fragmentation_index {
        None => "a huge page can be had".to_owned(),
        Some(index) => format!("no huge page can be had; fragmentation index {index:.3}"),
    };
    let mut lines = vec![format!(
        "{} is free, {} of it in huge pages; {} of it is broken up; {index}",
        now.free_bytes,
        now.free_huge_bytes,
        percent(now.unusable, 1.0)
    )];
    lines.extend(blocks.lines());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::{census, moment, reclaim_state};

    #[test]
    fn a_status_reads_from_uses_to_what_was_freed() {
        let (census, state, now) = (census(), reclaim_state(), moment(9));
        let report = ReclaimStatusReport { census: Ok(&census), now: &now, state: Some(&state), is_alive: true };
        insta::assert_snapshot!(reclaim_status(&report));
        let ended = reclaim_status(&ReclaimStatusReport { is_alive: false, ..report });
        assert!(ended.contains("process 4242 reclaimed memory and has ended"), "{ended}");
    }

    #[test]
    fn who_may_not_see_learns_what_can_be_told() {
        let now = MemoryReading { fragmentation_index: Some(0.875), ..moment(0) };
        let report =
            ReclaimStatusReport { census: Err("CAP_SYS_ADMIN is missing"), now: &now, state: None, is_alive: false };
        let text = reclaim_status(&report);
        assert!(text.starts_with("what memory is used for cannot be told: CAP_SYS_ADMIN is missing\n"), "{text}");
        assert!(text.contains("fragmentation index 0.875") && text.contains("nobody reclaims memory"), "{text}");
    }

    #[test]
    fn a_state_that_no_hugepilot_wrote_is_shown() {
        let now = MemoryReading { free_blocks: vec![u64::MAX; 99], ..moment(0) };
        let state = ReclaimState { mapped_page_cost: u8::MAX, ..reclaim_state() };
        let report = ReclaimStatusReport { census: Err("a"), now: &now, state: Some(&state), is_alive: true };
        assert!(reclaim_status(&report).contains("reclaimed at 0 % of its rates"));
    }

    #[test]
    fn an_account_tells_before_and_after() {
        insta::assert_snapshot!(reclaimed(&reclaim_state()));
        let line = reclaiming(&ReclaimState { enough_free: true, ..reclaim_state() });
        assert!(line.starts_with("pauses, for enough is free: 3 GiB freed so far; "), "{line}");
    }

    #[test]
    fn a_preview_says_why_and_that_nothing_was_changed() {
        insta::assert_snapshot!(reclaim_preview(&reclaim_state()));
        let always = ReclaimState { free_below: None, huge_below: None, mapped_page_cost: 30, ..reclaim_state() };
        assert!(
            reclaim_preview(&always)
                .starts_with("memory is reclaimed always; what processes map is reclaimed at 70 % of")
        );
    }
}
