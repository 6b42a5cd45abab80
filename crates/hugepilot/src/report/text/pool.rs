//! The pools of reserved huge pages: their counts, the result of resizing, and what makes them survive a reboot.

use heat::units::Bytes;
use kernel::hugetlb::{FileSystem, NodePool, Pool, size_name};
use kernel::hugetlb_limits::Limit;
use pilot::words::{count, count_of, percent, printable};
use pool::{Change, Ended, Obstacles, Resized, View, is_all_promised, is_giant};

use super::{joined, processes};
use crate::report::pool_words::{diff, ended, hindrance, next_step};
use crate::report::table::{or_dash, table};
use crate::report::{PersistReport, PoolPlanReport};

/// Processes listed; JSON has all.
const MOST_USERS: usize = 20;
const NAME_LIMIT: usize = 15;
const PATH_LIMIT: usize = 60;

/// Every pool, the memory it leaves for ordinary programs, and its users.
pub fn pools(view: &View) -> String {
    let mut lines = vec![memory(view), String::new()];
    lines.extend(counts(view));
    lines.extend(riddles(view));
    lines.extend(users(view));
    lines.extend(mounts(&view.mounts));
    lines.extend(limits(&view.limits));
    lines.extend(view.shared_memory_group.into_iter().flat_map(shared_memory));
    joined(lines)
}

fn memory(view: &View) -> String {
    format!(
        "{} of memory: the pools hold {} ({}), {} are left for everything else, {} of it available to programs now",
        view.memory.total,
        view.held(),
        percent(view.held().0 as f64, view.memory.total.0 as f64),
        view.left(),
        view.memory.available
    )
}

/// One line per pool, and one per memory node where there are several.
fn counts(view: &View) -> Vec<String> {
    if view.pools.is_empty() {
        return vec!["this kernel has no pools of huge pages (CONFIG_HUGETLBFS)".to_owned()];
    }
    let mut rows: Vec<(&Pool, Option<&NodePool>)> = Vec::new();
    for pool in &view.pools {
        rows.push((pool, None));
        let nodes: Vec<_> = view.nodes.iter().filter(|node| node.page_size == pool.page_size).collect();
        if nodes.len() > 1 {
            rows.extend(nodes.into_iter().map(|node| (pool, Some(node))));
        }
    }
    let star = |pool: &Pool| if view.default_size == Some(pool.page_size) { "*" } else { "" };
    let size = |pool: &Pool| format!("{}{}", size_name(pool.page_size), star(pool));
    // Reservations are not counted per node.
    let of_all = |node: &Option<&NodePool>, pages: u64| or_dash(node.is_none().then(|| count(pages)));
    let mut lines = table(rows)
        .left("pages", |(pool, node)| node.map_or_else(|| size(pool), |_| String::new()))
        .right("node", |(_, node)| node.map_or("all".to_owned(), |node| node.node.to_string()))
        .right("total", |(pool, node)| count(node.map_or(pool.total, |node| node.total)))
        .right("in use", |(pool, node)| count(node.map_or(pool.in_use(), |node| node.total.saturating_sub(node.free))))
        .right("free", |(pool, node)| count(node.map_or(pool.free, |node| node.free)))
        .right("reserved", |(pool, node)| of_all(node, pool.reserved))
        .right("available", |(pool, node)| of_all(node, pool.available()))
        .right("surplus", |(pool, node)| count(node.map_or(pool.surplus, |node| node.surplus)))
        .right("overcommit", |(pool, node)| of_all(node, pool.overcommit))
        .lines();
    lines.push("* the size that programs get which name none; free pages that are reserved are spoken for".to_owned());
    lines
}

