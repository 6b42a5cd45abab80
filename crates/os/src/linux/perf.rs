//! Performance events, `perf_event_open(2)`: counters, and samples that the kernel puts into a ring of memory.
//!
//! Owns: the descriptors, the ring, and reading it in order. Never touches: what a record means; its bytes are passed on.
//!
//! The system call is made through `libc` with the first part of `struct perf_event_attr`, which takes less code than the crates for
//! it: `perf-event-open-sys` is generated from the whole header and leaves the ring to its user; `perf-event2` has both, with five
//! further crates and a parser for every kind of record, two of which are needed here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::ProtFlags;

use crate::answer::{checked, made};
use crate::memory::SharedMapping;

/// What is counted: `type`, `config`, `config1` and `config2` of `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The kind of device (PMU) that counts it.
    pub kind: u32,
    /// Which of its events, in the device's own encoding.
    pub config: u64,
    /// More of the encoding (`config1`).
    pub config1: u64,
    /// More of the encoding (`config2`).
    pub config2: u64,
}

/// Where an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventScope {
    /// In one thread, wherever it runs; the id is of this pid namespace, 0 is the caller.
    Thread(u32),
    /// On one processor, whichever thread runs there.
    Cpu(u32),
}

/// How many samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// About this many a second: the kernel adapts the period.
    PerSecond(u64),
    /// One in this many events.
    OneIn(u64),
}

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The event.
    pub event: Event,
    /// A group leader that the device requires for sampling this event; it is only counted.
    pub leader: Option<Event>,
    /// How often.
    pub rate: Rate,
    /// What a sample holds, bits of `PERF_SAMPLE_*`.
    pub fields: u64,
    /// How precisely a sample must be attributed to its instruction (`precise_ip`).
    pub precise: u8,
}

/// `struct perf_event_attr` as of Linux 4.1 (`PERF_ATTR_SIZE_VER5`); kernels accept any size that they know.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period_or_frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    user_registers: u64,
    user_stack: u32,
    clock: i32,
    registers: u64,
    aux_watermark: u32,
    max_stack: u16,
    reserved: u16,
}

const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const FREQUENCY: u64 = 1 << 10;
const PRECISE_SHIFT: u32 = 15;

const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const FORMAT_TIME_ENABLED: u64 = 1;
const FORMAT_TIME_RUNNING: u64 = 2;
const IOC_ENABLE: libc::Ioctl = 0x2400;

impl Attributes {
    fn of(event: &Event) -> Self {
        Self {
            kind: event.kind,
            size: size_of::<Self>() as u32,
            config: event.config,
            config1: event.config1,
            config2: event.config2,
            ..Self::default()
        }
    }

    fn sampling(what: &Sampling) -> Self {
        let (number, frequency) = match what.rate {
            Rate::PerSecond(samples) => (samples, FREQUENCY),
            Rate::OneIn(events) => (events, 0),
        };
        Self {
            period_or_frequency: number,
            sample_type: what.fields,
            flags: frequency | u64::from(what.precise & 3) << PRECISE_SHIFT,
            ..Self::of(&what.event)
        }
    }

    /// Errors: `ENOENT`, `EINVAL`, `EOPNOTSUPP` no device counts this here or in this way, `EACCES`, `EPERM` CAP_PERFMON is missing,
    /// `ESRCH` no such thread, `EMFILE` too many files are open.
    fn open(&self, scope: EventScope, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
        let (thread, cpu) = match scope {
            EventScope::Thread(id) => (id as i32, -1),
            EventScope::Cpu(number) => (-1, number as i32),
        };
        let group = leader.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: the kernel reads `size` bytes of the attributes, a `repr(C)` prefix of its struct with every byte initialised; the
        // other arguments are numbers.
        // The new descriptor is ours alone.
        unsafe {
            made(libc::syscall(libc::SYS_perf_event_open, ptr::from_ref(self), thread, cpu, group, FLAG_FD_CLOEXEC))
        }
    }
}

/// Several events counted together in one thread, and in threads that it starts from now on.
#[derive(Debug)]
pub struct Counters(Vec<File>);

