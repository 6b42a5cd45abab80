//! Heat as a grid: addresses from top to bottom, and observations from left to right; of a single observation, the regions of a row.
//!
//! Owns: the grid that all pictures show, and the pictures ([`html`], [`svg`]). Never touches: where they are saved.

pub mod html;
pub mod svg;

use std::collections::BTreeMap;

use heat::units::{Address, BASE_PAGE, Bytes, Nanos};
use heat::{Heat, Region};
use recording::Moment;

/// Nobody can tell more rows or columns than this apart on a screen.
const MOST_ROWS: usize = 384;
const MOST_COLUMNS: usize = 720;
/// The columns of a single observation: a row is 128 MiB, or a multiple of that.
const REGIONS_SIDE_BY_SIDE: usize = 64;

/// Observations of one process as a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatGrid {
    /// The title, for people.
    pub title: String,
    /// Low addresses first; memory that was never present is left out.
    pub rows: Vec<Row>,
    /// What the columns are.
    pub columns: Columns,
    /// For each column, one cell per row; None where the row has no such region.
    pub cells: Vec<Vec<Option<Cell>>>,
}

/// What the columns of a grid are.
#[derive(Clone, Debug, PartialEq)]
pub enum Columns {
    /// Observations, each with the end of its last one.
    Times(Vec<Nanos>),
    /// The regions of a row side by side, so many in each cell: of a single observation a column would be all that is seen.
    Regions {
        /// Regions in a cell.
        per_cell: usize,
    },
}

/// Takes observations one by one, and keeps no more data than a heat map shows.
#[derive(Clone, Debug, Default)]
pub struct HeatRecorder {
    names: BTreeMap<Address, String>,
    columns: Vec<Column>,
    /// Observations in a full column; doubled whenever there are too many columns.
    per_column: usize,
}

/// Consecutive observations, added up.
#[derive(Clone, Debug, Default)]
struct Column {
    until: Nanos,
    observations: usize,
    /// For each region: page walks a second, whether it is huge, bytes present.
    regions: BTreeMap<Address, Cell>,
}

/// One or more adjacent regions of one mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where the first region starts.
    pub start: Address,
    /// The number of regions in it.
    pub regions: usize,
    /// The mapping's name, for people.
    pub mapping: String,
}

/// What was observed in one row at one time; the mean of several observations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Where its first region starts.
    pub start: Address,
    /// Page walks a second of all its regions.
    pub walks_per_second: f64,
    /// The share of its regions that huge pages map, 0 to 1.
    pub huge: f64,
    /// Memory present.
    pub present: Bytes,
}

impl HeatRecorder {
    /// Adds the next observation.
    pub fn take(&mut self, moment: &Moment) {
        let heat = &moment.heat;
        for region in &heat.regions {
            let known = self.names.entry(region.start).or_default();
            let name = name(heat, region);
            if *known != name {
                name.clone_into(known);
            }
        }
        self.per_column = self.per_column.max(1);
        if self.columns.last().is_none_or(|column| column.observations >= self.per_column) {
            self.columns.push(Column::default());
        }
        self.columns.last_mut().expect("just pushed").add(moment);
        if self.columns.len() >= 2 * MOST_COLUMNS {
            self.columns = self.columns.chunks(2).map(Column::sum).collect();
            self.per_column *= 2;
        }
    }

    /// The grid of all observations taken.
    pub fn grid(&self, title: String) -> HeatGrid {
        if let [only] = &self.columns[..]
            && only.observations == 1
        {
            return self.side_by_side(title, only);
        }
        let rows = rows(&self.names, self.names.len().div_ceil(MOST_ROWS).max(1));
        let together = self.columns.len().div_ceil(MOST_COLUMNS).max(1);
        let columns: Vec<Column> = self.columns.chunks(together).map(Column::sum).collect();
        HeatGrid {
            title,
            columns: Columns::Times(columns.iter().map(|column| column.until).collect()),
            cells: columns.iter().map(|column| cells(&rows, column).into_iter().map(Some).collect()).collect(),
            rows,
        }
    }

