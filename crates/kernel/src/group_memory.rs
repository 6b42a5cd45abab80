//! The memory of the control group that a process is in: what it may still take, and whether the kernel killed for lack of it.
//!
//! Owns: `memory.events` and `memory.oom_control`, and the list of mounts, which is read once. Never touches: limits.

use crate::cgroup::{Lineage, Room, Version, room_of, statistic, unless_gone};
use crate::mounts::{self, Mount};
use crate::{KernelError, Root, optional};

/// The memory of a process's control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemory {
    /// The group, as a path from the top of its mount; empty for the top itself.
    pub cgroup: String,
    /// The tightest limit of it and of the groups above it; None where no limit is set.
    pub room: Option<Room>,
    /// Processes of the group that the kernel has killed for lack of memory.
    pub oom_kills: u64,
}

/// The memory groups of this machine. Its mounts are read once: a machine with many containers has thousands.
#[derive(Clone, Debug, Default)]
pub struct MemoryGroups {
    mounts: Vec<Mount>,
}

impl MemoryGroups {
    /// Finds where memory groups are mounted. Errors: the mounts cannot be read.
    pub fn find(root: &Root) -> Result<Self, KernelError> {
        let mounts = optional(mounts::read(root))?.unwrap_or_default();
        let has_memory =
            |mount: &Mount| [Version::One, Version::Two].iter().any(|version| version.has(mount, "memory"));
        Ok(Self { mounts: mounts.into_iter().filter(has_memory).collect() })
    }

    /// The memory of the group that a process is in; None where the controller is not mounted, or the group is outside the mount.
    ///
    /// Errors: the process has ended (`is_gone`), a limit that is not a number.
    pub fn of(&self, root: &Root, pid: u32) -> Result<Option<GroupMemory>, KernelError> {
        let Some(lineage) = Lineage::among(&self.mounts, root, &pid.to_string(), "memory")? else { return Ok(None) };
        let room = room_of(root, &lineage)?;
        let cgroup = lineage.groups.first().cloned().unwrap_or_default();
        let file = match lineage.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let events = unless_gone(root.text(&format!("{}{cgroup}/{file}", lineage.mount.point)))?.unwrap_or_default();
        Ok(Some(GroupMemory { cgroup, room, oom_kills: statistic(&events, "oom_kill").unwrap_or(0) }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use heat::units::Bytes;

    use super::*;

    fn write(tree: &Path, name: &str, text: &str) {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), text).unwrap();
    }

    fn read(tree: &Path) -> GroupMemory {
        let root = Root::at(tree);
        MemoryGroups::find(&root).unwrap().of(&root, 7).unwrap().expect("a group")
    }

    #[test]
    fn a_pods_container_has_its_limit_and_its_kills_in_version_two() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        // In a container, the container's own mount comes first.
        let mounts = "28 23 0:26 /kubepods.slice/own /c/own rw - cgroup2 cgroup2 rw\n29 23 0:26 / /c/all rw - cgroup2 cgroup2 rw\n";
        write(tree, "proc/self/mountinfo", mounts);
        write(tree, "proc/7/cgroup", "0::/kubepods.slice/pod1/cri-1.scope\n");
        let container = "c/all/kubepods.slice/pod1/cri-1.scope";
        write(tree, &format!("{container}/memory.max"), "1000\n");
        write(tree, &format!("{container}/memory.current"), "800\n");
        write(
            tree,
            &format!("{container}/memory.events"),
            "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
        );
        let memory = read(tree);
        assert_eq!((memory.cgroup.as_str(), memory.oom_kills), ("/kubepods.slice/pod1/cri-1.scope", 2));
        assert_eq!(memory.room.map(|room| (room.limit, room.left())), Some((Bytes(1000), Bytes(200))));
    }

    #[test]
    fn and_in_version_one() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        write(tree, "proc/self/mountinfo", "35 31 0:32 / /c/memory rw - cgroup cgroup rw,memory\n");
        write(tree, "proc/7/cgroup", "4:memory:/kubepods/pod1/1\n1:cpu:/\n");
        write(tree, "c/memory/kubepods/pod1/1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
        let memory = read(tree);
        assert_eq!((memory.cgroup.as_str(), memory.oom_kills, memory.room), ("/kubepods/pod1/1", 5, None));
        let root = Root::at(tree);
        assert!(MemoryGroups::find(&root).unwrap().of(&root, 8).unwrap_err().is_gone());
        assert_eq!(MemoryGroups::default().of(&root, 7).unwrap(), None, "nothing is mounted");
    }

    #[test]
    fn this_process_is_read() {
        let root = Root::host();
        MemoryGroups::find(&root).unwrap().of(&root, std::process::id()).unwrap();
    }
}
