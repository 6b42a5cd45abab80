//! Arguments of `hugepilot reclaim`.

use std::path::PathBuf;

use clap::Args;
use heat::memory_use::MemoryUse;
use heat::units::{Nanos, SizeOrShare};
use reclaim::ReclaimOptions;
use reclaim::mechanism::DropBehindOptions;
use reclaim::policy::{ClassPolicy, MappedPageCost, Policies, Preset};

use super::{parse_length, parse_plot};

const RECLAIM_EXAMPLES: &str = "\
Examples:
  hugepilot reclaim --status               what memory is used for, and how much of it can be had in huge pages
  hugepilot reclaim --dry-run              what would be reclaimed, and why not the rest; changes nothing
  hugepilot reclaim --preset backup-server --drop-behind /var/backups
  hugepilot reclaim --class unmapped-cache=20%:4G --mapped-page-cost 100 --when-huge-below 8G
  hugepilot reclaim --status --plot memory.svg

Uses of memory: code, read-only-data, anonymous, shared, mapped-files, unmapped-cache. A rate is a size, or a share of what the use holds
(10%) or of the machine's memory (1%ram), each a minute; a floor is a size or a share of the machine's memory. It runs until Ctrl-C, and
puts back what it has set up. Dirty files, locked memory and, at a cost of 100, whatever processes map are never touched.";

/// `hugepilot reclaim`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = RECLAIM_EXAMPLES)]
pub struct ReclaimArgs {
    /// What is requested, by kind of machine: backup-server, database or balanced
    #[arg(long, value_name = "PRESET", default_value_t)]
    pub preset: Preset,
    /// How much rather files that no process maps go than what processes map, 0 to 100; 100 leaves alone what is mapped [default: the preset's]
    #[arg(long, value_name = "COST")]
    pub mapped_page_cost: Option<MappedPageCost>,
    /// How much of a use of memory is reclaimed in a minute, and how much stays: unmapped-cache=20%:1G [default: the preset's]
    #[arg(long = "class", value_name = "NAME=RATE[:FLOOR]", value_parser = parse_class)]
    pub classes: Vec<(MemoryUse, ClassPolicy)>,
    /// Directories, or files, of which clean contents that no process maps may leave memory
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub drop_behind: Vec<PathBuf>,
    /// Of these, directories or files that are left alone; nothing that tells no files apart is at work then
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "drop_behind")]
    pub except: Vec<PathBuf>,
    /// A file of these leaves memory once nothing has rewritten it, or read more of it, for so long [default: 10s; with --preset
    /// backup-server 250ms]
    #[arg(long, value_name = "TIME", value_parser = DropBehindOptions::parse_wait)]
    pub idle: Option<Nanos>,
    /// Begin to write dirty files of these back after so long [default: the kernel does, in its own time]
    #[arg(long, value_name = "TIME", value_parser = DropBehindOptions::parse_wait)]
    pub write_behind: Option<Nanos>,
    /// Reclaim while less memory than this is free: a size, or a share of it (20%) [default: the preset's; with --when-huge-below, none]
    #[arg(long, value_name = "SIZE", value_parser = Policies::parse_mark)]
    pub when_free_below: Option<SizeOrShare>,
    /// Reclaim while less memory than this is free in huge pages [default: the preset's; with --when-free-below, none]
    #[arg(long, value_name = "SIZE", value_parser = Policies::parse_mark)]
    pub when_huge_below: Option<SizeOrShare>,
    /// How long [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_length)]
    pub length: Option<Nanos>,
    /// Print what would be reclaimed, and why not the rest; change nothing
    #[arg(long, conflicts_with_all = ["length", "status"])]
    pub dry_run: bool,
    /// Show what memory is used for, how lately it was, what is reclaimed, and free and contiguous memory; change nothing
    #[arg(long, conflicts_with_all = ["length", "classes", "drop_behind", "write_behind", "mapped_page_cost"])]
    pub status: bool,
    /// With --status: draw free and contiguous memory over time, since reclaim began, to FILE.svg (or FILE.png, where it was built for that)
    #[arg(long, value_name = "FILE", requires = "status", value_parser = parse_plot)]
    pub plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ReclaimArgs {
    /// What these arguments ask for.
    pub fn options(&self) -> ReclaimOptions {
        let mut policies = self.preset.policies();
        policies.mapped_page_cost = self.mapped_page_cost.unwrap_or(policies.mapped_page_cost);
        for (class, request) in &self.classes {
            policies.classes[*class] = *request;
        }
        policies.set_marks(self.when_free_below, self.when_huge_below);
        let spare_mapped = policies.mapped_page_cost == MappedPageCost::FORBIDS;
        let drop_behind = DropBehindOptions {
            paths: self.drop_behind.clone(),
            except: self.except.clone(),
            idle: self.idle.unwrap_or(self.preset.idle()).duration(),
            spare_mapped,
            write_behind: self.write_behind.map(Nanos::duration),
        };
        ReclaimOptions { policies, drop_behind }
    }
}

