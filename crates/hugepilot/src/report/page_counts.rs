//! Counters of pages: in how many scans each base page was found walked.
//!
//! Owns: the counters, and their form as text. Never touches: how pages are observed.

use std::collections::BTreeMap;
use std::fmt::Write;

use heat::units::{Address, AddressRange, BASE_PAGE, PAGES_PER_REGION};
use heat::{Heat, Mapping};
use pilot::words::count_of;

use super::mapping_name;

/// Characters shown of a mapping's name.
const NAME_LIMIT: usize = 48;

/// In how many scans each page was walked.
#[derive(Default)]
pub struct PageCounts {
    scans: u64,
    regions: BTreeMap<Address, [u16; PAGES_PER_REGION]>,
    mappings: Vec<Mapping>,
}

/// Adjacent pages that were walked in equally many scans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountRun {
    /// Their addresses.
    pub range: AddressRange,
    /// The number of scans in which they were walked.
    pub count: u16,
}

impl PageCounts {
    /// How many scans were counted.
    pub fn observations(&self) -> u64 {
        self.scans
    }

    /// Adds one scan.
    pub fn add(&mut self, heat: &Heat) {
        self.scans += 1;
        self.mappings.clone_from(&heat.mappings);
        for region in heat.regions.iter().filter(|region| !region.walked.is_empty()) {
            let counts = self.regions.entry(region.start).or_insert([0; PAGES_PER_REGION]);
            region.walked.iter().for_each(|page| counts[page] = counts[page].saturating_add(1));
        }
    }

    /// Pages that were walked, ascending.
    pub fn runs(&self) -> Vec<CountRun> {
        let mut runs: Vec<CountRun> = Vec::new();
        for (start, counts) in &self.regions {
            for (page, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let start = Address(start.0 + page as u64 * BASE_PAGE);
                let end = Address(start.0 + BASE_PAGE);
                match runs.last_mut().filter(|last| last.range.end == start && last.count == count) {
                    Some(last) => last.range.end = end,
                    None => runs.push(CountRun { range: AddressRange { start, end }, count }),
                }
            }
        }
        runs
    }

    /// One line per mapping with walked pages, and one per run in it.
    pub fn text(&self) -> String {
        let mut text = format!("walked in how many of {}, by addresses\n", count_of(self.scans, "scan"));
        let mut named = None;
        for CountRun { range, count } in self.runs() {
            let mapping = self.mappings.iter().find(|mapping| mapping.range.contains(range.start));
            if named != mapping.map(|mapping| mapping.range.start) {
                named = mapping.map(|mapping| mapping.range.start);
                let name = mapping.map_or("(anonymous)".to_owned(), |mapping| mapping_name(Some(mapping), NAME_LIMIT));
                _ = writeln!(text, "{name}");
            }
            _ = writeln!(text, "  {}-{} {count}", range.start, range.end);
        }
        text
    }

    /// All scans.
    pub fn scans(&self) -> u64 {
        self.scans
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, heat_of, region};
    use heat::{PageSet, Region};

    use super::*;

    #[test]
    fn pages_are_counted_and_neighbours_that_are_alike_told_together() {
        let walked = |number: u64, pages: &[usize]| {
            let mut set = PageSet::NONE;
            pages.iter().for_each(|&page| set.insert(page));
            Region { walked: set, ..region(number, 1.0, 0) }
        };
        let mut counts = PageCounts::default();
        counts.add(&heat_of(vec![walked(1, &[0, 1, 2, 9]), walked(3, &[511]), walked(4, &[0])]));
        counts.add(&heat_of(vec![walked(1, &[2, 3])]));
        let run = |first: (u64, u64), end: (u64, u64), count: u16| CountRun {
            range: AddressRange {
                start: Address(at(first.0).0 + first.1 * BASE_PAGE),
                end: Address(at(end.0).0 + end.1 * BASE_PAGE),
            },
            count,
        };
        let runs = counts.runs();
        assert_eq!(
            runs,
            [
                run((1, 0), (1, 2), 1),
                run((1, 2), (1, 3), 2),
                run((1, 3), (1, 4), 1),
                run((1, 9), (1, 10), 1),
                run((3, 511), (4, 1), 1),
            ]
        );
        assert!(counts.text().starts_with("walked in how many of 2 scans, by addresses\n"), "{}", counts.text());
        assert!(counts.text().contains(&format!("  {}-{} 2\n", runs[1].range.start, runs[1].range.end)));
        let json: serde_json::Value = serde_json::from_str(&crate::report::json::pages(7, &counts)).unwrap();
        assert_eq!((&json["scans"], &json["pages"][1]["count"], &json["pid"]), (&2.into(), &2.into(), &7.into()));
    }
}
