//! A scan of the machine.

use pilot::programs::RunningProgram;
use pilot::programs::scan::{ScanFinding, next_step};
use pilot::words::name;
use serde::Serialize;

use super::{ReportKind, document};
use crate::report::ScanReport;
use crate::report::scan_words::rows;

/// The scan, each program listed, idle ones included.
pub fn scan(report: &ScanReport) -> String {
    let found = report.found.iter().zip(rows(report));
    document(
        ReportKind::Scan,
        &object! {
            by: report.by,
            smallest_bytes: report.smallest,
            programs: found.map(|((program, finding), row)| described(program, finding, row.next)).collect::<Vec<_>>(),
        },
    )
}

fn described(program: &RunningProgram, finding: &ScanFinding, next: Option<String>) -> impl Serialize {
    let (observed, refused) = match finding {
        ScanFinding::Idle => (None, None),
        ScanFinding::Refused(why) => (None, Some(why)),
        ScanFinding::Observed(observed) => (Some(observed), None),
    };
    object! {
        name: &program.name,
        place: &program.place,
        processes: program.processes,
        pid: program.busiest.pid,
        busy_cpus: program.busy_cpus,
        share_of_pid: program.share_of_busiest,
        memory_bytes: program.memory,
        page_tables_bytes: program.page_tables,
        huge_pages_switched_off: program.switched_off,
        idle: *finding == ScanFinding::Idle,
        refused: refused,
        huge_bytes: observed.map(|observed| observed.huge),
        resident_bytes: observed.map(|observed| observed.resident),
        walk_share: observed.and_then(|observed| observed.walk_share),
        would_pay_bytes: observed.map(|observed| observed.would_pay),
        growth_bytes: observed.map(|observed| observed.growth),
        page_tables_saved_bytes: observed.map(|observed| observed.page_tables_freed),
        expected_gain_percent: observed.and_then(|observed| observed.forecast.gain()),
        expected_gain_from: observed.and_then(|observed| observed.forecast.from()),
        expected_gain_after_restart_percent: observed.and_then(|observed| observed.after_restart.as_ref()?.forecast.gain()),
        page_fault_share: observed.and_then(|observed| observed.fault_share),
        mostly_kept: observed.and_then(|observed| observed.kept),
        next_step: name(next_step(program, finding)),
        next: next,
    }
}
