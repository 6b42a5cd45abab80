//! Samples as the kernel writes them (include/uapi/linux/perf_event.h).
//!
//! Owns: parsing the bytes of records. Never touches: their source; any bytes are parsed or skipped.

use heat::units::Address;

/// The fields requested in a sample: `PERF_SAMPLE_TID`, `_ADDR`, `_PERIOD`, `_DATA_SRC`.
pub const FIELDS: u64 = 1 << 1 | 1 << 3 | 1 << 8 | 1 << 15;

/// `PERF_RECORD_LOST`
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`
const SAMPLE: u32 = 9;
/// `struct perf_event_header`: a type, flags, and the size of the whole record.
const HEADER: usize = 8;

/// A record of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfRecord {
    /// One event of many.
    Sample(PerfSample),
    /// This many records found no room.
    Lost(u64),
}

/// One event of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfSample {
    /// The process.
    pub pid: u32,
    /// The address that was accessed; 0 if the event was no access.
    pub address: Address,
    /// The number of events that it represents.
    pub period: u64,
    /// Where the access found its data.
    pub source: DataSource,
}

/// `union perf_mem_data_src`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource(pub u64);

impl DataSource {
    /// Where `mem_dtlb` starts.
    const DTLB: u32 = 26;
    const MISS: u64 = 0x04;
    const LEVEL_1: u64 = 0x08;
    const LEVEL_2: u64 = 0x10;
    const WALKER: u64 = 0x20;

    /// Whether no TLB held the page, so the processor walked the page table. A miss of the first level alone is no walk: the second may hold the
    /// page.
    pub fn walked(self) -> bool {
        let tlb = self.0 >> Self::DTLB;
        let only_first_level = tlb & (Self::LEVEL_1 | Self::LEVEL_2) == Self::LEVEL_1;
        tlb & Self::WALKER != 0 || (tlb & Self::MISS != 0 && !only_first_level)
    }
}

/// The records in these bytes. Skips kinds without interest, and records too short for their contents; a truncated record ends it.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = PerfRecord> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER>()?;
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        if size < HEADER || size > rest.len() {
            return None;
        }
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let body = &rest[HEADER..size];
        rest = &rest[size..];
        Some(record(kind, body))
    })
    .flatten()
}

fn record(kind: u32, body: &[u8]) -> Option<PerfRecord> {
    let word = |number: usize| Some(u64::from_ne_bytes(*body.get(number * 8..)?.first_chunk()?));
    match kind {
        SAMPLE => Some(PerfRecord::Sample(PerfSample {
            pid: u32::from_ne_bytes(*body.first_chunk()?),
            address: Address(word(1)?),
            period: word(2)?,
            source: DataSource(word(3)?),
        })),
        // The event's id precedes the number.
        LOST => Some(PerfRecord::Lost(word(1)?)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod made {
    //! Records as the kernel writes them.

    use super::*;

    /// What Intel's PEBS reports for a load that the second-level TLB missed (`P(TLB, MISS) | P(TLB, L2)`), found in the third-level cache (`mem_op`
    /// LOAD, `mem_lvl` HIT | L3).
    pub(crate) const INTEL_WALK: u64 = 0x02 | (0x02 | 0x40) << 5 | (0x04 | 0x10) << 26;
    /// The same for a TLB hit (`P(TLB, HIT) | P(TLB, L1) | P(TLB, L2)`).
    pub(crate) const INTEL_HIT: u64 = 0x02 | (0x02 | 0x08) << 5 | (0x02 | 0x08 | 0x10) << 26;

    pub(crate) fn of_kind(kind: u32, body: &[u64]) -> Vec<u8> {
        let size = (HEADER + body.len() * 8) as u64;
        let header = u64::from(kind) | size << 48;
        [header].iter().chain(body).flat_map(|word| word.to_ne_bytes()).collect()
    }

    pub(crate) fn sample(pid: u32, address: u64, period: u64, source: u64) -> Vec<u8> {
        of_kind(SAMPLE, &[u64::from(pid) | u64::from(pid + 1) << 32, address, period, source])
    }

    pub(crate) fn lost(records: u64) -> Vec<u8> {
        of_kind(LOST, &[7, records])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::perf_mem::samples::made::*;

    #[test]
    fn intel_tells_a_walk_from_a_hit() {
        assert!(DataSource(INTEL_WALK).walked());
        assert!(!DataSource(INTEL_HIT).walked());
    }

    #[test]
    fn amd_tells_a_walk_from_hits_in_either_level() {
        // `perf_ibs_get_tlb_lvl`: for loads (0x02) and stores (0x04); nothing where the op was no access (0x01).
        let of = |op: u64, tlb: u64| DataSource(op | tlb << 26).walked();
        assert!(of(0x02, 0x04 | 0x10) && of(0x04, 0x04 | 0x10), "missed L2");
        assert!(!of(0x02, 0x02 | 0x08), "L1 hit");
        assert!(!of(0x02, 0x02 | 0x10), "L2 hit");
        assert!(!of(0x01, 0x01), "no access");
    }

    #[test]
    fn other_encodings_of_the_abi_are_understood() {
        let of = |tlb: u64| DataSource(tlb << 26).walked();
        assert!(of(0x20 | 0x02), "the walker found it");
        assert!(of(0x04), "a miss of no level in particular");
        assert!(!of(0x04 | 0x08), "missed L1, which L2 may hold");
        assert!(!of(0x00) && !of(0x01));
        // Neighbouring fields do not leak in.
        assert!(!DataSource(!(0x7f << 26)).walked());
    }

    #[test]
    fn records_are_read_one_after_the_other() {
        let unknown = of_kind(5, &[1, 2, 3]);
        let short = of_kind(SAMPLE, &[1, 2, 3]);
        let bytes =
            [sample(7, 0x1000, 100, INTEL_WALK), unknown, short, lost(3), sample(8, 0x2fff, 9, INTEL_HIT)].concat();
        let sample = |pid, address, period, source| {
            PerfRecord::Sample(PerfSample { pid, address: Address(address), period, source: DataSource(source) })
        };
        let expected = [sample(7, 0x1000, 100, INTEL_WALK), PerfRecord::Lost(3), sample(8, 0x2fff, 9, INTEL_HIT)];
        assert_eq!(records(&bytes).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_cut_off_or_makes_no_sense_ends_it() {
        let whole = sample(7, 0x1000, 1, INTEL_WALK);
        for cut in 0..whole.len() {
            assert_eq!(records(&whole[..cut]).count(), 0, "{cut}");
        }
        for size in [0u64, 7, u64::from(u16::MAX)] {
            let header = (u64::from(SAMPLE) | size << 48).to_ne_bytes();
            assert_eq!(records(&[header.as_slice(), whole.as_slice()].concat()).count(), 0, "{size}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_skipped(bytes: Vec<u8>, kinds in prop::collection::vec((0u32..12, 0u16..64), 0..20)) {
            let headers = kinds.iter().flat_map(|(kind, size)| (u64::from(*kind) | u64::from(*size) << 48).to_ne_bytes());
            let bytes: Vec<u8> = headers.chain(bytes).collect();
            prop_assert!(records(&bytes).count() <= bytes.len() / HEADER);
        }
    }
}
