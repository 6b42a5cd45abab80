//! A scan in words: the cells of its table, what stands in the way of huge pages, and the next command.
//!
//! Owns: these words, which the terminal and the page for a browser share. Never touches: their layout.

use heat::units::Bytes;
use heat::{Meaning, Obstacle};
use pilot::decide::Reason;
use pilot::forecast::{Forecast, NOTICED_PERCENT};
use pilot::programs::scan::{ObservedProgram, RestartRemedy, ScanFinding, WhatNext, next_step};
use pilot::programs::{GroupBy, RunningProgram};
use pilot::words::{corrected, count, many_page_faults, printable, reason};

use super::ScanReport;
use super::text::quoted_for_shell;

const NAME_LIMIT: usize = 24;
const PLACE_LIMIT: usize = 28;
const PATH_LIMIT: usize = 4096;
/// What the kernel appends to the name of a file that is gone.
const DELETED: &str = " (deleted)";
/// What to know of the path in [`cache_command`], which is that of the program's mount namespace.
pub const IN_CONTAINER: &str = "in a container, the path is the container's: run it there";
/// A busiest process that used less of its program's CPU time does not stand for all of it.
const STANDS_FOR_ALL: f64 = 0.9;

/// The headings of the cells.
pub const HEADINGS: [&str; 10] =
    ["program", "in", "processes", "CPUs", "memory", "huge", "walks", "gain", "growth", "page tables"];
/// How many of the columns, from the left, hold names.
pub const NAMES: usize = 2;

/// One program.
pub struct ScanRow {
    /// One for each heading.
    pub cells: [String; HEADINGS.len()],
    /// What stands in the way, and what was left out.
    pub notes: Vec<String>,
    /// The next step.
    pub next: Option<String>,
}

/// The rows, in the report's order.
pub fn rows(report: &ScanReport) -> Vec<ScanRow> {
    report.found.iter().map(|(program, finding)| row(report.by, program, finding)).collect()
}

fn row(by: GroupBy, program: &RunningProgram, finding: &ScanFinding) -> ScanRow {
    let dash = || "-".to_owned();
    let observed = match finding {
        ScanFinding::Observed(observed) => Some(observed),
        ScanFinding::Idle | ScanFinding::Refused(_) => None,
    };
    let of = |cell: &dyn Fn(&ObservedProgram) -> String| observed.map_or_else(dash, cell);
    let place = program.place.as_deref().filter(|_| by == GroupBy::Program);
    ScanRow {
        cells: [
            printable(&program.name, NAME_LIMIT),
            place.map_or_else(dash, |place| printable(place, PLACE_LIMIT)),
            count(program.processes),
            format!("{:.2}", program.busy_cpus),
            program.memory.to_string(),
            of(&|observed| share(observed.huge, observed.resident)),
            of(&|observed| observed.walk_share.map_or_else(dash, |share| format!("{:.1} %", 100.0 * share))),
            match finding {
                ScanFinding::Idle => "idle".to_owned(),
                ScanFinding::Refused(_) => "unknown".to_owned(),
                ScanFinding::Observed(observed) => gain(observed.forecast),
            },
            of(&|observed| observed.growth.to_string()),
            program.page_tables.to_string(),
        ],
        notes: notes(program, finding),
        next: next(program, finding),
    }
}

/// The command that puts a program's file on huge pages, by the path that the program sees. None: the file is deleted.
pub fn cache_command(file: &str) -> Option<String> {
    let is_there = !file.ends_with(DELETED);
    is_there.then(|| format!("hugepilot cache {}", quoted_for_shell(&printable(file, PATH_LIMIT))))
}

/// Its place is the container's id, or else a systemd unit.
fn is_in_container(program: &RunningProgram) -> bool {
    program.place.as_deref().is_some_and(|place| ![".service", ".scope"].iter().any(|unit| place.ends_with(unit)))
}

fn share(part: Bytes, whole: Bytes) -> String {
    if whole > Bytes(0) { format!("{:.0} %", 100.0 * part.0 as f64 / whole.0 as f64) } else { "-".to_owned() }
}

fn gain(forecast: Forecast) -> String {
    match forecast {
        Forecast::Gain(gain, _) if gain.high < NOTICED_PERCENT => "0 %".to_owned(),
        Forecast::Gain(gain, _) => format!("{:.0} % ({:.0} to {:.0})", gain.likely, gain.low, gain.high),
        Forecast::Idle => "idle".to_owned(),
        Forecast::Contended(_) => "unknown".to_owned(),
    }
}