impl Counters {
    /// Counters for each of these threads, except those that have ended meanwhile.
    ///
    /// Errors: as [`Counters::open`], for any of them.
    pub fn of_threads(events: &[Event], threads: &[u32]) -> io::Result<Vec<Self>> {
        let open = |&thread: &u32| match Self::open(events, thread) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            opened => Some(opened),
        };
        threads.iter().filter_map(open).collect()
    }

    /// Starts counting. The events are scheduled as a group, so their counts can be compared.
    ///
    /// Errors: as [`Sampler::open`].
    pub fn open(events: &[Event], thread: u32) -> io::Result<Self> {
        let mut group: Vec<OwnedFd> = Vec::new();
        for event in events {
            let attributes = Attributes {
                flags: INHERIT,
                read_format: FORMAT_TIME_ENABLED | FORMAT_TIME_RUNNING,
                ..Attributes::of(event)
            };
            group.push(attributes.open(EventScope::Thread(thread), group.first())?);
        }
        Ok(Self(group.into_iter().map(File::from).collect()))
    }

    /// The counts so far, in the order of the events. If the device was shared with others, they are scaled up to the whole time.
    ///
    /// Errors: the kernel refuses to read a counter, or has given its event up (`UnexpectedEof`).
    pub fn read(&mut self) -> io::Result<Vec<f64>> {
        self.0.iter_mut().map(read_scaled).collect()
    }
}

fn read_scaled(counter: &mut File) -> io::Result<f64> {
    let mut bytes = [0; 24];
    counter.read_exact(&mut bytes)?;
    let [count, enabled, running] = [0, 8, 16].map(|at| word(&bytes, at));
    Ok(if running == 0 { 0.0 } else { count as f64 * enabled as f64 / running as f64 })
}

fn word(bytes: &[u8; 24], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// Samples of one event.
#[derive(Debug)]
pub struct Sampler {
    /// The events, leader first; closing them ends sampling.
    events: Vec<OwnedFd>,
    ring: Ring,
    /// The records last taken.
    taken: Vec<u8>,
}

impl Sampler {
    /// Bytes of records waiting to be taken; beyond that the kernel counts lost records.
    pub const RING: usize = 32 << 10;

    /// Prepares to sample, but does not start yet.
    ///
    /// Errors: `ENOENT`, `EINVAL`, `EOPNOTSUPP` no device samples this here or in this way, `EACCES`, `EPERM` CAP_PERFMON is missing
    /// or too much memory is locked, `ESRCH` no such thread, `EMFILE` too many files are open.
    pub fn open(what: &Sampling, scope: EventScope) -> io::Result<Self> {
        let mut events = Vec::new();
        if let Some(leader) = &what.leader {
            events.push(Attributes { flags: DISABLED, ..Attributes::of(leader) }.open(scope, None)?);
        }
        let mut attributes = Attributes::sampling(what);
        // In a group only the leader is switched on and off.
        attributes.flags |= if events.is_empty() { DISABLED } else { 0 };
        let sampled = attributes.open(scope, events.first())?;
        let ring = Ring::map(&sampled)?;
        events.push(sampled);
        Ok(Self { events, ring, taken: Vec::new() })
    }

    /// Starts sampling.
    ///
    /// Errors: the kernel refuses the ioctl, for example because a security module forbids it.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: this request takes a number, here 0, and no memory of ours.
        checked(unsafe { libc::ioctl(self.events[0].as_raw_fd(), IOC_ENABLE, 0) }).map(drop)
    }

    /// The records added since the last call, whole and in sequence, each with its `struct perf_event_header`.
    pub fn take(&mut self) -> &[u8] {
        self.taken.clear();
        self.ring.take(&mut self.taken);
        &self.taken
    }
}

/// One page of `struct perf_event_mmap_page` and the ring of records behind it.
#[derive(Debug)]
struct Ring(SharedMapping);

const PAGE: usize = 4096;
/// Where the kernel says how far it has written, in bytes since the beginning.
const DATA_HEAD: usize = 1024;
/// Where we say how far we have read.
const DATA_TAIL: usize = 1032;

impl Ring {
    fn map(event: &OwnedFd) -> io::Result<Self> {
        // Only if the page is writable does the kernel refrain from overwriting unread records.
        let access = ProtFlags::READ | ProtFlags::WRITE;
        SharedMapping::of(event, PAGE + Sampler::RING, access).map(Self)
    }

    fn start(&self) -> *mut u8 {
        self.0.start.as_ptr().cast()
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both positions lie in the first page, which is mapped until drop, aligned to 8 bytes; both sides access them
        // atomically.
        unsafe { AtomicU64::from_ptr(self.start().add(at).cast()) }
    }

