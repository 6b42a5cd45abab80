//! Checks of the pools of reserved huge pages and of contiguous free memory.
//!
//! Owns: their words and thresholds. Never touches: the pools, compaction.

use heat::units::{Bytes, GIANT_PAGE};
use kernel::hugetlb::{Pool, size_name};
use kernel::memory::Meminfo;
use kernel::probe::{Ability, Facts};

use super::{Checked, Fix, HostCheck, known, named};

pub(super) fn checks(facts: &Facts) -> Vec<HostCheck> {
    let mut checks = match &facts.pools {
        Ok(pools) if pools.is_empty() => {
            let meaning = "Nothing can be placed on reserved huge pages; promoting needs none.";
            vec![HostCheck::warning("no hugetlb pools in this kernel", meaning).named("pools")]
        }
        Ok(pools) => pools
            .iter()
            .map(|pool| check_pool(pool, facts.memory.as_ref().ok()).named(format!("pool of {}", pool.page_size)))
            .collect(),
        Err(error) => vec![HostCheck::unknown("pools", error)],
    };
    checks.push(named("contiguous free memory", contiguous(facts)));
    checks.extend(host(facts).transpose().map(|host| named("free memory", host)));
    checks.push(named("promoting 2 MiB", collapses(facts)));
    checks.extend(reclaim(facts).map(|reclaim| reclaim.named("accessed bits")));
    checks
}

/// Memory for ordinary programs is short below this fraction of all memory.
const SHORT: u64 = 16;

fn check_pool(pool: &Pool, memory: Option<&Meminfo>) -> HostCheck {
    if pool.total == 0 {
        let meaning = "Promoting needs none. A program that asks for reserved huge pages (hugetlbfs) gets none.";
        return HostCheck::ok("empty", meaning);
    }
    let (available, reserved) = (pool.available(), pool.reserved);
    let held = Bytes(available.saturating_mul(pool.page_size.0));
    let finding = format!(
        "{available} of {} pages can be given out ({} free, of which {reserved} are promised)",
        pool.total, pool.free
    );
    if available == 0 {
        let more = (GIANT_PAGE / pool.page_size.0).max(1);
        let meaning = "A program that asks for one fails with \"cannot allocate memory\", even while some seem free.";
        return HostCheck::warning(finding, meaning).fixed_by(resize(pool, pool.total.saturating_add(more)));
    }
    let short = memory.filter(|memory| memory.available.0 < memory.total.0 / SHORT && held > memory.available);
    if let Some(memory) = short {
        let meaning = format!(
            "Ordinary programs cannot use what is reserved: {} lies idle here while they are left {}.",
            held, memory.available
        );
        return HostCheck::warning(finding, meaning).fixed_by(resize(pool, pool.total - available));
    }
    HostCheck::ok(finding, "Free pages that are promised are spoken for: only the rest can be given out.")
}

fn resize(pool: &Pool, pages: u64) -> Fix {
    Fix::until_reboot(
        format!("echo {pages} > /{}/nr_hugepages", Pool::directory(pool.page_size)),
        format!("boot parameters hugepagesz={} hugepages={pages}", size_name(pool.page_size)),
    )
}

/// Contiguous memory is scarce below this fraction of all memory.
const SCARCE: u64 = 64;

fn contiguous(facts: &Facts) -> Checked {
    let (buddy, memory) = (known(&facts.buddy)?, known(&facts.memory)?);
    let (huge, free) = (buddy.free_huge(), buddy.free());
    let finding = format!("{huge} in blocks of 2 MiB and more, of {free} free");
    let enough = Bytes(memory.total.0 / SCARCE);
    if huge >= enough {
        return Ok(HostCheck::ok(finding, "Regions can be promoted without compacting memory first."));
    }
    let meaning = "Each promotion must compact memory first, which takes longer and may fail.";
    Ok(match &facts.compaction {
        Ability::Yes => HostCheck::warning(finding, meaning).fixed_by(compact(free, enough)),
        Ability::No(why) | Ability::Unknown(why) => HostCheck::warning(finding, format!("{meaning} And {why}.")),
    })
}