fn parse_class(text: &str) -> Result<(MemoryUse, ClassPolicy), String> {
    let (name, request) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' does not say how much: write NAME=RATE, such as unmapped-cache=20%"))?;
    Ok((name.parse()?, request.parse()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use heat::units::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn parse(line: &str) -> Result<ReclaimArgs, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| match cli.command {
            Command::Reclaim(args) => args,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn every_option_arrives() {
        let line = "hugepilot reclaim --preset database --mapped-page-cost 30 --class shared=1M --class unmapped-cache=20%:5%ram \
                    --drop-behind /a /b --except /a/c --idle 0s --write-behind 5s --when-free-below 30% --for 1h --json";
        let args = parse(line).unwrap();
        let ReclaimOptions { policies, drop_behind } = args.options();
        assert_eq!(policies.mapped_page_cost.get(), 30);
        assert_eq!(policies.classes[MemoryUse::Shared].rate, SizeOrShare::Size(Bytes(1 << 20)));
        let cache = policies.classes[MemoryUse::UnmappedCache];
        assert_eq!((cache.rate, cache.floor), (SizeOrShare::Share(0.2), SizeOrShare::ShareOfRam(0.05)));
        assert_eq!((policies.free_below, policies.huge_below), (Some(SizeOrShare::Share(0.3)), None));
        let expected = DropBehindOptions {
            paths: vec!["/a".into(), "/b".into()],
            except: vec!["/a/c".into()],
            idle: Duration::ZERO,
            spare_mapped: false,
            write_behind: Some(Duration::from_secs(5)),
        };
        assert_eq!((drop_behind, args.length, args.json), (expected, Some(Nanos(3_600_000_000_000)), true));
    }

    #[test]
    fn what_is_not_said_is_the_presets() {
        let args = parse("hugepilot reclaim").unwrap();
        assert_eq!(args.options().policies, Preset::Balanced.policies());
        let backup = parse("hugepilot reclaim --preset backup-server").unwrap().options();
        assert!(backup.drop_behind.spare_mapped && backup.policies.mapped_page_cost == MappedPageCost::FORBIDS);
        assert_eq!([args.options(), backup].map(|options| options.drop_behind.idle.as_millis()), [10_000, 250]);
    }

    #[test]
    fn wrong_usage_says_what_is_right() {
        for (words, expected) in [
            ("--preset fast", "write one of backup-server, database, balanced"),
            ("--class heap=1%", "'heap' is not a use of memory: write one of code,"),
            ("--class shared", "write NAME=RATE, such as unmapped-cache=20%"),
            ("--class shared=lots", "'lots' is not a size"),
            ("--mapped-page-cost 101", "write a number from 0 to 100"),
            ("--when-free-below 101%", "write at most 100%"),
            ("--when-huge-below 0", "write a size"),
            ("--plot a.svg", "--status"),
            ("--except /a", "--drop-behind"),
            ("--status --for 1h", "cannot be used with"),
        ] {
            let error = parse(&format!("hugepilot reclaim {words}")).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{words}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,24}|[a-z-]{0,14}=[0-9]{0,4}[%GMr]{0,2}(:[0-9]{1,3}%?)?") {
            let _ = parse_class(&text);
        }
    }
}
