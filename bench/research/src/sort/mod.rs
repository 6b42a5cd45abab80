//! Sorting in large and in ordinary pages, as in the experiment on Windows: the gain of each algorithm, by size.
//!
//! Owns: the command, and the order of turns. Never touches: settings of the machine; each turn asks for its pages itself, as programs do
//! that know of them.

mod plot;
mod record;
mod text;
mod turn;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use heat::units::Bytes;
use hugepilot_bench::machine::MachineDescription;
use hugepilot_bench::outputs::Outputs;
use hugepilot_bench::rounds::{order_of_round, progress_bar, turns_done};
use hugepilot_bench::settings::SavedSettings;
use hugepilot_os::stop::{SecondSignal, Stop};
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::task::{PageChoice, Task};

pub use self::record::SortRecord;
use crate::record::ResearchRecord;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-research sort --quick                           a first result in minutes
  hugepilot-research sort --plot sort.svg                   1 MiB to 1 GiB: hours, most of them for the heap sort of 1 GiB
  hugepilot-research sort --algorithms heap --sizes 64M --rounds 20
  hugepilot-research sort --algorithms heap-top --sizes 512M,1G --rounds 20  where most is to be gained, in half an hour
  hugepilot-research sort --from windows.json               the report of lines that hugepilot-sort.exe printed on Windows

All turns run in this one process, one after the other, each in memory of its own that it gives back. Large pages are reserved ones where
the pool has enough, else transparent ones.";

/// `sort`
#[derive(Clone, Debug, clap::Args)]
pub struct SortArguments {
    /// Sizes of what is sorted, separated by commas [default: 1M to 1G in powers of two; with --quick 1M,8M,64M]
    #[arg(long, value_delimiter = ',', value_parser = size)]
    sizes: Vec<Bytes>,
    /// The algorithms, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["heap", "quick", "merge"])]
    algorithms: Vec<Algorithm>,
    /// Rounds; in each every size is sorted by every algorithm, in ordinary, large and again ordinary pages [default: 6; with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Where the order of turns starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Small sizes and few rounds: a quick check, not a published result
    #[arg(long)]
    quick: bool,
    /// Measures nothing, and reports what was measured before: a file that was kept, or lines of hugepilot-sort
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "keep", "sizes", "algorithms", "rounds"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

impl SortArguments {
    /// Measures, or reads a saved measurement, and reports.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        if let Some(file) = &self.from {
            return self.report(&SortRecord::read(file)?);
        }
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        // Held until the end, so that no other harness changes settings in the meantime.
        let settings = SavedSettings::of_this_machine()?;
        let mut record = SortRecord::new(MachineDescription::describe(&settings)?);
        let ended = self.measure(&mut record, &stop);
        if !record.turns.is_empty() {
            self.report(&record)?;
        }
        match ended {
            Err(_) if stop.requested() => bail!("stopped on request; what was measured so far is kept"),
            ended => ended,
        }
    }

    fn measure(&self, record: &mut SortRecord, stop: &Stop) -> Result<()> {
        let (tasks, rounds) = (self.tasks(), self.rounds.unwrap_or(if self.quick { 3 } else { 6 }));
        let bar = progress_bar(u64::from(rounds) * (tasks.len() * PageChoice::value_variants().len()) as u64);
        for round in 0..rounds {
            for task in order_of_round(&tasks, self.seed, round) {
                // The three that are compared follow each other.
                for pages in PageChoice::order(round) {
                    let task = Task { pages, ..task };
                    let named = format!("{} sort of {}, {pages}", task.algorithm, Bytes(task.bytes as u64));
                    bar.set_message(format!("round {}: {named}", round + 1));
                    let turn =
                        turn::turn(round, task, stop).with_context(|| format!("{named}, round {}", round + 1))?;
                    record.turns.push(turn);
                    turns_done(&bar, 1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Every algorithm with every size.
    fn tasks(&self) -> Vec<Task> {
        let usual: Vec<Bytes> = match self.quick {
            true => [1, 8, 64].map(|mebibytes| Bytes(mebibytes << 20)).to_vec(),
            false => (20..=30).map(|power| Bytes(1 << power)).collect(),
        };
        let sizes = if self.sizes.is_empty() { &usual } else { &self.sizes };
        let of = |&size: &Bytes| {
            let of = move |&algorithm| Task { algorithm, pages: PageChoice::Ordinary, bytes: size.0 as usize };
            self.algorithms.iter().map(of)
        };
        sizes.iter().flat_map(of).collect()
    }

    fn report(&self, record: &SortRecord) -> Result<()> {
        record.report(record.machine.as_ref(), &self.outputs)
    }
}

fn size(text: &str) -> Result<Bytes, String> {
    let size = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    let whole = (1 << 12..=1 << 40).contains(&size.0) && size.0.is_multiple_of(1 << 12);
    if whole { Ok(size) } else { Err(format!("'{text}' is not a size from 4K on in steps of 4K: write 64M or 1G")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        sort: SortArguments,
    }

    fn parse(line: &str) -> Result<SortArguments, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.sort)
    }

    #[test]
    fn sizes_are_powers_of_two_to_one_gibibyte() {
        let tasks = parse("sort").unwrap().tasks();
        assert_eq!(tasks.len(), 33);
        assert_eq!((tasks[0].bytes, tasks[32].bytes), (1 << 20, 1 << 30));
        let tasks = parse("sort --sizes 4K,64M --algorithms heap").unwrap().tasks();
        assert_eq!(tasks.iter().map(|task| task.bytes).collect::<Vec<_>>(), [4096, 64 << 20]);
        for wrong in ["sort --sizes 5000", "sort --sizes 0", "sort --quick --from a.json", "sort --rounds 0"] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
