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

/// What follows these words on the first line that has them, to the end of its column.
pub(super) fn line<'a>(section: &'a str, words: &str) -> Option<&'a str> {
    section.lines().find_map(|line| line.split_once(words)).and_then(|(_, rest)| columns(rest).first().copied())
}

/// The tables with such a column, each with its head.
fn tables<'a>(section: &'a str, column: &str) -> impl Iterator<Item = Vec<Vec<&'a str>>> {
    let mut lines = section.lines();
    std::iter::from_fn(move || {
        let mut head = lines.by_ref().map(columns).find(|heads| heads.contains(&column))?;
        // The second column may have no name.
        if lines.clone().next().is_some_and(|first| columns(first).len() == head.len() + 1) {
            head.insert(1, "");
        }
        let rows = lines.clone().map(columns).take_while(|cells| cells.len() == head.len());
        Some(std::iter::once(head.clone()).chain(rows).collect())
    })
}

/// The first table with such a column.
pub(super) fn table<'a>(section: &'a str, column: &str) -> Option<Vec<Vec<&'a str>>> {
    tables(section, column).next()
}

/// A cell of the first table with such a column, and below it such a row.
pub(super) fn cell<'a>(section: &'a str, row: &str, column: &str) -> Option<&'a str> {
    tables(section, column).find_map(|table| {
        let position = table[0].iter().position(|head| *head == column)?;
        let row = table.iter().skip(1).find(|cells| is_named(cells, row))?;
        row.get(position).copied()
    })
}

/// In the same table and row as a cell: the column that compares the default with itself.
pub(super) fn noise_of<'a>(section: &'a str, row: &str, column: &str) -> Option<&'a str> {
    let table = table(section, column)?;
    let noise = table[0].iter().find(|head| head.ends_with("(A/A)") && **head != column)?;
    cell(section, row, noise)
}

/// Whether a row has that name: its first column, or its first two where several rows begin alike.
fn is_named(cells: &[&str], name: &str) -> bool {
    cells[0] == name || name.strip_prefix(cells[0]).is_some_and(|rest| rest.strip_prefix(' ') == cells.get(1).copied())
}

/// The numbers and the verdict of a figure, of which one may be missing.
pub(super) fn judged<'a>(section: &'a str, words: &str) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let figures = section.lines().skip_while(|line| *line != "figures" && !line.starts_with("figures at ")).skip(1);
    let line =
        figures.take_while(|line| line.starts_with("  ")).map(columns).find(|cells| cells.first() == Some(&words))?;
    match line[..] {
        [_, numbers] if numbers.starts_with(|first: char| first.is_ascii_digit()) => Some((Some(numbers), None)),
        [_, verdict] => Some((None, Some(verdict))),
        [_, numbers, verdict] => Some((Some(numbers), Some(verdict))),
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
  noise                                      0.999 [0.995, 1.003]

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
        let felt = "response times       alone  promoting  of alone  again (A/A)\ncold default  p99   250 us     260 us     1.038        1.026\n";
        assert_eq!(noise_of(felt, "cold default p99", "of alone"), Some("1.026"));
        assert_eq!(noise_of(REPORT, "hugepilot", "tool"), None);
        assert_eq!(cell(REPORT, "default", "p99"), None);
        let tools = table(REPORT, "tool").unwrap();
        assert_eq!(tools.len(), 3, "its head and two rows");
        let skewed = section(REPORT, Some("sweep skewed")).unwrap();
        assert_eq!(cell(skewed, "default", "reads/s"), Some("70.0 k"));
        assert_eq!(cell(skewed, "hugepilot", "reads/s"), None);
        assert_eq!(section(REPORT, Some("sweep")), None, "the whole name");
        let sizes = "2 GiB left\n\nfigures at 2 GiB\n  scanned  0.1  met\n\n6 GiB left\n\nfigures at 6 GiB\n  scanned  0.9  NOT MET\n";
        assert_eq!(
            judged(section(sizes, Some("6 GiB left")).unwrap(), "scanned"),
            Some((Some("0.9"), Some("NOT MET")))
        );
    }

    #[test]
    fn a_line_is_found_by_words_in_it() {
        assert_eq!(line(REPORT, "  noise "), Some("0.999 [0.995, 1.003]"));
        assert_eq!(line(REPORT, "sweep skewed:"), Some("reads; 20 rounds"));
        assert_eq!(line(REPORT, "silence"), None);
    }

    #[test]
    fn figures_have_numbers_and_a_verdict() {
        let seen = judged(REPORT, "throughput >= 0.99 x ideal");
        assert_eq!(seen, Some((Some("0.998 [0.992, 1.004]"), Some("not resolvable here, +/- 1.700 %"))));
        assert_eq!(judged(REPORT, "done within 10 s"), Some((None, Some("met"))));
        assert_eq!(judged(REPORT, "noise"), Some((Some("0.999 [0.995, 1.003]"), None)));
        assert_eq!(judged(REPORT, "default"), None, "a table is none of the figures");
    }
}
