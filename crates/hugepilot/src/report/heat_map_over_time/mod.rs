//! Heat over time: addresses from top to bottom, observations from left to right.
//!
//! Owns: the grid that all pictures show, and the pictures ([`html`], [`png`]). Never touches: where they are saved.

pub mod html;
pub mod png;

use std::collections::BTreeMap;

use heat::units::{Address, BASE_PAGE, Bytes, Nanos};
use heat::{Heat, Region};
use recording::Moment;

/// Nobody can tell more rows or columns than this apart on a screen.
const MOST_ROWS: usize = 384;
const MOST_COLUMNS: usize = 720;

/// Observations of one process as a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMapOverTime {
    /// The title, for people.
    pub title: String,
    /// Low addresses first; memory that was never present is left out.
    pub rows: Vec<Row>,
    /// For each column, the end of its last observation.
    pub times: Vec<Nanos>,
    /// For each column, one cell per row.
    pub cells: Vec<Vec<Cell>>,
}

/// Takes observations one by one, and keeps no more data than a heat map shows.
#[derive(Clone, Debug, Default)]
pub struct HeatMapRecorder {
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
    /// Page walks a second of all its regions.
    pub walks_per_second: f64,
    /// The share of its regions that huge pages map, 0 to 1.
    pub huge: f64,
    /// Memory present.
    pub present: Bytes,
}

impl HeatMapRecorder {
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

    /// The heat map of all observations taken.
    pub fn heat_map(&self, title: String) -> HeatMapOverTime {
        let rows = rows(&self.names);
        let together = self.columns.len().div_ceil(MOST_COLUMNS).max(1);
        let columns: Vec<Column> = self.columns.chunks(together).map(Column::sum).collect();
        HeatMapOverTime {
            title,
            times: columns.iter().map(|column| column.until).collect(),
            cells: columns.iter().map(|column| cells(&rows, column)).collect(),
            rows,
        }
    }
}

impl Column {
    fn add(&mut self, moment: &Moment) {
        self.until = moment.at;
        self.observations += 1;
        for region in &moment.heat.regions {
            let present = Bytes(region.present.len() as u64 * BASE_PAGE);
            let (walks_per_second, huge) = (region.walks_per_second, f64::from(u8::from(region.huge)));
            self.regions.entry(region.start).or_default().add(&Cell { walks_per_second, huge, present });
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

impl HeatMapOverTime {
    /// The most page walks a second in any cell.
    pub fn hottest(&self) -> f64 {
        self.cells.iter().flatten().map(|cell| cell.walks_per_second).fold(0.0, f64::max)
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

/// Every region that was ever present; adjacent regions of one mapping share a row where there are too many.
fn rows(names: &BTreeMap<Address, String>) -> Vec<Row> {
    let per_row = names.len().div_ceil(MOST_ROWS).max(1);
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
    let mut cells = vec![Cell::default(); rows.len()];
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

    pub fn heat_map(title: &str, moments: &[Moment]) -> HeatMapOverTime {
        let mut recorder = HeatMapRecorder::default();
        moments.iter().for_each(|moment| recorder.take(moment));
        recorder.heat_map(title.to_owned())
    }

    #[test]
    fn a_heat_map_has_a_row_for_each_region_and_a_column_for_each_observation() {
        let heat_map = heat_map("a", &moments(3));
        assert_eq!(heat_map.times, [1, 2, 3].map(|second| Nanos(second * 1_000_000_000)));
        assert_eq!(heat_map.rows.iter().map(|row| row.start).collect::<Vec<_>>(), [at(0), at(1), at(5)]);
        assert_eq!(heat_map.rows[2].mapping, "[heap]");
        let cell = |column: usize, row: usize| heat_map.cells[column][row];
        assert_eq!((cell(2, 0).walks_per_second, cell(0, 1).huge, cell(0, 2).present), (3.0, 1.0, Bytes(1 << 20)));
        assert_eq!(heat_map.hottest(), 100.0);
    }

    #[test]
    fn long_heat_maps_and_large_processes_are_averaged() {
        let long = heat_map("a", &moments(4 * MOST_COLUMNS as u64));
        assert_eq!(
            (long.times.len(), long.cells[0][0].walks_per_second, long.cells[0][1].huge),
            (MOST_COLUMNS, 2.5, 1.0)
        );
        let wide = Moment {
            at: Nanos(1),
            heat: heat_of((0..3 * MOST_ROWS as u64).map(|number| region(number, 1.0, 0)).collect()),
            page_tables: Bytes(0),
        };
        let heat_map = heat_map("a", &[wide]);
        assert_eq!(
            (heat_map.rows.len(), heat_map.rows[1].regions, heat_map.cells[0][1].walks_per_second),
            (MOST_ROWS, 3, 3.0)
        );
    }

    #[test]
    fn memory_that_comes_and_goes_has_its_row() {
        let mut moments = moments(2);
        moments[0].heat.regions.remove(0);
        let heat_map = heat_map("a", &moments);
        assert_eq!((heat_map.cells[0][0], heat_map.cells[1][0].walks_per_second), (Cell::default(), 2.0));
    }

    #[test]
    fn warmth_is_a_scale_of_decades() {
        assert_eq!([0.0, 100.0, 10.0, 1.0].map(|walks| warmth(walks, 100.0)), [0.0, 1.0, 0.75, 0.5]);
        assert_eq!((warmth(1e-9, 100.0), warmth(0.0, 0.0)), (0.05, 0.0));
    }
}
