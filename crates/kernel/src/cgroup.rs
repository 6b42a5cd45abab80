//! Control groups: the memory that they leave a process, and the processes in them.
//!
//! Owns: `/proc/PID/cgroup` and both versions of the cgroup file systems (Documentation/admin-guide/cgroup-v2.rst,
//! cgroup-v1/memory.rst). Never touches: limits.

use std::collections::BTreeSet;

use heat::units::Bytes;

use crate::mounts::{self, Mount};
use crate::root::optional;
use crate::{KernelError, Root};

/// The bound on a list of processes.
const PROCESSES: Bytes = Bytes(16 << 20);
/// The most nested control groups to visit.
const DEPTH: usize = 256;
/// The most control groups to visit below one; the kernel allows 65,535 with a memory controller.
const GROUPS: usize = 1 << 17;
/// Hexadecimal digits of a container id, in every engine that follows Docker.
pub const CONTAINER_ID: usize = 64;

/// The tightest limit on a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The group that sets it, as a path from the top of its hierarchy.
    pub cgroup: String,
    /// Bytes that the group may use.
    pub limit: Bytes,
    /// Bytes that it uses, page cache included.
    pub usage: Bytes,
    /// The part of it in page cache not used lately, which can be reclaimed at once.
    pub reclaimable: Bytes,
}

impl Room {
    /// Bytes that the group can still take.
    pub fn left(&self) -> Bytes {
        self.limit.saturating_sub(self.usage.saturating_sub(self.reclaimable))
    }
}

/// Of all groups that a process is in, the one with the least room; `None` where no limit is set or visible.
///
/// Errors: the process has ended (`is_gone`), a limit that is not a number.
pub fn memory_room(root: &Root, pid: u32) -> Result<Option<Room>, KernelError> {
    let lineage = Lineage::read(root, &pid.to_string(), "memory")?;
    lineage.map_or(Ok(None), |lineage| room_of(root, &lineage))
}

/// Of these groups, the one with the least room.
pub(super) fn room_of(root: &Root, lineage: &Lineage) -> Result<Option<Room>, KernelError> {
    let mut tightest: Option<Room> = None;
    for group in &lineage.groups {
        if let Some(room) = read_room(root, lineage.version, &lineage.mount.point, group)? {
            tightest = tightest.into_iter().chain([room]).min_by_key(Room::left);
        }
    }
    Ok(tightest)
}

/// The processes in a group and in all groups below it, in any hierarchy; `None` if there is no such group.
///
/// The group is named as in `/proc/PID/cgroup`, or by its directory. Where hierarchies of version 1 have groups of the same name, the memory
/// controller's group counts, otherwise the first that holds a process.
///
/// Errors: `/proc/self/mountinfo` cannot be read, or a group's directory cannot be searched or listed.
pub fn processes(root: &Root, group: &str) -> Result<Option<BTreeSet<u32>>, KernelError> {
    let mut mounts: Vec<Mount> = mounts::read(root)?.into_iter().filter(is_cgroup).collect();
    mounts.sort_by_key(|mount| !Version::One.has(mount, "memory"));
    let group = format!("/{}", group.trim_matches('/'));
    let mut found = None;
    for mount in mounts {
        let Some(below) = mount.below_its_point(&group).or_else(|| mount.inside(&group)) else { continue };
        let directory = format!("{}{below}", mount.point);
        if root.exists(&format!("{directory}/cgroup.procs"))? {
            let processes = processes_below(root, directory)?;
            if !processes.is_empty() {
                return Ok(Some(processes));
            }
            found = Some(processes);
        }
    }
    Ok(found)
}

/// Directories of the topmost version 2 groups that have such a file; `None` where version 2 is not mounted.
///
/// Errors: `/proc/self/mountinfo` or the top directory of version 2 exists but cannot be read.
pub fn with_file(root: &Root, file: &str) -> Result<Option<Vec<String>>, KernelError> {
    let mounts = optional(mounts::read(root))?.unwrap_or_default();
    let Some(mount) = mounts.into_iter().find(|mount| mount.kind == "cgroup2") else { return Ok(None) };
    let names = optional(root.entries(&mount.point))?.unwrap_or_default();
    let groups = names.into_iter().map(|name| format!("{}/{name}", mount.point));
    Ok(Some(groups.filter(|group| root.path(&format!("{group}/{file}")).exists()).collect()))
}

