//! What the machine offers to a program that is about to start.
//!
//! Owns: the few facts that recipes depend on. Never touches: settings and pools.

use std::path::PathBuf;

use kernel::hugetlb::{self, FileSystem, Pool};
use kernel::hugetlb_limits::{self, Limit};
use kernel::thp::Thp;
use kernel::{KernelError, Root, mounts, optional};

use crate::request::PageKind;

/// The facts, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// The mode of transparent huge pages of 2 MiB, or of the smaller size requested: `always`, `madvise`, `never`; None on a kernel without them.
    pub transparent: Option<String>,
    /// The file with that setting.
    pub setting: String,
    /// Whether programs that ask get transparent huge pages of 2 MiB, whatever size is requested here.
    pub gives_2_mib: bool,
    /// The general mode, by which allocators decide whether to ask for any size; None on a kernel without transparent huge pages.
    pub general: Option<String>,
    /// Whether the kernel aligns shared memory for huge pages.
    pub aligns_shared_memory: bool,
    /// The pool of the pages requested; None for transparent ones, and for a size that this machine lacks.
    pub pool: Option<Pool>,
    /// Where the pool's pages are mounted as files, if at all.
    pub mount: Option<PathBuf>,
    /// Control groups' limits on our use of that pool, which a program that we start inherits.
    pub limits: Vec<Limit>,
}

impl MachineFacts {
    /// Reads the facts relevant to pages of this kind.
    ///
    /// Errors: the settings of transparent huge pages, the pools, the mounts or the limits of control groups cannot be read, or are
    /// malformed.
    pub fn read(root: &Root, pages: PageKind) -> Result<Self, KernelError> {
        let thp = Thp::read(root)?;
        let of_this_kind = thp.as_ref().and_then(|thp| match pages {
            PageKind::Smaller(size) => thp.of_size(size),
            PageKind::Transparent | PageKind::Huge | PageKind::Giant => Some(thp.of_huge_pages()),
        });
        let transparent = of_this_kind.as_ref().map(|(mode, _)| (*mode).to_owned());
        let general = thp.as_ref().map(|thp| thp.enabled.chosen.clone());
        let setting = of_this_kind.map_or_else(String::new, |(_, file)| file);
        let gives_2_mib = thp.as_ref().is_some_and(|thp| is_on(thp.of_huge_pages().0));
        let aligns_shared_memory = thp.is_some_and(|thp| thp.aligns_shared_memory());
        if !pages.is_reserved() {
            return Ok(Self { transparent, setting, gives_2_mib, general, aligns_shared_memory, ..Self::default() });
        }
        let pools = hugetlb::pools(root)?;
        let pool = pools.into_iter().find(|pool| pool.page_size == pages.size());
        let mounts = optional(mounts::read(root))?.unwrap_or_default();
        let mount = mounts.iter().filter_map(FileSystem::of).find(|mounted| mounted.page_size == pages.size());
        let mut limits = hugetlb_limits::own(root)?;
        limits.retain(|limit| limit.page_size == pages.size());
        let mount = mount.map(|mounted| mounted.point.into());
        Ok(Self { transparent, setting, gives_2_mib, general, aligns_shared_memory, pool, mount, limits })
    }

    /// Whether the kernel honours programs that request transparent huge pages.
    pub fn honours_requests(&self) -> bool {
        self.transparent.as_deref().is_some_and(is_on)
    }

    /// Pool pages that a program can still get.
    pub fn available(&self) -> u64 {
        let pool = self.pool.map_or(0, |pool| pool.available());
        self.limits.iter().map(Limit::pages_left).fold(pool, u64::min)
    }

    /// The tightest of the limits that are below what the pool has available.
    pub fn binding_limit(&self) -> Option<&Limit> {
        let pool = self.pool?.available();
        tightest(self.limits.iter().filter(|limit| limit.pages_left() < pool))
    }

    /// The limit that kills a program (SIGBUS) when it touches memory that the kernel has reserved for it.
    pub fn ending_limit(&self) -> Option<&Limit> {
        let pool = self.pool?;
        let (promises, uses): (Vec<&Limit>, Vec<&Limit>) = self.limits.iter().partition(|limit| limit.of_reservations);
        let most = pool.available().saturating_add(pool.overcommit.saturating_sub(pool.surplus));
        let promised = promises.into_iter().map(Limit::pages_left).fold(most, u64::min);
        tightest(uses.into_iter().filter(|limit| limit.pages_left() < promised))
    }
}

