//! Shared memory beside writers: the buffers of a database that 256 processes map, and files that are written.
//!
//! Owns: the database. Never touches: when the disk writes what.
//!
//! Whoever wants to know whether a page of shared memory was used has to read the page tables of all who map it.

use anyhow::Result;
use hugepilot_bench::workload::{Popularity, ScrambledZipfian};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::event::{Layout, TICKS_PER_SECOND, TickRate, Trace, TraceEvent, TraceSetup};
use super::resident::Resident;
use super::writers::Files;
use crate::lists::pages::Class;

/// The shared memory, as a share of all.
const BUFFERS: f64 = 0.5;
const PROCESSES: u32 = 256;
/// An assumption.
const USES_PER_SECOND: f64 = 20_000.0;
const READS_PER_WRITE: u32 = 10;

/// The whole trace.
pub struct SharedBuffers {
    layout: Layout,
    buffers: Resident,
    first_buffer: u32,
    popularity: ScrambledZipfian,
    uses: TickRate,
    program: Resident,
    files: Files,
    random: Xoshiro256PlusPlus,
}

impl SharedBuffers {
    /// Each process also has memory of its own, a quarter of what resident programs have elsewhere.
    pub fn new(setup: &TraceSetup) -> Self {
        let mut layout = Layout::default();
        let buffers = setup.pages(setup.memory.share(BUFFERS));
        let first_buffer = layout.pages();
        let shared = Resident::add(&mut layout, Class::Shared, buffers, 0.0, PROCESSES);
        let data = setup.pages(setup.memory.share(setup.resident / 4.0));
        let program = Resident::add(&mut layout, Class::Data, data, 0.2, 1);
        let files = Files::add(&mut layout, setup, setup.pages_per_tick());
        Self {
            layout,
            buffers: shared,
            first_buffer,
            popularity: ScrambledZipfian::of(Popularity::Items, u64::from(buffers)),
            uses: TickRate::per_tick(USES_PER_SECOND / f64::from(TICKS_PER_SECOND)),
            program,
            files,
            random: Xoshiro256PlusPlus::seed_from_u64(setup.seed),
        }
    }
}

impl Trace for SharedBuffers {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn description(&self) -> String {
        format!("{PROCESSES} processes share half of memory, with a zipfian over it, beside 1024 writers of files")
    }

    fn tick(&mut self, events: &mut Vec<TraceEvent>) -> Result<()> {
        events.clear();
        self.buffers.tick(&mut self.random, events);
        self.program.tick(&mut self.random, events);
        for _ in 0..self.uses.next() {
            let page = self.first_buffer + self.popularity.next(&mut self.random) as u32;
            events.push(TraceEvent::Use { page, write: self.random.random_range(0..=READS_PER_WRITE) == 0 });
        }
        self.files.tick(&mut self.random, events);
        Ok(())
    }
}
