//! What the machine offers a program that is about to start.
//!
//! Owns: the few facts that recipes depend on. Never touches: settings and pools.

use std::path::PathBuf;

use super::wish::PageKind;
use crate::kernel::hugetlb::{self, FileSystem, Pool};
use crate::kernel::thp::Thp;
use crate::kernel::{KernelError, Root, mounts, optional};

/// The facts, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Who gets transparent huge pages of 2 MiB: `always`, `madvise`, `never`; None on a kernel without them.
    pub transparent: Option<String>,
    /// The pool of the pages wished for; None for transparent ones, and for a size that this machine does not have.
    pub pool: Option<Pool>,
    /// Where the pool's pages are mounted as files, if anywhere.
    pub mount: Option<PathBuf>,
}

impl Machine {
    /// Looks at what pages of this kind depend on.
    pub fn read(root: &Root, pages: PageKind) -> Result<Self, KernelError> {
        let transparent = Thp::read(root)?.map(|thp| thp.of_huge_pages().0.to_owned());
        if !pages.is_reserved() {
            return Ok(Self { transparent, ..Self::default() });
        }
        let pools = hugetlb::pools(root)?;
        let pool = pools.into_iter().find(|pool| pool.page_size == pages.size());
        let mounts = optional(mounts::read(root))?.unwrap_or_default();
        let mount = mounts.iter().filter_map(FileSystem::of).find(|mounted| mounted.page_size == pages.size());
        Ok(Self { transparent, pool, mount: mount.map(|mounted| mounted.point.into()) })
    }

    /// Whether the kernel heeds programs that ask for transparent huge pages.
    pub fn heeds_requests(&self) -> bool {
        matches!(self.transparent.as_deref(), Some("madvise" | "always"))
    }

    /// Pages of the pool that can still be given out.
    pub fn available(&self) -> u64 {
        self.pool.map_or(0, |pool| pool.available())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_mount_is_found_by_its_page_size() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        let mounts = "21 1 0:20 / /proc rw - proc proc rw\n\
                      30 23 0:27 / /dev/hugepages rw shared:9 - hugetlbfs hugetlbfs rw,pagesize=2M\n\
                      61 23 0:54 / /mnt/1\\040G rw - hugetlbfs none rw,pagesize=1024M,size=4G\nodd line";
        fs::write(folder.path().join("proc/self/mountinfo"), mounts).unwrap();
        let root = Root::at(folder.path());
        let mount = |pages| Machine::read(&root, pages).unwrap().mount;
        assert_eq!(mount(PageKind::Huge), Some("/dev/hugepages".into()));
        assert_eq!(mount(PageKind::Giant), Some("/mnt/1 G".into()));
        assert_eq!(mount(PageKind::Transparent), None);
    }

    #[test]
    fn a_machine_without_huge_pages_has_none() {
        let empty = Root::at(tempfile::tempdir().unwrap().path());
        assert_eq!(Machine::read(&empty, PageKind::Giant).unwrap(), Machine::default());
        assert!(!Machine::default().heeds_requests());
        assert_eq!(Machine::default().available(), 0);
    }
}
