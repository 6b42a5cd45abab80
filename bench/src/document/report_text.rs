//! Figures and cells found in the text of a report.
//!
//! Owns: how tables and figures are told there: columns stand two spaces or more apart. Never touches: what they say.

/// The columns of a line.
fn columns(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// The part of a report that is about one workload: what stands below the line that begins with it; all of it without one.
pub(super) fn section<'a>(report: &'a str, name: Option<&str>) -> Option<&'a str> {
    let Some(name) = name else { return Some(report) };
    let begins =
        |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.trim_end().is_empty() || rest.starts_with(':'));
    let mut offset = 0;
    for line in report.split_inclusive('\n') {
        if begins(line) {
            return Some(&report[offset..]);
        }
        offset += line.len();
    }
    None
}

/// A cell of the first table with such a column, and below it such a row.
pub(super) fn cell<'a>(section: &'a str, row: &str, column: &str) -> Option<&'a str> {
    let mut lines = section.lines();
    while let Some(head) = lines.next() {
        let heads = columns(head);
        let Some(position) = heads.iter().position(|head| *head == column) else { continue };
        let rows = lines.clone().map(columns).take_while(|cells| cells.len() == heads.len());
        if let Some(found) = rows.into_iter().find(|cells| is_named(cells, row)) {
            return Some(found[position]);
        }
    }
    None
}

/// Whether a row has that name: its first column, or its first two where several rows begin alike.
fn is_named(cells: &[&str], name: &str) -> bool {
    cells[0] == name || name.strip_prefix(cells[0]).is_some_and(|rest| rest.strip_prefix(' ') == cells.get(1).copied())
}

/// The numbers and the verdict of a figure; nothing stands for numbers where there are none.
pub(super) fn judged<'a>(section: &'a str, words: &str) -> Option<(&'a str, &'a str)> {
    let figures = section.lines().skip_while(|line| *line != "figures" && !line.starts_with("figures at ")).skip(1);
    let line =
        figures.take_while(|line| line.starts_with("  ")).map(columns).find(|cells| cells.first() == Some(&words))?;
    match line[..] {
        [_, verdict] => Some(("", verdict)),
        [_, numbers, verdict] => Some((numbers, verdict)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
A machine

sweep random: reads; 20 rounds

configuration  reads/s   vs default [interval]  tool
default         81.0 k                       -     -
hugepilot      104.0 k   1.168 [1.155, 1.181]    1 s

figures
  throughput >= 0.99 x ideal                 0.998 [0.992, 1.004]         not resolvable here, +/- 1.700 %
  done within 10 s                                                        met

sweep skewed: reads; 20 rounds

configuration  reads/s
default         70.0 k
";

    #[test]
    fn cells_are_found_by_their_row_and_column() {
        assert_eq!(cell(REPORT, "hugepilot", "vs default [interval]"), Some("1.168 [1.155, 1.181]"));
        assert_eq!(cell(REPORT, "hugepilot", "tool"), Some("1 s"));
        assert_eq!(cell(REPORT, "hugepilot 104.0 k", "tool"), Some("1 s"), "by two columns");
        assert_eq!(cell(REPORT, "ideal", "tool"), None);
        assert_eq!(cell(REPORT, "default", "p99"), None);
        let skewed = section(REPORT, Some("sweep skewed")).unwrap();
        assert_eq!(cell(skewed, "default", "reads/s"), Some("70.0 k"));
        assert_eq!(cell(skewed, "hugepilot", "reads/s"), None);
        assert_eq!(section(REPORT, Some("sweep")), None, "the whole name");
        let sizes = "2 GiB left\n\nfigures at 2 GiB\n  scanned  0.1  met\n\n6 GiB left\n\nfigures at 6 GiB\n  scanned  0.9  NOT MET\n";
        assert_eq!(judged(section(sizes, Some("6 GiB left")).unwrap(), "scanned"), Some(("0.9", "NOT MET")));
    }

    #[test]
    fn figures_have_numbers_and_a_verdict() {
        let seen = judged(REPORT, "throughput >= 0.99 x ideal");
        assert_eq!(seen, Some(("0.998 [0.992, 1.004]", "not resolvable here, +/- 1.700 %")));
        assert_eq!(judged(REPORT, "done within 10 s"), Some(("", "met")));
        assert_eq!(judged(REPORT, "default"), None, "a table is none of the figures");
    }
}
