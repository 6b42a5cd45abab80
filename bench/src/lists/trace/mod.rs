//! Traces: who uses which page, tick by tick. The same for every policy, because nothing that a policy does can change them.
//!
//! Owns: what happens in a tick, and the kinds of pages there are. Never touches: memory; whether a page is in it is not known here.
//!
//! A tick's events are written to a buffer that is used again, so that a trace of any length takes the memory of its longest tick.
//! Random numbers come from a seed; the same seed gives the same trace.

mod backup;
mod recorded;
mod resident;
mod shared;
#[cfg(test)]
mod tests;
mod writers;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use heat::units::Bytes;

use super::pages::{Class, PerClass};

/// Ticks in a second of a disk that only writes what the trace writes.
pub const TICKS_PER_SECOND: u32 = 16;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program writes a new page of a file that nobody looks at again.
    Write {
        /// Whose files the disk writes together.
        writer: u32,
    },
    /// A program reads a page of a file that nobody looks at again.
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
    fn tick(&mut self, events: &mut Vec<Event>) -> Result<()>;
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
pub struct Setup {
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

/// A trace, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The paper's: 1,024 processes write files of 100 KB to 5 MB beside resident programs.
    Writers,
    /// The same, with programs in 85 % of memory: Linux 2.6 ages mapped pages only where they have 80 % (with its usual swappiness).
    Crowded,
    /// A backup reads a large tree once, beside a database whose buffers are page cache.
    Backup,
    /// A database in shared memory that many processes map, beside writers.
    Shared,
    /// A recording of `hugepilot record`, beside writers.
    Recorded(PathBuf),
}

/// The share of memory that programs take in [`Choice::Crowded`].
const CROWDED: f64 = 0.85;
/// The traces that need no file.
pub const BUILT_IN: [Choice; 4] = [Choice::Writers, Choice::Crowded, Choice::Backup, Choice::Shared];

impl Choice {
    /// Opens it. Errors: a recording cannot be read.
    pub fn open(&self, setup: &Setup) -> Result<Box<dyn Trace>> {
        Ok(match self {
            Choice::Writers => Box::new(writers::Writers::new(setup)),
            Choice::Crowded => Box::new(writers::Writers::new(&Setup { resident: CROWDED, ..*setup })),
            Choice::Backup => Box::new(backup::Backup::new(setup)),
            Choice::Shared => Box::new(shared::Shared::new(setup)),
            Choice::Recorded(path) => Box::new(recorded::Recorded::open(path, setup)?),
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Writers => f.write_str("writers"),
            Choice::Crowded => f.write_str("crowded"),
            Choice::Backup => f.write_str("backup"),
            Choice::Shared => f.write_str("shared"),
            Choice::Recorded(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let built_in = BUILT_IN.into_iter().find(|choice| choice.to_string() == text);
        let recording = || Some(PathBuf::from(text)).filter(|path| path.is_file()).map(Choice::Recorded);
        built_in.or_else(recording).ok_or_else(|| {
            format!("'{text}' is no trace: there are writers, crowded, backup, shared, or a file that `hugepilot record -o FILE PID` made")
        })
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

impl Setup {
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
pub struct Rate {
    per_tick: f64,
    owed: f64,
}

impl Rate {
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