/// Explains what may surprise readers of the counts.
fn riddles(view: &View) -> Vec<String> {
    let all_promised = view.pools.iter().filter(|pool| is_all_promised(pool)).map(|pool| {
        let size = size_name(pool.page_size);
        let then = match pool.overcommit.saturating_sub(pool.surplus) {
            0 => format!(
                "A program that asks for one gets \"cannot allocate memory\"; `hugepilot pool set {size}=+N` makes the pool larger"
            ),
            more => format!("Only {} can be taken on demand, if memory is there (overcommit)", count_of(more, "page")),
        };
        format!(
            "{size}: {} free, yet none can be given out: all are promised to mappings that have not touched them yet. {then}",
            count_of(pool.free, "page")
        )
    });
    let mut lines: Vec<String> = all_promised.collect();
    if view.starves_programs() {
        lines.push(format!(
            "ordinary programs cannot use what the pools hold: {} lies idle there while they are left {}; `hugepilot pool set` with fewer \
             pages gives memory back",
            view.idle(),
            view.memory.available
        ));
    }
    lines
}

fn users(view: &View) -> Vec<String> {
    let mut lines = vec![String::new()];
    match view.users.is_empty() {
        true => lines.push("no process uses them".to_owned()),
        false => lines.extend(
            table(view.users.iter().take(MOST_USERS))
                .right("in use", |user| user.in_use())
                .right("of it shared", |user| user.shared)
                .right("not touched", |user| user.untouched())
                .left("pages", |user| size_name(user.page_size))
                .left("process", |user| format!("{} ({})", user.pid, printable(&user.name, NAME_LIMIT)))
                .lines(),
        ),
    }
    if view.users.len() > MOST_USERS {
        lines.push(format!("and {} more (--json has all)", view.users.len() - MOST_USERS));
    }
    if view.unseen > 0 {
        let processes = processes(view.unseen);
        lines.push(format!("{processes} could not be read, for want of rights or for endless mappings"));
    }
    lines
}

fn mounts(mounts: &[FileSystem]) -> Vec<String> {
    if mounts.is_empty() {
        return vec![String::new(), "no pool is mounted (hugetlbfs); `hugepilot pool mount` does that".to_owned()];
    }
    [
        vec![String::new()],
        table(mounts)
            .left("pages", |mount| size_name(mount.page_size))
            .right("limit", |mount| mount.limit.map_or("none".to_owned(), |limit| limit.to_string()))
            .right("owner", |mount| format!("{}:{}", mount.uid, mount.gid))
            .right("mode", |mount| format!("{:o}", mount.mode))
            .left("mounted at", |mount| printable(&mount.point, PATH_LIMIT))
            .lines(),
    ]
    .concat()
}

fn limits(limits: &[Limit]) -> Vec<String> {
    if limits.is_empty() {
        return Vec::new();
    }
    [
        vec![String::new()],
        table(limits)
            .left("pages", |limit| size_name(limit.page_size))
            .right("limit", |limit| limit.limit)
            .right("has", |limit| limit.usage)
            .right("refused", |limit| or_dash(limit.refused.map(count)))
            .left("when over", |limit| when_over(limit))
            .left("control group", |limit| printable(&limit.cgroup, PATH_LIMIT))
            .lines(),
    ]
    .concat()
}

fn when_over(limit: &Limit) -> &'static str {
    if limit.of_reservations { "mmap and shmget fail" } else { "touching ends it (SIGBUS)" }
}

fn shared_memory(group: u32) -> [String; 2] {
    let who = match group {
        0 => "only with CAP_IPC_LOCK".to_owned(),
        group => format!("for group {group}, and with CAP_IPC_LOCK"),
    };
    [String::new(), format!("shared memory of System V on huge pages (SHM_HUGETLB): {who} (vm.hugetlb_shm_group)")]
}

/// The result of resizing, pool by pool.
pub fn resized(all: &[Resized]) -> String {
    let mut lines = Vec::new();
    for (index, resized) in all.iter().enumerate() {
        if index > 0 {
            lines.push(String::new());
        }
        lines.extend(one_resized(resized));
    }
    joined(lines)
}

