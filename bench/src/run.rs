//! The interleaver: rounds, in each of which every configuration has one turn.
//!
//! Owns: the order of turns and the progress bar. Never touches: what happens in a turn.
//!
//! Configurations take turns within a round, rather than one after the other having all of its rounds, so that a machine that grows
//! slower or faster over the hours does so for all of them. The order is shuffled anew in each round, because whoever always
//! follows the same neighbour inherits its traces.
//!
//! Two processes differ by a few per cent, by where their pages happen to lie. What differs less is measured in one process a
//! round: first the configurations that leave it as it is, in an order shuffled anew, then those that promote, then the ceiling.

use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use crate::configuration::Configuration;
use crate::record::Run;
use crate::turn::Bench;

/// How often a bar is drawn that does not move.
pub const TICK: Duration = Duration::from_millis(500);

/// Runs all rounds; turns that were completed are in `run` even when this ends with an error.
pub fn run_rounds(bench: &mut Bench<'_>, configurations: &[Configuration], run: &mut Run) -> Result<()> {
    let bar = progress_bar(u64::from(run.rounds) * configurations.len() as u64);
    for round in 0..run.rounds {
        for configurations in processes_of_round(configurations, run.one_process, run.seed, round) {
            let names = configurations.iter().map(Configuration::to_string).collect::<Vec<_>>().join(", ");
            bar.set_message(format!("{} round {}: {names}", run.workload, round + 1));
            let turns = bench
                .process(round, &configurations)
                .with_context(|| format!("{} under {names}, round {}", run.workload, round + 1))?;
            bar.inc(turns.len() as u64);
            run.turns.extend(turns);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Prints what is about to happen, and how long it will take.
pub fn announce(bench: &Bench<'_>, configurations: &[Configuration], run: &Run) {
    let turns = configurations.len() as f64;
    let each = bench.timing.wait + bench.timing.measure;
    let round = match run.one_process {
        true => estimated_start_seconds(bench) + turns * each.as_secs_f64(),
        false => turns * (estimated_start_seconds(bench) + each.as_secs_f64()),
    };
    let seconds = round * f64::from(run.rounds);
    let minutes = (seconds / 60.0).ceil();
    eprintln!(
        "{}: {}\n{} rounds of {turns} configurations{}, about {minutes} min; Ctrl-C ends early and reports what there is",
        run.workload,
        run.description,
        run.rounds,
        if run.one_process { " in one process each" } else { "" }
    );
    run.missing.iter().for_each(|missing| eprintln!("not measured here: {missing}"));
}

fn estimated_start_seconds(bench: &Bench<'_>) -> f64 {
    let warm = 0.3e-9 * bench.workload.memory_bytes() as f64;
    warm + bench.workload.start_seconds() + bench.timing.settle.as_secs_f64()
}

/// The processes of one round, each with the configurations that it is measured under.
fn processes_of_round(
    configurations: &[Configuration],
    one_process: bool,
    seed: u64,
    round: u32,
) -> Vec<Vec<Configuration>> {
    let mut order = order_of_round(configurations, seed, round);
    if !one_process {
        return order.into_iter().map(|configuration| vec![configuration]).collect();
    }
    order.sort_by_key(|configuration| configuration.degree_of_change());
    vec![order]
}

/// All of these, in the order of one round.
pub fn order_of_round<T: Clone>(all: &[T], seed: u64, round: u32) -> Vec<T> {
    let mut order = all.to_vec();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(round))));
    order
}

/// Counts turns, on standard error, and only when that is a terminal.
pub fn progress_bar(turns: u64) -> ProgressBar {
    let bar = bar_with(turns, "{bar:30} {pos}/{len} {msg} (left: {eta})");
    bar.enable_steady_tick(TICK);
    bar
}

/// The same for what takes more or less time. It is drawn only when it moves, unless that is asked for, because another thread would
/// disturb what is timed.
pub fn share_bar(length: u64) -> ProgressBar {
    bar_with(length, "{bar:30} {percent} % {msg} (left: {eta})")
}

fn bar_with(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_configuration_in_an_order_of_its_own() {
        let all = [Configuration::Default, Configuration::Always, Configuration::Ideal, Configuration::DefaultAgain];
        let orders: Vec<_> = (0..20).map(|round| order_of_round(&all, 1, round)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!(sorted, all);
        }
        assert!(orders.iter().any(|order| order != &orders[0]));
        assert_eq!(orders[3], order_of_round(&all, 1, 3));
    }

    #[test]
    fn one_process_is_changed_step_by_step() {
        use Configuration::*;
        let all = [Ideal, Hugepilot, HugepilotNoGrowth, Default, Observed, DefaultAgain];
        let orders: Vec<_> = (0..20).flat_map(|round| processes_of_round(&all, true, 1, round)).collect();
        assert_eq!(orders.len(), 20);
        for order in &orders {
            assert_eq!(order[3..], [HugepilotNoGrowth, Hugepilot, Ideal]);
        }
        assert!(orders.iter().any(|order| order[..3] != orders[0][..3]));
        assert_eq!(processes_of_round(&all, false, 1, 0).len(), 6);
    }
}
