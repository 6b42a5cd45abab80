//! The pools of reserved huge pages: how they stand, what resizing came to, what makes them last.

use heat::units::{Bytes, Nanos};
use kernel::hugetlb::{FileSystem, Pool};
use kernel::hugetlb_limits::Limit;
use pool::{Edit, Obstacles, Resized, User, View, ZoneObstacles, is_all_promised};
use serde::Serialize;

use super::{VERSION, line};
use crate::report::PersistReport;
use crate::report::pool_words::{diff, ended_name, hindrance, hindrance_name, next_step};

#[derive(Serialize)]
struct PoolsDocument<'a> {
    version: u32,
    memory_bytes: Bytes,
    available_bytes: Bytes,
    held_bytes: Bytes,
    left_bytes: Bytes,
    idle_bytes: Bytes,
    default_page_size_bytes: Option<Bytes>,
    pools: Vec<PoolFields>,
    users: Vec<UserFields<'a>>,
    unseen_processes: u64,
    mounts: Vec<MountFields<'a>>,
    shared_memory_group: Option<u32>,
    limits: Vec<LimitFields<'a>>,
}

#[derive(Serialize)]
struct PoolFields {
    page_size_bytes: Bytes,
    #[serde(flatten)]
    counts: CountFields,
    all_promised: bool,
    nodes: Vec<NodeFields>,
}

/// The counts of one pool, in pages.
#[derive(Serialize)]
struct CountFields {
    total: u64,
    persistent: u64,
    in_use: u64,
    free: u64,
    reserved: u64,
    available: u64,
    surplus: u64,
    overcommit: u64,
}

#[derive(Serialize)]
struct NodeFields {
    node: u32,
    total: u64,
    free: u64,
    surplus: u64,
}

#[derive(Serialize)]
struct UserFields<'a> {
    pid: u32,
    name: &'a str,
    page_size_bytes: Bytes,
    private_bytes: Bytes,
    shared_bytes: Bytes,
    mapped_bytes: Bytes,
}

#[derive(Serialize)]
struct MountFields<'a> {
    path: &'a str,
    page_size_bytes: Bytes,
    limit_bytes: Option<Bytes>,
    least_bytes: Option<Bytes>,
    uid: u32,
    gid: u32,
    mode: String,
}

#[derive(Serialize)]
struct LimitFields<'a> {
    cgroup: &'a str,
    page_size_bytes: Bytes,
    of: &'static str,
    limit_bytes: Bytes,
    usage_bytes: Bytes,
    refused: Option<u64>,
}

#[derive(Serialize)]
struct ResizedDocument<'a> {
    version: u32,
    changes: Vec<ResizedFields<'a>>,
}

#[derive(Serialize)]
struct ResizedFields<'a> {
    page_size_bytes: Bytes,
    node: Option<u32>,
    wanted: u64,
    pages: u64,
    ended: &'static str,
    before: CountFields,
    after: CountFields,
    compactions: u32,
    cache_drops: u32,
    longest_step_ns: Nanos,
    seconds: f64,
    overcommit_refused: Option<&'a str>,
    obstacles: Option<ObstacleFields<'a>>,
}

#[derive(Serialize)]
struct ObstacleFields<'a> {
    missing_bytes: Bytes,
    available_bytes: Bytes,
    reasons: Vec<&'static str>,
    next_steps: Vec<String>,
    zones: Vec<ZoneFields<'a>>,
}

#[derive(Serialize)]
struct ZoneFields<'a> {
    node: u32,
    zone: &'a str,
    free_bytes: Bytes,
    largest_free_bytes: Option<Bytes>,
    unmovable_bytes: Option<Bytes>,
}

#[derive(Serialize)]
struct PersistDocument<'a> {
    version: u32,
    applied: bool,
    files: Vec<FileFields<'a>>,
    next_steps: Vec<NextStepFields>,
}

#[derive(Serialize)]
struct FileFields<'a> {
    path: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
    diff: String,
}

#[derive(Serialize)]
struct NextStepFields {
    command: Option<String>,
    why: &'static str,
}

#[derive(Serialize)]
struct MountDocument<'a> {
    version: u32,
    #[serde(flatten)]
    mount: MountFields<'a>,
}

/// Every pool with its nodes, then users, mounts and limits.
pub fn pools(view: &View) -> String {
    line(&PoolsDocument {
        version: VERSION,
        memory_bytes: view.memory.total,
        available_bytes: view.memory.available,
        held_bytes: view.held(),
        left_bytes: view.left(),
        idle_bytes: view.idle(),
        default_page_size_bytes: view.default_size,
        pools: view.pools.iter().map(|pool| pool_fields(view, pool)).collect(),
        users: view.users.iter().map(user_fields).collect(),
        unseen_processes: view.unseen,
        mounts: view.mounts.iter().map(mount_fields).collect(),
        shared_memory_group: view.shared_memory_group,
        limits: view.limits.iter().map(limit_fields).collect(),
    })
}

