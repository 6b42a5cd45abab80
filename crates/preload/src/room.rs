//! How much memory copies may take without triggering the OOM killer.
//!
//! Owns: the kernel's figures for the whole machine, and for the control groups of this process. Never touches: the groups, or
//! the heap.

use std::ffi::CStr;

use crate::lines;

/// Maximum length of a path below /sys/fs/cgroup, with its terminator; a longer one is ignored.
const PATH: usize = 512;

/// Bytes available, less a tenth for others. Unlimited if the kernel does not say.
pub fn available_bytes() -> usize {
    let mut least = usize::MAX;
    lines::each(c"/proc/meminfo", |line| least = least.min(available(line).unwrap_or(usize::MAX)));
    lines::each(c"/proc/self/cgroup", |line| least = least.min(in_group(line).unwrap_or(usize::MAX)));
    least / 10 * 9
}

/// `MemAvailable`, which is in KiB.
fn available(line: &[u8]) -> Option<usize> {
    field(line, "MemAvailable:")?.checked_mul(1024)
}

/// The number in a line that starts with a name.
fn field(line: &[u8], name: &str) -> Option<usize> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.next().filter(|&word| word == name)?;
    words.next()?.parse().ok()
}

/// The root of groups that limit memory, and the names of their files and fields, including child groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Names<'a> {
    root: &'a str,
    limit: &'static str,
    usage: &'static str,
    /// The part of the usage that is page cache, which is reclaimed when needed; in `memory.stat`.
    cache: [&'static str; 2],
}

const VERSION_1: Names<'_> = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Names<'_> = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    cache: ["inactive_file", "active_file"],
};

/// What is left in one of this process's groups (cgroups(7)) and its parents.
fn in_group(line: &[u8]) -> Option<usize> {
    let (names, path) = group(std::str::from_utf8(line).ok()?)?;
    let mut path = path.trim_end_matches('/');
    let mut least = usize::MAX;
    // A container may see only the last of them, as its root.
    loop {
        least = least.min(left(&names, path).unwrap_or(usize::MAX));
        match path.rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return Some(least),
        }
    }
}

/// A line such as `4:memory:/path`, or `0::/path`, if that group may limit memory.
fn group(line: &str) -> Option<(Names<'static>, &str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers {
        "" if number == "0" => Some((VERSION_2, path)),
        controllers if controllers.split(',').any(|controller| controller == "memory") => Some((VERSION_1, path)),
        _ => None,
    }
}

/// None: there is no limit, or no such group.
fn left(names: &Names<'_>, path: &str) -> Option<usize> {
    let limit = number(&[names.root, path, "/", names.limit])?;
    let used = number(&[names.root, path, "/", names.usage])?;
    let mut cache = 0usize;
    read(&[names.root, path, "/memory.stat"], |line| {
        let found = names.cache.iter().find_map(|name| field(line, name));
        cache = cache.saturating_add(found.unwrap_or(0));
    });
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}

/// The number in a file. None if the file does not exist, or says `max`.
fn number(parts: &[&str]) -> Option<usize> {
    let mut number = None;
    read(parts, |line| number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()));
    number
}

/// Passes on the lines of a file, whose path is given in parts.
fn read(parts: &[&str], show: impl FnMut(&[u8])) -> Option<()> {
    let mut path = [0; PATH];
    let mut length = 0;
    for part in parts {
        path.get_mut(length..length + part.len())?.copy_from_slice(part.as_bytes());
        length += part.len();
    }
    lines::each(CStr::from_bytes_until_nul(&path).ok()?, show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_as_the_kernel_writes_it() {
        assert_eq!(available(b"MemAvailable:   18932672 kB"), Some(18932672 << 10));
        for other in ["MemAvailable: many kB", "MemFree: 1 kB", "MemAvailable:", ""] {
            assert_eq!(available(other.as_bytes()), None, "{other}");
        }
        // It may be 0.
        assert!(available_bytes() < 1 << 50);
    }

    #[test]
    fn groups_that_may_limit_memory_are_found() {
        assert_eq!(group("0::/user.slice/a:b"), Some((VERSION_2, "/user.slice/a:b")));
        assert_eq!(group("4:cpu,memory:/"), Some((VERSION_1, "/")));
        for other in ["4:memory_not:/", "1:name=systemd:/", "memory", ""] {
            assert_eq!(group(other), None, "{other}");
        }
        assert!(in_group(b"0::/there/is/no/such/group").is_some());
    }

    #[test]
    fn copies_of_files_leave_room() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let write = |names: &Names<'_>, [limit, used, stat]: [&str; 3]| {
            std::fs::create_dir_all(folder.path().join("a")).unwrap();
            for (name, text) in [(names.limit, limit), (names.usage, used), ("memory.stat", stat)] {
                std::fs::write(folder.path().join("a").join(name), text).unwrap();
            }
        };
        let [first, second] = [VERSION_1, VERSION_2].map(|names| Names { root, ..names });
        let stat = "anon 300\nfile 650\ninactive_file 500\nactive_file 100\nslab 7\n";
        write(&second, ["1000\n", "950\n", stat]);
        assert_eq!(left(&second, "/a"), Some(650));
        write(&second, ["max\n", "950\n", stat]);
        assert_eq!(left(&second, "/a"), None);
        // Fields without child groups, and with them.
        let stat = "inactive_file 1\nactive_file 2\ntotal_inactive_file 30\ntotal_active_file 40\n";
        write(&first, ["1000\n", "980\n", stat]);
        assert_eq!(left(&first, "/a"), Some(90));
        write(&first, ["1000\n", "1200\n", ""]);
        assert_eq!(left(&first, "/a"), Some(0));
        assert_eq!(left(&first, "/b"), None);
    }

    #[test]
    fn numbers_are_read_and_nothing_else_is_one() {
        assert!(number(&["/proc", "/sys/", "kernel/pid_max"]).is_some());
        assert_eq!(number(&["/proc/self/cmdline"]), None);
        assert_eq!(number(&["/", &"x".repeat(2 * PATH)]), None);
    }
}
