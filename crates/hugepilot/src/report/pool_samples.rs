//! Pools for tests of reports.

use heat::units::{Bytes, Nanos};
use kernel::hugetlb::{FileSystem, NodePool, Pool};
use kernel::hugetlb_limits::Limit;
use kernel::memory::Meminfo;
use pool::{Change, Ended, Obstacles, Resized, User, View, ZoneObstacles};

const TWO: Bytes = Bytes(2 << 20);
const ONE: Bytes = Bytes(1 << 30);

/// A machine with two nodes, one pool that is fully reserved and one that nobody uses.
pub(super) fn view() -> View {
    let pool = Pool { page_size: TWO, total: 1003, free: 36, reserved: 36, surplus: 3, overcommit: 50 };
    let node = NodePool { node: 0, page_size: TWO, total: 600, free: 30, surplus: 3 };
    let user = User {
        pid: 633,
        name: "postgres".into(),
        page_size: TWO,
        private: Bytes(934 << 21),
        shared: Bytes(33 << 21),
        mapped: Bytes(1003 << 21),
    };
    View {
        memory: Meminfo { total: Bytes(16 << 30), available: Bytes(3 << 30), ..Meminfo::default() },
        default_size: Some(TWO),
        pools: vec![pool, Pool { page_size: ONE, total: 4, free: 4, reserved: 0, surplus: 0, overcommit: 0 }],
        nodes: vec![node, NodePool { node: 1, total: 403, free: 6, surplus: 0, ..node }],
        users: vec![user.clone(), User { pid: 7, name: "evil\u{1b}".into(), private: Bytes(0), ..user }],
        unseen: 1,
        mounts: vec![mount()],
        shared_memory_group: Some(27),
        limits: vec![limit(), Limit { of_reservations: true, refused: None, ..limit() }],
    }
}

pub(super) fn mount() -> FileSystem {
    FileSystem {
        point: "/dev/hugepages-1G".into(),
        page_size: ONE,
        limit: Some(Bytes(4 << 30)),
        least: None,
        uid: 0,
        gid: 27,
        mode: 0o1770,
    }
}

pub(super) fn limit() -> Limit {
    Limit {
        cgroup: "/system.slice/db.service".into(),
        page_size: TWO,
        of_reservations: false,
        limit: Bytes(1 << 30),
        usage: Bytes(1 << 30),
        refused: Some(12),
    }
}

/// A request for four pages of 1 GiB on one node, of which three were reserved.
pub(super) fn short() -> Resized {
    let obstacles = obstacles();
    let before = Pool { page_size: ONE, total: 1, free: 1, reserved: 0, surplus: 0, overcommit: 0 };
    Resized {
        change: obstacles.change,
        pages: 3,
        before,
        after: Pool { total: 3, free: 3, ..before },
        ended: obstacles.ended,
        overcommit_refused: None,
        obstacles: Some(obstacles),
        compactions: 2,
        cache_drops: 1,
        longest_step: Nanos(1_500_000_000),
        elapsed: Nanos(4_000_000_000),
    }
}

/// What kept the fourth page from being reserved.
pub(super) fn obstacles() -> Obstacles {
    let zone = ZoneObstacles {
        node: 1,
        name: "Normal".into(),
        free: Bytes(900 << 20),
        largest_free: Some(Bytes(4 << 20)),
        unmovable: Some(Bytes(70 << 20)),
    };
    Obstacles {
        change: Change { page_size: ONE, node: Some(1), from: 1, to: 4, most: None },
        ended: Ended::NoMore,
        made_room: true,
        missing: ONE,
        available: Bytes(900 << 20),
        zones: vec![
            zone.clone(),
            ZoneObstacles { name: "Movable".into(), largest_free: None, unmovable: None, ..zone },
        ],
    }
}
