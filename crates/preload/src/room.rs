//! How much memory may be taken for copies without anybody being ended for it.
//!
//! Owns: what the kernel says of the whole machine, and of the control groups that this process is in. Never touches: them, nor
//! the heap.

use std::ffi::CStr;

use crate::system::Reader;

/// A path below /sys/fs/cgroup, with its end; a longer one counts as none.
const PATH: usize = 512;

/// Bytes that can be had, with a tenth left to others. All there are, where the kernel does not say.
pub fn available_bytes() -> usize {
    let mut text = [0; 1024];
    let machine = start_of(c"/proc/meminfo", &mut text).and_then(available).unwrap_or(usize::MAX);
    let groups = start_of(c"/proc/self/cgroup", &mut text).and_then(|text| text.lines().filter_map(in_group).min());
    machine.min(groups.unwrap_or(usize::MAX)) / 10 * 9
}

fn start_of<'a>(path: &CStr, text: &'a mut [u8]) -> Option<&'a str> {
    let length = Reader::open(path)?.read(text).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()
}

/// `MemAvailable`, which the kernel tells in KiB.
fn available(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

/// Files of a group that limits memory: where, and the names of those that tell its limit and its usage.
type Files = [&'static str; 3];
const VERSION_1: Files = ["/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"];
const VERSION_2: Files = ["/sys/fs/cgroup", "memory.max", "memory.current"];

/// What is left in one of this process's groups (cgroups(7)) and those above it. Page cache counts as used, so it is rather more.
fn in_group(line: &str) -> Option<usize> {
    let (files, path) = group(line)?;
    let mut path = path.trim_end_matches('/');
    let mut least = usize::MAX;
    // A container may see only the last of them, as its root.
    loop {
        least = least.min(left(&files, path).unwrap_or(usize::MAX));
        match path.rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return Some(least),
        }
    }
}

/// A line such as `4:memory:/path`, or `0::/path`, if that group may limit memory.
fn group(line: &str) -> Option<(Files, &str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers {
        "" if number == "0" => Some((VERSION_2, path)),
        controllers if controllers.split(',').any(|controller| controller == "memory") => Some((VERSION_1, path)),
        _ => None,
    }
}

fn left(files: &Files, path: &str) -> Option<usize> {
    let [root, limit, usage] = *files;
    Some(number(&[root, path, "/", limit])?.saturating_sub(number(&[root, path, "/", usage])?))
}

/// The number in a file. None where there is no such file, or it says `max`.
fn number(parts: &[&str]) -> Option<usize> {
    let mut path = [0; PATH];
    let mut length = 0;
    for part in parts {
        path.get_mut(length..length + part.len())?.copy_from_slice(part.as_bytes());
        length += part.len();
    }
    let mut text = [0; 32];
    start_of(CStr::from_bytes_until_nul(&path).ok()?, &mut text)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       24682416 kB\nMemFree:  1 kB\nMemAvailable:   18932672 kB\nBuff";
        assert_eq!(available(text), Some(18932672 << 10));
        assert_eq!(available("MemAvailable: many kB\n"), None);
        assert_eq!(available("MemFree: 1 kB\n"), None);
        assert!((1 << 20..1 << 50).contains(&available_bytes()));
    }

    #[test]
    fn groups_that_may_limit_memory_are_found() {
        assert_eq!(group("0::/user.slice/a:b"), Some((VERSION_2, "/user.slice/a:b")));
        assert_eq!(group("4:cpu,memory:/"), Some((VERSION_1, "/")));
        for other in ["4:memory_not:/", "1:name=systemd:/", "memory", ""] {
            assert_eq!(group(other), None, "{other}");
        }
        assert!(in_group("0::/there/is/no/such/group").is_some());
    }

    #[test]
    fn numbers_are_read_and_nothing_else_is_one() {
        assert!(number(&["/proc", "/sys/", "kernel/pid_max"]).is_some());
        assert_eq!(number(&["/proc/self/cmdline"]), None);
        assert_eq!(number(&["/", &"x".repeat(2 * PATH)]), None);
    }
}
