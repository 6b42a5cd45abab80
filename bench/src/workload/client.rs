//! Workloads as applications that manage their own memory through libhps.
//!
//! Owns: registering. Never touches: the work itself.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use heat::units::Bytes;
use hps::wire::{Range, Track, usual_signal};
use hps::{ActiveRegion, Application, ProcessTracking, RegionVerdict, TrackingSettings};

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

/// By so much of its memory may a sweep grow, one part in this many: as the paper's did (0.031 %).
const GROWTH_ONE_IN: u64 = 3300;

/// An application that converts nothing.
struct KeepsAll;

impl Application for KeepsAll {
    fn judge(&self, _: &ActiveRegion<'_>) -> RegionVerdict {
        RegionVerdict::Keep
    }
}

impl ClientArguments {
    /// Tracked in this range, of which so much is used, while the returned value exists. `application` decides, unless all is to be kept.
    pub fn register(
        &self,
        range: Range,
        used: Bytes,
        application: Arc<dyn Application>,
    ) -> Result<Option<ProcessTracking>> {
        let Some(socket) = self.client.clone() else { return Ok(None) };
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
            most_growth_bytes: Some(used.0 / GROWTH_ONE_IN),
        };
        let application = if self.keep_all { Arc::new(KeepsAll) } else { application };
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
