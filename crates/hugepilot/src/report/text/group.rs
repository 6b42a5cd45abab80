//! The heat of a group of processes: totals, who walks, who walks which shared memory, its map.

use heat::group::{Member, Piece, SharedObject};
use heat::units::{Address, HUGE_PAGE, Nanos, Pages};
use heat::{Group, Meaning, Object, Region, SeenMemory};
use pilot::group::GroupSeen;
use pilot::words::{count, count_of, meaning, percent, printable, rate, unobserved as why_unobserved};

use super::joined;
use crate::report::heat_map::{Canvas, heat_map};
use crate::report::table::{Side, table};

/// Lines of each list; a server may have a thousand processes, and the tenth hottest is rarely warm.
const HOTTEST: usize = 10;
/// Mappings listed of each object.
const HOTTEST_MAPPINGS: usize = 4;
/// Characters of an object's name that are shown.
const NAME_LIMIT: usize = 48;
/// Characters of a reason that are shown.
const REASON_LIMIT: usize = 160;

/// The columns of both tables; `last` is what they are about.
fn columns(last: &str) -> [(&str, Side); 6] {
    let [walks, share, present, walked, huge] =
        ["walks", "share", "present", "walked", "huge"].map(|name| (name, Side::Right));
    [walks, share, present, walked, huge, (last, Side::Left)]
}

/// The summary of a group.
pub fn group(seen: &GroupSeen, canvas: Canvas) -> String {
    let group = &seen.group;
    let mut lines = totals(group);
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

fn totals(group: &Group) -> Vec<String> {
    let (private, shared) = (group.private(), group.shared());
    let all: SeenMemory = [private, shared].into_iter().sum();
    let window = group.members().map(|member| member.summary.window).max().unwrap_or(Nanos(0));
    let longest_stall = group.members().map(|member| member.summary.cost.longest_stall).max().unwrap_or(Nanos(0));
    let unobserved = Pages(group.members().map(|member| member.summary.unobserved.0).sum());
    let processes = processes_in_words(group.members().len());
    let mut lines = vec![
        format!("{processes}, one after the other watched for {window}; shared memory is counted once"),
        format!(
            "  page walks   {}: {} private, {} shared",
            rate(all.walks_per_second),
            rate(private.walks_per_second),
            rate(shared.walks_per_second)
        ),
        format!(
            "  present      {}: {} private, {} shared",
            all.present.bytes(),
            private.present.bytes(),
            shared.present.bytes()
        ),
        format!(
            "  walked       {}: {} private, {} shared",
            all.walked.bytes(),
            private.walked.bytes(),
            shared.walked.bytes()
        ),
        format!("  huge pages   {}: {} private, {} shared", all.huge, private.huge, shared.huge),
        format!("  observing    longest stall {longest_stall}"),
    ];
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

fn processes_in_words(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{} processes", count(number as u64)) }
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
    let all = group.private().walks_per_second + group.shared().walks_per_second;
    let mut members: Vec<&Member> = group.members().collect();
    members.sort_by(|left, right| right.private.walks_per_second.total_cmp(&left.private.walks_per_second));
    let row = |member: &&Member| {
        cells(member.private, all, format!("{} ({})", member.summary.pid, printable(&member.name, NAME_LIMIT)))
    };
    let rows: Vec<_> = members.iter().take(HOTTEST).map(row).collect();
    let mut lines = table(&columns("private memory of process"), &rows);
    if members.len() > HOTTEST {
        let rest = processes_in_words(members.len() - HOTTEST);
        lines.push(format!("and {rest} with fewer page walks in private memory"));
    }
    lines
}

fn shared(group: &Group, objects: &[(&Object, &SharedObject)]) -> Vec<String> {
    let all = group.private().walks_per_second + group.shared().walks_per_second;
    let mut rows = Vec::new();
    for (id, object) in objects.iter().take(HOTTEST) {
        let mappings = count_of(object.mappings.len() as u64, "mapping");
        rows.push(cells(object.amount(), all, format!("{}, {mappings}", title(id, object))));
        let walking = object.mappings.iter().filter(|(_, mapping)| mapping.amount.walks_per_second > 0.0);
        let mut mappings: Vec<_> = walking.map(|(&(pid, _), mapping)| (pid, mapping)).collect();
        mappings
            .sort_by(|(_, left), (_, right)| right.amount.walks_per_second.total_cmp(&left.amount.walks_per_second));
        rows.extend(mappings.iter().take(HOTTEST_MAPPINGS).map(|(pid, mapping)| {
            let (start, len) = (mapping.range.start, mapping.range.len());
            cells(mapping.amount, all, format!("  in {pid}: {len} at {start}"))
        }));
    }
    let mut lines = table(&columns("shared memory, and the mappings that walk it most"), &rows);
    if objects.len() > HOTTEST {
        lines.push(format!("and {} with fewer page walks", count_of((objects.len() - HOTTEST) as u64, "object")));
    }
    lines
}

fn cells(amount: SeenMemory, all: f64, what: String) -> Vec<String> {
    vec![
        rate(amount.walks_per_second),
        percent(amount.walks_per_second, all),
        amount.present.bytes().to_string(),
        amount.walked.bytes().to_string(),
        amount.huge.to_string(),
        what,
    ]
}

/// What an object is called; the inode tells it from others of the same name.
fn title(id: &Object, object: &SharedObject) -> String {
    format!("{} (inode {} on {})", printable(&object.name, NAME_LIMIT), id.inode, id.device_name())
}

/// The pieces of an object as regions at its offsets, which a heat map shows.
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
        insta::assert_snapshot!(group(&group_seen(), PLAIN));
    }

    #[test]
    fn long_lists_are_cut_and_nothing_shared_is_said() {
        let mut seen = GroupSeen::default();
        for pid in 1..=12 {
            seen.group.add("a\x1b[31m", &Heat { pid, ..heat_of(vec![region(0, f64::from(pid), 0)]) });
            seen.left_out.push((100 + pid, format!("process {} is a kernel thread", 100 + pid)));
        }
        let text = group(&seen, PLAIN);
        for line in ["  and 2 more were left out", "and 2 processes with fewer page walks in private memory"] {
            assert!(text.lines().any(|each| each == line), "{text}");
        }
        assert!(text.ends_with("\nno memory is shared\n") && !text.contains('\x1b'), "{text}");
    }
}
