//! The limits of control groups on pools of reserved huge pages.
//!
//! Owns: the hugetlb controller's files, in both versions (Documentation/admin-guide/cgroup-v2.rst, "HugeTLB";
//! cgroup-v1/hugetlb.rst). Never touches: the limits.

use heat::units::Bytes;

use crate::cgroup::{self, Lineage, Version, unless_gone};
use crate::mounts::{self, Mount};
use crate::root::optional;
use crate::{KernelError, Root};

/// One limit that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The group, as a path from the top of its hierarchy.
    pub cgroup: String,
    /// Bytes in each page.
    pub page_size: Bytes,
    /// Whether it applies to reservations (mmap and shmget then fail), or to first touches (which ends the program: SIGBUS).
    pub of_reservations: bool,
    /// The most that the group may have.
    pub limit: Bytes,
    /// Current usage.
    pub usage: Bytes,
    /// How often an allocation was refused; `None` where the kernel does not count that.
    pub refused: Option<u64>,
}

impl Limit {
    /// Whole pages that the group can still get.
    pub fn pages_left(&self) -> u64 {
        self.limit.saturating_sub(self.usage).0 / self.page_size.0.max(1)
    }
}

/// The limits that bind this process, those of its own group first; none where no hugetlb controller is mounted.
///
/// Errors: `/proc/self/cgroup`, `/proc/self/mountinfo` or a file of the controller exists but cannot be read, or a count is not a number.
pub fn own(root: &Root) -> Result<Vec<Limit>, KernelError> {
    let Some(Lineage { version, mount, groups }) = optional(Lineage::read(root, "self", "hugetlb"))?.flatten() else {
        return Ok(Vec::new());
    };
    let mut limits = Vec::new();
    for group in groups {
        let directory = format!("{}{group}", mount.point);
        for name in unless_gone(root.entries(&directory))?.unwrap_or_default() {
            limits.extend(read_limit(root, version, &mount, &directory, &name)?);
        }
    }
    Ok(limits)
}

/// All limits that are set, by group; none where no hugetlb controller is mounted.
///
/// Errors: `/proc/self/mountinfo`, or a group's directory or file, exists but cannot be read, or a count is not a number.
pub fn read(root: &Root) -> Result<Vec<Limit>, KernelError> {
    let mut limits = Vec::new();
    for mount in optional(mounts::read(root))?.unwrap_or_default() {
        if let Some(version) = [Version::One, Version::Two].into_iter().find(|version| version.has(&mount, "hugetlb")) {
            cgroup::for_each_below(root, mount.point.clone(), |directory, names| {
                for name in names {
                    limits.extend(read_limit(root, version, &mount, directory, name)?);
                }
                Ok(())
            })?;
        }
    }
    limits
        .sort_by(|a, b| (&a.cgroup, a.page_size, a.of_reservations).cmp(&(&b.cgroup, b.page_size, b.of_reservations)));
    // A hierarchy may be mounted in several places.
    limits.dedup();
    Ok(limits)
}

/// The limit in one file; `None` if the file has none, or the group is gone.
fn read_limit(
    root: &Root,
    version: Version,
    mount: &Mount,
    directory: &str,
    name: &str,
) -> Result<Option<Limit>, KernelError> {
    let Some((page_size, of_reservations)) = limit_file(version, name) else { return Ok(None) };
    let Some(text) = unless_gone(root.text(&format!("{directory}/{name}")))? else { return Ok(None) };
    let Some(limit) = cgroup::parse_limit(&text) else { return Ok(None) };
    let (end, usage) = match version {
        Version::One => ("limit_in_bytes", "usage_in_bytes"),
        Version::Two => ("max", "current"),
    };
    let stem = format!("{directory}/{}", name.strip_suffix(end).unwrap_or(name));
    let Some(usage) = unless_gone(root.number(&format!("{stem}{usage}")))? else { return Ok(None) };
    let refused = match version {
        Version::One => unless_gone(root.number(&format!("{stem}failcnt")))?,
        Version::Two => {
            unless_gone(root.text(&format!("{stem}events")))?.and_then(|events| cgroup::statistic(&events, "max"))
        }
    };
    let below = mount.below_its_point(directory).unwrap_or_default();
    let cgroup = format!("{}{below}", mount.top.trim_end_matches('/'));
    let cgroup = if cgroup.is_empty() { "/".to_owned() } else { cgroup };
    Ok(Some(Limit { cgroup, page_size, of_reservations, limit, usage: Bytes(usage), refused }))
}

