//! The model's machine: memory, its pages, and a disk that writes; a policy chooses which pages to evict.
//!
//! Owns: frames and the locations of pages, and when memory is short. Never touches: the choice of pages, or what anything costs.

use super::account::Account;
use super::pages::{Bit, Class, Frames};
use super::policy::{PolicyKind, ReplacementPolicy, Taken};
use super::trace::{Layout, TICKS_PER_SECOND, TraceEvent};
use super::writeback::Writeback;

/// Marks the owners of pages without a number; the other bits are the writer.
const STREAMED: u32 = 1 << 31;
/// The file to which pages with numbers are written: the file system's own device.
const DEVICE: u32 = 1 << 20;
/// The reader of files that are read only once.
const READER: u32 = STREAMED | DEVICE;
/// The longest time that a dirty page waits for the disk: `/proc/sys/vm/dirty_expire_centisecs` by default.
const LONGEST_WAIT_TICKS: u64 = 30 * TICKS_PER_SECOND as u64;
/// How often reclaim is called again after the disk has written something, before a page is refused.
const ATTEMPTS: u32 = 8;

/// The location of a page with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It was never used.
    Nowhere,
    /// It was evicted; the policy gets this number back when the page returns.
    Evicted(u32),
    /// In this frame.
    In(u32),
}

/// The machine.
pub struct SimulatedMachine {
    pages: Frames,
    free: Vec<u32>,
    policy: Box<dyn ReplacementPolicy>,
    places: Vec<Place>,
    classes: Layout,
    writeback: Writeback,
    /// Frames that reclaim has submitted to the disk.
    early: Vec<u32>,
    taken: Taken,
    written: Vec<u32>,
    /// If fewer frames than the first number are free, reclaim runs until there are as many as the second.
    watermarks: [u32; 2],
    now: u64,
    account: Account,
}

impl SimulatedMachine {
    /// An empty machine with this many frames of this many base pages each.
    pub fn new(frames: u32, base_pages: u64, layout: &Layout, policy: PolicyKind) -> Self {
        Self {
            pages: Frames::new(frames, base_pages, layout.mappers),
            free: (0..frames).rev().collect(),
            policy: policy.build(frames),
            places: vec![Place::Nowhere; layout.pages() as usize],
            classes: layout.clone(),
            writeback: Writeback::default(),
            early: Vec::new(),
            taken: Taken::default(),
            written: Vec::new(),
            watermarks: watermarks(frames, base_pages),
            now: 0,
            account: Account::default(),
        }
    }

    /// What happened since the last call.
    pub fn take_account(&mut self) -> Account {
        std::mem::take(&mut self.account)
    }

    /// Advances time by one tick with these events.
    pub fn tick(&mut self, events: &[TraceEvent]) {
        self.now += 1;
        self.finish_early_writes();
        while self.writeback.oldest().is_some_and(|since| since + LONGEST_WAIT_TICKS <= self.now) {
            self.write_next();
        }
        for &event in events {
            match event {
                TraceEvent::Write { writer } => self.write(writer),
                TraceEvent::Read => {
                    self.stream(READER);
                }
                TraceEvent::Use { page, write } => self.use_page(page, write),
            }
        }
    }

    fn write(&mut self, writer: u32) {
        let Some(frame) = self.stream(STREAMED | writer) else { return };
        self.pages.soil(frame);
        self.writeback.add(writer, frame, &self.pages, self.now);
        while Writeback::is_full(&self.pages) && self.write_next() {}
    }

    /// A system call brings in a page without a number.
    fn stream(&mut self, owner: u32) -> Option<u32> {
        let frame = self.bring_in(Class::Cache, owner, None)?;
        self.policy.called(&mut self.pages, frame);
        self.account.moved += self.pages.base_pages();
        Some(frame)
    }