fn notes(program: &RunningProgram, finding: &ScanFinding) -> Vec<String> {
    let observed = match finding {
        ScanFinding::Idle => return Vec::new(),
        ScanFinding::Refused(why) => return vec![why.clone()],
        ScanFinding::Observed(observed) => observed,
    };
    let mut notes = Vec::new();
    if let Forecast::Contended(share) = observed.forecast {
        notes.push(format!("waited for a processor {:.0} % of the time in which it was ready to run", 100.0 * share));
    }
    if program.share_of_busiest < STANDS_FOR_ALL {
        notes.push(format!(
            "observed: process {} ({}), which used {:.0} % of the CPU time",
            program.busiest.pid,
            printable(&program.busiest_name, NAME_LIMIT),
            100.0 * program.share_of_busiest
        ));
    }
    notes.extend(observed.forecast.from().and_then(corrected).map(|corrected| format!("forecast {corrected}")));
    notes.extend(observed.fault_share.map(many_page_faults));
    // That it gains nothing as it is needs no reason, and nobody can do anything about a stack.
    let tells_nothing = |why| {
        matches!(
            why,
            Reason::NotWalked
                | Reason::LivesInTlb
                | Reason::InOrder
                | Reason::TooCold
                | Reason::Obstacle(Obstacle::Stack)
        )
    };
    let kept = observed.kept.filter(|&why| !tells_nothing(why));
    notes.extend(kept.map(|why| format!("stays on base pages: {}", reason(why, Meaning::Walked))));
    notes
}

/// By pid: of several programs with one name, `--name` means the one with the most memory, which need not be the one that was observed.
fn next(program: &RunningProgram, finding: &ScanFinding) -> Option<String> {
    let pid = program.busiest.pid;
    let ScanFinding::Observed(observed) = finding else { return None };
    Some(match next_step(program, finding) {
        WhatNext::Nothing => return None,
        WhatNext::Trial => format!("hugepilot trial {pid}"),
        WhatNext::FreePageTables => format!(
            "hugepilot explain {pid} --children: {} of page tables would go; or restart it with huge pages of its own \
             (PostgreSQL: huge_pages=on; `hugepilot run --print -- PROGRAM` names others)",
            observed.page_tables_freed_by(program)
        ),
        WhatNext::Restart => {
            "restart it by `hugepilot run --shm`, or with huge pages of its own (PostgreSQL: huge_pages=on; `hugepilot \
                              pool set` makes the pool): its shared memory is mapped where no huge page fits"
                .to_owned()
        }
        WhatNext::CacheFile => {
            let cache = match observed.after_restart.as_ref().map(|after| &after.first) {
                Some(RestartRemedy::CacheFile(file)) => cache_command(file),
                _ => None,
            };
            let cache = cache.unwrap_or_else(|| "hugepilot cache FILE".to_owned());
            let place = if is_in_container(program) { format!("; {IN_CONTAINER}") } else { String::new() };
            format!(
                "{cache}: it maps that file on base pages; where the kernel cannot replace them beneath it, which the command tells, \
                 run it while the program is stopped (hugepilot explain {pid} names others){place}"
            )
        }
        WhatNext::StartOnHugePages => "hugepilot run --pages thp -- PROGRAM, at its next start".to_owned(),
        WhatNext::AllowHugePages => {
            "restart it without what switches huge pages off for it (PR_SET_THP_DISABLE; Redis: \
                                     `disable-thp no`; systemd: MemoryTHP=). MariaDB does so itself: it takes large pages of a pool (`hugepilot run \
                                     --pages 2M --print -- mariadbd`)"
                .to_owned()
        }
        WhatNext::ObserveAgain => "hugepilot scan, when less is running".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::scan_samples::scanned;

    #[test]
    fn the_path_of_a_file_in_a_container_is_told_to_be_the_containers() {
        let told = |place: &str| {
            let scanned = scanned().into_iter().map(|(program, finding)| {
                next(&RunningProgram { place: Some(place.to_owned()), ..program }, &finding).unwrap_or_default()
            });
            scanned.filter(|next| next.starts_with("hugepilot cache '/srv/an index")).collect::<Vec<_>>()
        };
        for (place, is_told) in [("0123456789ab", true), ("searchd.service", false), ("session-3.scope", false)] {
            let next = told(place);
            assert!(next.len() == 1 && next[0].contains(IN_CONTAINER) == is_told, "{place}: {next:?}");
        }
        assert_eq!(cache_command("/srv/index (deleted)"), None);
    }
}
