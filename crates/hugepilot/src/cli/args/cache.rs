//! Arguments of `hugepilot cache`.

use std::path::PathBuf;

use clap::Args;

const CACHE_EXAMPLES: &str = "\
Examples:
  hugepilot cache /srv/index.bin                  an index that a server maps and reads at random
  hugepilot cache /var/lib/search/segments        every file of at least 2 MiB in a directory
  hugepilot cache /usr/lib/jvm/*/lib/server/libjvm.so     code, where a huge page fits in file and memory
  hugepilot cache --drop /srv/index.bin           undo it: read from disk again, as programs ask for it

Run it before the program starts, for example by ExecStartPre=-+ of its unit: what a program maps already stays on base pages until it
maps it anew. The page cache is shared, so it takes no memory that reading the file would not take. It needs a file system with large
folios: XFS, or ext4 since Linux 6.16. Exit status: 0 done, 1 a file was left as it is, no huge page was obtained, or too little memory
is available.";

/// `hugepilot cache`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = CACHE_EXAMPLES)]
pub struct CacheArgs {
    /// Files, or directories for the files in and below them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Drop them from the page cache instead, as far as no program maps them and all is on disk
    #[arg(long)]
    pub drop: bool,
    /// Print JSON with every file
    #[arg(long)]
    pub json: bool,
}
