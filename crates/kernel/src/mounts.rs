//! The mounted file systems, from `/proc/self/mountinfo`.
//!
//! Owns: the format of that file (Documentation/filesystems/proc.rst). Never touches: a mount.

use heat::units::Bytes;

use crate::{KernelError, Root};

/// The bound on the list.
const LIMIT: Bytes = Bytes(16 << 20);

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of its device, which mappings of its files also have.
    pub device: (u32, u32),
    /// The part of the file system that is mounted: `/` for all of it.
    pub top: String,
    /// Where it is mounted.
    pub point: String,
    /// The file system's kind: `cgroup2`, `hugetlbfs`.
    pub kind: String,
    /// Options of the file system itself: `rw,pagesize=2M`.
    pub options: String,
}

/// All mounts visible to this process, in the kernel's order; malformed lines are skipped.
///
/// Errors: `/proc/self/mountinfo` cannot be read, or is longer than 16 MiB.
pub fn read(root: &Root) -> Result<Vec<Mount>, KernelError> {
    let text = root.text_within("proc/self/mountinfo", LIMIT)?;
    Ok(text.lines().filter_map(Mount::parse).collect())
}

impl Mount {
    /// `35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`, with a varying number of words before the dash.
    pub fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let (mut left, mut right) = (left.split(' ').skip(2), right.split(' '));
        let (major, minor) = left.next()?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let (top, point) = (unescape(left.next()?), unescape(left.next()?));
        Some(Self { device, top, point, kind: right.next()?.to_owned(), options: right.nth(1)?.to_owned() })
    }

    /// Whether the file system has this option, without a value.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|each| each == option)
    }

    /// The value of an option of the file system.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|each| each.strip_prefix(name)?.strip_prefix('='))
    }

    /// The part of a path below the mount point.
    pub(super) fn below_its_point<'a>(&self, path: &'a str) -> Option<&'a str> {
        proper(path.strip_prefix(&self.point)?)
    }

    /// A directory of the file system as a path below the mount point, empty for the mount's own top; `None` for one outside it.
    pub(super) fn inside<'a>(&self, directory: &'a str) -> Option<&'a str> {
        proper(directory.strip_prefix(self.top.trim_end_matches('/'))?.trim_end_matches('/'))
    }
}

/// The rest of a longer path, if it was cut at a slash and stays below.
fn proper(below: &str) -> Option<&str> {
    let outside = below.split('/').any(|part| part == "..");
    (!outside && (below.is_empty() || below.starts_with('/'))).then_some(below)
}

/// A space in a mount point is written as `\040`.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_understood() {
        let line =
            "61 23 0:54 / /dev/huge\\040pages rw,relatime shared:9 - hugetlbfs none rw,gid=27,mode=1770,pagesize=1024M";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(
            (mount.device, mount.point.as_str(), mount.kind.as_str()),
            ((0, 54), "/dev/huge pages", "hugetlbfs")
        );
        assert_eq!(
            [mount.option("gid"), mount.option("pagesize"), mount.option("page")],
            [Some("27"), Some("1024M"), None]
        );
        assert!(mount.has("rw") && !mount.has("gid"));
        for line in ["", "61 23 0:54 / /a rw - hugetlbfs none", "61 23 0 / /a rw - a b c", "61 23 0:54 / - a b c"] {
            assert_eq!(Mount::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_directory_outside_what_is_mounted_is_unknown() {
        let mount = Mount::parse("35 31 0:32 /docker/abc /m rw - cgroup cgroup rw,memory").unwrap();
        for (group, below) in [("/docker/abc", Some("")), ("/docker/abc/x", Some("/x")), ("/docker/abcd", None)] {
            assert_eq!(mount.inside(group), below, "{group}");
        }
        assert_eq!(Mount { top: "/".into(), ..mount }.inside("/../other"), None);
    }

    #[test]
    fn this_machine_is_read() {
        assert!(read(&Root::host()).unwrap().iter().any(|mount| mount.point == "/proc" && mount.kind == "proc"));
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_passed_over(line in "[0-9 ]{0,4}[0-9]{0,12}:[0-9]{0,12} .{0,20}( - .{0,9} .{0,9} .{0,9})?") {
            if let Some(mount) = Mount::parse(&line) {
                prop_assert!(mount.inside(&mount.point).is_none_or(|below| below.len() <= mount.point.len()));
            }
        }
    }
}
