//! The threads, children, files, program and namespaces of a process.
//!
//! Owns: `task`, `stat`, `fd`, `exe`, `auxv`, `ns` below `/proc/PID`. Never touches: the process.

use std::collections::BTreeSet;
use std::path::PathBuf;

use heat::units::{BASE_PAGE, Bytes, Nanos};

use crate::process::Stat;
use crate::process::stat::TICK;
use crate::root::{optional, unless_ended};
use crate::{KernelError, Root};

/// The ids of a process's threads, ascending.
///
/// Errors: the process has ended, or is hidden from the reader (`is_gone`).
pub fn threads(root: &Root, pid: u32) -> Result<Vec<u32>, KernelError> {
    root.numbered_entries(&format!("proc/{pid}/task"))
}

/// The first `most` of them as the kernel lists them, which are the oldest: reading about each of 30,000 threads takes a second.
///
/// Errors: as [`threads`].
pub fn first_threads(root: &Root, pid: u32, most: usize) -> Result<Vec<u32>, KernelError> {
    root.first_numbered_entries(&format!("proc/{pid}/task"), most)
}

/// The ids of a process's children, their children and so on, ascending; may miss one that starts or ends meanwhile. Reads every process once,
/// because `task/*/children` is an option of the kernel that distributions handle differently.
///
/// Errors: `/proc` cannot be listed, or the `stat` of a living process cannot be read or is malformed.
pub fn descendants(root: &Root, pid: u32) -> Result<Vec<u32>, KernelError> {
    let mut parents = Vec::new();
    for id in root.numbered_entries("proc")? {
        if let Some(stat) = unless_ended(Stat::read(root, id))? {
            parents.push((id, stat.parent));
        }
    }
    Ok(below(pid, &parents).into_iter().collect())
}

/// The resources used so far by a process and all its descendants, ended ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyUsage {
    /// CPU time, in steps of 10 ms for each process.
    pub cpu_time: Nanos,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Those of ended processes.
    pub minor_faults_of_ended: u64,
}

impl FamilyUsage {
    /// Reads it for a process and its descendants. Errors: the processes cannot be listed.
    pub fn read(root: &Root, pid: u32) -> Result<Self, KernelError> {
        let family = descendants(root, pid)?.into_iter().chain([pid]);
        Ok(family.filter_map(|pid| Stat::read(root, pid).ok()).fold(Self::default(), Self::with))
    }

    /// The use since another reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu_time: self.cpu_time.saturating_sub(before.cpu_time),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            minor_faults_of_ended: self.minor_faults_of_ended.saturating_sub(before.minor_faults_of_ended),
        }
    }

    fn with(self, stat: Stat) -> Self {
        let ticks = stat.user_ticks.saturating_add(stat.system_ticks).saturating_add(stat.ended_children_ticks);
        let of_ended = stat.ended_children_minor_faults;
        Self {
            cpu_time: self.cpu_time + Nanos(ticks.saturating_mul(TICK.0)),
            minor_faults: self.minor_faults.saturating_add(stat.minor_faults).saturating_add(of_ended),
            minor_faults_of_ended: self.minor_faults_of_ended.saturating_add(of_ended),
        }
    }
}

/// All processes descended from `pid`. Ids wrap around, so a child may come before its parent: repeats until nothing is added.
fn below(pid: u32, parents: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut family = BTreeSet::new();
    loop {
        let before = family.len();
        for &(id, parent) in parents {
            if parent == pid || family.contains(&parent) {
                family.insert(id);
            }
        }
        if family.len() == before {
            return family;
        }
    }
}

/// The file of a process's program, even after the file was replaced (by a package update).
///
/// Errors: the process has ended or is a kernel thread (`is_gone`), the reader lacks CAP_SYS_PTRACE (`is_denied`).
pub fn program(root: &Root, pid: u32) -> Result<PathBuf, KernelError> {
    let link = root.link(&format!("proc/{pid}/exe"))?;
    Ok(link.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from).unwrap_or(link))
}

/// Whether a process runs a 32-bit program; `None` where the kernel does not tell. Reads no file of the program: one on a user's own FUSE mount could
/// hold the reader up for as long as the user likes.
pub fn is_32_bit(root: &Root, pid: u32) -> Option<bool> {
    auxv_is_32_bit(&root.bytes_within(&format!("proc/{pid}/auxv"), AUXV).ok()?)
}

