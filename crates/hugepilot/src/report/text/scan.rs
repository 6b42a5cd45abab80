//! A scan of the machine: one row for each program, and below it what to do next.

use heat::units::Bytes;
use pilot::programs::scan::ScanFinding;
use pilot::words::count_of;

use super::joined;
use crate::report::ScanReport;
use crate::report::scan_words::{HEADINGS, NAMES, ScanRow, rows};
use crate::report::table::table;

/// The table; rows of programs that are idle and in no need of words are counted only.
pub fn scan(report: &ScanReport) -> String {
    let idle = report.found.iter().filter(|(_, finding)| *finding == ScanFinding::Idle);
    let (idle, idle_memory) =
        idle.fold((0, Bytes(0)), |(count, memory), (program, _)| (count + 1, memory + program.memory));
    let busy = report.found.iter().zip(rows(report)).filter(|((_, finding), _)| *finding != ScanFinding::Idle);
    let rows: Vec<ScanRow> = busy.map(|(_, row)| row).collect();
    let mut lines = Vec::new();
    if rows.is_empty() {
        lines.push(format!("no program with {} or more uses CPU time", report.smallest));
    } else {
        lines.extend(with_words(&rows));
    }
    if idle > 0 {
        lines.push(String::new());
        lines.push(format!("and {} with {idle_memory}, idle at present; --json lists them", count_of(idle, "program")));
    }
    joined(lines)
}

fn with_words(rows: &[ScanRow]) -> Vec<String> {
    let columns = HEADINGS.iter().enumerate();
    let table = columns.fold(table(rows), |table, (column, heading)| {
        let cell = |row: &&ScanRow| row.cells[column].clone();
        if column < NAMES { table.left(heading, cell) } else { table.right(heading, cell) }
    });
    let mut table = table.lines().into_iter();
    let mut lines: Vec<String> = table.next().into_iter().collect();
    for (line, row) in table.zip(rows) {
        lines.push(line);
        lines.extend(row.notes.iter().map(|note| format!("    {note}")));
        lines.extend(row.next.iter().map(|next| format!("    next: {next}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::scan_samples::scanned;

    #[test]
    fn a_row_tells_what_to_do_next() {
        let found = scanned();
        let report = ScanReport { found: &found, by: pilot::programs::GroupBy::Program, smallest: Bytes(64 << 20) };
        insta::assert_snapshot!(scan(&report));
        let none = scan(&ScanReport { found: &[], ..report });
        assert_eq!(none, "no program with 64 MiB or more uses CPU time\n");
    }
}
