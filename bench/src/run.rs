//! The interleaver: rounds, in each of which every configuration has one turn.
//!
//! Owns: which configurations share a process, and the order of processes. Never touches: what happens in a turn.
//!
//! In each round every configuration has one turn, so that a machine that slows down or speeds up over the hours affects all of them alike. Each
//! round shuffles the order, because a configuration that always follows the same neighbour would inherit its after-effects.
//!
//! Two processes differ by a few per cent, depending on where their pages are. Configurations with smaller differences share one process per round:
//! first those that leave it unchanged, in shuffled order, then those that promote, then the ceiling.

use anyhow::{Context, Result};

use crate::configuration::Configuration;
use crate::record::Run;
use crate::rounds::{order_of_round, progress_bar, turns_done};
use crate::turn::Bench;

/// Runs all rounds; completed turns are in `run` even if this ends with an error.
pub fn run_rounds(bench: &mut Bench<'_>, configurations: &[Configuration], run: &mut Run) -> Result<()> {
    let bar = progress_bar(u64::from(run.rounds) * configurations.len() as u64);
    for round in 0..run.rounds {
        for configurations in processes_of_round(configurations, run.one_process, run.seed, round) {
            let names = configurations.iter().map(Configuration::to_string).collect::<Vec<_>>().join(", ");
            bar.set_message(format!("{} round {}: {names}", run.workload, round + 1));
            let turns = bench
                .process(round, &configurations)
                .with_context(|| format!("{} under {names}, round {}", run.workload, round + 1))?;
            turns_done(&bar, turns.len() as u64);
            run.turns.extend(turns);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Prints what is about to run, and how long it will take.
pub fn announce(bench: &Bench<'_>, configurations: &[Configuration], run: &Run) {
    let turns = configurations.len() as f64;
    let each = bench.timing.wait + bench.timing.measure;
    let round = match run.one_process {
        true => estimated_start_seconds(bench) + turns * each.as_secs_f64(),
        false => turns * (estimated_start_seconds(bench) + each.as_secs_f64()),
    };
    let seconds = round * f64::from(run.rounds);
    let length = match bench.timing.operations {
        Some(operations) => format!("each until {operations} operations are done"),
        None => format!("about {} min", (seconds / 60.0).ceil()),
    };
    eprintln!(
        "{}: {}\n{} rounds of {turns} configurations{}, {length}; Ctrl-C ends early and reports what there is",
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

/// The processes of one round, each with the configurations measured in it.
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

#[cfg(test)]
mod tests {
    use super::*;

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
