//! Arguments of `hugepilot pool` and its commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use heat::units::{Bytes, Nanos, TimeError};
use pool::{Effort, PoolSetting, SizeRequest, parse_page_size};

const POOL_EXAMPLES: &str = "\
Examples:
  hugepilot pool                       every pool: what it holds, who uses it, what it leaves for programs
  hugepilot pool set 2M=1000           1,000 pages of 2 MiB, from now on until the next boot
  hugepilot pool persist --apply       the same pools after the next boot
  hugepilot pool mount 1G              pages of 1 GiB as files, below /dev/hugepages-1G
  hugepilot pool --json | jq '.pools[] | {page_size_bytes, available}'";

const SET_EXAMPLES: &str = "\
Examples:
  hugepilot pool set 2M=1000 1G=4      so many pages
  hugepilot pool set 2M=+8G            8 GiB more, in pages of 2 MiB
  hugepilot pool set 2M=1000 --node 1  on one memory node
  hugepilot pool set 2M=2000 --max     what there is, and up to 2,000 on demand
  hugepilot pool set 1G=4 --make-room  drop clean page cache where memory is short
  hugepilot pool set 2M=+8G --dry-run  what would change, and the memory that it takes

Without --min and --max the pool has so many pages, and what it may take on demand stays. Exit status: 0 done, 1 got fewer.";

const PERSIST_EXAMPLES: &str = "\
Examples:
  hugepilot pool persist               what would make the pools last as they are; changes nothing
  hugepilot pool persist 2M=1000 1G=4 --apply
  hugepilot pool persist 2M=1000 --group music --mount --apply
  hugepilot pool persist --remove --apply

What is not named is not kept: all that hugepilot wrote before is replaced. Pools of 1 GiB are reserved by the kernel's command line,
others by sysctl.d or tmpfiles.d. No boot loader is run; the command for that is printed.";

const MOUNT_EXAMPLES: &str = "\
Examples:
  hugepilot pool mount 1G              at /dev/hugepages-1G
  hugepilot pool mount 2M /mnt/huge --size 4G --owner alice:music --mode 1770
  hugepilot pool unmount /mnt/huge

It lasts until the next boot; `hugepilot pool persist --mount` makes mounts that stay.";

/// `hugepilot pool`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = POOL_EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct PoolArgs {
    /// What to do; without it, the pools are shown.
    #[command(subcommand)]
    pub command: Option<PoolCommand>,
    /// Print JSON with every pool, node, process, mount and limit
    #[arg(long)]
    pub json: bool,
}

/// What can be done with pools.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum PoolCommand {
    /// Make pools larger or smaller, until the next boot
    #[command(after_help = SET_EXAMPLES)]
    Set(PoolSetArgs),
    /// Make pools last: show the files that takes, or write them
    #[command(after_help = PERSIST_EXAMPLES)]
    Persist(PoolPersistArgs),
    /// Mount a pool, so that programs get its pages as files
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(PoolMountArgs),
    /// Unmount a pool
    Unmount(PoolUnmountArgs),
}

