//! The events in a tick of a trace, and the setup of a trace.
//!
//! Owns: events, their pages, rates. Never touches: which trace has which of them.

use anyhow::Result;
use heat::units::Bytes;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::super::pages::{Class, PerClass};

/// Ticks in a second, if the disk only writes what the trace writes.
pub const TICKS_PER_SECOND: u32 = 16;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A program writes a new page of a file that is not read again.
    Write {
        /// The disk writes the files of one writer together.
        writer: u32,
    },
    /// A program reads a page of a file that is not read again.
    Read,
    /// A page with a number is used: by the processor if it is mapped, otherwise by a system call.
    Use {
        /// Its number.
        page: u32,
        /// Whether it is modified.
        write: bool,
    },
}

/// A part of a trace that produces events.
pub trait EventSource {
    /// Adds the events of the next tick. Errors: a recording cannot be read.
    fn tick(&mut self, random: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()>;
}

/// A trace.
pub struct Trace {
    /// The pages with numbers.
    pub layout: Layout,
    /// A description.
    pub description: String,
    sources: Vec<Box<dyn EventSource>>,
    random: Xoshiro256PlusPlus,
}

/// Pages with numbers from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    classes: Vec<Class>,
    /// How many processes map a page of each class.
    pub mappers: PerClass<u32>,
}

/// The setup for which a trace is made.
#[derive(Clone, Copy, Debug)]
pub struct TraceSetup {
    /// The machine's memory.
    pub memory: Bytes,
    /// Bytes in a page of the model.
    pub page: Bytes,
    /// The disk's sequential speed, in bytes a second.
    pub disk: Bytes,
    /// The share of memory that resident programs take.
    pub resident: f64,
    /// The seed of random numbers.
    pub seed: u64,
}

impl Trace {
    /// A trace of these sources, whose pages are in the layout.
    pub fn new(setup: &TraceSetup, layout: Layout, description: String, sources: Vec<Box<dyn EventSource>>) -> Self {
        Self { layout, description, sources, random: Xoshiro256PlusPlus::seed_from_u64(setup.seed) }
    }

    /// Replaces the contents of the buffer with the events of the next tick. Errors: a recording cannot be read.
    pub fn tick(&mut self, events: &mut Vec<TraceEvent>) -> Result<()> {
        events.clear();
        self.sources.iter_mut().try_for_each(|source| source.tick(&mut self.random, events))
    }
}

impl Layout {
    /// The number of pages.
    pub fn pages(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The class of a page.
    pub fn class(&self, page: u32) -> Class {
        self.classes[page as usize]
    }

    /// Adds pages of a class that this many processes map; returns the number of the first.
    pub fn add(&mut self, class: Class, pages: u32, mappers: u32) -> u32 {
        let first = self.pages();
        self.classes.resize(first as usize + pages as usize, class);
        self.mappers[class as usize] = mappers;
        first
    }
}

impl TraceSetup {
    /// Model pages in this many bytes; at least one.
    pub fn pages(&self, bytes: Bytes) -> u32 {
        u32::try_from(bytes.0 / self.page.0).unwrap_or(u32::MAX).max(1)
    }

    /// The rate of pages that the disk reads or writes.
    pub fn disk_rate(&self) -> TickRate {
        TickRate::per_second(self.disk.0 as f64 / self.page.0 as f64)
    }
}

/// A rate per tick that need not be a whole number.
#[derive(Clone, Copy, Debug)]
pub struct TickRate {
    per_tick: f64,
    owed: f64,
}

impl TickRate {
    /// A rate without a remainder yet.
    pub fn per_second(per_second: f64) -> Self {
        Self { per_tick: per_second / f64::from(TICKS_PER_SECOND), owed: 0.0 }
    }

    /// The number for the next tick.
    pub fn next(&mut self) -> u32 {
        self.owed += self.per_tick;
        let whole = self.owed.floor();
        self.owed -= whole;
        whole as u32
    }
}
