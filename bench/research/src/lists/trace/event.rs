//! What happens in a tick of a trace, and what a trace is made for.
//!
//! Owns: events, the pages that they are about, rates. Never touches: which trace has which of them.

use anyhow::Result;
use heat::units::Bytes;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::super::pages::{Class, PerClass};

/// Ticks in a second of a disk that only writes what the trace writes.
pub const TICKS_PER_SECOND: u32 = 16;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A program writes a new page of a file that nobody reads again.
    Write {
        /// Whose files the disk writes together.
        writer: u32,
    },
    /// A program reads a page of a file that nobody reads again.
    Read,
    /// A page that has a number is used: by the processor where it is mapped, else by a system call.
    Use {
        /// Its number.
        page: u32,
        /// Whether it is changed.
        write: bool,
    },
}

/// Whatever of a trace makes something happen.
pub trait EventSource {
    /// Adds what happens in the next tick. Errors: a recording cannot be read.
    fn tick(&mut self, random: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()>;
}

/// What happens.
pub struct Trace {
    /// The pages with numbers.
    pub layout: Layout,
    /// In words.
    pub description: String,
    sources: Vec<Box<dyn EventSource>>,
    random: Xoshiro256PlusPlus,
}

/// Pages with numbers, from 0 on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    classes: Vec<Class>,
    /// How many processes map a page of each class.
    pub mappers: PerClass<u32>,
}

/// What a trace is made for.
#[derive(Clone, Copy, Debug)]
pub struct TraceSetup {
    /// The machine's memory.
    pub memory: Bytes,
    /// Bytes in a page of the model.
    pub page: Bytes,
    /// Bytes a second that the disk reads or writes in one go.
    pub disk: Bytes,
    /// The share of memory that resident programs take.
    pub resident: f64,
    /// Where random numbers start.
    pub seed: u64,
}

impl Trace {
    /// Of these sources, whose pages the layout has.
    pub fn new(setup: &TraceSetup, layout: Layout, description: String, sources: Vec<Box<dyn EventSource>>) -> Self {
        Self { layout, description, sources, random: Xoshiro256PlusPlus::seed_from_u64(setup.seed) }
    }

    /// Replaces what is in the buffer by the events of the next tick. Errors: a recording cannot be read.
    pub fn tick(&mut self, events: &mut Vec<TraceEvent>) -> Result<()> {
        events.clear();
        self.sources.iter_mut().try_for_each(|source| source.tick(&mut self.random, events))
    }
}

impl Layout {
    /// How many there are.
    pub fn pages(&self) -> u32 {
        self.classes.len() as u32
    }

    /// What a page is used for.
    pub fn class(&self, page: u32) -> Class {
        self.classes[page as usize]
    }

    /// Adds pages of a class that so many processes map; returns the number of the first.
    pub fn add(&mut self, class: Class, pages: u32, mappers: u32) -> u32 {
        let first = self.pages();
        self.classes.resize(first as usize + pages as usize, class);
        self.mappers[class as usize] = mappers;
        first
    }
}

impl TraceSetup {
    /// Pages in so many bytes; at least one.
    pub fn pages(&self, bytes: Bytes) -> u32 {
        u32::try_from(bytes.0 / self.page.0).unwrap_or(u32::MAX).max(1)
    }

    /// Pages that the disk reads or writes.
    pub fn disk_rate(&self) -> TickRate {
        TickRate::per_second(self.disk.0 as f64 / self.page.0 as f64)
    }
}

/// So many a tick where that is no whole number.
#[derive(Clone, Copy, Debug)]
pub struct TickRate {
    per_tick: f64,
    owed: f64,
}

impl TickRate {
    /// Nothing is owed yet.
    pub fn per_second(per_second: f64) -> Self {
        Self { per_tick: per_second / f64::from(TICKS_PER_SECOND), owed: 0.0 }
    }

    /// Those of the next tick.
    pub fn next(&mut self) -> u32 {
        self.owed += self.per_tick;
        let whole = self.owed.floor();
        self.owed -= whole;
        whole as u32
    }
}
