//! A simulated program: its memory, and how that changes.
//!
//! Owns: regions and the truth about them. Never touches: the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use heat::samples::{MEMFD, at};
use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, Nanos};
use heat::{Cost, Growth, Heat, Mapping, Meaning, Object, Obstacle, PageSet, Region, Shared, TrackerKind};
use kernel::process::ProcessStatus;
use kernel::target::Process;
use launch::manager::MemoryManager;
use pilot::scope::PilotMode;

/// Base pages of a region.
pub const PAGES: u16 = 512;
/// Regions of shared memory are numbered from here.
pub const SHARED_FROM: u64 = 1 << 16;

/// One aligned 2 MiB.
#[derive(Clone, Debug)]
pub struct Area {
    /// Base pages present.
    pub present: u16,
    /// Of those, pages that contain only zeros.
    pub empty: u16,
    /// Page walks a second while it is on base pages; 0 if nothing uses it.
    pub walks: f64,
    /// Since when its use has not changed.
    pub as_is_since: Duration,
    /// Whether a huge page maps it.
    pub huge: bool,
    /// Memory that our promotion of it took, while it is huge.
    pub growth: u16,
    /// Whether hugepilot made it huge.
    pub ours: bool,
    /// What prevents promotion.
    pub obstacle: Option<Obstacle>,
}

/// One process.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its permanent identity.
    pub process: Process,
    /// Children of one process with the same name are alike.
    pub parent: u32,
    /// Its name.
    pub name: String,
    /// Changes on exec.
    pub address_space: u64,
    /// By number.
    pub areas: BTreeMap<u64, Area>,
    /// How many processors it keeps busy.
    pub busy: f64,
    /// The shared object that it maps, if any.
    pub object: Option<u64>,
    /// When it started.
    pub born: Duration,
    /// When it was last observed, or could not have been.
    pub observed: Duration,
    /// Its resident memory then, which a plan may rely on.
    pub rss_at_scan: u64,
    /// The time of its next change.
    pub next_change: Duration,
    /// Whether it called `prctl(PR_SET_THP_DISABLE)`.
    pub huge_pages_off: bool,
    /// The allocators in its own file.
    pub linked_in: BTreeSet<MemoryManager>,
}

impl Area {
    fn new(rng: &mut Rng, now: Duration) -> Self {
        let is_dense = rng.u8(..4) > 0;
        let present = if is_dense { PAGES - rng.u16(..8) } else { rng.u16(1..PAGES) };
        let empty = if rng.bool() { 0 } else { rng.u16(..=present / 2) };
        let walks = if rng.u8(..3) == 0 { 0.0 } else { 10f64.powf(rng.f64() * 4.0 + 1.0) };
        let obstacle = match rng.u8(..40) {
            0 => Some(Obstacle::Stack),
            1 => Some(Obstacle::NoHugePage),
            2 => Some(Obstacle::File),
            3 => Some(Obstacle::Split),
            _ => None,
        };
        Self { present, empty, walks, as_is_since: now, huge: false, growth: 0, ours: false, obstacle }
    }

    /// Whether our promotion took memory that is still there.
    pub fn grown(&self) -> u64 {
        if self.ours && self.huge { u64::from(self.growth) * BASE_PAGE } else { 0 }
    }

    fn region(&self, number: u64, mapping: u32, tells_use: bool) -> Region {
        let mut present = PageSet::NONE;
        (0..usize::from(self.present)).for_each(|page| present.insert(page));
        let used = self.walks > 0.0;
        let walked = if used { present.clone() } else { PageSet::NONE };
        Region {
            obstacle: self.obstacle,
            huge: self.huge,
            walked_in_window: walked.len() as u16,
            walked,
            present,
            walks_per_second: if self.huge { self.walks / 100.0 } else { self.walks },
            growth: Growth { unpopulated: PAGES - self.present, ..Growth::default() },
            at_most_accesses_per_second: (self.huge && tells_use).then_some(if used { 1e6 } else { 0.0 }),
            ..Region::blank(at(number), Some(mapping))
        }
    }
}

impl Program {
    /// A program of about this many regions.
    pub fn new(process: Process, size: u64, rng: &mut Rng, now: Duration) -> Self {
        let areas = (0..rng.u64(1..=size.max(1))).map(|number| (number, Area::new(rng, now))).collect();
        let mut program = Self {
            process,
            parent: 1,
            name: format!("program-{}", rng.u8(..6)),
            address_space: rng.u64(1..),
            areas,
            busy: 0.05 + 2.0 * rng.f64(),
            object: None,
            born: now,
            observed: now,
            rss_at_scan: 0,
            next_change: now,
            huge_pages_off: rng.u8(..30) == 0,
            linked_in: BTreeSet::new(),
        };
        program.plan_change(rng, now);
        program
    }

    /// A program whose memory is all hot and dense, forever.
    pub fn steady(process: Process, regions: u64, now: Duration) -> Self {
        let area = Area {
            present: PAGES,
            empty: 0,
            walks: 1e5,
            as_is_since: now,
            huge: false,
            growth: 0,
            ours: false,
            obstacle: None,
        };
        Self {
            process,
            parent: 1,
            name: "steady".to_owned(),
            address_space: u64::from(process.pid),
            areas: (0..regions).map(|number| (number, area.clone())).collect(),
            busy: 1.0,
            object: None,
            born: now,
            observed: now,
            rss_at_scan: 0,
            next_change: Duration::MAX,
            huge_pages_off: false,
            linked_in: BTreeSet::new(),
        }
    }

