//! What all workloads have in common: how one is started, and what it can be asked while it runs.
//!
//! Owns: this interface. Never touches: any workload.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use heat::units::{Address, Bytes};
use hugepilot_os::stop::Stop;

use super::pages::FrontierPoint;
use super::progress::Progress;

/// Something that can be measured.
pub trait Workload {
    /// Its name in reports, with its pattern if it has one.
    fn name(&self) -> String;
    /// A description of its setup.
    fn description(&self) -> String;
    /// The unit of its operations, in the plural.
    fn unit(&self) -> &'static str;
    /// The memory that it will take.
    fn memory_bytes(&self) -> u64;
    /// The approximate time to start and to end; by default the time to fill its memory.
    fn start_seconds(&self) -> f64 {
        0.5 + 0.7e-9 * self.memory_bytes() as f64
    }
    /// What can be gained at most for how much memory, if the program's pages stay where they are; empty where this is not known.
    fn frontier(&self) -> Vec<FrontierPoint> {
        Vec::new()
    }
    /// Starts the program, populates its memory and puts it under load.
    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>>;
}

/// What a client does with the lists that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Converts everything that it can.
    Converts,
    /// The same, up to this much memory on huge pages.
    ConvertsWithin(Bytes),
    /// Converts nothing.
    KeepsAll,
}

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// Without changes.
    AsItIs,
    /// With its own option for huge pages.
    OwnSwitch,
    /// With libhps linked but unused.
    IdleClient,
    /// As a client of the daemon at this socket, through libhps.
    Client { socket: &'a Path, role: Role },
    /// With these words before its command, which set up its environment or become its parent.
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

/// Longest time between two checks of a running program.
pub const POLL: Duration = Duration::from_millis(100);

/// Lets programs run until then. Errors: one of them has ended, or a stop was requested.
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
    /// Its work so far.
    fn progress(&self) -> &Progress;
    /// Errors: the program or its load has ended.
    fn check(&mut self) -> Result<()>;
    /// The regions that it reads most, together as large as this; None if they are unknown.
    fn hottest_regions(&self, _memory: Bytes) -> Option<Vec<Address>> {
        None
    }
}