/// Compaction can only join free memory; if too little is free, clean page cache is dropped first.
fn compact(free: Bytes, enough: Bytes) -> Fix {
    let compact = "echo 1 > /proc/sys/vm/compact_memory";
    let command = match free < enough + enough {
        true => format!("sync; echo 1 > /proc/sys/vm/drop_caches; {compact}"),
        false => compact.to_owned(),
    };
    Fix::until_reboot(command, "echo 'vm.compaction_proactiveness = 50' > /etc/sysctl.d/60-hugepilot.conf")
}

/// What promoting 2 MiB costs here.
fn collapses(facts: &Facts) -> Checked {
    let times = facts.live.collapses.ok_or("no collapse could be tried")?;
    let finding = format!(
        "takes {} with a page made ready beforehand, {} without (memory of our own)",
        times.prepared, times.unprepared
    );
    let meaning = if times.preparing_helps() {
        "A program that touches the memory meanwhile waits for so long. Pages are made ready beforehand here."
    } else {
        "A program that touches the memory meanwhile waits for so long. Making pages ready beforehand does not help here, and is left out."
    };
    Ok(HostCheck::ok(finding, meaning))
}

/// None where there is nothing to report: most machines have no such host.
fn host(facts: &Facts) -> Result<Option<HostCheck>, String> {
    let meaning = "It is slow to come back: milliseconds a huge page, ten times as long as from page cache. If it helps, promoting \
                   makes pages ready beforehand, outside of a program's locks; programs themselves wait. Presets of `hugepilot reclaim` \
                   keep little free here. Only the host can switch it off (the balloon's free page reporting).";
    let reported = *known(&facts.free_memory_reported)?;
    Ok(reported.then(|| HostCheck::warning("this virtual machine's host takes it back", meaning)))
}

/// None where there is nothing to report.
fn reclaim(facts: &Facts) -> Option<HostCheck> {
    let reclaim = observe::reclaim::judge(facts.memory.as_ref().ok()?, None)?;
    let meaning = "page-walk clears the bits that tell reclaim which pages are in use, so that it may take pages that programs \
                   need. `--tracker auto` prefers damon-vaddr and idle-page here, which leave it that information.";
    Some(HostCheck::warning(reclaim.to_string(), meaning))
}

#[cfg(test)]
mod tests {
    use kernel::Root;
    use kernel::probe::LiveProbes;

    use super::super::CheckStatus;
    use super::*;

    const POOL: Pool =
        Pool { page_size: Bytes(2 << 20), total: 1000, free: 900, reserved: 100, surplus: 0, overcommit: 0 };

    #[test]
    fn a_pool_that_starves_ordinary_programs_is_told_to_shrink_to_what_is_spoken_for() {
        let starved = Meminfo { total: Bytes(2 << 30), available: Bytes(64 << 20), ..Meminfo::default() };
        let check = check_pool(&POOL, Some(&starved));
        assert_eq!(check.status, CheckStatus::Warning);
        let command = check.fix.unwrap().command;
        assert_eq!(command, "echo 200 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
        let roomy = Meminfo { total: Bytes(2 << 30), available: Bytes(1 << 30), ..Meminfo::default() };
        assert_eq!(check_pool(&POOL, Some(&roomy)).status, CheckStatus::Ok);
        assert_eq!(check_pool(&POOL, None).status, CheckStatus::Ok);
    }

    #[test]
    fn swap_in_use_is_a_warning() {
        let check = |swap_free| {
            let memory =
                Meminfo { total: Bytes(9), available: Bytes(8), swap_total: Bytes(5), swap_free, ..Meminfo::default() };
            let mut facts = Facts::gather(&Root::at("/nowhere"), LiveProbes::default());
            facts.memory = Ok(memory);
            reclaim(&facts)
        };
        assert_eq!(check(Bytes(5)), None);
        let check = check(Bytes(4)).expect("a warning");
        assert_eq!((check.status, check.finding.as_str()), (CheckStatus::Warning, "swap is in use"));
    }

    #[test]
    fn page_cache_is_dropped_only_where_free_memory_would_not_do() {
        assert!(compact(Bytes(10), Bytes(10)).command.contains("drop_caches"));
        assert!(!compact(Bytes(20), Bytes(10)).command.contains("drop_caches"));
    }
}
