//! The terminal heat map: which regions are hot now.

use heat::Region;
use heat::units::{Bytes, HUGE_PAGE};
use pilot::words::{count_of, rate};

/// The part of a terminal that a heat map may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// Columns.
    pub width: usize,
    /// Whether to colour (ANSI, 256 colours): the caller asks for it on a terminal without `NO_COLOR`.
    pub color: bool,
}

/// Rows that fit on a terminal together with what is printed above.
const MAX_ROWS: usize = 24;
/// A narrower row would show next to nothing; a narrower terminal wraps.
const MIN_CELLS: usize = 16;

/// What one cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shade {
    NotWalked,
    Faint,
    Medium,
    Strong,
    Full,
    Huge,
    HugeWalked,
}

impl Shade {
    pub(super) fn symbol(self) -> char {
        match self {
            Shade::NotWalked => '·',
            Shade::Faint => '░',
            Shade::Medium => '▒',
            Shade::Strong => '▓',
            Shade::Full => '█',
            Shade::Huge => '□',
            Shade::HugeWalked => '■',
        }
    }

    /// From the 256-colour ANSI palette: grey, then tan to dark red with rising heat, and blue for huge pages; told apart with any kind of color vision.
    pub(super) fn color(self) -> u8 {
        match self {
            Shade::NotWalked => 244,
            Shade::Faint => 180,
            Shade::Medium => 220,
            Shade::Strong => 208,
            Shade::Full => 160,
            Shade::Huge | Shade::HugeWalked => 33,
        }
    }
}

/// The heat map: one cell per region, or several regions per cell where there are too many. Each row starts with the address of its first region; a
/// legend follows. Regions without present memory are left out.
///
/// `regions` are ascending, as in a heat. Ends with a line break; empty if there are no regions.
pub fn heat_map(regions: &[Region], canvas: Canvas) -> String {
    let Some(last) = regions.last() else { return String::new() };
    let label_width = last.start.to_string().len();
    let columns = canvas.width.saturating_sub(label_width + 2).max(MIN_CELLS);
    let per_cell = regions.len().div_ceil(columns * MAX_ROWS);
    let by_reference: Vec<&Region> = regions.iter().collect();
    let hottest = by_reference.chunks(per_cell).map(base_page_heat).fold(0.0, f64::max);

    let mut map = String::new();
    let cells = cells_of(&by_reference, columns * MAX_ROWS);
    for (row, shades) in regions.chunks(columns * per_cell).zip(cells.chunks(columns)) {
        map += &format!("{:>label_width$}  {}\n", row[0].start.to_string(), paint(shades, canvas.color));
    }
    map + &legend(per_cell, hottest, canvas.color)
}

/// The shades of at most `most` cells, in order: one cell per region, or several regions per cell where there are too many.
pub(super) fn cells_of(regions: &[&Region], most: usize) -> Vec<Shade> {
    let per_cell = regions.len().div_ceil(most.max(1)).max(1);
    let hottest = regions.chunks(per_cell).map(base_page_heat).fold(0.0, f64::max);
    regions.chunks(per_cell).map(|cell| shade(cell, hottest)).collect()
}

/// Page walks a second that promoting could save: the average over the cell's regions that are not huge yet.
fn base_page_heat(cell: &[&Region]) -> f64 {
    let heats: Vec<_> = cell.iter().filter(|region| !region.huge).map(|region| region.walks_per_second).collect();
    if heats.is_empty() { 0.0 } else { heats.iter().sum::<f64>() / heats.len() as f64 }
}

fn shade(cell: &[&Region], hottest: f64) -> Shade {
    let huge = cell.iter().filter(|region| region.huge).count();
    if 2 * huge > cell.len() {
        let walked = cell.iter().any(|region| region.huge && region.walks_per_second > 0.0);
        return if walked { Shade::HugeWalked } else { Shade::Huge };
    }
    match base_page_heat(cell) / hottest {
        share if share >= 1.0 / 4.0 => Shade::Full,
        share if share >= 1.0 / 16.0 => Shade::Strong,
        share if share >= 1.0 / 64.0 => Shade::Medium,
        share if share > 0.0 => Shade::Faint,
        _ => Shade::NotWalked,
    }
}