/// The groups that a process is in, one for each hierarchy, each once.
///
/// Errors: the process has ended (`is_gone`).
pub fn groups(root: &Root, pid: u32) -> Result<BTreeSet<String>, KernelError> {
    let text = root.text(&format!("proc/{pid}/cgroup"))?;
    Ok(text.lines().filter_map(group_of_line).map(|(_, group)| group.to_owned()).collect())
}

/// A group's name as in `/proc/PID/cgroup`, from that name or from the group's directory.
///
/// Errors: `/proc/self/mountinfo` cannot be read.
pub fn name(root: &Root, group: &str) -> Result<String, KernelError> {
    let group = format!("/{}", group.trim_matches('/'));
    let mounts = mounts::read(root)?.into_iter().filter(is_cgroup);
    let named = mounts.filter_map(|mount| Some((mount.below_its_point(&group)?.to_owned(), mount.top)));
    // Among nested mounts the innermost counts.
    let innermost = named.min_by_key(|(below, _)| below.len());
    let name = innermost.map_or(group, |(below, top)| format!("{top}{below}"));
    Ok(format!("/{}", name.trim_matches('/')))
}

/// Whether a group is another one or below it.
pub fn is_within(group: &str, other: &str) -> bool {
    group.strip_prefix(other.trim_end_matches('/')).is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// The ids of the containers that a group belongs to, as their engines include them in its name: `docker-ID.scope`, `cri-containerd-ID.scope`,
/// `/docker/ID`, `system.slice:cri-containerd:ID`, and `ID` alone. A container's monitor is not part of it.
pub fn containers(group: &str) -> impl Iterator<Item = &str> {
    group.split('/').filter_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let (engine, id) = part.rsplit_once(['-', ':']).unwrap_or(("", part));
        (id.len() == CONTAINER_ID && id.bytes().all(|digit| digit.is_ascii_hexdigit()) && !engine.ends_with("conmon"))
            .then_some(id)
    })
}

/// The systemd services and scopes that a group belongs to, outermost first.
pub fn units(group: &str) -> impl DoubleEndedIterator<Item = &str> {
    group.split('/').filter(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

fn processes_below(root: &Root, directory: String) -> Result<BTreeSet<u32>, KernelError> {
    let mut processes = BTreeSet::new();
    for_each_below(root, directory, |directory, _| {
        // A threaded group of version 2 rejects this file (EOPNOTSUPP); its processes are those of the group above it.
        if let Ok(text) = root.text_within(&format!("{directory}/cgroup.procs"), PROCESSES) {
            // A process outside this pid namespace has the id 0.
            processes.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|&pid| pid > 0));
        }
        Ok(())
    })?;
    Ok(processes)
}

/// Visits the directories of a group and of the groups below it, each with the names in it.
pub(super) fn for_each_below(
    root: &Root,
    directory: String,
    mut visit: impl FnMut(&str, &[String]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let mut directories = vec![directory];
    for _ in 0..GROUPS {
        let Some(directory) = directories.pop() else { break };
        // A group may go away meanwhile.
        let names = unless_gone(root.entries(&directory))?.unwrap_or_default();
        visit(&directory, &names)?;
        let below = names.iter().map(|name| format!("{directory}/{name}"));
        directories.extend(below.filter(|path| root.path(path).is_dir()));
    }
    Ok(())
}

/// The two versions of control groups, which may both be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    /// Whether a mount is of this version and may have the controller's files.
    pub(super) fn has(self, mount: &Mount, controller: &str) -> bool {
        match self {
            Version::One => mount.kind == "cgroup" && mount.has(controller),
            Version::Two => mount.kind == "cgroup2",
        }
    }
}

fn is_cgroup(mount: &Mount) -> bool {
    mount.kind == "cgroup" || mount.kind == "cgroup2"
}

/// The controllers and the group in `4:cpuset,memory:/docker/abc`.
fn group_of_line(line: &str) -> Option<(&str, &str)> {
    line.split_once(':')?.1.split_once(':')
}

