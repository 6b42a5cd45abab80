//! The command line.
//!
//! Owns: the list of commands. Never touches: the system; it only states what was requested.

use anyhow::Result;
use clap::{Parser, Subcommand};
use hugepilot_bench::kept::ReportArguments;

use crate::lists::{self, ListsArguments};
use crate::retell::retell;
use crate::sort::{self, SortArguments};
use crate::transpose::{self, TransposeArguments};

const EXAMPLES: &str = "\
Examples:
  hugepilot-research transpose                              page coloring, on a model of the paper's processors; --measure: here, too
  hugepilot-research lists --plot lists.svg                 page lists of several kernels, simulated, in minutes
  hugepilot-research sort --quick                           heap, quick and merge sort, in large and in ordinary pages
  hugepilot-research report results.json --plot again.png   the report and plot of a kept result

What is only simulated measures nothing and gives the same figures everywhere; `lists` needs no root, nor does `transpose` without
--measure, unless results are kept. Real programs are measured by hugepilot-bench.";

/// Reproduces what papers found, by simulations and small models.
#[derive(Debug, Parser)]
#[command(name = "hugepilot-research", version, after_help = EXAMPLES)]
pub struct ResearchArguments {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Page coloring: a transpose on a model of the paper's processors, and on this machine.
    #[command(after_help = transpose::EXAMPLES)]
    Transpose(TransposeArguments),
    /// The page lists of Linux 2.6, the paper's split of them, and those of today: a simulation of what reclaim costs as memory grows.
    #[command(after_help = lists::EXAMPLES)]
    Lists(ListsArguments),
    /// Sorting in large and in ordinary pages, by algorithm and size.
    #[command(after_help = sort::EXAMPLES)]
    Sort(SortArguments),
    /// Shows the report of raw results again.
    Report(ReportArguments),
}

impl ResearchArguments {
    /// Runs the requested command.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Transpose(arguments) => arguments.run(),
            Command::Lists(arguments) => arguments.run(),
            Command::Sort(arguments) => arguments.run(),
            Command::Report(ReportArguments { file, plot }) => retell(&file, plot.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        ResearchArguments::command().debug_assert();
    }
}
