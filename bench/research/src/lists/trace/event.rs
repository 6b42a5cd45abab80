//! What happens in a tick of a trace, and what a trace is made for.
//!
//! Owns: events, the pages that they are about, rates. Never touches: which trace has which of them.

use anyhow::Result;
use heat::units::Bytes;

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

/// What happens.
pub trait Trace {
    /// The pages with numbers.
    fn layout(&self) -> &Layout;
    /// In words.
    fn description(&self) -> String;
    /// Replaces what is in the buffer by the events of the next tick.
    fn tick(&mut self, events: &mut Vec<TraceEvent>) -> Result<()>;
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

    /// Pages that the disk reads or writes in a tick.
    pub fn pages_per_tick(&self) -> f64 {
        self.disk.0 as f64 / self.page.0 as f64 / f64::from(TICKS_PER_SECOND)
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
    pub fn per_tick(per_tick: f64) -> Self {
        Self { per_tick, owed: 0.0 }
    }

    /// Those of the next tick.
    pub fn next(&mut self) -> u32 {
        self.owed += self.per_tick;
        let whole = self.owed.floor();
        self.owed -= whole;
        whole as u32
    }
}
