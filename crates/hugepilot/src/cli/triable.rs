//! Whether a program's memory can be tried by turns.
//!
//! Owns: refusing what cannot, before anything is observed where that is known from what the program maps. Never touches: how a trial goes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use heat::units::{Address, BASE_PAGE};
use heat::{Heat, Mapping};
use hugepilot_os::stop::Stop;
use kernel::smaps::SmapsMapping;
use kernel::target::Process;
use kernel::{Root, smaps};
use pilot::decide::Limits;
use pilot::engine::{Pilot, Round};

/// Within this time the other processes that share a region use it again, and map its huge page.
const USED_AGAIN: Duration = Duration::from_secs(1);

/// Checks what is known before the program is observed.
///
/// Errors: it maps nothing that can be on huge pages, or next to nothing but memory that other processes map, too.
pub(super) fn ensure_may_be_tried(pilot: &mut Pilot<'_>, process: Process, children: bool) -> anyhow::Result<()> {
    let mut heat = pilot.world.survey(process)?;
    pilot.world.complete(&mut heat);
    let pid = process.pid;
    match Promotable::of(&heat) {
        Promotable { private_pages: 0, shared: 0, huge: 0 } => bail!(
            "nothing to try: none of the memory of process {pid} can be on huge pages; `hugepilot explain {pid}` says why"
        ),
        promotable if promotable.is_shared() && others_have_it(process, &heat, children)? => {
            let processes = if children { 1 + pilot.world.descendants(process)?.len() as u64 } else { 1 };
            Err(is_shared(pid, processes))
        }
        _ => Ok(()),
    }
}

/// What a process maps that can be promoted.
struct Promotable {
    /// Base pages present in private memory.
    private_pages: u64,
    /// Regions of shared memory on base pages.
    shared: u64,
    /// Regions on huge pages.
    huge: u64,
}

impl Promotable {
    fn of(heat: &Heat) -> Self {
        let mut found = Self { private_pages: 0, shared: 0, huge: 0 };
        for region in heat.regions.iter().filter(|region| region.obstacle.is_none()) {
            match heat.mapping_of(region).is_some_and(|mapping| mapping.shared.is_some()) {
                _ if region.huge => found.huge += 1,
                true => found.shared += 1,
                false => found.private_pages += region.amount().present.bytes().0 / BASE_PAGE,
            }
        }
        found
    }

    /// Whether all that could pay is shared: the TLB holds the rest.
    fn is_shared(&self) -> bool {
        self.shared > 0 && self.huge == 0 && self.private_pages < Limits::TLB_ENTRIES
    }
}

/// Whether other processes have the shared memory that can be promoted. What is resident and this process has not touched, its children populated.
fn others_have_it(process: Process, heat: &Heat, children: bool) -> anyhow::Result<bool> {
    if children && heat.promotable_here(&BTreeSet::new()) > heat.rss {
        return Ok(true);
    }
    let promotable = |mapping: &&Mapping| mapping.shared.is_some() && mapping.obstacle.is_none();
    let starts: BTreeSet<Address> =
        heat.mappings.iter().filter(promotable).map(|mapping| mapping.range.start).collect();
    let is_theirs =
        |mapping: &SmapsMapping| starts.contains(&mapping.line.range.start) && mapping.proportional < mapping.resident;
    Ok(smaps::read(&Root::host(), process.pid)?.iter().any(is_theirs))
}

/// `processes`: the program's own that are known to.
fn is_shared(pid: u32, processes: u64) -> anyhow::Error {
    let who = if processes > 1 { format!("{processes} processes") } else { "several processes".to_owned() };
    anyhow!(
        "{who} share the memory of process {pid} that would pay, and the kernel does not split huge pages that several map, so it cannot be \
         tried by turns; nothing was changed. `hugepilot promote {pid} --children` promotes it until its processes restart; compare what the \
         program does before and after"
    )
}

/// Promotes one region and splits it again. Errors: the kernel leaves it huge, as it does where several processes map the same memory.
pub(super) fn ensure_splits(pilot: &mut Pilot<'_>, process: Process, round: &Round) -> anyhow::Result<()> {
    let Some(region) = round.plan.promotions().next().map(|decision| decision.start) else { return Ok(()) };
    let pid = process.pid;
    if round.family.processes > 1 && round.plan.promotions().all(|decision| round.heat.is_shared(decision.start)) {
        return Err(is_shared(pid, round.family.processes));
    }
    let mut one = pilot.plan_again(process, round)?;
    one.plan.decisions.retain(|decision| decision.start == region);
    pilot.act(process, &one, &mut |_| ())?;
    let rested = pilot.stop.sleep_until(Instant::now() + USED_AGAIN);
    // Also after a signal.
    pilot.give_back(process, &[region], &Stop::default(), &mut |_| ());
    rested?;
    let heat = pilot.world.survey(process)?;
    if heat.regions.iter().any(|found| found.start == region && found.huge) {
        bail!(
            "the kernel does not split the huge page at {region} again, as where several processes map the same memory, so the memory of process {pid} \
             cannot be tried by turns; these 2 MiB stay huge. `hugepilot promote {pid} --children` promotes it for good; compare what the program does before and after"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use heat::samples::{MEMFD, heat_of, huge, region};
    use heat::{Obstacle, Region};

    use super::*;

    fn heat(regions: Vec<Region>, is_shared: bool) -> Heat {
        let mut heat = heat_of(regions);
        heat.mappings[0].shared = is_shared.then_some(MEMFD);
        // Private memory.
        heat.mappings.push(Mapping { shared: None, ..heat.mappings[0].clone() });
        heat
    }

    #[test]
    fn who_has_only_shared_memory_is_told_before_it_is_observed() {
        let private = |number| Region { mapping: Some(1), ..region(number, 0.0, 0) };
        let is_shared = |regions| Promotable::of(&heat(regions, true)).is_shared();
        let all = || vec![region(0, 0.0, 0), Region::blank(heat::samples::at(1), Some(0))];
        assert!(is_shared(all()));
        assert!(is_shared(all().into_iter().chain((2..4).map(private)).collect()), "1,024 pages, which the TLB holds");
        assert!(!is_shared(all().into_iter().chain((2..5).map(private)).collect()), "they may pay");
        assert!(!is_shared(all().into_iter().chain([huge(2, 0.0)]).collect()), "what was promoted may split");
        assert!(!Promotable::of(&heat(all(), false)).is_shared());
    }

    #[test]
    fn who_has_nothing_to_promote_is_told() {
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(0, 0.0, 0) };
        let found = Promotable::of(&heat(vec![stack, region(1, 0.0, 500)], false));
        assert_eq!((found.private_pages, found.shared, found.huge), (12, 0, 0));
    }
}
