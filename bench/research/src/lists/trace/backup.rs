//! A backup over a database: a large tree is read once, front to back, while a database reads and writes buffers that are page cache.
//!
//! Owns: the backup and the database. Never touches: when the disk writes what.
//!
//! The backup's pages are used once each; whatever room they are given is taken from the database.

use anyhow::Result;
use hugepilot_bench::workload::{Popularity, ScrambledZipfian};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::event::{Layout, TICKS_PER_SECOND, TickRate, Trace, TraceEvent, TraceSetup};
use super::resident::Resident;
use crate::lists::pages::Class;

/// The database's files, as a share of memory.
const DATABASE: f64 = 0.6;
/// Reads and writes of its buffers. An assumption.
const USES_PER_SECOND: f64 = 10_000.0;
/// One in so many writes.
const READS_PER_WRITE: u32 = 10;

/// The whole trace.
pub struct Backup {
    layout: Layout,
    first_buffer: u32,
    popularity: ScrambledZipfian,
    uses: TickRate,
    reads: TickRate,
    program: Resident,
    random: Xoshiro256PlusPlus,
}

impl Backup {
    /// The database's program holds half of what resident programs do elsewhere.
    pub fn new(setup: &TraceSetup) -> Self {
        let mut layout = Layout::default();
        let data = setup.pages(setup.memory.share(setup.resident / 2.0));
        let program = Resident::add(&mut layout, Class::Data, data, 0.2, 1);
        let buffers = setup.pages(setup.memory.share(DATABASE));
        let first_buffer = layout.add(Class::Cache, buffers, 0);
        Self {
            layout,
            first_buffer,
            popularity: ScrambledZipfian::of(Popularity::Items, u64::from(buffers)),
            uses: TickRate::per_tick(USES_PER_SECOND / f64::from(TICKS_PER_SECOND)),
            reads: TickRate::per_tick(setup.pages_per_tick()),
            program,
            random: Xoshiro256PlusPlus::seed_from_u64(setup.seed),
        }
    }
}

impl Trace for Backup {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn description(&self) -> String {
        format!(
            "a backup reads a large tree once, beside a database with a zipfian over files of {DATABASE} of memory, all page cache"
        )
    }

    fn tick(&mut self, events: &mut Vec<TraceEvent>) -> Result<()> {
        events.clear();
        self.program.tick(&mut self.random, events);
        for _ in 0..self.uses.next() {
            let page = self.first_buffer + self.popularity.next(&mut self.random) as u32;
            events.push(TraceEvent::Use { page, write: self.random.random_range(0..=READS_PER_WRITE) == 0 });
        }
        events.extend((0..self.reads.next()).map(|_| TraceEvent::Read));
        Ok(())
    }
}
