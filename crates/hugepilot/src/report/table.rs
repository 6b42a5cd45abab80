//! Columns of text, lined up.

/// Which side of a column its cells stand on.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Lines of a table: a heading, then the rows, columns two spaces apart and no space at a line's end.
///
/// Each row must have as many cells as there are columns.
pub(super) fn table(columns: &[(&str, Side)], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([columns[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(columns).zip(&widths).map(|((cell, (_, side)), &width)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let heading = line(&mut columns.iter().map(|(name, _)| *name));
    let body = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(heading).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "1000".to_owned()]];
        let lines = table(&[("x", Side::Left), ("n/s", Side::Right)], &rows);
        assert_eq!(lines, ["x     n/s", "a       1", "bcd  1000"]);
        let lines = table(&[("x", Side::Right), ("name", Side::Left)], &rows);
        assert_eq!(lines, ["  x  name", "  a  1", "bcd  1000"]);
    }
}
