//! A recording that was made, and how to show it.

use pilot::words::count_of;

use crate::report::RecordReport;

/// The recording.
pub fn record(report: &RecordReport) -> String {
    let RecordReport { pid, name, observations, elapsed, size, path } = report;
    format!(
        "{observations} of process {pid} ({name}) over {elapsed}: {size} in {path}\nshow them with: hugepilot replay {path}\n",
        observations = count_of(*observations, "observation"),
        path = path.display()
    )
}
