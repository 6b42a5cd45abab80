//! Reports for people: plain text, one function per report. Each ends with a line break.

mod cache;
mod clearing;
mod color;
mod config;
mod expectation;
mod explain;
mod fleet;
mod group;
mod guest;
mod heat;
mod launch;
mod outcome;
mod plan;
mod pool;
mod reclaim;
mod record;
mod remedy;
mod scan;
mod status;
mod trial;

pub use self::reclaim::{reclaim_preview, reclaim_status, reclaimed, reclaiming};
pub use cache::cache;
pub use color::color;
pub use config::config;
pub use expectation::{expectation, fast};
pub use explain::explain;
pub use fleet::fleet_trial;
pub use group::group;
pub use guest::guest_plan;
pub use heat::heat;
pub(crate) use launch::quoted_for_shell;
pub use launch::{account, recipe, shell_command, unit_environment};
pub use outcome::{give_back, pilot_summary, promote, under_way};
pub use plan::{plan, plan_of_nothing_done};
pub use pool::{mount, persist, pool_plan, pools, resized};
pub use record::record;
pub use scan::scan;
pub use status::{given_back_by_daemon, paused, resumed, status};
pub use trial::{trial, trial_next_step, trial_under_way};

use pilot::words::count;

/// A count of processes.
fn processes(number: u64) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{} processes", count(number)) }
}

/// A note that figures are sums, if there are several processes.
fn sums(processes: usize) -> String {
    if processes > 1 {
        format!(" (sums over {processes} processes; memory that they share counts once)")
    } else {
        String::new()
    }
}

/// Lines that appear among a program's own output, each marked as ours.
fn marked(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| format!("hugepilot: {line}\n")).collect()
}

/// Why nothing is forecast for a program that hardly got a processor.
fn contended(share: f64) -> String {
    format!(
        "unknown: it was ready to run but waited for a processor {:.0} % of that time; ask again when less is running",
        100.0 * share
    )
}

/// A program that waits for a processor for a larger share of its ready time is read at moments that are not its own, and rates are rough.
const MUCH_WAITING: f64 = 0.25;

/// Why rates are rough, if its threads waited much for processors.
fn much_waiting(share: Option<f64>) -> Option<String> {
    share.filter(|&share| share > MUCH_WAITING).map(|share| {
        format!("roughly: it waited for a processor {:.0} % of the time in which it was ready to run", 100.0 * share)
    })
}

/// Joins lines, each ended by a line break.
fn joined(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}
