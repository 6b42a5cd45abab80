//! Clearing accessed bits: the next read then shows what was walked since.
//!
//! Owns: the two ways of clearing. Never touches: contents or placement of memory, or the choice between them ([`heat::clearing`]).
//!
//! `clear_refs` (Documentation/filesystems/proc.rst) clears the whole process without flushing the TLB: a bit set afterwards means a page walk. But
//! page faults and mmap calls of the target wait until it is done. Remote `MADV_COLD` on slices of 64 MiB makes nothing wait for long, but flushes
//! the TLB, so a bit means an access; it also moves the pages to the inactive list.

use std::fs::File;
use std::io::Write;

use heat::clearing::{ClearMethod, Clearing};
use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, Nanos, Pages};
use hugepilot_os::advise::advise;
use hugepilot_os::process::Punctual;
use hugepilot_os::{Advice, PidFd};
use kernel::Root;

use crate::kernel_time::KernelTime;
use crate::page_walk::ObserveError;

/// Clearing comes before interim reads of what was cleared, which then take another processor.
const CLEARING: u8 = 2;
/// Clearing that takes no longer than a scheduler tick comes before everything else: if interrupted, it holds the lock that the target's page faults
/// wait for. A longer one would keep the target from its processor for all that time, which affects more programs.
const ONE_TICK: Nanos = Nanos(4_000_000);
pub(super) const READING_EARLY: u8 = 1;
/// Memory covered by one `MADV_COLD` call: at most 1 ms of work.
const SLICE: Bytes = Bytes(32 * HUGE_PAGE);
/// Memory cleared before it is read again: about 50 ms of `MADV_COLD`.
const BATCH: Bytes = Bytes(4 << 30);

/// What was cleared, and when.
#[derive(Default)]
pub(super) struct Cleared {
    /// Ascending parts, each with the time before and after it was cleared.
    parts: Vec<(AddressRange, KernelTime, KernelTime)>,
    /// How long it took.
    pub(super) took: Nanos,
    /// The longest that the target's page faults waited.
    pub(super) longest_stall: Nanos,
}

impl Cleared {
    /// A single pass over all parts, with its timing corrected by where the front was seen, and when; both ascend.
    pub(super) fn with_fronts(self, fronts: &[(Address, KernelTime)]) -> Self {
        let (Some(&(first, start, _)), Some(&(last, _, end))) = (self.parts.first(), self.parts.last()) else {
            return self;
        };
        let mut knots = vec![(first.start, start)];
        knots.extend(
            fronts.iter().filter(|(front, _)| *front < last.end).map(|&(front, at)| (front, at.clamp(start, end))),
        );
        knots.push((last.end, end));
        let spans: Vec<AddressRange> = self.parts.iter().map(|(range, ..)| *range).collect();
        let between =
            |pair: &[(Address, KernelTime)]| interpolated(&cut(&spans, pair[0].0, pair[1].0), pair[0].1, pair[1].1);
        Self { parts: knots.windows(2).flat_map(between).collect(), ..self }
    }

    /// When all of it was cleared; None if nothing was.
    pub(super) fn end(&self) -> Option<KernelTime> {
        self.parts.last().map(|(_, _, after)| *after)
    }

    /// When the accessed bits of the region that starts here were cleared; None if they were not.
    ///
    /// Within a part the kernel proceeds upwards at an even pace, so the time is interpolated over the regions of the part.
    pub(super) fn at(&self, region: Address) -> Option<KernelTime> {
        let part = self.parts.partition_point(|(range, ..)| range.end <= region);
        let (range, before, after) = self.parts.get(part)?;
        let passed = region.0.checked_sub(range.start.0)? as f64 / range.len().0 as f64;
        Some(KernelTime(before.0 + ((after.0 - before.0) as f64 * passed) as u64))
    }
}

/// How many bits are set in a range.
pub(super) type BitsSet<'a> = dyn Fn(AddressRange) -> Pages + 'a;

