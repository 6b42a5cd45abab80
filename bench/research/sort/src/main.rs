//! Sorts alternately in ordinary and in large pages, and prints a line of JSON for each sort: the benchmark for systems without hugepilot-research,
//! such as Windows. `hugepilot-research sort --from FILE` makes the report from these lines.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::task::{PageChoice, Task};

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
            eprintln!("error: {error}");
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
                for pages in PageChoice::order(round) {
                    let bytes = (mebibytes as usize) << 20;
                    let mut ready = Task { algorithm, pages, bytes }.prepare()?;
                    let took = ready.sort()?;
                    let turn = ready.turn(round, took);
                    writeln!(std::io::stdout(), "{}", serde_json::to_string(&turn)?)?;
                    // If the reason were only in the file, the user could lose hours before finding it.
                    if let (Some(refusal), false) = (&turn.refusal, warned) {
                        eprintln!("note: not all of this is on large pages: {refusal}");
                        warned = true;
                    }
                }
            }
        }
    }
    Ok(())
}
