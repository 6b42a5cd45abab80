//! The pools of reserved huge pages: their counts, the result of resizing, and what makes them survive a reboot.

use kernel::hugetlb::{FileSystem, NodePool, Pool};
use kernel::hugetlb_limits::Limit;
use pool::{Change, Edit, NextStep, Obstacles, Resized, View, is_all_promised};
use serde::Serialize;

use super::{ReportKind, document};
use crate::report::pool_words::{self, diff, hindrance};
use crate::report::{PersistReport, PoolPlanReport};

/// Every pool with its nodes, then users, mounts and limits.
pub fn pools(view: &View) -> String {
    document(
        ReportKind::Pools,
        &object! {
            memory_bytes: view.memory.total,
            available_bytes: view.memory.available,
            held_bytes: view.held(),
            left_bytes: view.left(),
            idle_bytes: view.idle(),
            default_page_size_bytes: view.default_size,
            pools: view.pools.iter().map(|each| pool(each, &view.nodes)).collect::<Vec<_>>(),
            users: &view.users,
            unseen_processes: view.unseen,
            mounts: &view.mounts,
            shared_memory_group: view.shared_memory_group,
            limits: view.limits.iter().map(limit).collect::<Vec<_>>(),
        },
    )
}

/// The result of resizing, pool by pool.
pub fn resized(all: &[Resized]) -> String {
    document(ReportKind::PoolChanges, &object! { changes: all.iter().map(change).collect::<Vec<_>>() })
}

/// What `pool set` would change.
pub fn pool_plan(report: &PoolPlanReport) -> String {
    let change = |change: &Change| {
        object! {
            page_size_bytes: change.page_size,
            node: change.node,
            pages_before: change.from,
            wanted: change.to,
            most_on_demand: change.most,
        }
    };
    document(
        ReportKind::PoolPlan,
        &object! {
            needed_bytes: report.needed(),
            available_bytes: report.available,
            changes: report.changes.iter().map(change).collect::<Vec<_>>(),
        },
    )
}

/// The files that make pools survive a reboot.
pub fn persist(report: &PersistReport) -> String {
    let next_step = |step: &NextStep| {
        let (command, why) = pool_words::next_step(step);
        object! { command, why }
    };
    document(
        ReportKind::PoolFiles,
        &object! {
            applied: report.applied,
            files: report.edits.iter().map(file).collect::<Vec<_>>(),
            next_steps: report.next_steps.iter().map(next_step).collect::<Vec<_>>(),
        },
    )
}

fn file(edit: &Edit) -> impl Serialize {
    object! { path: &edit.path, before: &edit.before, after: &edit.after, diff: diff(edit) }
}

/// A file system that was mounted or unmounted.
pub fn mount(file_system: &FileSystem) -> String {
    document(ReportKind::Mount, file_system)
}

fn pool(pool: &Pool, nodes: &[NodePool]) -> impl Serialize {
    object! {
        page_size_bytes: pool.page_size,
        #[serde(flatten)]
        counts: counts(pool),
        all_promised: is_all_promised(pool),
        nodes: nodes.iter().filter(|node| node.page_size == pool.page_size).collect::<Vec<_>>(),
    }
}

/// The counts of one pool, in pages.
fn counts(pool: &Pool) -> impl Serialize {
    object! {
        total: pool.total,
        persistent: pool.persistent(),
        in_use: pool.in_use(),
        free: pool.free,
        reserved: pool.reserved,
        available: pool.available(),
        surplus: pool.surplus,
        overcommit: pool.overcommit,
    }
}

fn limit(limit: &Limit) -> impl Serialize {
    object! {
        cgroup: &limit.cgroup,
        page_size_bytes: limit.page_size,
        of: if limit.of_reservations { "reservations" } else { "use" },
        limit_bytes: limit.limit,
        usage_bytes: limit.usage,
        refused: limit.refused,
    }
}

fn change(resized: &Resized) -> impl Serialize {
    object! {
        page_size_bytes: resized.change.page_size,
        node: resized.change.node,
        wanted: resized.change.to,
        pages: resized.pages,
        ended: resized.ended,
        before: counts(&resized.before),
        after: counts(&resized.after),
        compactions: resized.compactions,
        cache_drops: resized.cache_drops,
        longest_step_ns: resized.longest_step,
        seconds: resized.elapsed.seconds(),
        overcommit_refused: &resized.overcommit_refused,
        obstacles: resized.obstacles.as_ref().map(obstacles),
    }
}

fn obstacles(obstacles: &Obstacles) -> impl Serialize {
    let hindrances = obstacles.hindrances().into_iter();
    object! {
        missing_bytes: obstacles.missing,
        available_bytes: obstacles.available,
        reasons: obstacles.hindrances(),
        next_steps: hindrances.map(|each| hindrance(each, obstacles).1).collect::<Vec<_>>(),
        zones: &obstacles.zones,
    }
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;
    use pool::Ended;

    use super::*;
    use crate::report::json::tests::pretty;
    use crate::report::pool_samples;

    #[test]
    fn pools_have_their_fields() {
        insta::assert_snapshot!(pretty(&pools(&pool_samples::view())));
    }

    #[test]
    fn resizing_has_its_fields() {
        insta::assert_snapshot!(pretty(&resized(&[pool_samples::short()])));
    }

    #[test]
    fn what_lasts_has_its_fields() {
        let edits = [Edit { path: "/etc/a".into(), before: None, after: Some("one\n".into()) }];
        let next_steps = [NextStep::LogInAnew, NextStep::ByHand { words: "hugepagesz=1G hugepages=4".into() }];
        let report = PersistReport { edits: &edits, next_steps: &next_steps, applied: false, removes: false };
        insta::assert_snapshot!(pretty(&persist(&report)));
    }

    #[test]
    fn a_mount_has_its_fields() {
        let expected = "{\"version\":1,\"report\":\"mount\",\"path\":\"/dev/hugepages-1G\",\"page_size_bytes\":1073741824,\"limit_bytes\":4294967296,\
                        \"least_bytes\":null,\"uid\":0,\"gid\":27,\"mode\":\"1770\"}\n";
        assert_eq!(mount(&pool_samples::mount()), expected);
    }

    #[test]
    fn every_end_and_every_hindrance_has_its_name() {
        for (ended, name) in
            [(Ended::Done, "done"), (Ended::NoMore, "no_more"), (Ended::TimeUp, "time_up"), (Ended::Stopped, "stopped")]
        {
            let document = resized(&[Resized { ended, ..pool_samples::short() }]);
            assert!(document.contains(&format!(r#""ended":"{name}""#)), "{document}");
        }
        let short = |size: u64, available: u64, ended| {
            let mut short = pool_samples::short();
            let obstacles = short.obstacles.as_mut().unwrap();
            obstacles.change.page_size = Bytes(size);
            (obstacles.available, obstacles.ended) = (Bytes(available), ended);
            resized(&[short])
        };
        for (document, names) in [
            (short(1 << 30, 0, Ended::NoMore), r#""reasons":["too_little_memory","giant"]"#),
            (short(2 << 20, 1 << 40, Ended::NoMore), r#""reasons":["broken_up"]"#),
            (short(2 << 20, 1 << 40, Ended::TimeUp), r#""reasons":["time_up"]"#),
        ] {
            assert!(document.contains(names), "{document}");
        }
    }
}