    fn use_page(&mut self, page: u32, write: bool) {
        let class = self.classes.class(page);
        let frame = match self.places[page as usize] {
            Place::In(frame) => Some(frame),
            Place::Nowhere => {
                // New anonymous and shared memory is zeroed, and needs no disk read.
                self.account.first_reads += if class.is_swapped() { 0 } else { self.pages.base_pages() };
                self.bring_in(class, page, None)
            }
            Place::Evicted(evicted) => {
                self.account.refaults[class as usize] += self.pages.base_pages();
                self.bring_in(class, page, Some(evicted))
            }
        };
        let Some(frame) = frame else { return };
        self.places[page as usize] = Place::In(frame);
        if class.is_mapped() {
            self.pages.set(frame, Bit::Young);
        } else {
            self.policy.called(&mut self.pages, frame);
        }
        if write && self.pages.soil(frame) && class == Class::Cache {
            self.writeback.add(DEVICE, frame, &self.pages, self.now);
        }
    }

    fn bring_in(&mut self, class: Class, owner: u32, evicted: Option<u32>) -> Option<u32> {
        if self.free.len() < self.watermarks[0] as usize {
            self.reclaim();
        }
        let mut attempts = 0;
        while self.free.is_empty() && attempts < ATTEMPTS {
            attempts += 1;
            self.account.waits += 1;
            self.write_next();
            self.finish_early_writes();
            self.reclaim();
        }
        let Some(frame) = self.free.pop() else {
            self.account.refused += self.pages.base_pages();
            return None;
        };
        self.pages.fill(frame, class, owner);
        self.policy.insert(&mut self.pages, frame, evicted);
        Some(frame)
    }

    fn reclaim(&mut self) {
        let wanted = self.watermarks[1].saturating_sub(self.free.len() as u32);
        let scan = self.policy.reclaim(&mut self.pages, wanted, &mut self.taken);
        self.account.reclaims += 1;
        self.account.scan += scan.in_base_pages(self.pages.base_pages());
        for &frame in &self.taken.writes {
            let swapped = self.pages.class(frame).is_swapped();
            let counter = if swapped { &mut self.account.swapped_out } else { &mut self.account.written_early };
            *counter += self.pages.base_pages();
        }
        self.early.append(&mut self.taken.writes);
        for (frame, evicted) in self.taken.freed.drain(..) {
            let owner = self.pages.owner(frame);
            if owner & STREAMED == 0 {
                self.places[owner as usize] = Place::Evicted(evicted);
            }
            self.pages.empty(frame);
            self.free.push(frame);
        }
    }

    /// Completes the writes that reclaim submitted.
    fn finish_early_writes(&mut self) {
        for frame in std::mem::take(&mut self.early) {
            self.pages.take(frame, Bit::Writeback);
            if self.pages.take(frame, Bit::Reclaim) {
                self.policy.written(&mut self.pages, frame);
            }
        }
    }

    /// The disk writes what has waited longest. Returns false if nothing waits.
    fn write_next(&mut self) -> bool {
        let any = self.writeback.write_next(&mut self.pages, self.now, &mut self.written);
        self.account.written += self.written.len() as u64 * self.pages.base_pages();
        for frame in self.written.drain(..) {
            // If reclaim is also writing the page, that write completes it.
            if !self.pages.has(frame, Bit::Writeback) && self.pages.take(frame, Bit::Reclaim) {
                self.policy.written(&mut self.pages, frame);
            }
        }
        any
    }
}

/// From `init_per_zone_pages_min` in `mm/page_alloc.c` of Linux 2.6: the minimum is four times the square root of memory in KiB, reclaim begins at
/// twice that and ends at three times that.
fn watermarks(frames: u32, base_pages: u64) -> [u32; 2] {
    let least_kib = ((u64::from(frames) * base_pages * 4 * 16).isqrt()).clamp(128, 64 << 10);
    let frames_of = |kib: u64| (kib.div_ceil(4 * base_pages) as u32).clamp(1, (frames / 4).max(1));
    let low = frames_of(2 * least_kib);
    [low, (low + frames_of(least_kib)).min((frames / 2).max(1))]
}

#[cfg(test)]
mod tests;
