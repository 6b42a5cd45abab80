//! The heat of a group of processes: totals, which processes walk, which of them walk which shared memory, and a map of that.

use heat::group::{Member, Piece, SharedObject};
use heat::units::{Address, HUGE_PAGE, Nanos, Pages};
use heat::{Group, Meaning, Object, Region, SeenMemory};
use pilot::group::GroupSeen;
use pilot::words::{count_of, meaning, printable, rate, unobserved as why_unobserved};

use super::heat::amounts;
use super::joined;
use crate::report::Detail;
use crate::report::heat_map::{Canvas, heat_map};
use crate::report::table::table;

/// Lines in each list; a server may have a thousand processes, and the tenth hottest is rarely warm.
const HOTTEST: usize = 10;
/// Mappings listed per object.
const HOTTEST_MAPPINGS: usize = 4;
/// Characters shown of an object's name.
const NAME_LIMIT: usize = 48;
/// Characters shown of a reason.
const REASON_LIMIT: usize = 160;

/// The summary of a group.
pub fn group(seen: &GroupSeen, canvas: Canvas, detail: Detail) -> String {
    let group = &seen.group;
    let mut lines = totals(group, detail);
    lines.extend(left_out(seen));
    lines.push(String::new());
    lines.extend(processes(group));
    lines.push(String::new());
    let objects = group.hottest_objects();
    let Some((id, hottest)) = objects.first() else {
        lines.push("no memory is shared".to_owned());
        return joined(lines);
    };
    lines.extend(shared(group, &objects));
    lines.push(String::new());
    lines.push(format!("{} by its offsets, all processes together:", title(id, hottest)));
    joined(lines) + &heat_map(&regions(hottest), canvas)
}

fn totals(group: &Group, detail: Detail) -> Vec<String> {
    let (private, shared) = (group.private(), group.shared());
    let all: SeenMemory = [private, shared].into_iter().sum();
    let parts = |name: &str, of: &dyn Fn(&SeenMemory) -> String| {
        format!("  {name:<12} {}: {} private, {} shared", of(&all), of(&private), of(&shared))
    };
    let window = group.members().map(|member| member.summary.window).max().unwrap_or(Nanos(0));
    let longest_stall = group.members().map(|member| member.summary.cost.longest_stall).max().unwrap_or(Nanos(0));
    let unobserved = Pages(group.members().map(|member| member.summary.unobserved.0).sum());
    let processes = super::processes(group.members().len() as u64);
    let mut lines = vec![
        format!("{processes}, one after the other watched for {window}; shared memory is counted once"),
        parts("page walks", &|memory| rate(memory.walks_per_second)),
        parts("present", &|memory| memory.present.bytes().to_string()),
        parts("walked", &|memory| memory.walked.bytes().to_string()),
        parts("huge pages", &|memory| memory.huge.to_string()),
    ];
    if detail == Detail::Full {
        lines.push(format!("  observing    longest stall {longest_stall}"));
    }
    if unobserved > Pages(0) {
        let in_slices = group.members().any(|member| member.summary.meaning == Meaning::Accessed);
        let why = why_unobserved(if in_slices { Meaning::Accessed } else { Meaning::Walked });
        lines.push(format!("  unobserved   {}, summed over processes ({why})", unobserved.bytes()));
    }
    let mut meanings: Vec<&str> = group.members().map(|member| meaning(member.summary.meaning)).collect();
    meanings.sort_unstable();
    meanings.dedup();
    lines.extend(meanings.iter().map(|meaning| format!("  {meaning}")));
    lines
}

fn left_out(seen: &GroupSeen) -> Vec<String> {
    let line = |(_, reason): &(u32, String)| format!("  left out: {}", printable(reason, REASON_LIMIT));
    let mut lines: Vec<String> = seen.left_out.iter().take(HOTTEST).map(line).collect();
    if seen.left_out.len() > HOTTEST {
        lines.push(format!("  and {} more were left out", seen.left_out.len() - HOTTEST));
    }
    lines
}

