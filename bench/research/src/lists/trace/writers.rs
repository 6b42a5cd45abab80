//! The paper's load: 1,024 processes, each writing one file of 100 KB to 5 MB after the other, as fast as the disk allows.
//!
//! Owns: the writers and their files. Never touches: the disk's order of writing.
//!
//! Beside them programs hold a share of memory: they use a hot part of it every second, the rest every ten minutes or so. Writers also touch the file
//! system's own buffers: a few with each file, repeatedly, which makes them the only cache that is used twice.

use anyhow::Result;
use heat::units::Bytes;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::event::{EventSource, Layout, TickRate, Trace, TraceEvent, TraceSetup};
use super::resident::Resident;
use crate::lists::pages::Class;

const WRITERS: u32 = 1024;
const FILE_BYTES: std::ops::RangeInclusive<u64> = 100 << 10..=5 << 20;
/// Inodes, directories and maps of free blocks that a file system of some hundred GB keeps touching. An assumption.
const BUFFERS: Bytes = Bytes(32 << 20);
/// The number of them touched for each file: directory, inode, map.
const BUFFERS_PER_FILE: u32 = 3;
/// The code that every process runs, and its data. An assumption.
const CODE: Bytes = Bytes(32 << 20);

/// The writers alone, which other traces have, too.
pub struct Files {
    /// The pages left to write of each writer's file.
    left: Vec<u32>,
    page: Bytes,
    writes: TickRate,
    buffers: u32,
    first_buffer: u32,
}

/// The whole trace; in its first ticks the programs start.
pub fn trace(setup: &TraceSetup) -> Trace {
    let mut layout = Layout::default();
    let code = setup.pages(CODE);
    let data = setup.pages(setup.memory.share(setup.resident)).saturating_sub(2 * code).max(1);
    let sources: Vec<Box<dyn EventSource>> = vec![
        Box::new(Resident::add(&mut layout, Class::Code, code, 0.5, WRITERS)),
        Box::new(Resident::add(&mut layout, Class::ReadOnly, code, 0.5, WRITERS)),
        Box::new(Resident::add(&mut layout, Class::Data, data, 0.2, 1)),
        Box::new(Files::add(&mut layout, setup)),
    ];
    let description = format!(
        "{WRITERS} processes write files of 100 KB to 5 MB, beside programs in {:.0} % of memory, of which a fifth is hot",
        setup.resident * 100.0
    );
    Trace::new(setup, layout, description, sources)
}

impl Files {
    /// Writers as fast as the disk allows; adds their file system's buffers to the layout.
    pub fn add(layout: &mut Layout, setup: &TraceSetup) -> Self {
        let buffers = setup.pages(BUFFERS);
        let first_buffer = layout.add(Class::Cache, buffers, 0);
        let left = vec![0; WRITERS as usize];
        Self { left, page: setup.page, writes: setup.disk_rate(), buffers, first_buffer }
    }
}

impl EventSource for Files {
    fn tick(&mut self, random: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()> {
        for _ in 0..self.writes.next() {
            let writer = random.random_range(0..WRITERS);
            let left = &mut self.left[writer as usize];
            if *left == 0 {
                *left = random.random_range(FILE_BYTES).div_ceil(self.page.0) as u32;
                for _ in 0..BUFFERS_PER_FILE {
                    let page = self.first_buffer + random.random_range(0..self.buffers);
                    events.push(TraceEvent::Use { page, write: true });
                }
            }
            *left -= 1;
            events.push(TraceEvent::Write { writer });
        }
        Ok(())
    }
}
