//! Workloads as applications that manage their own memory through libhps.
//!
//! Owns: registering. Never touches: the work itself.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use heat::units::Bytes;
use hps::wire::{Range, Track, usual_signal};
use hps::{ActiveRegion, Application, Judge, ProcessTracking, RegionVerdict, TrackingSettings};
use hugepilot_os::memory::AlignedMemory;

use super::shape::{Role, Start};

/// The shortest interval between lists; short, so that memory is converted soon.
const INTERVAL_MS: u32 = 200;

/// The child's arguments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientArguments {
    /// Register for the daemon at this socket.
    #[arg(long)]
    client: Option<PathBuf>,
    /// Only be observed.
    #[arg(long)]
    keep_all: bool,
    /// Convert no more than this.
    #[arg(long)]
    max_huge: Option<Bytes>,
}

/// An application that converts nothing.
struct KeepsAll;

impl Application for KeepsAll {
    fn judge(&self, _: &ActiveRegion<'_>) -> RegionVerdict {
        RegionVerdict::Keep
    }
}

impl ClientArguments {
    /// Tracked while the returned value exists.
    pub fn register(&self, memory: &AlignedMemory) -> Result<Option<ProcessTracking>> {
        let Some(socket) = self.client.clone() else { return Ok(None) };
        let range = Range { start: memory.address(), end: memory.address() + memory.len() as u64 };
        let track = Track {
            signal: usual_signal(),
            thread: None,
            threshold_pages: 512,
            interval_ms: INTERVAL_MS,
            ranges: vec![range],
        };
        let settings = TrackingSettings {
            track,
            socket,
            own_writes: false,
            most_huge_bytes: self.max_huge.map_or(u64::MAX, |most| most.0),
        };
        let application: Arc<dyn Application> = if self.keep_all { Arc::new(KeepsAll) } else { Arc::new(Judge) };
        Ok(Some(ProcessTracking::with_thread(settings, application)?))
    }
}

/// The arguments for it.
pub fn words(how: Start<'_>) -> Vec<String> {
    match how {
        Start::AsItIs | Start::IdleClient | Start::Launched { .. } => Vec::new(),
        Start::OwnSwitch => vec!["--advise-huge".to_owned()],
        Start::Client { socket, role } => {
            let more = match role {
                Role::Converts => None,
                Role::ConvertsWithin(limit) => Some(format!("--max-huge={}", limit.0)),
                Role::KeepsAll => Some("--keep-all".to_owned()),
            };
            [format!("--client={}", socket.display())].into_iter().chain(more).collect()
        }
    }
}