fn processes(group: &Group) -> Vec<String> {
    let mut members: Vec<&Member> = group.members().collect();
    members.sort_by(|left, right| right.private.walks_per_second.total_cmp(&left.private.walks_per_second));
    let name = |member: &Member| format!("{} ({})", member.summary.pid, printable(&member.name, NAME_LIMIT));
    let rows = members.iter().take(HOTTEST).map(|member| (member.private, name(member)));
    let mut lines = amounts_table(rows, group, "private memory of process");
    if members.len() > HOTTEST {
        let rest = super::processes((members.len() - HOTTEST) as u64);
        lines.push(format!("and {rest} with fewer page walks in private memory"));
    }
    lines
}

fn shared(group: &Group, objects: &[(&Object, &SharedObject)]) -> Vec<String> {
    let mut rows = Vec::new();
    for (id, object) in objects.iter().take(HOTTEST) {
        let mappings = count_of(object.mappings.len() as u64, "mapping");
        rows.push((object.amount(), format!("{}, {mappings}", title(id, object))));
        let walking = object.mappings.iter().filter(|(_, mapping)| mapping.amount.walks_per_second > 0.0);
        let mut mappings: Vec<_> = walking.map(|(&(pid, _), mapping)| (pid, mapping)).collect();
        mappings
            .sort_by(|(_, left), (_, right)| right.amount.walks_per_second.total_cmp(&left.amount.walks_per_second));
        rows.extend(mappings.iter().take(HOTTEST_MAPPINGS).map(|(pid, mapping)| {
            let (start, len) = (mapping.range.start, mapping.range.len());
            (mapping.amount, format!("  in {pid}: {len} at {start}"))
        }));
    }
    let mut lines = amounts_table(rows, group, "shared memory, and the mappings that walk it most");
    if objects.len() > HOTTEST {
        lines.push(format!("and {} with fewer page walks", count_of((objects.len() - HOTTEST) as u64, "object")));
    }
    lines
}

/// One line per memory and its name; page walks are shown as a share of the total.
fn amounts_table(rows: impl IntoIterator<Item = (SeenMemory, String)>, group: &Group, heading: &str) -> Vec<String> {
    let all = group.private().walks_per_second + group.shared().walks_per_second;
    amounts(table(rows), all, |(amount, _)| *amount).left(heading, |(_, what)| what.clone()).lines()
}

/// An object's name; the inode distinguishes objects of the same name.
fn title(id: &Object, object: &SharedObject) -> String {
    format!("{} (inode {} on {})", printable(&object.name, NAME_LIMIT), id.inode, id.device_name())
}

/// The pieces of an object as regions at their offsets, for a heat map.
fn regions(object: &SharedObject) -> Vec<Region> {
    let region = |(&number, piece): (&u64, &Piece)| Region {
        huge: piece.huge_in > 0,
        present: piece.present.clone(),
        walked: piece.walked.clone(),
        walks_per_second: piece.walks_per_second,
        ..Region::blank(Address(number * HUGE_PAGE), None)
    };
    object.pieces.iter().map(region).collect()
}

#[cfg(test)]
mod tests {
    use heat::Heat;
    use heat::samples::{heat_of, region};

    use super::*;
    use crate::report::samples::group_seen;

    const PLAIN: Canvas = Canvas { width: 60, color: false };

    #[test]
    fn a_group_reads_from_totals_to_shared_memory() {
        insta::assert_snapshot!(group(&group_seen(), PLAIN, Detail::Full));
    }

    #[test]
    fn long_lists_are_cut_and_nothing_shared_is_said() {
        let mut seen = GroupSeen::default();
        for pid in 1..=12 {
            seen.group.add("a\x1b[31m", &Heat { pid, ..heat_of(vec![region(0, f64::from(pid), 0)]) });
            seen.left_out.push((100 + pid, format!("process {} is a kernel thread", 100 + pid)));
        }
        let text = group(&seen, PLAIN, Detail::Usual);
        for line in ["  and 2 more were left out", "and 2 processes with fewer page walks in private memory"] {
            assert!(text.lines().any(|each| each == line), "{text}");
        }
        assert!(text.ends_with("\nno memory is shared\n") && !text.contains('\x1b'), "{text}");
    }
}
