//! Arguments of `hugepilot trial`.

use std::path::PathBuf;

use ::daemon::args::DaemonOptions;
use clap::{Args, ValueEnum};
use heat::units::Nanos;

use super::{ForecastOptions, PaceOptions, SpendOptions, TargetOptions, WatchOptions, parse_length, parse_plot};
use observe::{ObserveOptions, TrackerChoice};

const EXAMPLES: &str = "\
Examples:
  hugepilot trial 4242                             by the system calls of the program, until the answer is known, at most 10 minutes
  hugepilot trial --name memcached --to 1%         until it is known to 1 %
  hugepilot trial $(pgrep -o redis-server) --rate \"redis-cli info stats | sed -n 's/total_commands_processed://p'\"
  hugepilot trial --name redis-server --prometheus http://localhost:9121/metrics --query redis_commands_processed_total
  hugepilot trial 4242 --placebo                   huge pages are never switched: does this machine tell a difference where there is none?

What is compared is work for each second of the program's CPU time, in pairs of windows with and without huge pages. The program goes on
all the time, under its own load: a trial tells about the load it has. Ctrl-C ends it, and leaves memory as it was found; after kill -9
`hugepilot give-back` does.

What came of it, beside what was expected, is kept in /var/lib/hugepilot/trials.json, and corrects later forecasts; --no-calibration keeps
and corrects nothing.";

/// `hugepilot trial`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = EXAMPLES, group = TargetOptions::required())]
pub struct TrialArgs {
    /// Which program.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Count its work by this command for sh, which prints a number: a running total, or a rate a second
    #[arg(long, value_name = "COMMAND", conflicts_with = "prometheus")]
    pub rate: Option<String>,
    /// Count its work by a metric: of a Prometheus server (http://localhost:9090), or of an exporter's page (http://localhost:9187/metrics)
    #[arg(long, value_name = "URL", requires = "query")]
    pub prometheus: Option<String>,
    /// The metric: for a server an expression, for a page a name, with its labels or without
    #[arg(long, value_name = "METRIC", requires = "prometheus")]
    pub query: Option<String>,
    /// What the number is; auto tells from 8 to 40 readings
    #[arg(long, value_name = "KIND", default_value_t, value_enum)]
    pub number: NumberIs,
    /// How long a window is, 500ms to 1h; longer where work is counted late [default: as long as switching takes, 3s to 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_window)]
    pub window: Option<Nanos>,
    /// Go on until the gain is known within so much of the program's speed, 0.1% to 50% [default: until it is known whether there is one]
    #[arg(long = "to", value_name = "SHARE", value_parser = parse_precision)]
    pub precision: Option<f64>,
    /// End after so long, whatever is known: a window under way is still finished, and what is being promoted is given back
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_length)]
    pub limit: Nanos,
    /// What to leave memory on: huge pages if they gain, base pages if they do not, as found if that is not known or the trial is ended early
    #[arg(long, value_name = "STATE", default_value_t, value_enum)]
    pub leave: LeaveIn,
    /// Switch nothing: whatever it then finds is chance
    #[arg(long)]
    pub placebo: bool,
    /// The tracker that finds what to promote: auto takes the first that works on this machine
    #[arg(long, value_name = "TRACKER", default_value_t)]
    pub tracker: TrackerChoice,
    /// What may be spent.
    #[command(flatten)]
    pub spend: SpendOptions,
    /// How fast to act.
    #[command(flatten)]
    pub pace: PaceOptions,
    /// Draw the windows, and the interval over time, to FILE.svg (or FILE.png, where it was built for that)
    #[arg(long, value_name = "FILE", value_parser = parse_plot)]
    pub plot: Option<PathBuf>,
    /// How gains are forecast.
    #[command(flatten)]
    pub forecast: ForecastOptions,
    /// Print JSON with every window
    #[arg(long)]
    pub json: bool,
    /// Which daemon may pilot it.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

impl TrialArgs {
    /// How to observe, once, what to promote.
    pub fn watch(&self) -> WatchOptions {
        WatchOptions { tracker: self.tracker, window: ObserveOptions::default().window, allow_stall: false }
    }
}

/// What to leave a program's memory in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LeaveIn {
    /// On huge pages if they gain, on base pages if they do not, as it was found if that is not known
    #[default]
    Better,
    /// As it was found
    AsFound,
    /// On huge pages
    Promoted,
}

/// What the number of a command or metric is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NumberIs {
    /// Tell from 8 to 40 readings
    #[default]
    Auto,
    /// A running total
    Total,
    /// A rate a second
    Rate,
}

fn parse_window(text: &str) -> Result<Nanos, heat::units::TimeError> {
    Nanos::parse_within(text, Nanos(500_000_000)..=Nanos(3_600_000_000_000), "from 500ms to 1h")
}

fn parse_precision(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let precision = percent.filter(|percent| (0.1..=50.0).contains(percent)).map(|percent| percent / 100.0);
    precision.ok_or_else(|| format!("'{text}' is not a precision: write 0.1% to 50%, such as 1%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<TrialArgs, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| match cli.command {
            Command::Trial(args) => *args,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn every_option_arrives() {
        let args = parse(
            "hugepilot trial --name memcached --to 1% --for 5m --window 2s --leave promoted --rate x --number rate",
        )
        .unwrap();
        assert_eq!((args.target.pids, args.target.name), (Vec::new(), Some("memcached".parse().unwrap())));
        assert_eq!(
            (args.precision, args.limit, args.window),
            (Some(0.01), Nanos(300_000_000_000), Some(Nanos(2_000_000_000)))
        );
        assert_eq!((args.leave, args.number, args.rate), (LeaveIn::Promoted, NumberIs::Rate, Some("x".to_owned())));
        let args = parse("hugepilot trial 7").unwrap();
        assert_eq!((args.target.pids, args.leave, args.placebo), (vec![7], LeaveIn::Better, false));
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        let wrong = [
            "hugepilot trial",
            "hugepilot trial 7 --name a",
            "hugepilot trial 7 --to 90%",
            "hugepilot trial 7 --to 1",
            "hugepilot trial 7 --query a",
            "hugepilot trial 7 --prometheus http://a",
            "hugepilot trial 7 --rate a --prometheus http://a --query b",
            "hugepilot trial --container xyz",
        ];
        for line in wrong {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
