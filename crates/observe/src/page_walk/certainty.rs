//! What one observation knows about all walks together, besides the rate of each region.
//!
//! Owns: the order in which rates are corrected and bounded. Never touches: page tables.

use std::ops::Range;

use heat::clearing::ClearMethod;
use heat::walks::{self, SeenPages, TLB_ENTRIES};
use heat::{Region, Walks, rate};

use crate::page_walk::Watch;

impl Watch<'_> {
    /// Corrects, for each of the batches observed one after the other, what observing did to the program; and bounds the walks. `price`: what a first
    /// walk costs the program on this machine.
    pub(super) fn bound_walks(&mut self, batches: &[Range<usize>], busy_cpus: f64) -> Walks {
        let all = || self.seen(0..self.regions.len()).map(|(_, seen)| seen);
        let passes = walks::outside_passes(all());
        let scattered = walks::by_both(walks::scattered(all()), passes);
        let mut bounds = Walks { scattered, ..Walks::default() };
        // All batches share one TLB, and a program that keeps doing the same keeps the same pages in it.
        let (tlb_entries, all_pages) =
            (self.tlb_entries(busy_cpus), self.pages_observed(0..self.regions.len()).max(1.0));
        for of_batch in batches {
            if let (Some(scattered), Some(_)) = (scattered, passes) {
                rate::undo_order(&mut self.regions[of_batch.clone()], &self.read_counts[of_batch.clone()], scattered);
            }
            let seen = rate::base_rates(&self.regions[of_batch.clone()]);
            let certain = match self.clearing.method {
                ClearMethod::ClearRefs => None,
                ClearMethod::MadvCold => {
                    let entries = tlb_entries * self.pages_observed(of_batch.clone()) / all_pages;
                    Some(self.certain_share(of_batch.clone(), entries))
                }
            };
            let regions = &mut self.regions[of_batch.clone()];
            let at_most = seen * rate::slowdown(regions, busy_cpus, self.price);
            rate::undo_slowdown(regions, busy_cpus);
            let walks = rate::base_rates(regions);
            bounds.at_least_per_second += certain.map_or(walks, |share| share * rate::rates_at_random(regions));
            bounds.at_most_per_second += at_most.max(walks);
        }
        bounds
    }

    /// The certain share of what a batch walks at random. A pass that comes while bits are cleared walks many pages at once, and would seem certain for
    /// the rest.
    fn certain_share(&self, of_batch: Range<usize>, tlb_entries: f64) -> f64 {
        let at_random = self.seen(of_batch.clone()).filter(|(region, _)| !region.in_order).map(|(_, seen)| seen);
        walks::certain_share(at_random, rate::rates_at_random(&self.regions[of_batch]), tlb_entries)
    }

    /// Regions on base pages whose bits are meaningful, and their observations.
    fn seen(&self, of: Range<usize>) -> impl Iterator<Item = (&Region, SeenPages<'_>)> + Clone {
        let (regions, read_counts, early) = (&self.regions[of.clone()], &self.read_counts[of.clone()], &self.early[of]);
        let all = regions.iter().zip(read_counts).zip(early);
        all.filter(|((region, _), _)| !region.huge && region.unobserved == 0).map(|((region, read_counts), early)| {
            (region, SeenPages { observed: region.present.len() as u32, read_counts, early })
        })
    }

    fn pages_observed(&self, of: Range<usize>) -> f64 {
        self.seen(of).map(|(_, seen)| f64::from(seen.observed)).sum()
    }

    /// How many of the observed pages TLBs may hold; for a sample, its share.
    fn tlb_entries(&self, busy_cpus: f64) -> f64 {
        let entries = hugepilot_os::tlb_entries().unwrap_or(TLB_ENTRIES) as f64;
        let share = self.reach.sample(&self.regions).map_or(1.0, |sample| sample.factor().recip());
        entries * busy_cpus.ceil().max(1.0) * share
    }
}
