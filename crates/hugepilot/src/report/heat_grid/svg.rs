//! The grid as a picture: mappings by name, a key and a bar of colours above, the cells as one image within the SVG.
//!
//! Owns: places and colours. Never touches: files.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heat::units::{Bytes, HUGE_PAGE};
use picture::chart::{KeyEntry, Mark, headed};
use picture::color::on_scale;
use picture::{Area, DrawError, FONT, Picture};
use pilot::words::rate;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Cell, Columns, HeatGrid, Row, warmth};

const WIDTH: i32 = 1200;
/// Where cells begin and end.
const LEFT: i32 = 250;
const RIGHT: i32 = WIDTH - 24;
/// The height of a row, unless there are too few or too many.
const ROW: i32 = 24;
const HEIGHTS: Range<i32> = 120..600;
/// Caption, key and bar of colours above the cells; the axis below.
const ABOVE: i32 = 58;
const BAR: i32 = 34;
const BELOW: i32 = 48;
/// A mapping's name needs so much height, and so much more for its address.
const LINE: i32 = 15;
/// Letters that fit before the cells.
const NAME: usize = 30;
const TIMES: usize = 10;
const DECADES: i32 = 4;

const IDLE_HUGE: RGBColor = RGBColor(158, 202, 235);
const WALKED_HUGE: RGBColor = RGBColor(0, 84, 148);
/// Pale on white and on black.
const NOT_WALKED: RGBAColor = RGBAColor(128, 128, 128, 0.15);

/// The whole picture. Errors: it cannot be drawn or compressed.
pub fn svg(grid: &HeatGrid) -> Result<String, DrawError> {
    let mut svg = picture::svg(grid)?;
    let png = STANDARD.encode(image(grid)?);
    let (x, y, width, height) = (LEFT, ABOVE + BAR, RIGHT - LEFT, height(grid));
    let image = format!(
        "<image id=\"cells\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
         style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{png}\"/>\n</svg>"
    );
    let end = svg.rfind("</svg>").ok_or_else(|| DrawError::Png("it has no end".to_owned()))?;
    svg.replace_range(end.., &image);
    Ok(svg)
}

/// One pixel for each cell. Errors: it cannot be compressed.
fn image(grid: &HeatGrid) -> Result<Vec<u8>, DrawError> {
    let (columns, rows) = (grid.cells.len().max(1), grid.rows.len().max(1));
    let hottest = grid.hottest();
    let mut pixels = vec![0; columns * rows * 4];
    for (column, cells) in grid.cells.iter().enumerate() {
        for (row, cell) in cells.iter().enumerate().filter_map(|(row, cell)| Some((row, (*cell)?))) {
            let RGBAColor(red, green, blue, alpha) = color(&cell, hottest);
            let place = (row * columns + column) * 4;
            pixels[place..place + 4].copy_from_slice(&[red, green, blue, (alpha * 255.0) as u8]);
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, columns as u32, rows as u32);
    encoder.set_color(::png::ColorType::Rgba);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(|error| DrawError::Png(error.to_string()))?;
    Ok(bytes)
}

fn color(cell: &Cell, hottest: f64) -> RGBAColor {
    match (cell.huge >= 0.5, cell.walks_per_second > 0.0) {
        (true, true) => WALKED_HUGE.to_rgba(),
        (true, false) => IDLE_HUGE.to_rgba(),
        (false, false) => NOT_WALKED,
        (false, true) => on_scale(warmth(cell.walks_per_second, hottest)).to_rgba(),
    }
}

/// The height of all cells.
fn height(grid: &HeatGrid) -> i32 {
    (grid.rows.len() as i32 * ROW).clamp(HEIGHTS.start, HEIGHTS.end)
}

impl Picture for HeatGrid {
    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (ABOVE + BAR + height(self) + BELOW) as u32)
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let block =
            |name: &str, color: RGBAColor| KeyEntry { name: name.to_owned(), style: color.filled(), mark: Mark::Block };
        let key = [
            block("not walked", NOT_WALKED),
            block("on a huge page", IDLE_HUGE.to_rgba()),
            block("on a huge page, walked", WALKED_HUGE.to_rgba()),
        ];
        headed(area, &format!("{}: page walks", self.title), &key)?;
        draw_bar(area, self.hottest())?;
        draw_mappings(area, self)?;
        draw_columns(area, self)?;
        let frame = [(LEFT, ABOVE + BAR), (RIGHT, ABOVE + BAR + height(self))];
        Ok(area.draw(&Rectangle::new(frame, BLACK.mix(0.4).stroke_width(1)))?)
    }
}

fn words(area: &Area<'_>, words: String, place: (i32, i32), to: HPos) -> Result<(), DrawError> {
    let style = (FONT, 14).into_font().into_text_style(area).pos(Pos::new(to, VPos::Center));
    Ok(area.draw(&Text::new(words, place, style))?)
}

