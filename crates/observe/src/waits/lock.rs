//! Waits for the lock of a process's memory (`mmap_lock`), added up by the eBPF programs in `bpf/lock_waits.bpf.c`.
//!
//! Owns: loading them, and reading their sums. Never touches: the lock.

use std::io::{self, Read};
use std::os::fd::AsFd;

use heat::units::Nanos;
use hugepilot_os::bpf::TaskIterator;
use kernel::target::Target;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use crate::object;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lock_waits.bpf.o"));
// bpf/lock_waits.h
const TOTAL_AT: usize = 8;
const LONGEST_AT: usize = 16;
const BYTES: usize = 24;

/// The loaded programs.
#[derive(Debug)]
pub(super) struct LockWaits {
    object: Object,
    waits: MapHandle,
    /// They are notified of waits as long as these live.
    _links: Vec<Link>,
}

impl LockWaits {
    /// Loads and attaches them. Errors: a capability, the tracepoints (Linux 5.19) or eBPF is missing.
    pub(super) fn load() -> libbpf_rs::Result<Self> {
        let object = object::load("hugepilot_waits", PROGRAM)?;
        let waits = object::map(&object, "waits")?;
        let programs = object.progs_mut().filter(|program| program.name() != "choose_process");
        let links = programs.map(|program| program.attach()).collect::<Result<_, _>>()?;
        Ok(Self { object, waits, _links: links })
    }

    /// Counts this process from now on, from 0.
    pub(super) fn choose(&mut self, target: &Target) -> io::Result<()> {
        self.write(&[0; BYTES])?;
        let thread = crate::living_thread(target).map_err(io::Error::other)?;
        let program = self.object.progs().find(|program| program.name() == "choose_process");
        let program = program.expect("bpf/lock_waits.bpf.c defines the program");
        TaskIterator::attach(program.as_fd(), thread)?.open().and_then(|mut run| run.read(&mut [0; 8])).map(|_| ())
    }

    /// Waits of all threads since the process was chosen.
    pub(super) fn total(&self) -> Nanos {
        self.number(TOTAL_AT)
    }

    /// The longest of them.
    pub(super) fn longest(&self) -> Nanos {
        self.number(LONGEST_AT)
    }

    /// Begins a new search for the longest.
    pub(super) fn forget_longest(&mut self) {
        let mut sums = self.sums();
        sums[LONGEST_AT..].fill(0);
        if let Err(error) = self.write(&sums) {
            tracing::debug!("the longest wait is that of a longer time: {error}");
        }
    }

    fn number(&self, at: usize) -> Nanos {
        Nanos(u64::from_ne_bytes(self.sums()[at..at + 8].try_into().expect("8 bytes")))
    }

    fn sums(&self) -> Vec<u8> {
        let sums = self.waits.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        sums.filter(|sums| sums.len() == BYTES).unwrap_or_else(|| vec![0; BYTES])
    }

    fn write(&self, sums: &[u8]) -> io::Result<()> {
        self.waits.update(&0u32.to_ne_bytes(), sums, MapFlags::ANY).map_err(io::Error::other)
    }
}
