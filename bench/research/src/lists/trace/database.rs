//! A database whose buffers are page cache, under a backup; and one whose buffers are shared memory, beside writers.
//!
//! Owns: the database and the backup. Never touches: the disk's order of writing.
//!
//! The backup reads a large tree once, front to back: each of its pages is used once, and any space given to them is taken from the database. Finding
//! out whether a page of shared memory was used takes reading the page tables of all processes that map it.

use anyhow::Result;
use heat::units::Bytes;
use hugepilot_bench::workload::{Popularity, ScrambledZipfian};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::event::{EventSource, Layout, TickRate, Trace, TraceEvent, TraceSetup};
use super::resident::Resident;
use super::writers::Files;
use crate::lists::pages::Class;

/// The files of a database under backup, as a share of memory.
const FILES: f64 = 0.6;
/// Reads and writes of its buffers per second. An assumption.
const USES_OF_FILES: f64 = 10_000.0;
/// The shared memory of the other database, as a share of all memory.
const SHARED: f64 = 0.5;
const PROCESSES: u32 = 256;
/// Per second. An assumption.
const USES_OF_SHARED: f64 = 20_000.0;
/// The ratio of reads to writes.
const READS_PER_WRITE: u32 = 10;

/// Uses of buffers.
struct Database {
    first_buffer: u32,
    popularity: ScrambledZipfian,
    uses: TickRate,
}

/// Reads of files that are read only once.
struct Backup {
    reads: TickRate,
}

/// The database's program has half of the memory of resident programs in other traces.
pub fn under_backup(setup: &TraceSetup) -> Trace {
    let mut layout = Layout::default();
    let program = program(&mut layout, setup, 2.0);
    let buffers = setup.pages(setup.memory.share(FILES));
    let first_buffer = layout.add(Class::Cache, buffers, 0);
    let database = Database::new(first_buffer, buffers, USES_OF_FILES);
    let backup = Backup { reads: setup.disk_rate() };
    let description = format!(
        "a backup reads a large tree once, beside a database with a zipfian over files of {FILES} of memory, all page cache"
    );
    Trace::new(setup, layout, description, vec![Box::new(program), Box::new(database), Box::new(backup)])
}

/// Each process also has its own memory, in total a quarter of that of resident programs in other traces.
pub fn in_shared_memory(setup: &TraceSetup) -> Trace {
    let mut layout = Layout::default();
    let buffers = setup.pages(setup.memory.share(SHARED));
    let database = Database::new(layout.pages(), buffers, USES_OF_SHARED);
    let shared = Resident::add(&mut layout, Class::Shared, buffers, 0.0, PROCESSES);
    let program = program(&mut layout, setup, 4.0);
    let files = Files::add(&mut layout, setup);
    let description =
        format!("{PROCESSES} processes share half of memory, with a zipfian over it, beside 1024 writers of files");
    let sources: Vec<Box<dyn EventSource>> =
        vec![Box::new(shared), Box::new(program), Box::new(database), Box::new(files)];
    Trace::new(setup, layout, description, sources)
}

/// Memory of processes: that of resident programs in other traces, divided by `parts`.
fn program(layout: &mut Layout, setup: &TraceSetup, parts: f64) -> Resident {
    let data: Bytes = setup.memory.share(setup.resident / parts);
    Resident::add(layout, Class::Data, setup.pages(data), 0.2, 1)
}

impl Database {
    fn new(first_buffer: u32, buffers: u32, uses_per_second: f64) -> Self {
        let popularity = ScrambledZipfian::of(Popularity::Items, u64::from(buffers));
        Self { first_buffer, popularity, uses: TickRate::per_second(uses_per_second) }
    }
}

impl EventSource for Database {
    fn tick(&mut self, random: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()> {
        for _ in 0..self.uses.next() {
            let page = self.first_buffer + self.popularity.next(random) as u32;
            events.push(TraceEvent::Use { page, write: random.random_range(0..=READS_PER_WRITE) == 0 });
        }
        Ok(())
    }
}

impl EventSource for Backup {
    fn tick(&mut self, _: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()> {
        events.extend((0..self.reads.next()).map(|_| TraceEvent::Read));
        Ok(())
    }
}