    /// One of several programs that map the same object of this many regions.
    pub fn sharing(process: Process, parent: u32, object: u64, regions: u64, rng: &mut Rng, now: Duration) -> Self {
        let mut program = Self { parent, name: "backend".to_owned(), ..Self::steady(process, 1, now) };
        let area = program.areas[&0].clone();
        let touched =
            (0..regions).map(|number| (SHARED_FROM + number, Area { walks: 1e3 * rng.f64(), ..area.clone() }));
        program.areas = touched.collect();
        (program.object, program.busy) = (Some(object), 0.2);
        program
    }

    fn plan_change(&mut self, rng: &mut Rng, now: Duration) {
        self.next_change = now + Duration::from_millis(rng.u64(500..120_000));
    }

    /// Changes as programs do: grows, shrinks, moves its hot set, goes quiet, calls exec.
    pub fn change(&mut self, rng: &mut Rng, now: Duration) {
        match rng.u8(..12) {
            0..=2 => {
                let (first, count) = (self.areas.last_key_value().map_or(0, |(last, _)| last + 1), rng.u64(1..16));
                self.areas.extend((first..first + count).map(|number| (number, Area::new(rng, now))));
                // Shared memory begins at half a TiB.
                self.areas.retain(|&number, _| number < SHARED_FROM);
            }
            3 => self.areas.retain(|_, _| rng.u8(..4) > 0),
            4..=6 => {
                for area in self.areas.values_mut() {
                    let is_moved = rng.bool();
                    let walks = if is_moved { Area::new(rng, now).walks } else { area.walks };
                    (area.walks, area.as_is_since) = (walks, if is_moved { now } else { area.as_is_since });
                }
            }
            7 => {
                for area in self.areas.values_mut() {
                    (area.walks, area.as_is_since) = (0.0, now);
                }
            }
            8 => self.exec(rng, now),
            // The kernel itself puts some on huge pages, and splits others.
            9 => {
                for area in self.areas.values_mut().filter(|area| area.obstacle.is_none() && rng.u8(..8) == 0) {
                    (area.huge, area.ours, area.growth) = (!area.huge, false, 0);
                    (area.present, area.as_is_since) = (PAGES, now);
                }
            }
            10 => self.huge_pages_off = rng.u8(..4) == 0,
            _ => self.busy = 0.01 + 2.0 * rng.f64(),
        }
        self.plan_change(rng, now);
    }

    fn exec(&mut self, rng: &mut Rng, now: Duration) {
        self.address_space = rng.u64(1..);
        self.areas = (0..rng.u64(1..40)).map(|number| (number, Area::new(rng, now))).collect();
    }

    /// What is to be done to it: one kind of program is a virtual machine.
    pub fn mode(&self) -> PilotMode {
        if self.name == "program-0" { PilotMode::Guest } else { PilotMode::Promote }
    }

    /// Resident memory.
    pub fn rss(&self) -> u64 {
        self.areas.values().map(|area| u64::from(area.present) * BASE_PAGE).sum()
    }

    /// Memory that promotion took and that is still on huge pages.
    pub fn grown(&self) -> u64 {
        self.areas.values().map(Area::grown).sum()
    }

    /// Regions that are huge because of us.
    pub fn held(&self) -> u64 {
        self.held_areas().count() as u64
    }

    /// Their numbers.
    pub fn held_areas(&self) -> impl Iterator<Item = u64> {
        self.areas.iter().filter(|(_, area)| area.ours && area.huge).map(|(&number, _)| number)
    }

    /// The region that starts there.
    pub fn area_at(&mut self, start: Address) -> Option<&mut Area> {
        self.areas.get_mut(&((start.0 - at(0).0) >> 21))
    }

    /// What the kernel reports about it.
    pub fn status(&self) -> ProcessStatus {
        let rss = Bytes(self.rss());
        let (shared, private) = if self.object.is_some() { (rss, Bytes(0)) } else { (Bytes(0), rss) };
        let on_base_pages = self.areas.values().filter(|area| !area.huge).count() as u64;
        ProcessStatus {
            name: self.name.clone(),
            state: 'S',
            tgid: self.process.pid,
            parent: self.parent,
            vm_rss: rss,
            rss_shmem: shared,
            rss_anon: private,
            vm_pte: Bytes(on_base_pages * BASE_PAGE),
            ..ProcessStatus::default()
        }
    }

    /// What a tracker measures of it.
    pub fn heat(&self, tells_use: bool, window: Nanos) -> Heat {
        let end = self.areas.last_key_value().map_or(at(0), |(number, _)| at(number + 1));
        let shared = self.object.map(|inode| Shared { object: Object { inode, ..MEMFD.object }, offset: 0 });
        let start = self.areas.first_key_value().map_or(at(0), |(number, _)| at(*number));
        let mapping = Mapping {
            range: AddressRange { start, end },
            // Guest memory, whether or not the program is a virtual machine.
            name: "/memfd:memory-backend-memfd (deleted)".to_owned(),
            shared,
            ..Mapping::default()
        };
        let regions: Vec<Region> = self.areas.iter().map(|(&number, area)| area.region(number, 0, tells_use)).collect();
        Heat {
            address_space: Some(self.address_space),
            window,
            busy_cpus: Some(self.busy),
            rss: Bytes(self.rss()),
            mappings: vec![mapping],
            cost: Cost { kernel: Nanos(0), program: Nanos(regions.len() as u64 * 10_000), ..Cost::default() },
            regions,
            ..Heat::blank(self.process.pid, TrackerKind::PageWalk, Meaning::Walked)
        }
    }
}
