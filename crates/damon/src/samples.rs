//! Trees with DAMON's files for tests: one that accepts any value, and ones that answer like kernels.

use std::path::Path;
use std::{fs, io};

use kernel::Root;
use kernel::damon::{DIRECTORY, Purpose};

use crate::{Claim, DamonError};

/// A tree with this many threads set up, which accepts any value.
pub fn tree(threads: u64) -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let context = folder.path().join(DIRECTORY).join("0/contexts/0");
    let parts =
        ["monitoring_attrs/intervals", "monitoring_attrs/nr_regions", "targets/0/regions/0", "targets/0/regions/1"];
    for name in parts {
        fs::create_dir_all(context.join(name)).unwrap();
    }
    for name in ["access_pattern/sz", "access_pattern/nr_accesses", "access_pattern/age", "tried_regions"] {
        fs::create_dir_all(context.join("schemes/0").join(name)).unwrap();
    }
    fs::write(folder.path().join(DIRECTORY).join("nr_kdamonds"), format!("{threads}\n")).unwrap();
    let root = Root::at(folder.path());
    (folder, root)
}

/// The contents of one of its files; empty if there is none.
pub fn text(root: &Root, name: &str) -> String {
    fs::read_to_string(root.path(&format!("{DIRECTORY}/{name}"))).unwrap_or_default()
}

/// A kernel with DAMON as in this release.
#[derive(Clone, Copy, Debug)]
pub enum Release {
    /// Without filters.
    Linux61,
    /// With filters anon, memcg and young.
    Linux612,
    /// With the additional filters unmapped, active and hugepage_size, in a directory of their own.
    Linux618,
}

impl Release {
    /// Claims DAMON in a fresh tree of such a kernel.
    ///
    /// Errors: the tree refuses what [`Claim::take`] writes.
    pub fn claim(self) -> (tempfile::TempDir, Root, Result<Claim, DamonError>) {
        let (folder, root) = tree(0);
        let write: fn(&Path, &str) -> io::Result<()> = match self {
            Release::Linux61 => |path: &Path, value: &str| write(path, value, &[], None),
            Release::Linux612 => {
                |path: &Path, value: &str| write(path, value, &["anon", "memcg", "young"], Some("filters"))
            }
            Release::Linux618 => |path: &Path, value: &str| {
                let filters = ["anon", "memcg", "young", "unmapped", "active", "hugepage_size"];
                write(path, value, &filters, Some("ops_filters"))
            },
        };
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/iomem"), "00100000-3fffffff : System RAM\n").unwrap();
        let claim = Claim::take_with(&root, Purpose::Reclaim, write);
        (folder, root, claim)
    }
}

/// Creates directories when a count is written, and refuses keywords that the kernel does not know.
fn write(path: &Path, value: &str, filters: &[&str], folder: Option<&str>) -> io::Result<()> {
    let refused = || io::Error::from_raw_os_error(libc::EINVAL);
    let (name, parent) = (path.file_name().unwrap().to_str().unwrap(), path.parent().unwrap());
    match name {
        "nr_schemes" => {
            for scheme in 0..value.parse::<u32>().unwrap() {
                let scheme = parent.join(scheme.to_string());
                for part in ["access_pattern/sz", "access_pattern/nr_accesses", "access_pattern/age"] {
                    fs::create_dir_all(scheme.join(part))?;
                }
                for part in ["quotas/weights", "watermarks", "stats"] {
                    fs::create_dir_all(scheme.join(part))?;
                }
                if let Some(folder) = folder {
                    fs::create_dir_all(scheme.join(folder))?;
                }
                for count in ["nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds"] {
                    fs::write(scheme.join("stats").join(count), "0\n")?;
                }
            }
        }
        "nr_filters" => {
            (0..value.parse::<u32>().unwrap())
                .try_for_each(|filter| fs::create_dir_all(parent.join(filter.to_string())))?;
        }
        "type" if !filters.contains(&value) => return Err(refused()),
        "action" if !["stat", "pageout", "lru_prio", "lru_deprio", "cold"].contains(&value) => return Err(refused()),
        _ => {}
    }
    fs::write(path, value)
}
