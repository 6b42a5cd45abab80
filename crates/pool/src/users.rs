//! Which processes hold pages of the pools.
//!
//! Owns: the search. Never touches: the processes. Listing a process's mappings makes the kernel count its pages, so only processes that
//! may use a pool are examined closely.

use heat::units::Bytes;
use kernel::mounts::Mount;
use kernel::process::ProcessStatus;
use kernel::{KernelError, Root, maps, smaps, vm_flags};
use serde::Serialize;

/// One process's use of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// The process.
    pub pid: u32,
    /// The name that it gives itself.
    pub name: String,
    /// Bytes in each page.
    #[serde(rename = "page_size_bytes")]
    pub page_size: Bytes,
    /// Pages that it alone maps.
    #[serde(rename = "private_bytes")]
    pub private: Bytes,
    /// Pages that others map, too; they count for each of them.
    #[serde(rename = "shared_bytes")]
    pub shared: Bytes,
    /// Address space for such pages. The unused part of it is reserved, unless it was mapped without reservation (`MAP_NORESERVE`).
    #[serde(rename = "mapped_bytes")]
    pub mapped: Bytes,
}

impl User {
    /// Pages in use.
    pub fn in_use(&self) -> Bytes {
        self.private + self.shared
    }

    /// Address space without pages yet.
    pub fn untouched(&self) -> Bytes {
        self.mapped.saturating_sub(self.in_use())
    }
}

/// All users, those with the most pages first, and how many processes could not be examined.
///
/// Errors: `/proc` cannot be listed, or a file of a living process is malformed.
pub fn users(root: &Root, mounts: &[Mount]) -> Result<(Vec<User>, u64), KernelError> {
    let devices: Vec<(u32, u32)> =
        mounts.iter().filter(|mount| mount.kind == "hugetlbfs").map(|mount| mount.device).collect();
    let (mut users, mut unseen) = (Vec::new(), 0);
    for pid in root.numbered_entries("proc")? {
        match users_in(root, pid, &devices) {
            Ok(found) => users.extend(found),
            Err(error) if error.is_gone() => {}
            // One process with too many mappings must not hide all others.
            Err(error) if error.is_denied() || error.is_too_much() => unseen += 1,
            Err(error) => return Err(error),
        }
    }
    users.sort_by_key(|user| std::cmp::Reverse((user.in_use(), user.mapped)));
    Ok((users, unseen))
}

fn users_in(root: &Root, pid: u32, devices: &[(u32, u32)]) -> Result<Vec<User>, KernelError> {
    let status = ProcessStatus::read(root, pid)?;
    if status.kernel_thread || status.is_zombie() {
        return Ok(Vec::new());
    }
    let may_be_pooled = |line: &maps::Line| devices.contains(&line.device) || is_without_a_mount(&line.name);
    if status.hugetlb == Bytes(0) && !maps::read(root, pid)?.iter().any(may_be_pooled) {
        return Ok(Vec::new());
    }
    Ok(summed(pid, &status.name, &smaps::read(root, pid)?))
}

/// Names of memory on huge pages outside of mounts: MAP_HUGETLB, memfd_create, shmget.
fn is_without_a_mount(name: &str) -> bool {
    ["/anon_hugepage", "/memfd:", "/SYSV"].iter().any(|start| name.starts_with(start))
}

/// One user for each page size.
fn summed(pid: u32, name: &str, mappings: &[smaps::SmapsMapping]) -> Vec<User> {
    let mut users: Vec<User> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.flags & vm_flags::HUGETLB != 0) {
        let page_size = mapping.page_size;
        let found = users.iter().position(|user| user.page_size == page_size);
        let index = found.unwrap_or_else(|| {
            users.push(User { pid, name: name.to_owned(), page_size, ..User::default() });
            users.len() - 1
        });
        users[index].private += mapping.hugetlb_private;
        users[index].shared += mapping.hugetlb_shared;
        users[index].mapped += mapping.line.range.len();
    }
    users
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0040000000 rw-s 00000000 00:0f 7 /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr sh mr mw me ms de ht
7f0040000000-7f0080000000 rw-s 00000000 00:10 8 /dev/hugepages-1G/a
KernelPageSize:  1048576 kB
Private_Hugetlb: 1048576 kB
VmFlags: rd wr sh ht
7f0080000000-7f00c0000000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)
KernelPageSize:     2048 kB
VmFlags: rd wr ht
7f00c0000000-7f00c0001000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
VmFlags: rd wr
";

    fn process(tree: &Path, pid: u32, status: &str, smaps: &str) {
        let directory = tree.join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("status"), format!("Name:\tp{pid}\nState:\tS\nTgid:\t{pid}\nPPid:\t1\n{status}"))
            .unwrap();
        let maps: String =
            smaps.lines().filter(|line| maps::parse(line).is_ok()).map(|line| format!("{line}\n")).collect();
        fs::write(directory.join("maps"), maps).unwrap();
        fs::write(directory.join("smaps"), smaps).unwrap();
    }

    #[test]
    fn users_are_found_by_their_pages_and_by_their_promises() {
        let tree = tempfile::tempdir().unwrap();
        let promised = "7f0040000000-7f0080000000 rw-s 00000000 00:10 8 /dev/hugepages-1G/b\nKernelPageSize:  1048576 kB\nVmFlags: rd ht\n";
        process(tree.path(), 7, "VmRSS:\t8 kB\nHugetlbPages:\t1054720 kB\n", SMAPS);
        process(tree.path(), 8, "VmRSS:\t8 kB\nHugetlbPages:\t0 kB\n", promised);
        process(tree.path(), 9, "VmRSS:\t8 kB\n", "7f00c0000000-7f00c0001000 rw-p 00000000 00:00 0\nVmFlags: rd\n");
        process(tree.path(), 10, "Kthread:\t1\n", "");
        fs::create_dir_all(tree.path().join("proc/11")).unwrap();
        process(tree.path(), 12, "VmRSS:\t8 kB\n", "");
        File::create(tree.path().join("proc/12/maps")).unwrap().set_len(maps::LIMIT.0 + 1).unwrap();
        let mount = Mount::parse("61 23 0:16 / /dev/hugepages-1G rw - hugetlbfs none rw,pagesize=1024M").unwrap();
        let (found, unseen) = users(&Root::at(tree.path()), &[mount]).unwrap();
        assert_eq!(unseen, 1, "what a process has mapped may be longer than is read");
        let told: Vec<_> = found.iter().map(|user| (user.pid, user.page_size.0 >> 20, user.in_use().0 >> 20)).collect();
        assert_eq!(told, [(7, 1024, 1024), (7, 2, 6), (8, 1024, 0)]);
        assert_eq!((found[1].mapped, found[1].untouched()), (Bytes(2 << 30), Bytes((2 << 30) - (6 << 20))));
        assert_eq!((found[1].private, found[1].shared, found[1].name.as_str()), (Bytes(2 << 20), Bytes(4 << 20), "p7"));
    }

    #[test]
    fn this_machine_is_searched() {
        users(&Root::host(), &[]).unwrap();
    }
}
