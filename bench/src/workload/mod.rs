//! Workloads: programs under a steady load, and the progress that they report.
//!
//! Owns: the common shape of workloads, one file each. Never touches: configurations; a workload does not know under
//! which one it runs, except that its own switch for huge pages may be asked for.

mod chase;
mod client;
mod connection;
mod fingerprint;
mod histogram;
mod hot;
mod local;
mod memcached;
mod open_loop;
mod own_process;
mod pages;
mod progress;
mod reader;
mod redis;
mod server;
mod sort;
mod sweep;
mod third;
mod wire;
mod zipfian;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use heat::units::{Address, Bytes};
use hugepilot_os::stop::Stop;

pub use chase::{Chase, ChaseChild, ChasePattern};
pub use fingerprint::{Fingerprint, FingerprintChild, MOST_SONGS, SearchWork};
pub use histogram::Histogram;
pub use hot::{Hot, HotChild, HotPattern, move_on};
pub use local::{Local, LocalChild, LocalPattern};
pub use memcached::Memcached;
pub use open_loop::WINDOW;
pub use own_process::{OwnProcess, ReadyLine, WorkLine, print_line, report_with_waits};
pub use pages::below;
pub use progress::{Progress, Window, WorkInterval};
pub use reader::{Reader, ReaderChild};
pub use redis::{ITEM_OVERHEAD as REDIS_ITEM_OVERHEAD, serve as serve_redis};
pub use server::{Clients, Server};
pub use sort::{SortChild, start_sort};
pub use sweep::{SWEEPS_PER_SAMPLE, Sweep, SweepChild, SweepPattern, SweepThread};
pub use third::{AliasesChild, MappingsChild, ResidentChild, ThirdChild, ThirdPattern, Truth, clock};
pub use wire::Wire;
pub use zipfian::{Popularity, ScrambledZipfian};

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
