//! `/proc/zoneinfo`: free memory that `MemFree` and `MemAvailable` leave out.
//!
//! Owns: understanding the text. Never touches: the zones.

use heat::units::{Bytes, Pages};

use crate::{KernelError, Root};

/// Free pages in the per-CPU page lists. Since Linux 6.7 these lists together may grow to an eighth of a zone (`high_max` in
/// `mm/page_alloc.c`), and collapsing frees many pages at once: 0.6 GiB were seen there on a machine of 24 GiB.
///
/// Errors: `/proc/zoneinfo` cannot be read.
pub fn free_in_cpu_lists(root: &Root) -> Result<Bytes, KernelError> {
    Ok(count(&root.text("proc/zoneinfo")?))
}

fn count(text: &str) -> Bytes {
    let pages = |line: &str| line.trim_start().strip_prefix("count:")?.trim().parse().ok().map(Pages);
    text.lines().filter_map(pages).sum::<Pages>().bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::units::BASE_PAGE;

    #[test]
    fn the_lists_of_all_cpus_in_all_zones_count() {
        let text = "Node 0, zone   Normal\n  pages free     99999\n  pagesets\n    cpu: 0\n              count:    335\n              high:     \
                    378\n    cpu: 1\n              count:    5\nNode 1, zone   Normal\n    cpu: 0\n              count: 60\n";
        assert_eq!(count(text), Bytes(400 * BASE_PAGE));
        assert_eq!(count(""), Bytes(0));
        assert_eq!(count("count: 18446744073709551615\ncount: 1\n"), Bytes(u64::MAX));
    }

    #[test]
    fn this_machine_tells() {
        free_in_cpu_lists(&Root::host()).expect("Linux tells");
    }
}
