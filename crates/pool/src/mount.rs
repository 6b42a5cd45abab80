//! Mounts of hugetlbfs, through which programs use a pool's pages as files.
//!
//! Owns: mount options (Documentation/admin-guide/mm/hugetlbpage.rst, "Using Huge Pages"), mounting and unmounting. Never touches: files in
//! them.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use heat::units::Bytes;
use kernel::hugetlb::{FileSystem, size_name};
use kernel::{KernelError, Root, mounts};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::{Owner, PoolError};

/// How to mount hugetlbfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Bytes in each page.
    pub page_size: Bytes,
    /// The maximum size of all its files; `None` for whatever the pool has.
    pub limit: Option<Bytes>,
    /// The maximum number of files; `None` for any number.
    pub files: Option<u64>,
    /// The owner of its top directory; root by default.
    pub owner: Option<Owner>,
    /// Permissions of its top directory; 0o755 by default.
    pub mode: Option<u32>,
}

impl MountOptions {
    /// Nothing but the page size.
    pub fn plain(page_size: Bytes) -> Self {
        Self { page_size, limit: None, files: None, owner: None, mode: None }
    }

    /// In the form that mount(8) expects. Errors: a limit below one page, which the kernel would take for no limit.
    pub fn text(&self) -> Result<String, PoolError> {
        let page_size = self.page_size;
        if let Some(limit) = self.limit.filter(|&limit| limit < page_size) {
            return Err(PoolError::LimitBelowPage { limit, page_size });
        }
        let mut options = vec![format!("pagesize={}", size_name(page_size))];
        options.extend(self.limit.map(|limit| format!("size={}", limit.0)));
        options.extend(self.files.map(|files| format!("nr_inodes={files}")));
        options.extend(self.owner.map(|Owner { uid, gid }| format!("uid={uid},gid={gid}")));
        options.extend(self.mode.map(|mode| format!("mode={mode:o}")));
        Ok(options.join(","))
    }
}

/// The default mount point for a page size.
pub fn place(page_size: Bytes) -> String {
    format!("/dev/hugepages-{}", size_name(page_size))
}

/// Mounts pages of a size, creates the directory if missing, and returns the mount as the kernel lists it.
///
/// Errors: something is mounted there; no CAP_SYS_ADMIN (EPERM).
pub fn mount(point: &str, options: &MountOptions) -> Result<FileSystem, PoolError> {
    let text = CString::new(options.text()?).expect("options are made of names and numbers");
    fs::create_dir_all(point).map_err(|cause| PoolError::file("make the directory", point, cause))?;
    let point = resolved(point)?;
    if mounts::read(&Root::host())?.iter().any(|mount| mount.point == point) {
        return Err(PoolError::Mounted { point });
    }
    rustix::mount::mount(
        "hugetlbfs",
        point.as_str(),
        "hugetlbfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        text.as_c_str(),
    )
    .map_err(|cause| PoolError::file("mount huge pages at", &point, cause))?;
    mounted_at(&point)?.ok_or(PoolError::NotMounted { point })
}

/// Unmounts hugetlbfs. The default directory is removed, too.
///
/// Errors: none is mounted there; files in it are open or mapped (EBUSY).
pub fn unmount(point: &str) -> Result<FileSystem, PoolError> {
    let point = resolved(point)?;
    let file_system = mounted_at(&point)?.ok_or_else(|| PoolError::NotMounted { point: point.clone() })?;
    rustix::mount::unmount(point.as_str(), UnmountFlags::NOFOLLOW)
        .map_err(|cause| PoolError::file("unmount", &point, cause))?;
    if point == place(file_system.page_size) {
        // If it is not empty, leave it.
        let _ = fs::remove_dir(&point);
    }
    Ok(file_system)
}

/// A directory as the kernel's list of mounts spells it.
fn resolved(point: &str) -> Result<String, PoolError> {
    let path = fs::canonicalize(Path::new(point)).map_err(|cause| PoolError::file("find", point, cause))?;
    Ok(path.to_string_lossy().into_owned())
}

/// If several are mounted over one another, the last one counts.
fn mounted_at(point: &str) -> Result<Option<FileSystem>, KernelError> {
    let mounts = mounts::read(&Root::host())?;
    Ok(mounts.iter().rev().find(|mount| mount.point == point).and_then(FileSystem::of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_kernel() {
        let plain = MountOptions::plain(Bytes(2 << 20));
        assert_eq!(plain.text().unwrap(), "pagesize=2M");
        let all = MountOptions {
            page_size: Bytes(1 << 30),
            limit: Some(Bytes(4 << 30)),
            files: Some(9),
            owner: Some(Owner { uid: 7, gid: 27 }),
            mode: Some(0o1770),
        };
        assert_eq!(all.text().unwrap(), "pagesize=1G,size=4294967296,nr_inodes=9,uid=7,gid=27,mode=1770");
        let told = MountOptions { limit: Some(Bytes(1 << 20)), ..plain }.text().unwrap_err().to_string();
        assert_eq!(told, "a limit of 1 MiB holds no page of 2 MiB: give at least one page");
    }

    #[test]
    fn only_huge_pages_are_unmounted() {
        assert_eq!(
            unmount("/proc").unwrap_err().to_string(),
            "/proc is no hugetlbfs mount: `hugepilot pool` lists those there are"
        );
        assert!(unmount("/nowhere/at/all").unwrap_err().to_string().starts_with("cannot find /nowhere/at/all: "));
        let taken = mount("/proc", &MountOptions::plain(Bytes(2 << 20))).unwrap_err().to_string();
        assert!(taken.starts_with("/proc is a mount already"), "{taken}");
    }
}
