//! Traces: which pages are used, tick by tick. They are the same for every policy, because a policy cannot change them.
//!
//! Owns: the list of traces, and their names on the command line. Never touches: memory; a trace does not know whether a page is in it.
//!
//! A tick's events are written to a reused buffer, so a trace of any length takes only the memory of its longest tick. Random numbers come from a
//! seed; the same seed gives the same trace.

mod database;
mod event;
mod recorded;
mod resident;
#[cfg(test)]
mod tests;
mod writers;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;

pub use event::{Layout, TICKS_PER_SECOND, Trace, TraceEvent, TraceSetup};

/// The choice of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceChoice {
    /// The paper's: 1,024 processes write files of 100 KB to 5 MB beside resident programs.
    Writers,
    /// The same, with programs in 85 % of memory: Linux 2.6 ages mapped pages only if they take 80 % (with its default swappiness).
    Crowded,
    /// A backup reads a large tree once, beside a database whose buffers are page cache.
    Backup,
    /// A database in shared memory that many processes map, beside writers.
    Shared,
    /// A recording of `hugepilot record`, beside writers.
    Recorded(PathBuf),
}

/// The share of memory that programs take in [`TraceChoice::Crowded`].
const CROWDED: f64 = 0.85;
/// The traces that need no file.
pub const BUILT_IN: [TraceChoice; 4] =
    [TraceChoice::Writers, TraceChoice::Crowded, TraceChoice::Backup, TraceChoice::Shared];

impl TraceChoice {
    /// Opens it. Errors: a recording cannot be read.
    pub fn open(&self, setup: &TraceSetup) -> Result<Trace> {
        Ok(match self {
            TraceChoice::Writers => writers::trace(setup),
            TraceChoice::Crowded => writers::trace(&TraceSetup { resident: CROWDED, ..*setup }),
            TraceChoice::Backup => database::under_backup(setup),
            TraceChoice::Shared => database::in_shared_memory(setup),
            TraceChoice::Recorded(path) => recorded::trace(path, setup)?,
        })
    }
}

impl fmt::Display for TraceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceChoice::Writers => f.write_str("writers"),
            TraceChoice::Crowded => f.write_str("crowded"),
            TraceChoice::Backup => f.write_str("backup"),
            TraceChoice::Shared => f.write_str("shared"),
            TraceChoice::Recorded(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for TraceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let built_in = BUILT_IN.into_iter().find(|choice| choice.to_string() == text);
        let recording = || Some(PathBuf::from(text)).filter(|path| path.is_file()).map(TraceChoice::Recorded);
        built_in.or_else(recording).ok_or_else(|| {
            format!("'{text}' is no trace: there are writers, crowded, backup, shared, or a file that `hugepilot record -o FILE PID` made")
        })
    }
}