fn one_resized(resized: &Resized) -> Vec<String> {
    let change = resized.change;
    let size = size_name(change.page_size);
    let on_node = change.node.map_or(String::new(), |node| format!(" on node {node}"));
    let memory = Bytes(resized.pages.saturating_mul(change.page_size.0));
    let mut lines = vec![match resized.ended {
        Ended::Done => format!("{size}{on_node}: {} ({memory})", count_of(resized.pages, "page")),
        other => format!(
            "{size}{on_node}: {} of the {} pages wanted ({memory}): {}",
            count(resized.pages),
            count(change.to),
            ended(other)
        ),
    }];
    lines.extend(before_and_after(&resized.before, &resized.after));
    if resized.after.surplus > resized.before.surplus {
        let surplus = count_of(resized.after.surplus, "page");
        lines.push(format!(
            "{surplus} in use or promised: surplus now, which the system gets back as programs let go of it"
        ));
    }
    if resized.compactions > 0 {
        lines.push(format!("memory was compacted {}", count_of(resized.compactions.into(), "time")));
    }
    if resized.cache_drops > 0 {
        lines.push(format!("clean page cache was dropped {}", count_of(resized.cache_drops.into(), "time")));
    }
    lines.extend(resized.overcommit_refused.iter().map(|refused| format!("what may be taken on demand: {refused}")));
    lines.extend(resized.obstacles.iter().flat_map(obstacles));
    lines.push(format!("took {}; longest step {}", resized.elapsed, resized.longest_step));
    lines
}

