//! The changes that bring the pools to the requested state.
//!
//! Owns: the arithmetic of minimum, maximum and overcommit, as a pure function. Never touches: the pools.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use heat::units::{Bytes, GIANT_PAGE};
use kernel::hugetlb::{NodePool, Pool, size_name};

use crate::{PoolError, SizeRequest, is_giant};

/// What a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSetting {
    /// The size of the pool; the overcommit stays as it is.
    Size,
    /// The size of the pool; the maximum that it may grow to on demand stays, unless that is less.
    Least,
    /// The maximum that the pool may grow to on demand; its size stays, unless that is more.
    Most,
}

/// The change of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Bytes in each page.
    pub page_size: Bytes,
    /// The memory node that the change is confined to.
    pub node: Option<u32>,
    /// Pages that the pool, or the node's part of it, has.
    pub from: u64,
    /// Pages that it should have.
    pub to: u64,
    /// The maximum that it may grow to on demand; `None` leaves the overcommit as it is.
    pub most: Option<u64>,
}

impl Change {
    /// Overcommit pages once the pool has `pages` pages; `None` leaves it as it is.
    pub fn overcommit(&self, pages: u64) -> Option<u64> {
        self.most.map(|most| most.saturating_sub(pages))
    }

    /// The kernel parameters that reserve these pages at boot; for a single node this needs Linux 5.16.
    pub fn boot_words(&self) -> String {
        let node = self.node.map_or(String::new(), |node| format!("{node}:"));
        format!("hugepagesz={} hugepages={node}{}", size_name(self.page_size), self.to)
    }
}

/// The changes that fulfil the requests, in the best order: first those that free memory, then the largest pages, which are the
/// hardest to get.
///
/// `giant_pages` says whether the processor has pages of 1 GiB, if that is known.
///
/// Errors: a size or a node does not exist, or a size is named twice.
pub fn changes(
    requests: &[SizeRequest],
    bound: PoolSetting,
    node: Option<u32>,
    pools: &[Pool],
    nodes: &[NodePool],
    giant_pages: Option<bool>,
) -> Result<Vec<Change>, PoolError> {
    let mut seen = BTreeSet::new();
    let mut changes = Vec::new();
    for request in requests {
        let page_size = request.page_size;
        if !seen.insert(page_size) {
            return Err(PoolError::Twice { page_size });
        }
        let pool = find(pools, page_size, giant_pages)?;
        changes.push(match node {
            Some(node) => on_node(request, node, nodes)?,
            None => on_all(request, bound, pool),
        });
    }
    changes.sort_by_key(|change| (change.to > change.from, Reverse(change.page_size)));
    Ok(changes)
}

/// The pool for a size. Errors: there is none, and why.
pub fn find(pools: &[Pool], page_size: Bytes, giant_pages: Option<bool>) -> Result<&Pool, PoolError> {
    if pools.is_empty() {
        return Err(PoolError::NoPools);
    }
    pools.iter().find(|pool| pool.page_size == page_size).ok_or_else(|| PoolError::NotOffered {
        page_size,
        why: match giant_pages {
            Some(false) if page_size == Bytes(GIANT_PAGE) => {
                "the processor has no such pages (flag pdpe1gb in /proc/cpuinfo)"
            }
            _ => "the kernel has none of that size",
        },
        offered: pools.iter().map(|pool| size_name(pool.page_size)).collect::<Vec<_>>().join(", "),
    })
}

fn on_node(request: &SizeRequest, node: u32, nodes: &[NodePool]) -> Result<Change, PoolError> {
    let page_size = request.page_size;
    let of_size = || nodes.iter().filter(|pool| pool.page_size == page_size);
    let Some(pool) = of_size().find(|pool| pool.node == node) else {
        let names: Vec<String> = of_size().map(|pool| pool.node.to_string()).collect();
        let names = if names.is_empty() { "none (this kernel has no NUMA)".to_owned() } else { names.join(", ") };
        return Err(PoolError::NoNode { node, page_size, nodes: names });
    };
    let from = pool.persistent();
    Ok(Change { page_size, node: Some(node), from, to: request.amount.of(from), most: None })
}