/// `hugepilot pool set`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PoolSetArgs {
    /// Pages wanted of each size: a number, a size, or a change of it with + or -
    #[arg(value_name = "SIZE=PAGES", required = true)]
    pub requests: Vec<SizeRequest>,
    /// Only on this memory node
    #[arg(long, value_name = "NODE", conflicts_with_all = ["min", "max"])]
    pub node: Option<u32>,
    /// The least: the pool's own pages, while the most that it may grow to on demand stays (hugeadm --pool-pages-min)
    #[arg(long, conflicts_with = "max")]
    pub min: bool,
    /// The most that it may grow to on demand, while its own pages stay (hugeadm --pool-pages-max)
    #[arg(long)]
    pub max: bool,
    /// Drop clean page cache where pages cannot be had otherwise; files are then read from disk again
    #[arg(long)]
    pub make_room: bool,
    /// How long to try for each pool, 1s to 24h
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_time_limit)]
    pub time_limit: Nanos,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with_all = ["make_room", "time_limit"])]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot pool persist`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PoolPersistArgs {
    /// Pages of each size that should last [default: the pools as they are now]
    #[arg(value_name = "SIZE=PAGES")]
    pub requests: Vec<SizeRequest>,
    /// A group, by name or number, that may have shared memory (SysV) on huge pages, lock as much memory, and use the mounts
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Mount each pool at boot, below /dev/hugepages-SIZE
    #[arg(long)]
    pub mount: bool,
    /// Take away all that was written before
    #[arg(long, conflicts_with_all = ["requests", "group", "mount"])]
    pub remove: bool,
    /// Write the files; without it, they are only shown
    #[arg(long)]
    pub apply: bool,
    /// Show the files and change nothing, which is the default
    #[arg(long, conflicts_with = "apply")]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot pool mount`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PoolMountArgs {
    /// Size of the pages: 2M or 1G
    #[arg(value_name = "SIZE", value_parser = parse_page_size)]
    pub page_size: Bytes,
    /// Where to mount them; it is made if it is not there [default: /dev/hugepages-SIZE]
    #[arg(value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    /// The most that files may hold there [default: what the pool has]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    /// How many files there may be, directories included [default: any number]
    #[arg(long, value_name = "NUMBER")]
    pub files: Option<u64>,
    /// Who owns the directory: a user, user:group, or :group, by name or number [default: root]
    #[arg(long, value_name = "USER:GROUP")]
    pub owner: Option<String>,
    /// Permissions of the directory [default: 755]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub mode: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot pool unmount`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PoolUnmountArgs {
    /// The directory, or the size of the pages if they are mounted at /dev/hugepages-SIZE
    #[arg(value_name = "DIRECTORY")]
    pub directory: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PoolSetArgs {
    /// What the requests are about.
    pub fn bound(&self) -> PoolSetting {
        match (self.min, self.max) {
            (true, _) => PoolSetting::Least,
            (_, true) => PoolSetting::Most,
            _ => PoolSetting::Size,
        }
    }

    /// How hard to try.
    pub fn effort(&self) -> Effort {
        Effort { make_room: self.make_room, time_limit: self.time_limit.duration() }
    }
}

fn parse_time_limit(text: &str) -> Result<Nanos, TimeError> {
    Nanos::parse_within(text, Nanos(1_000_000_000)..=Nanos(86_400_000_000_000), "from 1s to 24h")
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777 && !text.starts_with('+'));
    mode.ok_or_else(|| format!("'{text}' are no permissions: write an octal number, such as 770 or 1777"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn parse(line: &str) -> Result<PoolArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Pool(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_pools_are_shown_without_a_command() {
        assert_eq!(parse("hugepilot pool --json").unwrap(), PoolArgs { command: None, json: true });
        assert_eq!(parse("hugepilot pool").unwrap(), PoolArgs { command: None, json: false });
    }

    #[test]
    fn every_option_of_set_arrives() {
        let set = |line: &str| match parse(line).unwrap().command {
            Some(PoolCommand::Set(args)) => args,
            other => panic!("{other:?}"),
        };
        let args = set("hugepilot pool set 2M=1000 1G=-4 --node 1 --make-room --time-limit 2s --json");
        assert_eq!(args.requests, ["2M=1000", "1G=-4"].map(|request| request.parse().unwrap()));
        assert_eq!((args.node, args.bound(), args.json), (Some(1), PoolSetting::Size, true));
        assert_eq!(args.effort(), Effort { make_room: true, time_limit: Duration::from_secs(2) });
        assert_eq!(set("hugepilot pool set 2M=1 --min").bound(), PoolSetting::Least);
        let plain = set("hugepilot pool set 2M=1 --max");
        assert_eq!((plain.bound(), plain.effort().time_limit), (PoolSetting::Most, Duration::from_secs(60)));
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!([parse_mode("0"), parse_mode("755"), parse_mode("1777")], [Ok(0), Ok(0o755), Ok(0o1777)]);
        for text in ["", "8", "10000", "-1", "+7", "rwx"] {
            assert!(parse_mode(text).unwrap_err().contains("octal"), "{text}");
        }
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        let wrong = [
            "hugepilot pool melt",
            "hugepilot pool --json set 2M=1",
            "hugepilot pool set",
            "hugepilot pool set 2M",
            "hugepilot pool set 2M=1 --min --max",
            "hugepilot pool set 2M=1 --max --node 0",
            "hugepilot pool set 2M=1 --time-limit 0s",
            "hugepilot pool persist --remove 2M=1",
            "hugepilot pool persist --apply --dry-run",
            "hugepilot pool mount",
            "hugepilot pool mount 3M",
            "hugepilot pool mount 2M --mode 9",
            "hugepilot pool unmount",
        ];
        for line in wrong {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
