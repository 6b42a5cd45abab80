//! Page faults by region, counted for a while by the eBPF programs in `bpf/page_faults.bpf.c`.
//!
//! Owns: loading and attaching them, and reading their counts. Never touches: the processes.
//!
//! *Cost*: about 0.1 us for each page fault of the machine, only while counting, and 4 us for each process that is named. *Bias*: a region is
//! identified by its address, so only processes that map the memory at the same address count, as forked ones do.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Instant;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use heat::Heat;
use heat::units::Address;

use crate::named::{self, ITSELF, NamedProcesses};
use crate::object;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page_faults.bpf.o"));
// bpf/page_faults.h
const REGION_BITS: u32 = 21;

/// Counts page faults, for one group of processes at a time.
#[derive(Debug, Default)]
pub struct Faults {
    /// None until first needed, and where the kernel has no such tracepoints or refuses eBPF.
    programs: Option<Programs>,
    /// Whether loading was tried.
    is_tried: bool,
}

#[derive(Debug)]
struct Programs {
    object: Object,
    named: NamedProcesses,
    faults: MapHandle,
    /// The number of this count, from 1.
    number: NonZeroU32,
    /// The programs run as long as these live.
    links: Vec<Link>,
    since: Instant,
}

/// Whose page faults are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of the named processes.
    Theirs,
    /// Also those of their children. A child that begins during the count touches each region for the first time once, and huge pages do not save
    /// that page fault; so also name the children that already exist.
    AndTheirChildren,
}

/// Page faults a second, by the start of the region.
pub type FaultRates = BTreeMap<Address, f32>;

impl Faults {
    /// Begins to count the page faults of these processes, from 0.
    pub fn begin(&mut self, processes: impl Iterator<Item = u32>, whose: Whose) {
        if !std::mem::replace(&mut self.is_tried, true) {
            self.programs = said(Programs::load());
        }
        if let Some(programs) = &mut self.programs {
            said(programs.begin(processes, whose));
        }
    }

    /// Stops counting; returns page faults a second since it began, or none where that cannot be told.
    pub fn end(&mut self) -> FaultRates {
        self.programs.as_mut().and_then(|programs| said(programs.end())).unwrap_or_default()
    }
}

impl Programs {
    fn load() -> libbpf_rs::Result<Self> {
        let object = object::load("hugepilot_fault", PROGRAM)?;
        let (named, faults) = (NamedProcesses::of(&object)?, object::map(&object, "faults")?);
        Ok(Self { object, named, faults, number: NonZeroU32::MIN, links: Vec::new(), since: Instant::now() })
    }

    fn begin(&mut self, processes: impl Iterator<Item = u32>, whose: Whose) -> libbpf_rs::Result<()> {
        self.links.clear();
        self.named.clear()?;
        object::clear(&self.faults)?;
        self.number = self.number.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let number = if whose == Whose::Theirs { ITSELF } else { self.number.get() };
        self.named.name(&self.object, processes, number)?;
        for program in named::counting(&mut self.object) {
            self.links.push(program.attach()?);
        }
        self.since = Instant::now();
        Ok(())
    }

    fn end(&mut self) -> libbpf_rs::Result<FaultRates> {
        let seconds = self.since.elapsed().as_secs_f64();
        if self.links.is_empty() || seconds <= 0.0 {
            return Ok(FaultRates::new());
        }
        self.links.clear();
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
        let rate = |key: Vec<u8>| {
            let count = self.faults.lookup(&key, MapFlags::ANY).ok().flatten()?;
            Some((Address(number(&key)? << REGION_BITS), (number(&count)? as f64 / seconds) as f32))
        };
        Ok(self.faults.keys().filter_map(rate).collect())
    }
}

/// Stores those that a huge page would save: faults on populated shared memory, which one fault maps completely.
pub fn note(rates: &FaultRates, heat: &mut Heat) {
    let Heat { regions, mappings, .. } = heat;
    let is_shared = |mapping: Option<usize>| mapping.is_some_and(|mapping| mappings[mapping].shared.is_some());
    for region in regions.iter_mut().filter(|region| !region.huge && is_shared(region.mapping_index())) {
        region.faults_per_second = rates.get(&region.start).copied().unwrap_or(0.0);
    }
}

/// Without page faults there is less to decide on; nothing else is lost.
fn said<T>(result: libbpf_rs::Result<T>) -> Option<T> {
    result.inspect_err(|error| tracing::debug!("page faults are not counted: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::samples::{MEMFD, at, heat_of, huge, region};

    #[test]
    fn faults_on_shared_memory_that_is_not_huge_yet_count() {
        let rates = (0..3).map(|number| (at(number), 5.0)).collect();
        let noted = |shared| {
            let mut heat = heat_of(vec![region(0, 1.0, 0), huge(1, 1.0), region(3, 1.0, 0)]);
            heat.mappings[0].shared = shared;
            note(&rates, &mut heat);
            heat.regions.iter().map(|region| region.faults_per_second).collect::<Vec<_>>()
        };
        assert_eq!(noted(Some(MEMFD)), [5.0, 0.0, 0.0]);
        assert_eq!(noted(None), [0.0; 3]);
    }
}
