//! Arguments of `hugepilot scan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heat::units::Bytes;
use observe::TrackerChoice;
use pilot::programs::GroupBy;

use super::ForecastOptions;

const EXAMPLES: &str = "\
Examples:
  hugepilot scan                       every program above 64 MiB: would huge pages help it?
  hugepilot scan --by container        one row for each container
  hugepilot scan --min 1G --html scan.html
  hugepilot scan --json | jq '.programs[] | select(.expected_gain_percent.likely > 5) | .name'

Each program that uses CPU time is observed for a fifth of a second, its busiest process if it has several. Nothing is changed.
A forecast is a range; `hugepilot trial` proves a gain.";

/// `hugepilot scan`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = EXAMPLES)]
pub struct ScanArgs {
    /// What makes a row
    #[arg(long, value_name = "WHAT", default_value_t, value_enum)]
    pub by: RowIs,
    /// Leave out what has less memory
    #[arg(long = "min", value_name = "SIZE", default_value_t = Bytes(64 << 20))]
    pub smallest: Bytes,
    /// The tracker: auto takes the first that works on this machine
    #[arg(long, value_name = "TRACKER", default_value_t)]
    pub tracker: TrackerChoice,
    /// Write the table as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How gains are forecast.
    #[command(flatten)]
    pub forecast: ForecastOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What makes a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowIs {
    /// The processes of one name in one container or service
    #[default]
    Program,
    /// A systemd service or scope
    Service,
    /// A container
    Container,
    /// A user
    User,
}

impl From<RowIs> for GroupBy {
    fn from(row: RowIs) -> Self {
        match row {
            RowIs::Program => GroupBy::Program,
            RowIs::Service => GroupBy::Service,
            RowIs::Container => GroupBy::Container,
            RowIs::User => GroupBy::User,
        }
    }
}
