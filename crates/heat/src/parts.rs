//! Parts of regions: regions are 2 MiB, and small mappings share them.
//!
//! Owns: dividing regions, and their page walks. Never touches: the heat.

use crate::units::{Bytes, Pages};
use crate::{Heat, Mapping, PageSet, Region, SeenMemory};

/// Pages of a region that belong to the same owner.
pub(crate) struct Part<O> {
    pub owner: O,
    pub present: PageSet,
    pub walked: PageSet,
    pub huge: bool,
    pub walks_per_second: f64,
}

impl<O> Part<O> {
    pub(crate) fn amount(&self) -> SeenMemory {
        let huge = if self.huge { Pages(self.present.len() as u64).bytes() } else { Bytes(0) };
        SeenMemory::of(self.walks_per_second, &self.present, &self.walked, huge)
    }
}

/// Divides a region by the owner of each present page. Its walks are divided by pages walked or, if none was seen walked, by pages present.
pub(crate) fn cut<O: PartialEq>(region: &Region, mut owner_of: impl FnMut(usize) -> O) -> Vec<Part<O>> {
    let mut parts: Vec<Part<O>> = Vec::new();
    for page in region.present.iter() {
        let owner = owner_of(page);
        if parts.last().is_none_or(|part| part.owner != owner) {
            let (present, walked) = (PageSet::NONE, PageSet::NONE);
            parts.push(Part { owner, present, walked, huge: region.huge, walks_per_second: 0.0 });
        }
        let part = parts.last_mut().expect("just pushed");
        part.present.insert(page);
        if region.walked.contains(page) {
            part.walked.insert(page);
        }
    }
    let weight = |part: &Part<O>| if region.walked.is_empty() { part.present.len() } else { part.walked.len() } as f64;
    let whole: f64 = parts.iter().map(weight).sum();
    for part in &mut parts {
        part.walks_per_second = region.walks_per_second * weight(part) / whole;
    }
    parts
}

/// One mapping's part of one region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MappingPart {
    /// The region, as an index into [`Heat::regions`].
    pub region: usize,
    /// The mapping, as an index into [`Heat::mappings`]; None if it went away during the scan.
    pub mapping: Option<usize>,
    /// The amount of memory.
    pub amount: SeenMemory,
}

/// Every region, ascending; regions in several mappings are divided.
pub fn by_mapping(heat: &Heat) -> impl Iterator<Item = MappingPart> + '_ {
    heat.regions.iter().enumerate().flat_map(|(number, region)| {
        let part = move |mapping, amount| MappingPart { region: number, mapping, amount };
        if lies_in_one(region, &heat.mappings) {
            return vec![part(region.mapping_index(), region.amount())];
        }
        let parts = cut(region, |page| mapping_of(page, region, &heat.mappings));
        parts.into_iter().map(|each| part(each.owner, each.amount())).collect()
    })
}

fn lies_in_one(region: &Region, mappings: &[Mapping]) -> bool {
    let (range, holder) = (region.range(), region.mapping_index().and_then(|mapping| mappings.get(mapping)));
    holder.is_none_or(|holder| holder.range.start <= range.start && range.end <= holder.range.end)
}

fn mapping_of(page: usize, region: &Region, mappings: &[Mapping]) -> Option<usize> {
    let address = region.page(page);
    let found = mappings.partition_point(|mapping| mapping.range.end <= address);
    let holds = mappings.get(found).is_some_and(|mapping| mapping.range.contains(address));
    // A recording keeps the number of pages, not which they are.
    if holds { Some(found) } else { region.mapping_index() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{heat_of, region};
    use crate::units::{Address, AddressRange, BASE_PAGE};

    #[test]
    fn a_region_of_two_mappings_is_cut_at_their_border() {
        let mut heat = heat_of(vec![region(0, 0.0, 0), region(1, 1000.0, 256)]);
        let border = Address(heat.regions[1].start.0 + 384 * BASE_PAGE);
        let end = heat.mappings[0].range.end;
        heat.mappings[0].range.end = border;
        let upper = Mapping { range: AddressRange { start: border, end }, ..heat.mappings[0].clone() };
        heat.mappings.push(upper);
        heat.regions[1].walked = PageSet::NONE;
        (380..400).for_each(|page| heat.regions[1].walked.insert(page));
        let found: Vec<_> = by_mapping(&heat)
            .map(|part| (part.region, part.mapping, part.amount.present.0, part.amount.walks_per_second))
            .collect();
        assert_eq!(found, [(0, Some(0), 512, 0.0), (1, Some(0), 128, 200.0), (1, Some(1), 128, 800.0)]);
        heat.regions[1].walked = PageSet::NONE;
        assert!(by_mapping(&heat).skip(1).all(|part| part.amount.walks_per_second == 500.0));
        let sum: SeenMemory = by_mapping(&heat).map(|part| part.amount).sum();
        assert_eq!(sum, heat.amount());
    }
}