/// The symbols of a row; the colour changes once per run of equal shades.
fn paint(shades: &[Shade], color: bool) -> String {
    let symbols = |run: &[Shade]| run.iter().map(|shade| shade.symbol()).collect::<String>();
    if !color {
        return symbols(shades);
    }
    let runs = shades.chunk_by(|left, right| left.color() == right.color());
    runs.map(|run| format!("\x1b[38;5;{}m{}\x1b[0m", run[0].color(), symbols(run))).collect()
}

fn legend(per_cell: usize, hottest: f64, color: bool) -> String {
    let entries = [
        (Shade::NotWalked, "not walked".to_owned()),
        (Shade::Faint, format!("below {}", rate(hottest / 64.0))),
        (Shade::Medium, format!("from {}", rate(hottest / 64.0))),
        (Shade::Strong, format!("from {}", rate(hottest / 16.0))),
        (Shade::Full, format!("from {}", rate(hottest / 4.0))),
    ];
    let huge = [(Shade::Huge, "huge".to_owned()), (Shade::HugeWalked, "huge, walked".to_owned())];
    let line = |entries: &[(Shade, String)]| {
        let words = entries.iter().map(|(shade, text)| format!("{} {text}", paint(&[*shade], color)));
        words.collect::<Vec<_>>().join("  ")
    };
    let shown = if hottest > 0.0 { &entries[..] } else { &entries[..1] };
    let cell = Bytes(per_cell as u64 * HUGE_PAGE);
    let what = format!("a cell is {} ({cell}); rates are page walks a region", count_of(per_cell as u64, "region"));
    format!("{}\n{}  {what}\n", line(shown), line(&huge))
}

#[cfg(test)]
mod tests {
    use heat::samples::{huge, region};

    use super::*;

    const PLAIN: Canvas = Canvas { width: 80, color: false };

    #[test]
    fn each_shade_has_its_place() {
        let heats = [0.0, 0.1, 1.0 / 64.0 * 1e3, 1e3 / 16.0, 1e3 / 4.0, 1e3];
        let mut regions: Vec<_> = (0..).zip(heats).map(|(number, walks)| region(number, walks, 0)).collect();
        regions.extend([huge(6, 0.0), huge(7, 5.0)]);
        insta::assert_snapshot!(heat_map(&regions, PLAIN));
    }

    #[test]
    fn many_regions_share_cells_and_still_fit() {
        let regions: Vec<_> = (0..100_000).map(|number| region(number, number as f64, 0)).collect();
        let map = heat_map(&regions, PLAIN);
        let rows: Vec<_> = map.lines().filter(|line| line.starts_with("0x")).collect();
        assert!(rows.len() <= MAX_ROWS, "{map}");
        assert!(rows.iter().all(|row| row.chars().count() <= PLAIN.width), "{map}");
        assert!(map.contains("a cell is 65 regions (130 MiB)"), "{map}");
        assert!(rows[1].starts_with(&format!("{}  ", regions[65 * 65].start)), "{map}");
    }

    #[test]
    fn a_cell_is_huge_if_most_of_it_is() {
        assert_eq!(shade(&[&huge(0, 0.0), &huge(1, 0.0), &region(2, 9.0, 0)], 9.0), Shade::Huge);
        assert_eq!(shade(&[&huge(0, 0.0), &region(2, 9.0, 0)], 9.0), Shade::Full);
        assert_eq!(shade(&[&huge(0, 9.0), &region(2, 0.0, 0)], 9.0), Shade::NotWalked);
    }

    #[test]
    fn colour_is_only_there_when_asked_for() {
        let regions = [region(0, 1.0, 0), region(1, 1.0, 0), huge(2, 1.0)];
        let colored = heat_map(&regions, Canvas { color: true, ..PLAIN });
        assert!(colored.contains("\x1b[38;5;160m██\x1b[0m\x1b[38;5;33m■\x1b[0m\n"), "{colored:?}");
        assert!(!heat_map(&regions, PLAIN).contains('\x1b'));
    }

    #[test]
    fn nothing_gives_nothing_and_a_cold_or_narrow_map_still_works() {
        assert_eq!(heat_map(&[], PLAIN), "");
        let cold = heat_map(&[region(0, 0.0, 0)], Canvas { width: 0, color: false });
        assert!(cold.contains("· not walked\n"), "{cold}");
    }
}
