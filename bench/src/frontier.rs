//! Gain against growth: what each configuration gained for how much memory, beside the best that any rule could do that leaves pages where
//! they are.
//!
//! Owns: these rows. Never touches: how they are shown.

use crate::comparison::{Metric, ratio};
use crate::configuration::Configuration;
use crate::record::Run;

/// A configuration's gain and growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontierRow {
    /// The configuration.
    pub configuration: Configuration,
    /// Memory over the default's, as a share of it.
    pub growth: f64,
    /// Throughput over the default's, as a share of it.
    pub gain: f64,
}

/// A row for each configuration but the default.
pub fn rows(run: &Run) -> Vec<FrontierRow> {
    let row = |configuration| {
        let over = |metric| Some(ratio(run, metric, configuration, Configuration::Default)?.estimate - 1.0);
        Some(FrontierRow { configuration, growth: over(Metric::OwnMemory)?, gain: over(Metric::Throughput)? })
    };
    let compared =
        |configuration: &Configuration| !matches!(configuration, Configuration::Default | Configuration::DefaultAgain);
    run.configurations().into_iter().filter(compared).filter_map(row).collect()
}

/// The gain of the ceiling, by which shares of the accesses become gains.
pub fn ideal_gain(run: &Run) -> Option<f64> {
    rows(run).into_iter().find(|row| row.configuration == Configuration::Ideal).map(|row| row.gain)
}

/// The share of the accesses that can lie on huge pages at most, for so much memory more.
pub fn most_accesses(run: &Run, growth: f64) -> f64 {
    let within = run.frontier.iter().take_while(|point| point.growth <= growth.max(0.0));
    within.last().map_or(0.0, |point| point.accesses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;
    use crate::workload::FrontierPoint;

    #[test]
    fn the_best_rule_is_read_off_at_a_growth() {
        let mut run = run_of(
            "sweep scattered",
            &[(Configuration::Default, &[1e6; 6], 1 << 20), (Configuration::Ideal, &[1.2e6; 6], 3 << 20)],
        );
        run.frontier =
            [(0.0, 0.0), (0.5, 0.4), (2.0, 1.0)].map(|(growth, accesses)| FrontierPoint { growth, accesses }).to_vec();
        assert_eq!(
            [-0.1, 0.0, 0.49, 0.5, 1.9, 9.0].map(|growth| most_accesses(&run, growth)),
            [0.0, 0.0, 0.0, 0.4, 0.4, 1.0]
        );
        let [row] = rows(&run)[..] else { panic!("one beside the default") };
        assert!((row.growth - 2.0).abs() < 1e-9 && (row.gain - 0.2).abs() < 1e-9, "{row:?}");
        assert_eq!(ideal_gain(&run), Some(row.gain));
    }
}