/// Whether the kernel honours requests in this mode.
fn is_on(mode: &str) -> bool {
    matches!(mode, "madvise" | "always")
}

fn tightest<'a>(limits: impl Iterator<Item = &'a Limit>) -> Option<&'a Limit> {
    limits.min_by_key(|limit| limit.pages_left())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use heat::units::{Bytes, HUGE_PAGE};

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
        let mount = |pages| MachineFacts::read(&root, pages).unwrap().mount;
        assert_eq!(mount(PageKind::Huge), Some("/dev/hugepages".into()));
        assert_eq!(mount(PageKind::Giant), Some("/mnt/1 G".into()));
        assert_eq!(mount(PageKind::Transparent), None);
    }

    #[test]
    fn each_size_has_its_own_setting() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("sys/kernel/mm/transparent_hugepage");
        fs::create_dir_all(directory.join("khugepaged")).unwrap();
        fs::write(directory.join("defrag"), "always [madvise]").unwrap();
        for name in ["pages_to_scan", "scan_sleep_millisecs", "pages_collapsed", "full_scans", "max_ptes_none"] {
            fs::write(directory.join("khugepaged").join(name), "1").unwrap();
        }
        let set = |place: &str, chosen: &str| {
            fs::create_dir_all(directory.join(place)).unwrap();
            fs::write(directory.join(place).join("enabled"), format!("always [{chosen}] inherit")).unwrap();
        };
        let read = || {
            let facts = MachineFacts::read(&Root::at(folder.path()), PageKind::Smaller(Bytes(64 << 10))).unwrap();
            (facts.honours_requests(), facts.gives_2_mib)
        };
        for (general, of_2_mib, of_64_kib, expected) in [
            ("madvise", "inherit", "never", (false, true)),
            ("never", "madvise", "never", (false, true)),
            ("madvise", "never", "inherit", (true, false)),
            ("never", "inherit", "always", (true, false)),
        ] {
            set("", general);
            set("hugepages-2048kB", of_2_mib);
            set("hugepages-64kB", of_64_kib);
            assert_eq!(read(), expected, "{general} {of_2_mib} {of_64_kib}");
        }
    }

    #[test]
    fn a_group_may_leave_less_than_the_pool_has() {
        let limit = |pages: u64, of_reservations| Limit {
            cgroup: format!("/{pages}"),
            page_size: PageKind::Huge.size(),
            of_reservations,
            limit: Bytes((pages + 1) * HUGE_PAGE),
            usage: Bytes(HUGE_PAGE),
            refused: None,
        };
        let pool = |free, overcommit| Pool {
            page_size: PageKind::Huge.size(),
            total: 1000,
            free,
            reserved: 0,
            surplus: 0,
            overcommit,
        };
        let told = |pool: Pool, limits: &[Limit]| {
            let machine = MachineFacts { pool: Some(pool), limits: limits.to_vec(), ..MachineFacts::default() };
            let name = |limit: Option<&Limit>| limit.map_or(String::new(), |limit| limit.cgroup.clone());
            (machine.available(), name(machine.binding_limit()), name(machine.ending_limit()))
        };
        let named = |available, binding: &str, ending: &str| (available, binding.to_owned(), ending.to_owned());
        let (used, promised) = (|pages| limit(pages, false), |pages| limit(pages, true));
        assert_eq!(told(pool(500, 0), &[]), named(500, "", ""));
        assert_eq!(told(pool(500, 0), &[used(128), used(200)]), named(128, "/128", "/128"));
        assert_eq!(told(pool(500, 0), &[promised(0)]), named(0, "/0", ""), "mmap fails");
        assert_eq!(told(pool(500, 0), &[used(128), promised(128)]), named(128, "/128", ""), "mmap fails first");
        assert_eq!(told(pool(100, 0), &[used(128)]), named(100, "", ""), "the pool binds first");
        assert_eq!(told(pool(100, 50), &[used(128)]), named(100, "", "/128"), "but it may grow on demand");
    }

    #[test]
    fn a_machine_without_huge_pages_has_none() {
        let empty = Root::at(tempfile::tempdir().unwrap().path());
        assert_eq!(MachineFacts::read(&empty, PageKind::Giant).unwrap(), MachineFacts::default());
        assert!(!MachineFacts::default().honours_requests());
        assert_eq!(MachineFacts::default().available(), 0);
    }
}