/// The colours of page walks, each decade with its number; nothing where nothing was walked.
fn draw_bar(area: &Area<'_>, hottest: f64) -> Result<(), DrawError> {
    const STEPS: i32 = 100;
    if hottest <= 0.0 {
        return Ok(());
    }
    let (from, to) = (WIDTH / 2, RIGHT - 40);
    let x = |step: i32, of: i32| from + (to - from) * step / of;
    for step in 0..STEPS {
        let place = f64::from(step) / f64::from(STEPS);
        area.draw(&Rectangle::new([(x(step, STEPS), 42), (x(step + 1, STEPS), 54)], on_scale(place).filled()))?;
    }
    for decade in 0..=DECADES {
        let walks = hottest * 10f64.powi(decade - DECADES);
        words(area, rate(walks), (x(decade, DECADES), 66), HPos::Center)?;
    }
    words(area, "page walks a second, in a cell".to_owned(), (from, 30), HPos::Left)
}

/// The name and address of each mapping that is high enough for words, and lines between mappings.
fn draw_mappings(area: &Area<'_>, grid: &HeatGrid) -> Result<(), DrawError> {
    let rows = grid.rows.len().max(1) as i32;
    let (mut row, mut free) = (0, ABOVE + BAR);
    for mapping in grid.rows.chunk_by(|one, other| one.mapping == other.mapping) {
        let y = |row: i32| ABOVE + BAR + height(grid) * row / rows;
        let (above, below) = (y(row), y(row + mapping.len() as i32));
        row += mapping.len() as i32;
        area.draw(&PathElement::new([(LEFT - 6, above), (LEFT, above)], BLACK))?;
        let middle = above.midpoint(below);
        if middle - LINE / 2 < free {
            continue;
        }
        words(area, name(&mapping[0].mapping), (LEFT - 10, middle), HPos::Right)?;
        free = middle + LINE / 2;
        if below - above >= 3 * LINE {
            words(area, place(mapping), (LEFT - 10, middle + LINE), HPos::Right)?;
            free += LINE;
        }
    }
    Ok(())
}

/// Where a mapping begins, and the size of what was present in it.
fn place(rows: &[Row]) -> String {
    let regions: usize = rows.iter().map(|row| row.regions).sum();
    format!("{}, {}", rows[0].start, Bytes(regions as u64 * HUGE_PAGE))
}

/// The end of a name tells more than its beginning.
fn name(name: &str) -> String {
    let letters = name.chars().count();
    match letters > NAME {
        true => format!("…{}", name.chars().skip(letters - NAME + 1).collect::<String>()),
        false => name.to_owned(),
    }
}

fn draw_columns(area: &Area<'_>, grid: &HeatGrid) -> Result<(), DrawError> {
    let below = ABOVE + BAR + height(grid);
    let said = match &grid.columns {
        Columns::Regions { per_cell } => {
            format!("a cell is {}; higher addresses right and below", Bytes(*per_cell as u64 * HUGE_PAGE))
        }
        Columns::Times(times) => {
            let each = times.len().div_ceil(TIMES).max(1);
            for (column, time) in times.iter().enumerate().skip(each - 1).step_by(each) {
                let x = LEFT + (RIGHT - LEFT) * (column as i32 + 1) / times.len() as i32;
                area.draw(&PathElement::new([(x, below), (x, below + 5)], BLACK))?;
                words(area, format!("{:.0} s", time.seconds()), (x, below + 14), HPos::Center)?;
            }
            "time".to_owned()
        }
    };
    words(area, said, (LEFT.midpoint(RIGHT), below + 32), HPos::Center)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::heat_grid::tests::{grid, moments};

    /// How many cells of the image have this colour.
    fn count(grid: &HeatGrid, color: RGBColor) -> usize {
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(image(grid).unwrap())).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels.chunks_exact(4).filter(|pixel| pixel[..3] == [color.0, color.1, color.2]).count()
    }

    #[test]
    fn a_picture_shows_hot_cold_and_huge() {
        let grid = grid("memcached", &moments(3));
        assert_eq!(count(&grid, on_scale(1.0)), 3, "the hottest");
        assert_eq!(count(&grid, WALKED_HUGE), 3);
        assert_eq!(count(&grid, IDLE_HUGE), 0, "no huge page was idle");
    }

    #[test]
    fn mappings_are_named_and_colours_explained() {
        let svg = svg(&grid("memcached", &moments(3))).unwrap();
        for told in ["[heap]", "memcached: page walks", "on a huge page", "100 /s", "3 s", "id=\"cells\""] {
            assert!(svg.contains(told), "{told}: {svg}");
        }
        assert_eq!(svg.matches("</svg>").count(), 1);
    }

    #[test]
    fn a_name_is_text() {
        let mut grid = grid("a", &moments(1));
        grid.rows.iter_mut().for_each(|row| row.mapping = "/tmp/<script>alert(1)</script>".to_owned());
        assert!(!svg(&grid).unwrap().contains("<script"));
        assert_eq!(name(&"x".repeat(40)).chars().count(), NAME);
    }

    #[test]
    fn nothing_seen_is_still_a_picture() {
        let svg = svg(&grid("a", &[])).unwrap();
        assert!(svg.contains("page walks") && !svg.contains(" /s"), "{svg}");
    }
}