    fn side_by_side(&self, title: String, only: &Column) -> HeatGrid {
        let per_cell = self.names.len().div_ceil(MOST_ROWS * REGIONS_SIDE_BY_SIDE).max(1);
        let of_cells = rows(&self.names, per_cell);
        let all = cells(&of_cells, only);
        let same_mapping = |one: &Row, other: &Row| one.mapping == other.mapping;
        let mappings = of_cells.chunk_by(same_mapping).flat_map(|mapping| mapping.chunks(REGIONS_SIDE_BY_SIDE));
        let mut grid = HeatGrid { title, rows: Vec::new(), columns: Columns::Regions { per_cell }, cells: Vec::new() };
        grid.cells.resize(REGIONS_SIDE_BY_SIDE, Vec::new());
        let mut cells = all.into_iter();
        for row in mappings {
            let regions = row.iter().map(|cell| cell.regions).sum();
            grid.rows.push(Row { start: row[0].start, regions, mapping: row[0].mapping.clone() });
            for (number, column) in grid.cells.iter_mut().enumerate() {
                column.push(if number < row.len() { cells.next() } else { None });
            }
        }
        grid
    }
}

impl Column {
    fn add(&mut self, moment: &Moment) {
        self.until = moment.at;
        self.observations += 1;
        for region in &moment.heat.regions {
            let present = Bytes(region.present.len() as u64 * BASE_PAGE);
            let (walks_per_second, huge) = (region.walks_per_second, f64::from(u8::from(region.huge)));
            self.regions.entry(region.start).or_default().add(&Cell {
                walks_per_second,
                huge,
                present,
                ..Cell::default()
            });
        }
    }

    fn sum(columns: &[Column]) -> Column {
        let mut sum = Column::default();
        for column in columns {
            sum.until = column.until;
            sum.observations += column.observations;
            for (&start, cell) in &column.regions {
                sum.regions.entry(start).or_default().add(cell);
            }
        }
        sum
    }
}

impl Cell {
    fn add(&mut self, other: &Cell) {
        self.walks_per_second += other.walks_per_second;
        self.huge += other.huge;
        self.present += other.present;
    }
}

impl HeatGrid {
    /// The most page walks a second in any cell.
    pub fn hottest(&self) -> f64 {
        self.cells.iter().flatten().flatten().map(|cell| cell.walks_per_second).fold(0.0, f64::max)
    }
}

/// How hot a cell is on the scale that all pictures share, from 0 (no walks) to 1 (the hottest); each quarter of the scale stands for a factor of ten
/// in walks.
pub fn warmth(walks_per_second: f64, hottest: f64) -> f64 {
    let decades = 4.0;
    if walks_per_second > 0.0 && hottest > 0.0 {
        (1.0 + (walks_per_second / hottest).log10() / decades).clamp(0.05, 1.0)
    } else {
        0.0
    }
}

/// Every region that was ever present; so many adjacent regions of one mapping share a row.
fn rows(names: &BTreeMap<Address, String>, per_row: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (&start, name) in names {
        match rows.last_mut() {
            Some(row) if row.regions < per_row && row.mapping == *name => row.regions += 1,
            _ => rows.push(Row { start, regions: 1, mapping: name.clone() }),
        }
    }
    rows
}

fn name<'a>(heat: &'a Heat, region: &Region) -> &'a str {
    match heat.mapping_of(region) {
        None => "(went away)",
        Some(mapping) if mapping.name.is_empty() => "(anonymous)",
        Some(mapping) => &mapping.name,
    }
}

