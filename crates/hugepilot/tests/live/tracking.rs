//! Programs under test that manage their own memory, as applications do through libhps.
//!
//! Owns: three behaviours towards the daemon. Never touches: hugepilot.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use hps::wire::{Range, Track, usual_signal};
use hps::{Application, ProcessTracking, Report, TrackingSettings};
use hugepilot_os::memory::AlignedMemory;

/// Tracked until dropped.
pub enum Tracking {
    ByLibrary(#[expect(dead_code, reason = "it is held")] Arc<Rests>),
    Deaf(#[expect(dead_code, reason = "it is held")] UnixStream),
}

/// Leaves everything to the library, and may rest after each list.
pub struct Rests {
    tracker: OnceLock<ProcessTracking>,
    rests: bool,
}

/// Forwards notices from the library, without keeping `Rests` alive.
struct Ear(std::sync::Weak<Rests>);

impl Application for Ear {
    fn end(&self, _: &Report) {
        let Some(program) = self.0.upgrade().filter(|program| program.rests) else { return };
        program.tracker.get().into_iter().for_each(ProcessTracking::rest);
    }
}

/// Registers this memory with the daemon at `socket`.
pub fn begin(socket: &str, kind: &str, memory: &AlignedMemory) -> io::Result<Tracking> {
    let range = Range { start: memory.address(), end: memory.address() + memory.len() as u64 };
    let track =
        Track { signal: usual_signal(), thread: None, threshold_pages: 512, interval_ms: 200, ranges: vec![range] };
    if kind == "deaf" {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(&track.line())?;
        // Without a handler the signal would not be sent at all.
        signal_hook::flag::register(track.signal, Arc::default())?;
        stream.read_exact(&mut [0])?;
        return Ok(Tracking::Deaf(stream));
    }
    let settings = TrackingSettings {
        track,
        socket: socket.into(),
        own_writes: false,
        most_huge_bytes: u64::MAX,
        most_growth_bytes: None,
    };
    let program = Arc::new(Rests { tracker: OnceLock::new(), rests: kind == "rest" });
    let ear = Ear(Arc::downgrade(&program));
    let tracker = ProcessTracking::with_thread(settings, Arc::new(ear)).map_err(io::Error::other)?;
    program.tracker.get_or_init(|| tracker);
    Ok(Tracking::ByLibrary(program))
}