/// The page size in `hugetlb.2MB.max` or `hugetlb.2MB.limit_in_bytes`, and whether it applies to reservations (`hugetlb.2MB.rsvd.max`).
fn limit_file(version: Version, name: &str) -> Option<(Bytes, bool)> {
    let end = match version {
        Version::One => ".limit_in_bytes",
        Version::Two => ".max",
    };
    let size = name.strip_prefix("hugetlb.")?.strip_suffix(end)?;
    let (size, of_reservations) = size.strip_suffix(".rsvd").map_or((size, false), |size| (size, true));
    Some((size.parse().ok()?, of_reservations))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    #[test]
    fn limits_of_version_two_are_read() {
        let tree = tree(&[
            ("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/db/hugetlb.2MB.max", "4194304\n"),
            ("sys/fs/cgroup/db/hugetlb.2MB.current", "2097152\n"),
            ("sys/fs/cgroup/db/hugetlb.2MB.events", "max 3\n"),
            ("sys/fs/cgroup/db/hugetlb.2MB.rsvd.max", "8388608\n"),
            ("sys/fs/cgroup/db/hugetlb.2MB.rsvd.current", "8388608\n"),
            ("sys/fs/cgroup/db/hugetlb.1GB.max", "max\n"),
            ("sys/fs/cgroup/db/hugetlb.1GB.current", "0\n"),
        ]);
        let expected = Limit {
            cgroup: "/db".into(),
            page_size: Bytes(2 << 20),
            of_reservations: false,
            limit: Bytes(4 << 20),
            usage: Bytes(2 << 20),
            refused: Some(3),
        };
        let reserved = Limit {
            of_reservations: true,
            limit: Bytes(8 << 20),
            usage: Bytes(8 << 20),
            refused: None,
            ..expected.clone()
        };
        assert_eq!(read(&Root::at(tree.path())).unwrap(), [expected, reserved]);
    }

    #[test]
    fn limits_of_version_one_are_read() {
        let tree = tree(&[
            (
                "proc/self/mountinfo",
                "35 31 0:32 /docker /c rw - cgroup cgroup rw,hugetlb\n36 31 0:33 / /m rw - cgroup c rw,memory\n",
            ),
            ("c/hugetlb.1GB.limit_in_bytes", "9223372036854771712\n"),
            ("c/hugetlb.1GB.usage_in_bytes", "0\n"),
            ("c/job/hugetlb.1GB.rsvd.limit_in_bytes", "1073741824\n"),
            ("c/job/hugetlb.1GB.rsvd.usage_in_bytes", "0\n"),
            ("c/job/hugetlb.1GB.rsvd.max_usage_in_bytes", "7\n"),
            ("c/job/hugetlb.1GB.rsvd.failcnt", "2\n"),
            ("m/hugetlb.2MB.limit_in_bytes", "1\n"),
        ]);
        let limits = read(&Root::at(tree.path())).unwrap();
        let told: Vec<_> = limits.iter().map(|limit| (limit.cgroup.as_str(), limit.limit, limit.refused)).collect();
        assert_eq!(told, [("/docker/job", Bytes(1 << 30), Some(2))]);
        assert!(limits[0].of_reservations);
    }

    #[test]
    fn those_of_our_own_group_and_above_it_bind_us() {
        let file = |group: &str, name: &str| format!("sys/fs/cgroup{group}/hugetlb.2MB.{name}");
        let mut files = vec![
            ("proc/self/cgroup".to_owned(), "0::/a/b\n"),
            ("proc/self/mountinfo".to_owned(), "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ];
        for (group, limit, usage) in [("/a/b", "max", "0"), ("/a", "8388608", "5242880"), ("/c", "0", "0")] {
            files.extend([(file(group, "max"), limit), (file(group, "current"), usage)]);
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let limits = own(&Root::at(tree(&files).path())).unwrap();
        let told: Vec<_> = limits.iter().map(|limit| (limit.cgroup.as_str(), limit.pages_left())).collect();
        assert_eq!(told, [("/a", 1)], "half a page is none");
    }

    #[test]
    fn this_machine_is_read() {
        read(&Root::host()).unwrap();
        own(&Root::host()).unwrap();
        assert_eq!(own(&Root::at(tree(&[]).path())).unwrap(), []);
        assert_eq!(read(&Root::at(tree(&[]).path())).unwrap(), []);
    }
}