/// The groups of one controller that a process is in: all whose limits bind it and are visible.
pub(super) struct Lineage {
    pub(super) version: Version,
    /// The mount with the groups' directories.
    pub(super) mount: Mount,
    /// Below the mount point, the process's own group first, then those above it.
    pub(super) groups: Vec<String>,
}

impl Lineage {
    /// Reads it for a process, by id or `self`; `None` where the controller is not mounted, or the group is outside the mount.
    pub(super) fn read(root: &Root, process: &str, controller: &str) -> Result<Option<Self>, KernelError> {
        let mounts = optional(mounts::read(root))?.unwrap_or_default();
        Self::among(&mounts, root, process, controller)
    }

    /// The same, with the mounts as they were read before.
    pub(super) fn among(
        mounts: &[Mount],
        root: &Root,
        process: &str,
        controller: &str,
    ) -> Result<Option<Self>, KernelError> {
        let text = root.text(&format!("proc/{process}/cgroup"))?;
        let Some((version, group)) = group_of(&text, controller) else { return Ok(None) };
        // In a container the first mount may show the container's own group only.
        let with_it = |mount: &&Mount| version.has(mount, controller) && mount.inside(group).is_some();
        let Some(mount) = mounts.iter().find(with_it) else { return Ok(None) };
        let below = std::iter::successors(mount.inside(group), |below| Some(below.rsplit_once('/')?.0));
        let groups = below.take(DEPTH).map(str::to_owned).collect();
        Ok(Some(Self { version, mount: mount.clone(), groups }))
    }
}

/// A controller's group in `/proc/PID/cgroup`: version 1 where it is mounted as such, otherwise version 2.
fn group_of<'a>(text: &'a str, controller: &str) -> Option<(Version, &'a str)> {
    let lines = || text.lines().filter_map(group_of_line);
    let one = lines().find(|(names, _)| names.split(',').any(|name| name == controller));
    let two = lines().find(|(names, _)| names.is_empty());
    one.map(|(_, group)| (Version::One, group)).or(two.map(|(_, group)| (Version::Two, group)))
}

/// `None` for a group that is gone: its files cannot be opened any more, and open ones cannot be read (ENODEV).
pub(super) fn unless_gone<T>(result: Result<T, KernelError>) -> Result<Option<T>, KernelError> {
    match result {
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
        result => optional(result),
    }
}