/// The bound on `auxv`: Linux keeps some 50 words.
const AUXV: Bytes = Bytes(4 << 10);

/// The auxiliary vector is pairs of a key and a value, as wide as the program's words (man 3 getauxval). Each program has the size of a page there,
/// which is found with one width only: 6 and 4,096 read with the other one are (6, 0), or a single huge key.
fn auxv_is_32_bit(auxv: &[u8]) -> Option<bool> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    let has_page_size = |width: usize| {
        let mut pairs = auxv.chunks_exact(2 * width).map(|pair| (word(&pair[..width]), word(&pair[width..])));
        pairs.any(|pair| pair == (libc::AT_PAGESZ, BASE_PAGE))
    };
    match (has_page_size(4), has_page_size(8)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

/// How many file descriptors are searched for a virtual machine. One is opened early, before its disks and connections; to search all 500,000 of some
/// other program takes a second.
const SEARCHED: usize = 4096;

/// Whether a process has a virtual machine open (KVM), whose page walks use tables that the host does not see. Searches the lowest [`SEARCHED`] file
/// descriptors.
///
/// Errors: the process has ended (`is_gone`), the reader lacks CAP_SYS_PTRACE (`is_denied`).
pub fn holds_kvm(root: &Root, pid: u32) -> Result<bool, KernelError> {
    let directory = format!("proc/{pid}/fd");
    for fd in root.first_numbered_entries(&directory, SEARCHED)? {
        let link = optional(root.link(&format!("{directory}/{fd}")))?;
        if link.is_some_and(|link| link.as_os_str() == "anon_inode:kvm-vm") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The IPC namespace of a process, as a number that is unique at the time; `None` where it cannot be read.
pub fn ipc_namespace(root: &Root, pid: u32) -> Option<u64> {
    let link = root.link(&format!("proc/{pid}/ns/ipc")).ok()?;
    link.to_str()?.strip_prefix("ipc:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn descendants_are_found_through_their_parents() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, parent) in [(5, 1), (4, 8), (8, 5), (9, 8), (11, 5), (12, 1)] {
            let line = format!("{pid} (sh) S {parent} 1 1 0 -1 0 0 0 0 0 7 3 0 0 20 0 1 0 99 0 0 0 0 0 0");
            write(tree.path(), &format!("proc/{pid}/stat"), &line);
        }
        fs::create_dir_all(tree.path().join("proc/77")).unwrap();
        assert_eq!(descendants(&Root::at(tree.path()), 5).unwrap(), [4, 8, 9, 11]);
    }

    #[test]
    fn a_family_has_used_what_those_have_that_ended_too() {
        let tree = tempfile::tempdir().unwrap();
        let write = |pid: u32, parent: u32, faults: &str, times: &str| {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let line = format!("{pid} (p) S {parent} 1 1 0 -1 0 {faults} 0 0 {times} 20 0 1 0 99 0 0 0 0 0 0");
            std::fs::write(directory.join("stat"), line).unwrap();
        };
        write(7, 1, "5 600", "1 2 30 40");
        write(8, 7, "20 0", "100 0 0 0");
        write(9, 1, "1000 1000", "5000 0 0 0");
        let usage = FamilyUsage::read(&Root::at(tree.path()), 7).unwrap();
        let expected = FamilyUsage { cpu_time: Nanos(1_730_000_000), minor_faults: 625, minor_faults_of_ended: 600 };
        assert_eq!(usage, expected);
        assert_eq!(usage.since(usage), FamilyUsage::default());
    }

    #[test]
    fn a_virtual_machine_is_recognized() {
        let tree = tempfile::tempdir().unwrap();
        let fds = tree.path().join("proc/5/fd");
        fs::create_dir_all(&fds).unwrap();
        symlink("/dev/kvm", fds.join("3")).unwrap();
        let root = Root::at(tree.path());
        assert!(!holds_kvm(&root, 5).unwrap());
        symlink("anon_inode:kvm-vm", fds.join("4")).unwrap();
        assert!(holds_kvm(&root, 5).unwrap());
        assert!(holds_kvm(&root, 6).unwrap_err().is_gone());
    }

    #[test]
    fn few_of_many_are_read() {
        let tree = tempfile::tempdir().unwrap();
        for directory in ["proc/5/fd", "proc/5/task"] {
            (0..20).for_each(|number| fs::create_dir_all(tree.path().join(format!("{directory}/{number}"))).unwrap());
        }
        let root = Root::at(tree.path());
        assert_eq!(first_threads(&root, 5, 7).unwrap().len(), 7);
        let fds = tree.path().join("proc/6/fd");
        fs::create_dir_all(&fds).unwrap();
        (0..2 * SEARCHED).for_each(|fd| symlink("anon_inode:kvm-vm", fds.join(format!("x{fd}"))).unwrap());
        symlink("anon_inode:kvm-vm", fds.join("3")).unwrap();
        let listed: Vec<_> = fs::read_dir(&fds).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let is_among_first = listed[..SEARCHED].iter().any(|name| name == "3");
        assert_eq!(holds_kvm(&root, 6).unwrap(), is_among_first, "it reads no further");
    }

    #[test]
    fn an_ipc_namespace_has_a_number() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("proc/5/ns")).unwrap();
        symlink("ipc:[4026531839]", tree.path().join("proc/5/ns/ipc")).unwrap();
        let root = Root::at(tree.path());
        assert_eq!([5, 6].map(|pid| ipc_namespace(&root, pid)), [Some(4_026_531_839), None]);
        assert!(ipc_namespace(&Root::host(), std::process::id()).is_some());
    }

    #[test]
    fn a_program_keeps_its_name_when_its_file_is_replaced() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, link) in [(5, "/usr/bin/db"), (6, "/usr/bin/db (deleted)")] {
            fs::create_dir_all(tree.path().join(format!("proc/{pid}"))).unwrap();
            symlink(link, tree.path().join(format!("proc/{pid}/exe"))).unwrap();
        }
        let root = Root::at(tree.path());
        assert_eq!([5, 6].map(|pid| program(&root, pid).unwrap()), ["/usr/bin/db", "/usr/bin/db"].map(PathBuf::from));
        assert!(program(&root, 7).unwrap_err().is_gone());
        assert_eq!(program(&Root::host(), std::process::id()).unwrap(), std::env::current_exe().unwrap());
    }

    #[test]
    fn a_program_for_32_bits_is_recognized() {
        let tree = tempfile::tempdir().unwrap();
        let directory = |pid: u32| tree.path().join(format!("proc/{pid}"));
        (5..=8).for_each(|pid| fs::create_dir_all(directory(pid)).unwrap());
        let narrow = [32, 0xf7f0_0000, 33, 0xf7f0_1000, 16, 0x178b_fbff, 6, 4096, 17, 100, 0, 0, 0, 0];
        let wide = [33, 0x7ffd_0000_0000, 16, 6, 4096, 6, 6, 4096, 17, 100, 0, 0];
        fs::write(directory(5).join("auxv"), narrow.map(u32::to_le_bytes).concat()).unwrap();
        fs::write(directory(6).join("auxv"), wide.map(u64::to_le_bytes).concat()).unwrap();
        fs::write(directory(7).join("auxv"), "").unwrap();
        let root = Root::at(tree.path());
        assert_eq!([5, 6, 7, 8].map(|pid| is_32_bit(&root, pid)), [Some(true), Some(false), None, None]);
        assert_eq!(is_32_bit(&Root::host(), std::process::id()), Some(false));
    }

    #[test]
    fn a_program_is_told_without_opening_its_file() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("proc/5")).unwrap();
        // Opening it waits for a writer, as a file on a FUSE mount waits for its user.
        let pipe = tree.path().join("proc/5/exe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let (told, answer) = std::sync::mpsc::channel();
        let root = Root::at(tree.path());
        std::thread::spawn(move || told.send(is_32_bit(&root, 5)));
        assert_eq!(answer.recv_timeout(std::time::Duration::from_secs(10)), Ok(None));
    }

    #[test]
    fn our_own_threads_and_child_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let seen = descendants(&Root::host(), std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen.unwrap().contains(&child.id()));
        assert!(threads(&Root::host(), std::process::id()).unwrap().contains(&std::process::id()));
    }
}