/// Splits the regions into batches that are cleared, observed and read one after the other.
///
/// `spans` are ascending runs of populated memory, each within one mapping. `clear_refs` has only one batch: the process. `bits_of_a_batch`: the most
/// bits to clear in a batch, if limited, and how many are set in a range; a region is never divided.
pub(super) fn batches(
    method: ClearMethod,
    spans: &[AddressRange],
    bits_of_a_batch: Option<(Pages, &BitsSet<'_>)>,
) -> Vec<Vec<AddressRange>> {
    if method == ClearMethod::ClearRefs {
        return vec![spans.to_vec()];
    }
    let mut batches: Vec<Vec<AddressRange>> = Vec::new();
    let (mut room, mut bits_left) = (Bytes(0), Pages(0));
    let slice_size = if bits_of_a_batch.is_some() { Bytes(HUGE_PAGE) } else { SLICE };
    for slice in spans.iter().flat_map(|&span| slices(span, slice_size)) {
        let bits = bits_of_a_batch.map_or(Pages(0), |(_, set_in)| set_in(slice));
        if room < slice.len() || bits_left < bits || batches.is_empty() {
            batches.push(Vec::new());
            (room, bits_left) = (BATCH, bits_of_a_batch.map_or(Pages(0), |(most, _)| most));
        }
        (room, bits_left) = (room.saturating_sub(slice.len()), bits_left.saturating_sub(bits));
        batches.last_mut().expect("just pushed").push(slice);
    }
    batches
}

/// Divides a span at multiples of a size; cutting inside a huge page would split it.
fn slices(span: AddressRange, size: Bytes) -> impl Iterator<Item = AddressRange> {
    let mut start = span.start;
    std::iter::from_fn(move || {
        let end = Address((start.0 / size.0 + 1).saturating_mul(size.0)).min(span.end);
        let slice = AddressRange { start, end };
        start = end;
        (!slice.is_empty()).then_some(slice)
    })
}

/// Clears one batch.
pub(super) fn clear(
    root: &Root,
    target: &PidFd,
    how: &Clearing,
    batch: &[AddressRange],
) -> Result<Cleared, ObserveError> {
    let start = KernelTime::now();
    let parts = match how.method {
        ClearMethod::ClearRefs => {
            clear_refs(root, target.pid(), how.expected)?;
            interpolated(batch, start, KernelTime::now())
        }
        ClearMethod::MadvCold => {
            batch.iter().filter_map(|&slice| cold(target, slice).transpose()).collect::<Result<_, _>>()?
        }
    };
    let took = KernelTime::now().since(start);
    let longest = parts.iter().map(|(_, before, after)| after.since(*before)).max().unwrap_or_default();
    let longest_stall = if how.method == ClearMethod::ClearRefs { took } else { longest };
    Ok(Cleared { parts, took, longest_stall })
}

fn clear_refs(root: &Root, pid: u32, expected: Nanos) -> Result<(), ObserveError> {
    let path = root.path(&format!("proc/{pid}/clear_refs"));
    let mut file = File::options().write(true).open(&path).map_err(|cause| ObserveError::Clear {
        pid,
        path: path.clone(),
        cause,
    })?;
    let _punctual = (expected <= ONE_TICK).then(|| Punctual::begin(CLEARING));
    file.write_all(b"1").map_err(|cause| ObserveError::Clear { pid, path, cause })
}

/// The parts of ascending spans between two addresses.
fn cut(spans: &[AddressRange], start: Address, end: Address) -> Vec<AddressRange> {
    let first = spans.partition_point(|span| span.end <= start);
    let within = spans[first..].iter().take_while(|span| span.start < end);
    within.map(|span| AddressRange { start: span.start.max(start), end: span.end.min(end) }).collect()
}

/// Distributes the time of one pass over the process's populated memory.
fn interpolated(
    spans: &[AddressRange],
    start: KernelTime,
    end: KernelTime,
) -> Vec<(AddressRange, KernelTime, KernelTime)> {
    let total = spans.iter().map(AddressRange::len).sum::<Bytes>().0.max(BASE_PAGE) as f64;
    let took = (end.0 - start.0) as f64;
    let mut passed = 0.0;
    let mut at = move |bytes: Bytes| {
        passed += bytes.0 as f64 / total;
        KernelTime(start.0 + (took * passed.min(1.0)) as u64)
    };
    let mut before = start;
    let part = |span: &AddressRange| {
        let after = at(span.len());
        (*span, std::mem::replace(&mut before, after), after)
    };
    spans.iter().map(part).collect()
}

/// Clears one slice; None where the kernel rejects the advice (locked or special memory).
fn cold(target: &PidFd, slice: AddressRange) -> Result<Option<(AddressRange, KernelTime, KernelTime)>, ObserveError> {
    let before = KernelTime::now();
    match advise(target, slice.start.0, slice.len().0, Advice::Cold) {
        Ok(()) => Ok(Some((slice, before, KernelTime::now()))),
        Err(error) => match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::SRCH) => Err(ObserveError::Exited { pid: target.pid() }),
            Some(rustix::io::Errno::PERM) => Err(ObserveError::Advise { pid: target.pid(), cause: error }),
            _ => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange { start: Address(start), end: Address(end) }
    }

    #[test]
    fn the_clock_is_interpolated_over_populated_memory() {
        let spans = [range(0, 2 * HUGE_PAGE), range(100 * HUGE_PAGE, 102 * HUGE_PAGE)];
        let cleared = Cleared {
            parts: interpolated(&spans, KernelTime(1000), KernelTime(1400)),
            took: Nanos(400),
            longest_stall: Nanos(400),
        };
        assert_eq!(cleared.at(Address(0)), Some(KernelTime(1000)));
        assert_eq!(cleared.at(Address(HUGE_PAGE)), Some(KernelTime(1100)));
        assert_eq!(cleared.at(Address(101 * HUGE_PAGE)), Some(KernelTime(1300)));
        assert_eq!(cleared.at(Address(50 * HUGE_PAGE)), None);
        assert_eq!(cleared.at(Address(102 * HUGE_PAGE)), None);
    }

    #[test]
    fn the_clock_is_bent_to_where_clearing_was_seen() {
        let spans = [range(0, 2 * HUGE_PAGE), range(100 * HUGE_PAGE, 102 * HUGE_PAGE)];
        let cleared = Cleared { parts: interpolated(&spans, KernelTime(1000), KernelTime(1400)), ..Cleared::default() };
        let seen = [(Address(HUGE_PAGE), KernelTime(1300)), (Address(101 * HUGE_PAGE), KernelTime(1360))];
        let cleared = cleared.with_fronts(&seen);
        let at = |region: u64| cleared.at(Address(region * HUGE_PAGE));
        assert_eq!([at(0), at(1), at(100), at(101)], [1000, 1300, 1330, 1360].map(|at| Some(KernelTime(at))));
        assert_eq!((at(50), at(102)), (None, None));
        assert!(Cleared::default().with_fronts(&seen).parts.is_empty());
    }

    proptest! {
        #[test]
        fn slices_cover_the_span_and_cut_no_huge_page(start in 0..1u64 << 30, len in 1..1u64 << 34) {
            let (start, len) = (start & !0xfff, (len | 0xfff) + 1);
            let span = range(start, start + len);
            let slices: Vec<_> = slices(span, SLICE).collect();
            prop_assert_eq!(slices[0].start, span.start);
            prop_assert_eq!(slices[slices.len() - 1].end, span.end);
            for pair in slices.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
                prop_assert_eq!(pair[0].end.0 % HUGE_PAGE, 0);
            }
            prop_assert!(slices.iter().all(|slice| slice.len() <= SLICE));
        }

        #[test]
        fn batches_are_bounded(lens in prop::collection::vec(1..4096u64, 1..20)) {
            let mut start = 0;
            let spans: Vec<_> = lens.iter().map(|regions| {
                let span = range(start, start + regions * HUGE_PAGE);
                start = span.end.0 + HUGE_PAGE;
                span
            }).collect();
            let batches = batches(ClearMethod::MadvCold, &spans, None);
            let bytes = |batch: &Vec<AddressRange>| batch.iter().map(AddressRange::len).sum::<Bytes>();
            prop_assert!(batches.iter().all(|batch| bytes(batch) <= BATCH));
            prop_assert_eq!(batches.iter().map(bytes).sum::<Bytes>(), spans.iter().map(AddressRange::len).sum());
        }

        #[test]
        fn no_batch_clears_more_bits_than_it_may(regions in 1..300u64, bits in 0..512u64, most in 0..5000u64) {
            let spans = [range(0, regions * HUGE_PAGE)];
            let set_in = |slice: AddressRange| Pages(slice.len().0 / HUGE_PAGE * bits);
            let batches = batches(ClearMethod::MadvCold, &spans, Some((Pages(most), &set_in)));
            let in_batch = |batch: &Vec<AddressRange>| batch.iter().map(|slice| set_in(*slice).0).sum::<u64>();
            // A region is never divided.
            prop_assert!(batches.iter().all(|batch| in_batch(batch) <= most || batch.len() == 1));
            let cleared: u64 = batches.iter().flatten().map(|slice| slice.len().0).sum();
            prop_assert_eq!(cleared, regions * HUGE_PAGE);
        }
    }
}
