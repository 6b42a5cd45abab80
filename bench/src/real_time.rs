//! Searches under a load that matters: as many streams of music as a thread by default just cannot keep up with.
//!
//! Owns: that number, and the real-time factors at it. Never touches: what was measured, which is the time of each query.
//!
//! One excerpt is answered in a small part of the time that it lasts. A thread that listens to several streams has an excerpt of each
//! to answer meanwhile, one after the other: so its real-time factor grows with their number, and passes 1 where it cannot keep up.

use crate::comparison::typical;
use crate::configuration::Configuration;
use crate::record::Run;
use crate::workload::SearchWork;

/// Whether a run is one of searches that are judged under load. Those that were kept from before, of a tenth of the songs, are not.
pub fn is_loaded(run: &Run) -> bool {
    run.workload.starts_with("music search")
}

/// The fewest streams that a thread cannot keep up with by default.
pub fn streams(run: &Run) -> Option<f64> {
    kept_up_with(run, Configuration::Default).map(|streams| streams + 1.0)
}

/// The most streams that a thread keeps up with.
pub fn kept_up_with(run: &Run, configuration: Configuration) -> Option<f64> {
    factor(run, configuration).map(|factor| (1.0 / factor).floor())
}

/// The real-time factor of one stream.
pub fn factor(run: &Run, configuration: Configuration) -> Option<f64> {
    typical(run, configuration, |turn| turn.search.as_ref().map(SearchWork::real_time_factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;

    #[test]
    fn default_cannot_keep_up_with_one_stream_more() {
        let turns = &[(Configuration::Default, &[1.0; 2][..], 1), (Configuration::Run1G, &[1.0; 2], 1)];
        let mut run = run_of("music search 1 thread", turns);
        assert_eq!(streams(&run), None, "nothing was searched");
        for turn in &mut run.turns {
            let look_up_ns = if turn.configuration == Configuration::Default { 78_000_000 } else { 39_000_000 };
            turn.search = Some(SearchWork { queries: 1, look_up_ns, ..SearchWork::default() });
        }
        assert_eq!(streams(&run), Some(101.0));
        assert_eq!(kept_up_with(&run, Configuration::Run1G), Some(200.0));
        assert!(is_loaded(&run) && !is_loaded(&run_of("fingerprint 1 thread", turns)));
    }
}
