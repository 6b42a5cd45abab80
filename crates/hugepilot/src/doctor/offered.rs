//! The abilities of this machine that hugepilot uses, one by one: for programs, and for the table of kernels in the book.
//!
//! Owns: the list and its names. Never touches: what follows from it for a user, which is the checks' to say.

use heat::units::{Bytes, HUGE_PAGE};
use kernel::probe::{Ability, Facts};
use observe::choice::TRACKERS;
use serde::Serialize;

use super::abilities::{if_damon_is_free, tracker_works};

const GIANT_PAGE: u64 = 512 * HUGE_PAGE;

/// Something of the kernel, and whether it can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostAbility {
    /// What it is; the same in every release.
    pub name: String,
    /// Whether it can be used here; None if that is not known.
    pub here: Option<bool>,
    /// Why not, or why that is not known.
    pub why: Option<String>,
}

impl HostAbility {
    fn of(name: impl Into<String>, ability: Ability) -> Self {
        let (here, why) = match ability {
            Ability::Yes => (Some(true), None),
            Ability::No(why) => (Some(false), Some(why)),
            Ability::Unknown(why) => (None, Some(why)),
        };
        Self { name: name.into(), here, why }
    }
}

/// Every ability: trackers, best first, then what they rest on, promoting, reclaim, pools.
pub fn abilities(facts: &Facts) -> Vec<HostAbility> {
    let trackers = TRACKERS.map(|kind| (format!("tracker {kind}"), tracker_works(kind, facts)));
    let others = [
        ("eBPF that reads page tables", facts.live.bpf.clone()),
        ("BTF", facts.btf.clone()),
        ("clear_refs", facts.clear_refs.clone()),
        ("page frame numbers", facts.live.pagemap.clone()),
        ("flags of pages", facts.kpageflags.clone()),
        ("MADV_COLLAPSE by process_madvise", facts.live.process_madvise.clone()),
        ("own writes by userfaultfd", facts.live.own_writes.clone()),
        ("cache reclaimed by DAMON", if_damon_is_free(facts, &facts.damon_paddr)),
        ("cache reclaimed by cgroup v2", facts.memory_reclaim.clone()),
        ("cache told by cachestat", facts.live.cachestat.clone()),
        ("memory compacted on request", facts.compaction.clone()),
        ("pressure (PSI)", facts.pressure.clone()),
        ("pool of 2 MiB pages", pool(facts, HUGE_PAGE)),
        ("pool of 1 GiB pages", pool(facts, GIANT_PAGE)),
    ];
    let others = others.map(|(name, ability)| (name.to_owned(), ability));
    trackers.into_iter().chain(others).map(|(name, ability)| HostAbility::of(name, ability)).collect()
}

fn pool(facts: &Facts, page_size: u64) -> Ability {
    match &facts.pools {
        Err(error) => Ability::Unknown(error.to_string()),
        Ok(pools) if pools.iter().any(|pool| pool.page_size == Bytes(page_size)) => Ability::Yes,
        Ok(_) => Ability::No("the processor or the kernel has no such pages".to_owned()),
    }
}
