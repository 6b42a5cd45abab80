//! Arguments of `run`: how the program is started, and how it is piloted.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgAction, Args, ValueEnum};
use launch::request::{LaunchRequest, PageKind, Want, WantText};

use super::{BudgetOptions, PaceOptions, SpendOptions, WatchOptions};

const RUN_EXAMPLES: &str = "\
Examples:
  hugepilot run -- memcached -m 4096
  hugepilot run --max-slowdown 1% --max-huge 8G -- java -jar server.jar
  hugepilot run --summary-json summary.json -- ./simulation input.dat
  hugepilot run --pages thp -- ./search index.dat          on huge pages from its first allocation
  hugepilot run --pages 2M --require 90 -- ./search index.dat
  hugepilot run --pages 2M --print -- ./search index.dat   what would be set, and why; starts nothing
  hugepilot run --growing -- ./import data.csv             what it maps as it grows, once it is seen to fill it

Without --pages the program starts as it is, and the pilot alone promotes. Signals and the exit status are passed through.
Exit status, where it is not the program's: 1 error, 2 wrong usage, 3 less than --require was on huge pages.";

/// What these options stand under, apart from those that say how it is piloted.
const FROM_THE_START: &str = "Huge pages from the start";

/// `hugepilot run`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = RUN_EXAMPLES, override_usage = "hugepilot run [OPTIONS] [--] <CMD> [ARGS]...", arg = no_json())]
pub struct RunArgs {
    /// On which pages it is started.
    #[command(flatten)]
    pub launch: LaunchOptions,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// What watching again and again may take.
    #[command(flatten)]
    pub budget: BudgetOptions,
    /// What may be spent.
    #[command(flatten)]
    pub spend: SpendOptions,
    /// How fast to act.
    #[command(flatten)]
    pub pace: PaceOptions,
    /// Write the summary to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub summary_json: Option<PathBuf>,
    /// Program to run, and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// On which pages a program is started.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct LaunchOptions {
    /// Start it with what puts its memory on huge pages: thp (transparent), a smaller size of these such as 64K, 2M or 1G (from a pool); the heap and large mappings, unless some of the next four are given
    #[arg(long, value_name = "KIND", help_heading = FROM_THE_START)]
    pub pages: Option<PageKind>,
    /// What its allocator hands out, by the allocator's own settings
    #[arg(long, requires = "pages", help_heading = FROM_THE_START)]
    pub heap: bool,
    /// Large pieces that it maps itself, by a preloaded library
    #[arg(long, requires = "pages", help_heading = FROM_THE_START)]
    pub mmap: bool,
    /// Shared memory, by a preloaded library: without --pages it is placed where huge pages fit, and promoted where it pays (for PostgreSQL also without this)
    #[arg(long, help_heading = FROM_THE_START)]
    pub shm: bool,
    /// Its code, on huge pages in the page cache; --text=copy copies what cannot be there to private memory, where profilers find no symbols
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "file")]
    #[arg(hide_possible_values = true, requires = "pages", help_heading = FROM_THE_START)]
    pub text: Option<TextPlace>,
    /// Large pieces that it maps itself once it has filled those before, by a preloaded library: each 2 MiB then takes one page fault instead of 512
    #[arg(long, conflicts_with = "pages", help_heading = FROM_THE_START)]
    pub growing: bool,
    /// Stacks stay on ordinary pages, always: they are small, grow page by page, and each would take a huge page of its own
    #[arg(long, value_name = "no", value_parser = ["no"], requires = "pages", help_heading = FROM_THE_START)]
    pub stack: Option<String>,
    /// Exit with status 3 if less than so much of the memory that could be huge was, on whatever kind, and the program itself succeeded
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, requires = "pages", help_heading = FROM_THE_START)]
    pub require: Option<f64>,
    /// Print the command with its environment and arguments, and a reason for each: for a shell or, with =systemd, lines for a unit; starts nothing and needs no root
    #[arg(long, value_name = "FORMAT", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "shell")]
    #[arg(hide_possible_values = true, help_heading = FROM_THE_START, conflicts_with_all = ["summary_json", "require"])]
    pub print: Option<PrintFormat>,
}

/// Where code that `--text` puts on huge pages lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextPlace {
    /// In its file.
    File,
    /// Where it cannot be, in a copy.
    Copy,
}

