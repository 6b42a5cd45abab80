//! A simulated client of libhps: it registers, takes its lists or stalls, and leaves.
//!
//! Owns: its registration and the lists written for it. Never touches: its process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hps::wire::{Head, Notice, Track, WalkedRun};
use kernel::target::Process;
use pilot::clients::{Client, Clients, Mailbox, Place, Told};

/// What the engine wrote for a client.
#[derive(Debug, Default)]
struct Letters {
    has_left: AtomicBool,
    sequence: AtomicU64,
    runs: AtomicU64,
    /// Signals that the kernel will refuse for lack of room.
    busy: AtomicU64,
}

/// One client.
pub struct SimulatedClient {
    place: Place,
    letters: Arc<Letters>,
    /// It never takes a list.
    pub stalls: bool,
}

impl Mailbox for Letters {
    fn is_there(&self) -> bool {
        !self.has_left.load(Ordering::Relaxed)
    }

    fn clear(&self) -> io::Result<()> {
        self.runs.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn write(&self, head: Head, runs: &mut dyn Iterator<Item = WalkedRun>) -> io::Result<()> {
        self.runs.store(runs.count() as u64, Ordering::Relaxed);
        self.sequence.store(head.sequence, Ordering::Relaxed);
        Ok(())
    }

    fn tell(&self, _: i32, _: u64) -> io::Result<Told> {
        let busy = self.busy.load(Ordering::Relaxed);
        self.busy.store(busy.saturating_sub(1), Ordering::Relaxed);
        Ok(if busy > 0 { Told::Later } else { Told::Now })
    }
}

impl SimulatedClient {
    /// Registers; None if it is refused.
    pub fn come(clients: &Clients, process: Process, uid: u32, stalls: bool, busy: u64) -> Option<Self> {
        let letters = Arc::new(Letters { busy: AtomicU64::new(busy), ..Letters::default() });
        let track = Track { signal: 40, thread: None, threshold_pages: 1, interval_ms: 1000, ranges: Vec::new() };
        let mailbox = Arc::<Letters>::clone(&letters);
        let client = Client { process, uid, track, resting: false, taken: 0, mailbox };
        let place = clients.admit(client).ok()?;
        Some(Self { place, letters, stalls })
    }

    /// Takes the list that was written; returns its number.
    pub fn take(&self) -> u64 {
        let sequence = self.letters.sequence.load(Ordering::Relaxed);
        if !self.stalls {
            self.place.note(Notice::Taken(sequence));
        }
        sequence
    }

    /// Its process has ended or runs another program.
    pub fn leave(&self) {
        self.letters.has_left.store(true, Ordering::Relaxed);
    }
}