    /// Appends the bytes between tail and head, and returns their space to the kernel.
    fn take(&mut self, taken: &mut Vec<u8>) {
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        // Acquire: records are read only after the head that covers them.
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let len = (head.wrapping_sub(tail) as usize).min(Sampler::RING);
        let from = tail as usize % Sampler::RING;
        let to_the_end = len.min(Sampler::RING - from);
        for (from, len) in [(from, to_the_end), (0, len - to_the_end)] {
            // SAFETY: the range lies within the ring, which is mapped until drop; the kernel writes nothing between tail and head,
            // and the exclusive borrow keeps every other reader away.
            taken.extend_from_slice(unsafe { std::slice::from_raw_parts(self.start().add(PAGE + from), len) });
        }
        // Release: the space is returned only after the records were copied.
        self.position(DATA_TAIL).store(head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{AlignedMemory, OwnAdvice};

    /// `PERF_COUNT_SW_PAGE_FAULTS` of `PERF_TYPE_SOFTWARE`, which needs no device.
    const PAGE_FAULTS: Event = Event { kind: 1, config: 2, config1: 0, config2: 0 };
    /// `PERF_SAMPLE_ADDR`
    const ADDRESS: u64 = 1 << 3;
    const FAULTS: Sampling =
        Sampling { event: PAGE_FAULTS, leader: None, rate: Rate::OneIn(1), fields: ADDRESS, precise: 0 };

    /// None if this process is not permitted.
    fn permitted<T>(result: io::Result<T>) -> Option<T> {
        match result {
            Err(error) if [libc::EACCES, libc::EPERM, libc::ENOSYS].contains(&error.raw_os_error().unwrap_or(0)) => {
                eprintln!("skipped: performance events are refused ({error})");
                None
            }
            result => Some(result.expect("page faults can be sampled")),
        }
    }

    /// Memory that is filled with base pages when touched.
    fn memory(pages: usize) -> AlignedMemory {
        let mut memory = AlignedMemory::anonymous(pages * PAGE).unwrap();
        memory.advise(0, pages * PAGE, OwnAdvice::NoHugePage).unwrap();
        memory
    }

    fn touch(memory: &mut AlignedMemory, pages: std::ops::Range<usize>) {
        pages.for_each(|page| memory.bytes_mut()[page * PAGE] = 1);
    }

    /// The addresses in `memory` that the 16-byte records (header and address) contain.
    fn addresses(records: &[u8], memory: &AlignedMemory) -> Vec<u64> {
        let (records, rest) = records.as_chunks::<16>();
        assert!(rest.is_empty());
        let addresses = records.iter().map(|record| u64::from_ne_bytes(record[8..].try_into().unwrap()));
        let range = memory.address()..memory.address() + memory.bytes().len() as u64;
        addresses.filter(|address| range.contains(address)).collect()
    }

    #[test]
    fn every_touched_page_is_told_across_the_end_of_the_ring() {
        // Four rings full of records, taken in pieces that do not divide a ring.
        const PAGES: usize = 4 * Sampler::RING / 16;
        const PIECE: usize = 700;
        let mut memory = memory(PAGES);
        let Some(mut sampler) = permitted(Sampler::open(&FAULTS, EventScope::Thread(0))) else { return };
        sampler.enable().unwrap();
        let mut found = Vec::new();
        for first in (0..PAGES).step_by(PIECE) {
            touch(&mut memory, first..(first + PIECE).min(PAGES));
            found.extend(addresses(sampler.take(), &memory));
        }
        // A fault may be recorded twice if the kernel has to retry it.
        found.dedup();
        let expected: Vec<u64> = (0..PAGES).map(|page| memory.address() + (page * PAGE) as u64).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn nothing_is_sampled_before_it_is_switched_on() {
        let mut memory = memory(15);
        let Some(mut sampler) = permitted(Sampler::open(&FAULTS, EventScope::Thread(0))) else { return };
        touch(&mut memory, 0..10);
        sampler.enable().unwrap();
        touch(&mut memory, 10..15);
        assert_eq!(addresses(sampler.take(), &memory).len(), 5);
        assert!(addresses(sampler.take(), &memory).is_empty());
    }

    #[test]
    fn counters_count_those_threads_too_that_start_later() {
        let Some(mut counters) = permitted(Counters::open(&[PAGE_FAULTS, PAGE_FAULTS], 0)) else { return };
        let before = counters.read().unwrap();
        let mut memory = memory(2000);
        std::thread::scope(|scope| {
            touch(&mut memory, 0..1000);
            scope.spawn(|| touch(&mut memory, 1000..2000)).join().unwrap();
        });
        let after = counters.read().unwrap();
        assert!(after[0] - before[0] >= 2000.0 && after[1] - before[1] >= 2000.0, "{before:?} {after:?}");
    }

    #[test]
    fn what_no_device_counts_is_refused() {
        let unknown = Sampling { event: Event { kind: u32::MAX, ..PAGE_FAULTS }, ..FAULTS };
        let error = Sampler::open(&unknown, EventScope::Thread(0)).unwrap_err();
        assert!([libc::ENOENT, libc::EINVAL, libc::EACCES].contains(&error.raw_os_error().unwrap()), "{error}");
    }
}