/// The means of a column, one per row.
fn cells(rows: &[Row], column: &Column) -> Vec<Cell> {
    let mut cells: Vec<Cell> = rows.iter().map(|row| Cell { start: row.start, ..Cell::default() }).collect();
    for (&start, sum) in &column.regions {
        let row = rows.partition_point(|row| row.start <= start) - 1;
        cells[row].add(sum);
    }
    let observations = column.observations.max(1);
    for (cell, row) in cells.iter_mut().zip(rows) {
        cell.walks_per_second /= observations as f64;
        cell.huge /= (observations * row.regions) as f64;
        cell.present = Bytes(cell.present.0 / observations as u64);
    }
    cells
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use heat::samples::{at, heat_of, huge, region};

    pub fn moments(count: u64) -> Vec<Moment> {
        let heat = |second: u64| heat_of(vec![region(0, second as f64, 0), huge(1, 4.0), region(5, 100.0, 256)]);
        let moment =
            |second: u64| Moment { at: Nanos(second * 1_000_000_000), heat: heat(second), page_tables: Bytes(0) };
        (1..=count).map(moment).collect()
    }

    pub fn grid(title: &str, moments: &[Moment]) -> HeatGrid {
        let mut recorder = HeatRecorder::default();
        moments.iter().for_each(|moment| recorder.take(moment));
        recorder.grid(title.to_owned())
    }

    fn times(grid: &HeatGrid) -> &[Nanos] {
        match &grid.columns {
            Columns::Times(times) => times,
            Columns::Regions { .. } => panic!("{grid:?}"),
        }
    }

    fn cell(grid: &HeatGrid, column: usize, row: usize) -> Cell {
        grid.cells[column][row].unwrap()
    }

    #[test]
    fn a_grid_has_a_row_for_each_region_and_a_column_for_each_observation() {
        let grid = grid("a", &moments(3));
        assert_eq!(times(&grid), [1, 2, 3].map(|second| Nanos(second * 1_000_000_000)));
        assert_eq!(grid.rows.iter().map(|row| row.start).collect::<Vec<_>>(), [at(0), at(1), at(5)]);
        assert_eq!(grid.rows[2].mapping, "[heap]");
        let at = |column, row| cell(&grid, column, row);
        assert_eq!((at(2, 0).walks_per_second, at(0, 1).huge, at(0, 2).present), (3.0, 1.0, Bytes(1 << 20)));
        assert_eq!(grid.hottest(), 100.0);
    }

    #[test]
    fn a_single_observation_shows_regions_side_by_side() {
        let regions = (0..150).map(|number| region(number, number as f64, 0)).collect();
        let moment = Moment { at: Nanos(1), heat: heat_of(regions), page_tables: Bytes(0) };
        let grid = grid("a", &[moment]);
        assert_eq!(grid.columns, Columns::Regions { per_cell: 1 });
        // 64 regions are of another mapping.
        let rows: Vec<_> = grid.rows.iter().map(|row| (row.start, row.regions)).collect();
        let sum: usize = grid.rows.iter().map(|row| row.regions).sum();
        assert_eq!((rows[0], sum), ((at(0), 64), 150));
        assert_eq!((grid.cells.len(), cell(&grid, 63, 0).walks_per_second), (64, 63.0));
        assert_eq!((cell(&grid, 0, 1).walks_per_second, cell(&grid, 0, 1).start), (64.0, at(64)));
        let last = grid.rows.len() - 1;
        assert_eq!(grid.cells[grid.rows[last].regions][last], None, "the last row is not full");
    }

    #[test]
    fn long_heat_maps_and_large_processes_are_averaged() {
        let long = grid("a", &moments(4 * MOST_COLUMNS as u64));
        assert_eq!(
            (times(&long).len(), cell(&long, 0, 0).walks_per_second, cell(&long, 0, 1).huge),
            (MOST_COLUMNS, 2.5, 1.0)
        );
        let wide = |second| Moment {
            at: Nanos(second),
            heat: heat_of((0..3 * MOST_ROWS as u64).map(|number| region(number, 1.0, 0)).collect()),
            page_tables: Bytes(0),
        };
        let wide = grid("a", &[wide(1), wide(2)]);
        assert_eq!((wide.rows.len(), wide.rows[1].regions, cell(&wide, 0, 1).walks_per_second), (MOST_ROWS, 3, 3.0));
    }

    #[test]
    fn memory_that_comes_and_goes_has_its_row() {
        let mut moments = moments(2);
        moments[0].heat.regions.remove(0);
        let grid = grid("a", &moments);
        let absent = Cell { start: at(0), ..Cell::default() };
        assert_eq!((cell(&grid, 0, 0), cell(&grid, 1, 0).walks_per_second), (absent, 2.0));
    }

    #[test]
    fn warmth_is_a_scale_of_decades() {
        assert_eq!([0.0, 100.0, 10.0, 1.0].map(|walks| warmth(walks, 100.0)), [0.0, 1.0, 0.75, 0.5]);
        assert_eq!((warmth(1e-9, 100.0), warmth(0.0, 0.0)), (0.05, 0.0));
    }
}