fn before_and_after(before: &Pool, after: &Pool) -> Vec<String> {
    type Figure = (&'static str, fn(&Pool) -> u64);
    let rows: [Figure; 6] = [
        ("total", |pool| pool.total),
        ("free", |pool| pool.free),
        ("reserved", |pool| pool.reserved),
        ("available", Pool::available),
        ("surplus", |pool| pool.surplus),
        ("overcommit", |pool| pool.overcommit),
    ];
    table(rows)
        .left("pages", |(name, _)| *name)
        .right("before", |(_, of)| count(of(before)))
        .right("after", |(_, of)| count(of(after)))
        .lines()
}

fn obstacles(obstacles: &Obstacles) -> Vec<String> {
    let Obstacles { missing, available, .. } = obstacles;
    let to_be_had = match obstacles.change.node {
        None => format!("programs could still get {available}"),
        Some(node) => format!("{available} free on node {node}"),
    };
    let mut lines = vec![String::new(), format!("{missing} missing; {to_be_had}. Where it could come from:")];
    lines.extend(
        table(&obstacles.zones)
            .right("node", |zone| zone.node)
            .left("zone", |zone| zone.name.clone())
            .right("free", |zone| zone.free)
            .right("largest block", |zone| or_dash(zone.largest_free))
            .right("with unmovable pages", |zone| or_dash(zone.unmovable))
            .lines(),
    );
    for (why, next_step) in obstacles.hindrances().into_iter().map(|each| hindrance(each, obstacles)) {
        lines.push(why.to_owned());
        lines.push(format!("  {next_step}"));
    }
    lines.push(String::new());
    lines
}

/// What `pool set` would change, and the memory that it takes.
pub fn pool_plan(report: &PoolPlanReport) -> String {
    let mut lines: Vec<String> = report.changes.iter().map(planned).collect();
    let needed = report.needed();
    if needed > Bytes(0) {
        lines.push(match report.available {
            None => format!("takes at most {needed} of that node's memory"),
            Some(available) if needed > available => {
                format!("takes at most {needed} of memory, more than the {available} that programs could get now")
            }
            Some(available) => format!(
                "takes at most {needed} of memory; programs could get {available} now, perhaps in pieces that are too small"
            ),
        });
    }
    lines.push("nothing was changed: the same command without --dry-run does that".to_owned());
    joined(lines)
}

fn planned(change: &Change) -> String {
    let on_node = change.node.map_or(String::new(), |node| format!(" on node {node}"));
    let pages = if change.to == change.from {
        format!("{}, as now", count_of(change.to, "page"))
    } else {
        format!("{} instead of {}", count_of(change.to, "page"), count(change.from))
    };
    let on_demand = match change.most {
        None => String::new(),
        Some(most) if most > change.to && is_giant(change.page_size) => {
            format!(", up to {} on demand, which most kernels refuse for pages so large", count(most))
        }
        Some(most) => format!(", up to {} on demand", count(most)),
    };
    format!("{}{on_node}: {pages}{on_demand}", size_name(change.page_size))
}

/// The files that make pools survive a reboot, as a diff against the present files or as written, and what is left to do.
pub fn persist(report: &PersistReport) -> String {
    let mut text = String::new();
    for edit in report.edits {
        match (report.applied, &edit.after) {
            (false, _) => text.push_str(&diff(edit)),
            (true, Some(_)) => text.push_str(&format!("wrote {}\n", edit.path)),
            (true, None) => text.push_str(&format!("removed {}\n", edit.path)),
        }
    }
    text.push_str(match (report.edits.is_empty(), report.applied) {
        (true, _) => "no file has to change\n",
        (false, false) => "\nnothing was changed: the same command with --apply does that\n",
        (false, true) => "",
    });
    if !report.next_steps.is_empty() {
        text.push_str(if report.applied { "then:\n" } else { "after that, as root:\n" });
    }
    for (command, why) in report.next_steps.iter().map(next_step) {
        let command = command.map_or(String::new(), |command| format!("{command}  "));
        text.push_str(&format!("  {command}# {why}\n"));
    }
    if report.removes {
        text.push_str("pools keep their pages until the next boot; `hugepilot pool set 2M=0` empties one now\n");
    }
    text
}

/// A file system that was mounted or unmounted.
pub fn mount(file_system: &FileSystem, done: &str) -> String {
    let limit = file_system.limit.map_or("no limit but the pool".to_owned(), |limit| format!("at most {limit}"));
    format!(
        "{done} {}: pages of {}, {limit}, owner {}:{}, mode {:o}\n",
        printable(&file_system.point, PATH_LIMIT),
        file_system.page_size,
        file_system.uid,
        file_system.gid,
        file_system.mode
    )
}

#[cfg(test)]
mod tests {
    use pool::{Edit, NextStep};

    use super::*;
    use crate::report::pool_samples::{limit, mount as mount_sample, obstacles as obstacles_sample, short, view};

    #[test]
    fn pools_read_from_memory_to_limits() {
        insta::assert_snapshot!(pools(&view()));
        let nobody = View { users: Vec::new(), mounts: Vec::new(), limits: Vec::new(), unseen: 0, ..view() };
        let text = pools(&nobody);
        assert!(text.contains("no process uses them\n") && text.contains("no pool is mounted"), "{text}");
        assert!(pools(&View { pools: Vec::new(), ..nobody }).contains("CONFIG_HUGETLBFS"));
    }

    #[test]
    fn free_pages_that_are_all_promised_are_explained() {
        let mut view = view();
        assert!(pools(&view).contains("2M: 36 pages free, yet none can be given out"));
        assert!(pools(&view).contains("Only 47 pages can be taken on demand"));
        view.pools[0].overcommit = 3;
        assert!(pools(&view).contains("\"cannot allocate memory\"; `hugepilot pool set 2M=+N`"));
        view.pools[0].reserved = 0;
        assert!(!pools(&view).contains("yet none can be given out"));
    }

    #[test]
    fn a_pool_that_fell_short_says_why() {
        insta::assert_snapshot!(resized(&[short()]));
        let done = Resized { ended: Ended::Done, obstacles: None, pages: 4, ..short() };
        assert!(resized(&[done]).starts_with("1G on node 1: 4 pages (4 GiB)\n"));
    }

    #[test]
    fn what_was_tried_is_not_advised_again() {
        let told = |obstacles: Obstacles| resized(&[Resized { obstacles: Some(obstacles), ..short() }]);
        let whole = Change { page_size: Bytes(2 << 20), node: None, to: 1000, ..short().change };
        let broken_up =
            |made_room| Obstacles { change: whole, made_room, available: Bytes(9 << 30), ..obstacles_sample() };
        let (before, after) = (told(broken_up(false)), told(broken_up(true)));
        assert!(before.contains("try --make-room") && !after.contains("--make-room"), "{before}\n{after}");
        for text in [&before, &after] {
            assert!(text.contains("`hugepilot pool persist 2M=1000`") && text.contains("hugepages=1000"), "{text}");
        }
        let late = told(Obstacles { ended: Ended::TimeUp, ..broken_up(true) });
        assert!(late.contains("--time-limit") && !late.contains("smaller than a page"), "{late}");
        let on_node = told(Obstacles { made_room: false, ..obstacles_sample() });
        assert!(on_node.contains("try --make-room") && on_node.contains("hugepages=1:4"), "{on_node}");
    }

    #[test]
    fn pages_are_told_though_their_overcommit_was_refused() {
        let refused = Some("cannot write 7 to /p: no".to_owned());
        let text = resized(&[Resized { overcommit_refused: refused, ended: Ended::Done, obstacles: None, ..short() }]);
        assert!(text.contains("before  after\n") && text.contains("on demand: cannot write 7"), "{text}");
    }

    #[test]
    fn every_end_is_told() {
        for (ended, words) in
            [(Ended::NoMore, "no more are to be had"), (Ended::TimeUp, "time was up"), (Ended::Stopped, "signal")]
        {
            assert!(resized(&[Resized { ended, ..short() }]).contains(words), "{words}");
        }
    }

    #[test]
    fn what_would_change_is_told_with_the_memory_that_it_takes() {
        let grows = Change { page_size: Bytes(2 << 20), node: None, from: 8, to: 1032, most: Some(2000) };
        let shrinks = Change { page_size: Bytes(1 << 30), node: Some(1), from: 2, to: 1, most: None };
        let told = |changes: &[Change], available: Option<u64>| {
            pool_plan(&PoolPlanReport { changes, available: available.map(Bytes) })
        };
        let nothing = "nothing was changed: the same command without --dry-run does that\n";
        assert_eq!(
            told(&[shrinks, grows], Some(8 << 30)),
            format!(
                "1G on node 1: 1 page instead of 2\n2M: 1,032 pages instead of 8, up to 2,000 on demand\n\
                 takes at most 2 GiB of memory; programs could get 8 GiB now, perhaps in pieces that are too small\n{nothing}"
            )
        );
        assert_eq!(told(&[shrinks], None), format!("1G on node 1: 1 page instead of 2\n{nothing}"));
        assert!(told(&[Change { to: 8, ..grows }], None).starts_with("2M: 8 pages, as now, up to 2,000"));
        assert!(told(&[grows], None).contains("takes at most 2 GiB of that node's memory\n"));
        assert!(told(&[grows], Some(1 << 30)).contains("more than the 1 GiB that programs could get now\n"));
        let giant = Change { most: Some(8), ..shrinks };
        assert!(told(&[giant], None).contains("up to 8 on demand, which most kernels refuse"));
        let endless = Change { to: u64::MAX, ..grows };
        assert!(told(&[endless, endless], Some(1)).contains("more than the 1 B"));
    }

    #[test]
    fn what_lasts_is_shown_before_it_is_written() {
        let edits = [
            Edit { path: "/etc/a".into(), before: None, after: Some("one\n".into()) },
            Edit { path: "/etc/b".into(), before: Some("two\n".into()), after: None },
        ];
        let next_steps = [NextStep::UpdateGrub, NextStep::LogInAnew];
        let report = PersistReport { edits: &edits, next_steps: &next_steps, applied: false, removes: false };
        insta::assert_snapshot!(persist(&report));
        let applied = persist(&PersistReport { applied: true, ..report });
        assert!(applied.starts_with("wrote /etc/a\nremoved /etc/b\nthen:\n  update-grub  # then reboot"), "{applied}");
        let nothing = PersistReport { edits: &[], next_steps: &[], applied: true, removes: true };
        assert!(persist(&nothing).starts_with("no file has to change\npools keep their pages"));
    }

    #[test]
    fn a_mount_is_told_with_its_limit() {
        assert_eq!(
            mount(&mount_sample(), "mounted"),
            "mounted /dev/hugepages-1G: pages of 1 GiB, at most 4 GiB, owner 0:27, mode 1770\n"
        );
        assert_eq!(when_over(&limit()), "touching ends it (SIGBUS)");
    }
}