fn read_room(root: &Root, version: Version, mount: &str, group: &str) -> Result<Option<Room>, KernelError> {
    let name = |file: &str| format!("{mount}{group}/{file}");
    let (limits, usage, cache): (&[&str], _, _) = match version {
        Version::One => (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_inactive_file"),
        Version::Two => (&["memory.max", "memory.high"], "memory.current", "inactive_file"),
    };
    let mut limit: Option<Bytes> = None;
    for file in limits {
        let text = unless_gone(root.text(&name(file)))?.unwrap_or_default();
        limit = limit.into_iter().chain(parse_limit(&text)).min();
    }
    let Some(limit) = limit else { return Ok(None) };
    let Some(usage) = unless_gone(root.number(&name(usage)))?.map(Bytes) else { return Ok(None) };
    let statistics = unless_gone(root.text(&name("memory.stat")))?.unwrap_or_default();
    let reclaimable = statistic(&statistics, cache).map_or(Bytes(0), Bytes);
    let cgroup = if group.is_empty() { "/" } else { group }.to_owned();
    Ok(Some(Room { cgroup, limit, usage, reclaimable }))
}

/// A value of `memory.stat` or `hugetlb.2MB.events`; none where the kernel does not provide it.
pub fn statistic(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A number of bytes; none for `max`, or for the huge number that version 1 writes instead.
pub(super) fn parse_limit(text: &str) -> Option<Bytes> {
    text.trim().parse().ok().filter(|&bytes: &u64| bytes < 1 << 62).map(Bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn write(tree: &Path, name: &str, text: &str) {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), text).unwrap();
    }

    fn version_two(tree: &Path) {
        write(tree, "proc/7/cgroup", "0::/system.slice/db.service\n");
        write(tree, "proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
        let service = "sys/fs/cgroup/system.slice/db.service";
        write(tree, &format!("{service}/memory.max"), "max\n");
        write(tree, &format!("{service}/memory.high"), "9000\n");
        write(tree, &format!("{service}/memory.current"), "1000\n");
        write(tree, "sys/fs/cgroup/system.slice/memory.max", "7000\n");
        write(tree, "sys/fs/cgroup/system.slice/memory.high", "max\n");
        write(tree, "sys/fs/cgroup/system.slice/memory.current", "4000\n");
        write(tree, "sys/fs/cgroup/system.slice/memory.stat", "anon 5\ninactive_file 500\nactive_file 9\n");
    }

    #[test]
    fn the_group_with_the_least_room_counts() {
        let tree = tempfile::tempdir().unwrap();
        version_two(tree.path());
        let room = memory_room(&Root::at(tree.path()), 7).unwrap().unwrap();
        let expected =
            Room { cgroup: "/system.slice".into(), limit: Bytes(7000), usage: Bytes(4000), reclaimable: Bytes(500) };
        assert_eq!(room, expected);
        assert_eq!(room.left(), Bytes(3500));
        write(tree.path(), "sys/fs/cgroup/system.slice/memory.max", "max\n");
        let room = memory_room(&Root::at(tree.path()), 7).unwrap().unwrap();
        assert_eq!((room.limit, room.left()), (Bytes(9000), Bytes(8000)), "memory.high is a limit too");
        assert!(memory_room(&Root::at(tree.path()), 8).unwrap_err().is_gone());
    }

    #[test]
    fn version_one_is_read_where_it_holds_the_memory() {
        let tree = tempfile::tempdir().unwrap();
        write(tree.path(), "proc/7/cgroup", "4:cpuset,memory:/docker/abc/job\n1:cpu:/\n0::/x\n");
        let mounts = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpuset,memory\n";
        write(tree.path(), "proc/self/mountinfo", mounts);
        write(tree.path(), "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
        write(tree.path(), "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "50\n");
        assert_eq!(memory_room(&Root::at(tree.path()), 7).unwrap(), None, "unlimited");
        write(tree.path(), "sys/fs/cgroup/memory/memory.limit_in_bytes", "100\n");
        write(tree.path(), "sys/fs/cgroup/memory/memory.usage_in_bytes", "60\n");
        write(tree.path(), "sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 10\n");
        let room = memory_room(&Root::at(tree.path()), 7).unwrap().unwrap();
        assert_eq!((room.cgroup.as_str(), room.left()), ("/", Bytes(50)));
    }

    #[test]
    fn a_group_that_went_while_it_was_read_is_absent() {
        let answered = |errno| {
            let cause = std::io::Error::from_raw_os_error(errno);
            unless_gone::<()>(Err(KernelError::Read { path: "/sys/fs/cgroup/a/memory.max".into(), cause }))
        };
        assert!(matches!((answered(libc::ENODEV), answered(libc::ENOENT)), (Ok(None), Ok(None))));
        assert!(answered(libc::EIO).is_err());
    }

    #[test]
    fn this_process_is_read() {
        memory_room(&Root::host(), std::process::id()).unwrap();
    }

    #[test]
    fn a_group_has_the_processes_of_those_below_it() {
        let tree = tempfile::tempdir().unwrap();
        version_two(tree.path());
        write(tree.path(), "sys/fs/cgroup/system.slice/cgroup.procs", "");
        write(tree.path(), "sys/fs/cgroup/system.slice/db.service/cgroup.procs", "12\n7\n0\n");
        write(tree.path(), "sys/fs/cgroup/system.slice/db.service/worker/cgroup.procs", "9\n12\n");
        write(tree.path(), "sys/fs/cgroup/system.slice/idle.service/cgroup.procs", "");
        let of = |group| processes(&Root::at(tree.path()), group).unwrap().map(Vec::from_iter);
        for name in ["/system.slice/db.service", "system.slice/db.service/", "/sys/fs/cgroup/system.slice/db.service"] {
            assert_eq!(of(name), Some(vec![7, 9, 12]), "{name}");
        }
        assert_eq!(of("/system.slice/db.service/worker"), Some(vec![9, 12]));
        assert_eq!(of("/system.slice"), Some(vec![7, 9, 12]));
        assert_eq!(of("/system.slice/idle.service"), Some(Vec::new()));
        let outside =
            ["/system.slice/web.service", "/../../../proc", "/system", "/sys/fs/cgroup/../cgroup/system.slice"];
        outside.iter().for_each(|name| assert_eq!(of(name), None, "{name}"));
    }

    #[test]
    fn a_group_is_found_in_whichever_hierarchy_holds_processes() {
        let tree = tempfile::tempdir().unwrap();
        let mounts = "31 23 0:28 / /c rw - tmpfs tmpfs rw\n32 31 0:29 / /c/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /c/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /c/unified rw - cgroup2 c rw\n";
        write(tree.path(), "proc/self/mountinfo", mounts);
        write(tree.path(), "c/cpu/job/cgroup.procs", "1\n");
        write(tree.path(), "c/memory/job/cgroup.procs", "2\n");
        write(tree.path(), "c/memory/empty/cgroup.procs", "");
        write(tree.path(), "c/unified/empty/cgroup.procs", "3\n");
        let of = |group| processes(&Root::at(tree.path()), group).unwrap().map(Vec::from_iter);
        assert_eq!((of("/job"), of("/c/cpu/job")), (Some(vec![2]), Some(vec![1])));
        assert_eq!((of("/empty"), of("/c/memoryjob")), (Some(vec![3]), None));
    }

    #[test]
    fn a_process_is_in_one_group_of_each_hierarchy() {
        let tree = tempfile::tempdir().unwrap();
        write(
            tree.path(),
            "proc/7/cgroup",
            "4:cpuset,memory:/docker/abc\n1:name=systemd:/a:b\n2:cpu:/docker/abc\n0::/x\n",
        );
        let root = Root::at(tree.path());
        assert_eq!(Vec::from_iter(groups(&root, 7).unwrap()), ["/a:b", "/docker/abc", "/x"]);
        assert!(groups(&root, 8).unwrap_err().is_gone());
        for (group, other, within) in [
            ("/a/b", "/a/b", true),
            ("/a/b/c", "/a/b", true),
            ("/a/bc", "/a/b", false),
            ("/a", "/a/b", false),
            ("/a", "/", true),
            ("/", "/", true),
        ] {
            assert_eq!(is_within(group, other), within, "{group} {other}");
        }
    }

    #[test]
    fn a_group_is_named_by_its_directory_too() {
        let tree = tempfile::tempdir().unwrap();
        let mounts = "31 23 0:28 / /c rw - tmpfs tmpfs rw\n35 31 0:32 /docker/abc /c/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /c/unified rw - cgroup2 c rw\n";
        write(tree.path(), "proc/self/mountinfo", mounts);
        for (given, expected) in [
            ("/c/memory/job", "/docker/abc/job"),
            ("/c/unified/job/", "/job"),
            ("/c/unified", "/"),
            ("/c/memory", "/docker/abc"),
            ("job", "/job"),
            ("/c/memoryjob", "/c/memoryjob"),
        ] {
            assert_eq!(name(&Root::at(tree.path()), given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn a_container_is_found_in_the_names_that_engines_give() {
        let id = "0123456789abcdef".repeat(4);
        let pod = "kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice";
        for group in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/docker/{id}"),
            format!("/docker/{id}/nested"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{id}.scope"),
            format!("/kubepods/besteffort/pod12345678-1234-1234-1234-123456789abc/{id}"),
            format!("/{pod}/crio-{id}.scope"),
            format!("/system.slice/kubepods-pod1.slice:cri-containerd:{id}"),
        ] {
            assert_eq!(containers(&group).collect::<Vec<_>>(), [id.as_str()], "{group}");
        }
        for group in [
            format!("/machine.slice/libpod-conmon-{id}.scope"),
            format!("/docker/{id}0"),
            format!("/docker-{id}.service"),
            "/system.slice/docker.service".to_owned(),
            "/docker/0123456789ab".to_owned(),
        ] {
            assert_eq!(containers(&group).count(), 0, "{group}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([0-9]{0,2}:(memory|cpu,)?:.{0,9}\n|.{0,20}\n){0,4}") {
            prop_assert!(group_of(&text, "memory").is_none_or(|(_, group)| text.contains(group)));
            let _ = parse_limit(&text);
        }
    }
}
