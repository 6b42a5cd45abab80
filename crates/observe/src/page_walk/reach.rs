//! The scope of one observation: all of a program, or a sample of its base pages.
//!
//! Owns: which regions are cleared, and which page tables are read. Never touches: either.

use std::ops::Range;

use heat::sample::{Coverage, draw};
use heat::units::{Address, AddressRange, Bytes};
use heat::{Mapping, Region, Sample};

use crate::mapped;

/// Page tables between two sampled blocks are also read where they map less than this: that is cheaper than another call.
const READ_THROUGH: Bytes = Bytes(128 << 20);

/// The scope.
pub(super) struct Reach {
    /// Indices of the regions in the sample, ascending; None where everything is observed.
    drawn: Option<Vec<Range<usize>>>,
    /// Whether huge pages are observed, too, inside and outside the sample.
    with_huge: bool,
    /// Addresses whose page tables are read, ascending.
    to_read: Vec<AddressRange>,
}

impl Reach {
    /// `regions`: all regions, in `user_space`. `tell_use_of_huge`: whether huge pages are observed, too.
    pub(super) fn of(coverage: Coverage, regions: &[Region], user_space: AddressRange, tell_use_of_huge: bool) -> Self {
        let drawn = match coverage {
            Coverage::Everything => None,
            Coverage::Sample { size, seed, .. } => draw(regions, size, seed),
        };
        let mut reach = Self { with_huge: drawn.is_none() || tell_use_of_huge, drawn, to_read: vec![user_space] };
        if reach.is_sample() {
            let observed = (0..regions.len()).filter(|&index| reach.holds(index, &regions[index]));
            reach.to_read = joined(observed.map(|index| regions[index].range()));
        }
        reach
    }

    fn holds(&self, index: usize, region: &Region) -> bool {
        let in_sample = |drawn: &Vec<Range<usize>>| {
            let block = drawn.partition_point(|block| block.end <= index);
            drawn.get(block).is_some_and(|block| block.contains(&index))
        };
        if region.huge { self.with_huge } else { self.drawn.as_ref().is_none_or(in_sample) }
    }

    pub(super) fn is_sample(&self) -> bool {
        self.drawn.is_some()
    }

    /// What is to be cleared, each piece within one mapping.
    pub(super) fn spans(&self, regions: &[Region], mappings: &[Mapping]) -> Vec<AddressRange> {
        if !self.is_sample() {
            return mapped::spans(regions, mappings);
        }
        let observed = regions.iter().enumerate().filter(|(index, region)| self.holds(*index, region));
        mapped::spans(&observed.map(|(_, region)| region.clone()).collect::<Vec<_>>(), mappings)
    }

    /// Marks the regions that were not observed. Base pages outside a sample are recognized by not having been cleared; huge pages are never cleared.
    pub(super) fn pass_over_huge(&self, regions: &mut [Region]) {
        if !self.with_huge {
            let huge = regions.iter_mut().filter(|region| region.huge);
            huge.for_each(|region| region.unobserved = region.present.len() as u16);
        }
    }

    /// The parts of `range` whose page tables are read.
    pub(super) fn within(&self, range: AddressRange) -> Vec<AddressRange> {
        let first = self.to_read.partition_point(|part| part.end <= range.start);
        let parts = self.to_read[first..].iter().take_while(|part| part.start < range.end);
        parts.map(|part| AddressRange { start: part.start.max(range.start), end: part.end.min(range.end) }).collect()
    }

    /// The projection from a sample of rated regions to the whole; None where everything was observed.
    pub(super) fn sample(&self, regions: &[Region]) -> Option<Sample> {
        self.drawn.as_ref().map(|drawn| Sample::of(drawn, regions))
    }
}

/// Ascending ranges, merged where they are close together.
fn joined(ranges: impl Iterator<Item = AddressRange>) -> Vec<AddressRange> {
    let mut joined: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if Address(last.end.0 + READ_THROUGH.0) >= range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, heat_of, huge, region};
    use heat::units::HUGE_PAGE;

    use super::*;

    const ALL: AddressRange = AddressRange { start: Address(0), end: Address(1 << 47) };

    #[test]
    fn a_sample_is_cleared_without_its_huge_pages_and_read_in_few_pieces() {
        let regions: Vec<Region> =
            (0..4096).map(|number| if number % 5 == 0 { huge(number, 1.0) } else { region(number, 1.0, 0) }).collect();
        let mut heat = heat_of(regions);
        let sample = Coverage::Sample { size: Bytes(512 << 20), longest: None, seed: 3 };
        let reach = Reach::of(sample, &heat.regions, ALL, false);
        let spans = reach.spans(&heat.regions, &heat.mappings);
        let cleared: Bytes = spans.iter().map(AddressRange::len).sum();
        assert!((Bytes(512 << 20)..Bytes(520 << 20)).contains(&cleared), "{cleared}");
        let is_huge = |address: Address| ((address.0 - at(0).0) / HUGE_PAGE).is_multiple_of(5);
        assert!(spans.iter().all(|span| span.start.0.is_multiple_of(HUGE_PAGE) && !is_huge(span.start)));
        assert!(spans.iter().all(|span| span.len().0 <= 4 * HUGE_PAGE));
        let is_read =
            |span: &AddressRange| reach.within(ALL).iter().any(|part| part.start <= span.start && span.end <= part.end);
        assert!(spans.iter().all(is_read));
        reach.pass_over_huge(&mut heat.regions);
        assert!(heat.regions.iter().all(|region| region.unobserved == if region.huge { 512 } else { 0 }));
    }

    #[test]
    fn huge_pages_are_all_observed_where_their_use_is_to_be_told() {
        let regions: Vec<Region> =
            (0..4096).map(|number| if number % 5 == 0 { huge(number, 1.0) } else { region(number, 1.0, 0) }).collect();
        let mut heat = heat_of(regions);
        let sample = Coverage::Sample { size: Bytes(512 << 20), longest: None, seed: 3 };
        let reach = Reach::of(sample, &heat.regions, ALL, true);
        let cleared: Bytes = reach.spans(&heat.regions, &heat.mappings).iter().map(AddressRange::len).sum();
        let all_huge = Bytes(820 * HUGE_PAGE);
        assert!((Bytes(512 << 20) + all_huge..Bytes(520 << 20) + all_huge).contains(&cleared), "{cleared}");
        reach.pass_over_huge(&mut heat.regions);
        assert!(heat.regions.iter().all(|region| region.unobserved == 0));
        assert!(reach.is_sample() && reach.within(ALL).len() == 1, "{:?}", reach.within(ALL));
    }

    #[test]
    fn everything_is_one_piece() {
        let mut heat = heat_of(vec![region(0, 1.0, 0), huge(1, 1.0)]);
        let sample = Coverage::Sample { size: Bytes(HUGE_PAGE), longest: None, seed: 3 };
        let reach = Reach::of(sample, &heat.regions, ALL, false);
        assert!(!reach.is_sample() && reach.sample(&heat.regions).is_none());
        let range = AddressRange { start: at(0), end: at(1) };
        assert_eq!((reach.within(range), reach.within(ALL)), (vec![range], vec![ALL]));
        reach.pass_over_huge(&mut heat.regions);
        assert_eq!(heat.regions[1].unobserved, 0);
    }
}