fn on_all(request: &SizeRequest, bound: PoolSetting, pool: &Pool) -> Change {
    let from = pool.persistent();
    let most = from.saturating_add(pool.overcommit);
    let (to, most) = match bound {
        PoolSetting::Size => (request.amount.of(from), None),
        PoolSetting::Least => {
            let to = request.amount.of(from);
            // Most kernels allow no giant pages on demand, so there is usually nothing to keep.
            let is_kept = !is_giant(pool.page_size) || pool.overcommit > 0;
            (to, is_kept.then(|| most.max(to)))
        }
        PoolSetting::Most => {
            let most = request.amount.of(most);
            (from.min(most), Some(most))
        }
    };
    Change { page_size: request.page_size, node: None, from, to, most }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Amount;

    const POOL: Pool =
        Pool { page_size: Bytes(2 << 20), total: 103, free: 40, reserved: 36, surplus: 3, overcommit: 50 };
    const GIANT: Pool = Pool { page_size: Bytes(1 << 30), total: 4, free: 4, reserved: 0, surplus: 0, overcommit: 0 };
    const NODE: NodePool = NodePool { node: 1, page_size: Bytes(2 << 20), total: 60, free: 9, surplus: 0 };

    fn one(request: &str, bound: PoolSetting) -> (u64, u64, Option<u64>) {
        let change = changes(&[request.parse().unwrap()], bound, None, &[POOL], &[], None).unwrap()[0];
        (change.from, change.to, change.overcommit(change.to))
    }

    #[test]
    fn least_and_most_are_those_of_hugeadm() {
        assert_eq!(one("2M=200", PoolSetting::Size), (100, 200, None));
        assert_eq!(one("2M=+20", PoolSetting::Least), (100, 120, Some(30)), "the most stays at 150");
        assert_eq!(one("2M=200", PoolSetting::Least), (100, 200, Some(0)), "the most is raised to the least");
        assert_eq!(one("2M=-50", PoolSetting::Least), (100, 50, Some(100)));
        assert_eq!(one("2M=130", PoolSetting::Most), (100, 100, Some(30)));
        assert_eq!(one("2M=80", PoolSetting::Most), (100, 80, Some(0)), "the least is lowered to the most");
        assert_eq!(one("2M=+10", PoolSetting::Most), (100, 100, Some(60)));
    }

    #[test]
    fn giant_pages_have_no_most_to_keep_where_none_can_be_taken_on_demand() {
        let most = |request: &str, bound, overcommit| {
            let pool = Pool { overcommit, ..GIANT };
            changes(&[request.parse().unwrap()], bound, None, &[pool], &[], None).unwrap()[0].most
        };
        assert_eq!([most("1G=8", PoolSetting::Least, 0), most("1G=2", PoolSetting::Least, 0)], [None; 2]);
        assert_eq!([most("1G=2", PoolSetting::Least, 3), most("1G=8", PoolSetting::Most, 0)], [Some(7), Some(8)]);
    }

    #[test]
    fn pages_are_reserved_at_boot_by_their_own_words() {
        let change = Change { page_size: Bytes(1 << 30), node: None, from: 1, to: 4, most: None };
        assert_eq!(change.boot_words(), "hugepagesz=1G hugepages=4");
        assert_eq!(Change { node: Some(1), ..change }.boot_words(), "hugepagesz=1G hugepages=1:4");
    }

    #[test]
    fn what_frees_memory_comes_first_then_the_largest_pages() {
        let small = Pool { page_size: Bytes(64 << 10), ..POOL };
        let requests = ["64K=200", "2M=10", "1G=5"].map(|request| request.parse().unwrap());
        let changes = changes(&requests, PoolSetting::Size, None, &[small, POOL, GIANT], &[], None).unwrap();
        assert_eq!(changes.iter().map(|change| size_name(change.page_size)).collect::<Vec<_>>(), ["2M", "1G", "64K"]);
    }

    #[test]
    fn a_node_has_its_own_count() {
        let request = ["2M=+5".parse().unwrap()];
        let change = changes(&request, PoolSetting::Size, Some(1), &[POOL], &[NODE], None).unwrap()[0];
        assert_eq!((change.node, change.from, change.to, change.most), (Some(1), 60, 65, None));
        let error = changes(&request, PoolSetting::Size, Some(7), &[POOL], &[NODE], None).unwrap_err().to_string();
        assert_eq!(error, "memory node 7 has no pages of 2M: name one of 1");
    }

    #[test]
    fn what_is_not_there_is_refused_with_a_reason() {
        let told = |requests: &[&str], pools: &[Pool], giant| {
            let requests: Vec<SizeRequest> = requests.iter().map(|request| request.parse().unwrap()).collect();
            changes(&requests, PoolSetting::Size, None, pools, &[], giant).unwrap_err().to_string()
        };
        assert!(told(&["1G=1"], &[POOL], Some(false)).contains("pdpe1gb"));
        assert!(
            told(&["1G=1"], &[POOL], Some(true)).contains("the kernel has none of that size. There are pools of 2M")
        );
        assert!(told(&["2M=1"], &[], None).contains("CONFIG_HUGETLBFS"));
        assert!(told(&["2M=1", "2M=2"], &[POOL], None).contains("named twice"));
    }

    proptest! {
        #[test]
        fn a_pool_never_has_more_than_its_most(
            total: u64, surplus: u64, overcommit: u64, pages: u64, kind in 0..3usize, bound in 0..3usize
        ) {
            let amount = [Amount::Exactly, Amount::More, Amount::Fewer][kind](pages);
            let bound = [PoolSetting::Size, PoolSetting::Least, PoolSetting::Most][bound];
            let pool = Pool { total, surplus, overcommit, ..POOL };
            let request = SizeRequest { page_size: POOL.page_size, amount };
            let change = changes(&[request], bound, None, &[pool], &[], None).unwrap()[0];
            prop_assert_eq!(change.from, total.saturating_sub(surplus));
            prop_assert!(change.most.is_none_or(|most| change.to <= most));
            prop_assert_eq!(change.most.is_none(), bound == PoolSetting::Size);
        }
    }
}
