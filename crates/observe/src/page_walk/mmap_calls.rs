//! Counts the calls by which a program takes the lock of its own address space (`bpf/mmap_calls.bpf.c`).
//!
//! Owns: loading the counter, attaching it for the length of a sample, and reading it. Never touches: the target.

use libbpf_rs::{ErrorExt, Link, MapCore, MapFlags, Object, ObjectBuilder};

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mmap_calls.bpf.o"));

/// The counter, loaded; it counts nothing until it is attached.
pub(super) struct MmapCalls {
    object: Object,
}

/// The counter at work on one address space. Dropping it detaches it.
pub(super) struct Counting<'a> {
    object: &'a Object,
    _link: Link,
}

impl MmapCalls {
    /// Loads the counter. Errors: a capability or ability of the kernel is missing.
    pub(super) fn load() -> libbpf_rs::Result<Self> {
        Ok(Self { object: ObjectBuilder::default().open_memory(PROGRAM)?.load()? })
    }

    /// Begins to count the calls of the program with this address space (the kernel's address of its `mm_struct`).
    ///
    /// Errors: this kernel has no tracepoint `mmap_lock_start_locking`.
    pub(super) fn count(&mut self, address_space: u64) -> libbpf_rs::Result<Counting<'_>> {
        let mut watched = [0; 16];
        watched[..8].copy_from_slice(&address_space.to_ne_bytes());
        let map = self.object.maps_mut().next().expect("bpf/mmap_calls.bpf.c defines one map");
        map.update(&[0; 4], &watched, MapFlags::ANY)?;
        let program = self.object.progs_mut().next().expect("bpf/mmap_calls.bpf.c defines one program");
        let link = program.attach().context("the tracepoint mmap_lock_start_locking")?;
        Ok(Counting { object: &self.object, _link: link })
    }
}

impl Counting<'_> {
    /// The calls so far.
    pub(super) fn calls(&self) -> libbpf_rs::Result<u64> {
        let map = self.object.maps().next().expect("bpf/mmap_calls.bpf.c defines one map");
        let watched = map.lookup(&[0; 4], MapFlags::ANY)?.expect("an array map holds every index");
        Ok(u64::from_ne_bytes(watched[8..16].try_into().expect("8 bytes")))
    }
}
