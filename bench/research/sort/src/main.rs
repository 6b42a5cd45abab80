//! Sorts alternately in ordinary and in large pages, and prints a line of JSON for each sort: the benchmark for systems without hugepilot-research,
//! such as Windows. `hugepilot-research sort --from FILE` makes the report from these lines.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::line::SortTurn;
use hugepilot_sort::task::{PageChoice, Task, TaskError};

const EXAMPLES: &str = "\
Examples:
  hugepilot-sort --sizes 1,8,64 --rounds 3 > sort.json     a first result in minutes
  hugepilot-sort > sort.json                               1 MiB to 1 GiB: hours, most of them for the heap sort of 1 GiB

`hugepilot-research sort --from sort.json` makes the report, on Linux.";

/// Sorts Mersenne Twister numbers by turns in ordinary and in large pages; prints a line of JSON for each turn.
#[derive(Debug, Parser)]
#[command(name = "hugepilot-sort", version, after_help = EXAMPLES)]
struct Arguments {
    /// Sizes in MiB, separated by commas [default: 1 to 1024 in powers of two]
    #[arg(long, value_name = "MIB", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    sizes: Vec<u32>,
    /// The algorithms, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["heap", "quick", "merge"])]
    algorithms: Vec<Algorithm>,
    /// Rounds; 6 give an interval of 95 %
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hugepilot-sort: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let usual: Vec<u32> = (0..=10).map(|power| 1 << power).collect();
    let sizes = if arguments.sizes.is_empty() { &usual } else { &arguments.sizes };
    let mut warned = false;
    for round in 0..arguments.rounds {
        for &mebibytes in sizes {
            for &algorithm in &arguments.algorithms {
                for pages in order(round) {
                    let bytes = (mebibytes as usize) << 20;
                    let turn = turn(round, Task { algorithm, pages, bytes })?;
                    writeln!(std::io::stdout(), "{}", serde_json::to_string(&turn)?)?;
                    // If the reason were only in the file, the user could lose hours before finding it.
                    if let (Some(refusal), false) = (&turn.refusal, warned) {
                        eprintln!("hugepilot-sort: not all of this is on large pages: {refusal}");
                        warned = true;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Six rounds contain all possible orders, so that each kind comes first, second and last equally often, and follows each other kind equally often.
fn order(round: u32) -> Vec<PageChoice> {
    let mut order = PageChoice::value_variants().to_vec();
    let (turns, kinds) = (round as usize, order.len());
    order.rotate_left(turns % kinds);
    // With rotation alone each kind would always follow the same one.
    if turns / kinds % 2 == 1 {
        order.reverse();
    }
    order
}

/// Sorts in newly allocated memory.
fn turn(round: u32, task: Task) -> Result<SortTurn, TaskError> {
    let mut ready = task.prepare()?;
    let took = ready.sort()?;
    Ok(SortTurn {
        round,
        algorithm: task.algorithm,
        pages: task.pages,
        bytes: task.bytes as u64,
        nanoseconds: took.as_nanos() as u64,
        large_bytes: ready.got().large_bytes as u64,
        taken_bytes: ready.got().bytes as u64,
        refusal: ready.refusal(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn six_rounds_are_all_orders_there_are() {
        let orders: BTreeSet<Vec<PageChoice>> = (0..6).map(order).collect();
        assert_eq!(orders.len(), 6);
        let follows_large = |round: &u32| order(*round).ends_with(&[PageChoice::Large, PageChoice::OrdinaryAgain]);
        assert_eq!((6..12).filter(follows_large).count(), 1);
    }
}