/// How `--print` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrintFormat {
    /// One command, whose variables are set for it alone.
    Shell,
    /// Lines of `Environment=`, for a unit.
    Systemd,
}

impl LaunchOptions {
    /// What is requested, if anything.
    pub fn request(&self) -> Option<LaunchRequest> {
        let Some(pages) = self.pages else {
            let request = if self.growing { LaunchRequest::growing() } else { LaunchRequest::shared() };
            return (self.growing || self.shm).then_some(LaunchRequest { shm: self.shm, ..request });
        };
        if !(self.heap || self.mmap || self.shm || self.text.is_some()) {
            return Some(LaunchRequest::of(pages));
        }
        let mmap = if self.mmap { Want::Asked } else { Want::No };
        let text = match self.text {
            None => WantText::No,
            Some(TextPlace::File) => WantText::OfFile,
            Some(TextPlace::Copy) => WantText::OrCopied,
        };
        Some(LaunchRequest { pages, heap: self.heap, mmap, shm: self.shm, text })
    }
}

/// `--json`, which every other command has, is refused with what there is in its place.
fn no_json() -> Arg {
    let instead = "standard output is the program's; '--summary-json FILE' writes the summary as JSON to a file";
    let refused = UnknownArgumentValueParser::suggest(instead);
    Arg::new("json").long("json").action(ArgAction::SetTrue).value_parser(refused).hide(true)
}

/// `90`, `90%` or `99.5`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent = number.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("'{text}' is not a share: write a number from 0 to 100, such as 90"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    fn parse(line: &str) -> Result<LaunchOptions, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| match cli.command {
            Command::Run(args) => args.launch,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn shared_and_growing_memory_is_requested_without_pages() {
        assert_eq!(parse("hugepilot run prog").unwrap().request(), None);
        assert_eq!(parse("hugepilot run --shm prog").unwrap().request(), Some(LaunchRequest::shared()));
        let growing = parse("hugepilot run --growing prog").unwrap().request();
        assert_eq!(growing, Some(LaunchRequest::growing()));
        let both = parse("hugepilot run --growing --shm prog").unwrap().request();
        assert_eq!(both, Some(LaunchRequest { shm: true, ..LaunchRequest::growing() }));
        assert!(parse("hugepilot run --growing --pages thp prog").is_err(), "that is all of it");
    }

    #[test]
    fn the_heap_and_mappings_are_meant_unless_something_else_is() {
        let request = |line: &str| parse(line).unwrap().request().unwrap();
        assert_eq!(request("hugepilot run --pages thp prog"), LaunchRequest::of(PageKind::Transparent));
        let shm = LaunchRequest { pages: PageKind::Huge, heap: false, mmap: Want::No, shm: true, text: WantText::No };
        assert_eq!(request("hugepilot run --pages 2M --shm --stack=no prog"), shm);
        let both =
            LaunchRequest { pages: PageKind::Giant, heap: true, mmap: Want::Asked, shm: false, text: WantText::No };
        assert_eq!(request("hugepilot run --pages=1G --heap --mmap -- prog --text"), both);
        let code =
            |text| LaunchRequest { heap: false, mmap: Want::No, text, ..LaunchRequest::of(PageKind::Transparent) };
        assert_eq!(request("hugepilot run --pages thp --text prog"), code(WantText::OfFile));
        assert_eq!(request("hugepilot run --pages thp --text=copy prog"), code(WantText::OrCopied));
    }

    #[test]
    fn printing_has_two_formats() {
        let print = |line: &str| parse(line).unwrap().print;
        assert_eq!(print("hugepilot run --pages thp prog"), None);
        assert_eq!(print("hugepilot run --pages thp --print prog"), Some(PrintFormat::Shell));
        assert_eq!(print("hugepilot run --pages thp --print=systemd prog"), Some(PrintFormat::Systemd));
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!([parse_percent("90"), parse_percent("99.5%"), parse_percent("0")], [Ok(90.0), Ok(99.5), Ok(0.0)]);
        for text in ["", "%", "101", "-1", "NaN", "all"] {
            assert!(parse_percent(text).unwrap_err().contains("such as 90"), "{text}");
        }
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        for line in [
            "hugepilot run --pages 4M prog",
            "hugepilot run --heap prog",
            "hugepilot run --require 90 prog",
            "hugepilot run --pages thp --stack=yes prog",
            "hugepilot run --pages thp --print --require 90 prog",
            "hugepilot run --pages thp --print=json prog",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
