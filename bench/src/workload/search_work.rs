//! The cost and results of searches, added up over queries.
//!
//! Owns: this account and what is derived from it. Never touches: the search.

use std::ops::AddAssign;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::fingerprint::music::EXCERPT_SECONDS;

/// A search that finds fewer of the requested songs is invalid.
const LEAST_RECALL: f64 = 0.99;

/// The sum over some queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchWork {
    /// The number of queries.
    pub queries: u64,
    /// Queries whose song was ranked first.
    pub found: u64,
    /// Lists read.
    pub look_ups: u64,
    /// Entries in these lists.
    pub postings: u64,
    /// Time to compute the fingerprints of the excerpts, over all threads.
    pub extract_ns: u64,
    /// Time to read their lists and add up the entries.
    pub look_up_ns: u64,
    /// Time to rank the songs.
    pub rank_ns: u64,
}

impl AddAssign for SearchWork {
    fn add_assign(&mut self, more: Self) {
        self.queries += more.queries;
        self.found += more.found;
        self.look_ups += more.look_ups;
        self.postings += more.postings;
        self.extract_ns += more.extract_ns;
        self.look_up_ns += more.look_up_ns;
        self.rank_ns += more.rank_ns;
    }
}

impl SearchWork {
    /// The total time over all threads.
    pub fn busy_ns(&self) -> u64 {
        self.extract_ns + self.look_up_ns + self.rank_ns
    }

    /// A part's share of the total time.
    pub fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.busy_ns().max(1) as f64
    }

    /// The share of queries whose song was found.
    pub fn recall(&self) -> f64 {
        self.found as f64 / self.queries.max(1) as f64
    }

    /// A number per query.
    pub fn each(&self, number: u64) -> f64 {
        number as f64 / self.queries.max(1) as f64
    }

    /// A query's time in its thread, relative to the length of its excerpt: above 1 a thread cannot keep up with music that is playing.
    pub fn real_time_factor(&self) -> f64 {
        self.each(self.busy_ns()) / 1e9 / EXCERPT_SECONDS
    }

    /// Errors: too few songs were found; the speed of wrong answers is of no interest.
    pub fn ensure_found(&self) -> Result<()> {
        ensure!(
            self.recall() >= LEAST_RECALL,
            "the search found {} of {} songs, which is less than {:.0} %: its speed means nothing",
            self.found,
            self.queries,
            LEAST_RECALL * 100.0
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: SearchWork = SearchWork {
        queries: 100,
        found: 99,
        look_ups: 100_000,
        postings: 7_000_000,
        extract_ns: 78_125_000,
        look_up_ns: 624_000_000,
        rank_ns: 79_125_000,
    };

    #[test]
    fn shares_are_of_the_whole_and_time_is_of_the_excerpts() {
        assert!((WORK.share(WORK.extract_ns) - 0.1).abs() < 1e-3);
        assert!((WORK.real_time_factor() - 0.001).abs() < 1e-5, "{}", WORK.real_time_factor());
        let mut twice = WORK;
        twice += WORK;
        assert_eq!((twice.queries, twice.busy_ns()), (200, 2 * WORK.busy_ns()));
        assert_eq!(twice.real_time_factor(), WORK.real_time_factor());
    }

    #[test]
    fn a_search_that_misses_songs_is_an_error() {
        assert!(WORK.ensure_found().is_ok());
        let error = SearchWork { found: 98, ..WORK }.ensure_found().unwrap_err().to_string();
        assert!(error.contains("98 of 100"), "{error}");
    }

    #[test]
    fn nothing_searched_is_no_number_at_all() {
        let nothing = SearchWork::default();
        assert_eq!((nothing.share(0), nothing.recall(), nothing.real_time_factor()), (0.0, 0.0, 0.0));
    }
}
