//! What all workloads have in common: how one is started, and what can be asked of it while it runs.
//!
//! Owns: this shape. Never touches: any workload.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use heat::units::{Address, Bytes};
use hugepilot_os::stop::Stop;

use super::progress::Progress;

/// Something that can be measured.
pub trait Workload {
    /// Its name in reports, with the pattern where it has one.
    fn name(&self) -> String;
    /// How it is set up, in words.
    fn description(&self) -> String;
    /// What it counts, in the plural.
    fn unit(&self) -> &'static str;
    /// How much memory it will take.
    fn memory_bytes(&self) -> u64;
    /// Roughly how long it takes to start and to end: where nothing else is said, to fill its memory.
    fn start_seconds(&self) -> f64 {
        0.5 + 0.7e-9 * self.memory_bytes() as f64
    }
    /// Starts the program, populates its memory and puts it under load.
    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>>;
}

/// What a client does with what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What it can.
    Converts,
    /// The same, with so much memory on huge pages at most.
    ConvertsWithin(Bytes),
    /// Nothing.
    KeepsAll,
}

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// As anybody would.
    AsItIs,
    /// With its own switch for huge pages.
    OwnSwitch,
    /// As one that links libhps, which it is not to use.
    IdleClient,
    /// As a client of the daemon at this socket, by libhps.
    Client { socket: &'a Path, role: Role },
    /// With these words before its command, which make its environment or become its parent.
    Launched { by: &'a [OsString] },
}

impl<'a> Start<'a> {
    /// The words before its command.
    pub fn launcher(self) -> &'a [OsString] {
        match self {
            Start::Launched { by } => by,
            _ => &[],
        }
    }
}

/// Longest time between two checks of a program that is left alone.
pub const POLL: Duration = Duration::from_millis(100);

/// Lets programs run on until then. Errors: one of them has ended, or somebody wants an end.
pub fn leave_alone(programs: &mut [&mut dyn Running], until: Instant, stop: &Stop) -> Result<()> {
    while Instant::now() < until {
        stop.sleep_until(until.min(Instant::now() + POLL))?;
        programs.iter_mut().try_for_each(|program| program.check())?;
    }
    Ok(())
}

/// A program under load; ended on drop.
pub trait Running {
    /// The program's process id.
    fn pid(&self) -> u32;
    /// What it has done so far.
    fn progress(&self) -> &Progress;
    /// An error when the program or its load has ended.
    fn check(&mut self) -> Result<()>;
    /// So much of its memory, those regions that it reads most; None if nobody knows.
    fn hottest_regions(&self, _memory: Bytes) -> Option<Vec<Address>> {
        None
    }
}
