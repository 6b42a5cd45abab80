//! Text in aligned columns.

use std::fmt::Display;

/// Rows and their lines as shown: columns are two spaces apart, and no line ends with a space.
pub(super) struct Table<Row> {
    rows: Vec<Row>,
    /// A heading, then the rows; every cell is as wide as its column.
    lines: Vec<Vec<String>>,
}

/// A table of these rows, without columns yet.
pub(super) fn table<Row>(rows: impl IntoIterator<Item = Row>) -> Table<Row> {
    let rows: Vec<Row> = rows.into_iter().collect();
    Table { lines: vec![Vec::new(); rows.len() + 1], rows }
}

impl<Row> Table<Row> {
    /// Adds a left-aligned column.
    pub(super) fn left<Cell: Display>(self, heading: &str, cell: impl Fn(&Row) -> Cell) -> Self {
        self.column(heading, cell, |cell, width| format!("{cell:<width$}"))
    }

    /// Adds a right-aligned column.
    pub(super) fn right<Cell: Display>(self, heading: &str, cell: impl Fn(&Row) -> Cell) -> Self {
        self.column(heading, cell, |cell, width| format!("{cell:>width$}"))
    }

    fn column<Cell: Display>(
        mut self,
        heading: &str,
        cell: impl Fn(&Row) -> Cell,
        pad: fn(&str, usize) -> String,
    ) -> Self {
        let cells: Vec<String> = self.rows.iter().map(|row| cell(row).to_string()).collect();
        let cells = || std::iter::once(heading).chain(cells.iter().map(String::as_str));
        let width = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
        self.lines.iter_mut().zip(cells()).for_each(|(line, cell)| line.push(pad(cell, width)));
        self
    }

    pub(super) fn lines(self) -> Vec<String> {
        self.lines.iter().map(|cells| cells.join("  ").trim_end().to_owned()).collect()
    }
}

/// A cell that may have nothing to show.
pub(super) fn or_dash(cell: Option<impl Display>) -> String {
    cell.map_or("-".to_owned(), |cell| cell.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "1"], ["bcd", "1000"]];
        let lines = table(rows).left("x", |row| row[0]).right("n/s", |row| row[1]).lines();
        assert_eq!(lines, ["x     n/s", "a       1", "bcd  1000"]);
        let lines = table(rows).right("x", |row| row[0]).left("name", |row| row[1]).lines();
        assert_eq!(lines, ["  x  name", "  a  1", "bcd  1000"]);
    }
}