/// What resizing came to, pool by pool.
pub fn resized(all: &[Resized]) -> String {
    line(&ResizedDocument { version: VERSION, changes: all.iter().map(resized_fields).collect() })
}

/// The files that make pools last.
pub fn persist(report: &PersistReport) -> String {
    let next_steps = report.next_steps.iter().map(next_step);
    line(&PersistDocument {
        version: VERSION,
        applied: report.applied,
        files: report.edits.iter().map(file_fields).collect(),
        next_steps: next_steps.map(|(command, why)| NextStepFields { command, why }).collect(),
    })
}

/// A file system that was mounted or unmounted.
pub fn mount(file_system: &FileSystem) -> String {
    line(&MountDocument { version: VERSION, mount: mount_fields(file_system) })
}

fn pool_fields(view: &View, pool: &Pool) -> PoolFields {
    let nodes = view.nodes.iter().filter(|node| node.page_size == pool.page_size);
    let nodes =
        nodes.map(|each| NodeFields { node: each.node, total: each.total, free: each.free, surplus: each.surplus });
    PoolFields {
        page_size_bytes: pool.page_size,
        counts: count_fields(pool),
        all_promised: is_all_promised(pool),
        nodes: nodes.collect(),
    }
}

fn count_fields(pool: &Pool) -> CountFields {
    CountFields {
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

fn user_fields(user: &User) -> UserFields<'_> {
    UserFields {
        pid: user.pid,
        name: &user.name,
        page_size_bytes: user.page_size,
        private_bytes: user.private,
        shared_bytes: user.shared,
        mapped_bytes: user.mapped,
    }
}

fn mount_fields(mount: &FileSystem) -> MountFields<'_> {
    MountFields {
        path: &mount.point,
        page_size_bytes: mount.page_size,
        limit_bytes: mount.limit,
        least_bytes: mount.least,
        uid: mount.uid,
        gid: mount.gid,
        mode: format!("{:o}", mount.mode),
    }
}

fn limit_fields(limit: &Limit) -> LimitFields<'_> {
    LimitFields {
        cgroup: &limit.cgroup,
        page_size_bytes: limit.page_size,
        of: if limit.of_reservations { "reservations" } else { "use" },
        limit_bytes: limit.limit,
        usage_bytes: limit.usage,
        refused: limit.refused,
    }
}

fn resized_fields(resized: &Resized) -> ResizedFields<'_> {
    ResizedFields {
        page_size_bytes: resized.change.page_size,
        node: resized.change.node,
        wanted: resized.change.to,
        pages: resized.pages,
        ended: ended_name(resized.ended),
        before: count_fields(&resized.before),
        after: count_fields(&resized.after),
        compactions: resized.compactions,
        cache_drops: resized.cache_drops,
        longest_step_ns: resized.longest_step,
        seconds: resized.elapsed.seconds(),
        overcommit_refused: resized.overcommit_refused.as_deref(),
        obstacles: resized.obstacles.as_ref().map(obstacle_fields),
    }
}

fn obstacle_fields(obstacles: &Obstacles) -> ObstacleFields<'_> {
    ObstacleFields {
        missing_bytes: obstacles.missing,
        available_bytes: obstacles.available,
        reasons: obstacles.hindrances().into_iter().map(hindrance_name).collect(),
        next_steps: obstacles.hindrances().into_iter().map(|each| hindrance(each, obstacles).1).collect(),
        zones: obstacles.zones.iter().map(zone_fields).collect(),
    }
}

fn zone_fields(zone: &ZoneObstacles) -> ZoneFields<'_> {
    ZoneFields {
        node: zone.node,
        zone: &zone.name,
        free_bytes: zone.free,
        largest_free_bytes: zone.largest_free,
        unmovable_bytes: zone.unmovable,
    }
}

fn file_fields(edit: &Edit) -> FileFields<'_> {
    FileFields { path: &edit.path, before: edit.before.as_deref(), after: edit.after.as_deref(), diff: diff(edit) }
}

#[cfg(test)]
mod tests {
    use pool::{Ended, NextStep};

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
        let expected = "{\"version\":1,\"path\":\"/dev/hugepages-1G\",\"page_size_bytes\":1073741824,\"limit_bytes\":4294967296,\
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
