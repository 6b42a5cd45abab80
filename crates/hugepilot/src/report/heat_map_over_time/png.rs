//! The heat map as a picture.
//!
//! Owns: pixels. Never touches: files.

use pilot::words::rate;
use plotters::prelude::*;

use super::{Cell, HeatMapOverTime, warmth};
use crate::report::picture::{DrawError, FONT, prepare_font};

const SIZE: (u32, u32) = (1200, 720);
const LABELS: usize = 12;

/// The picture, as a PNG file's contents. Errors: it cannot be drawn or compressed.
pub fn picture(heat_map: &HeatMapOverTime) -> Result<Vec<u8>, DrawError> {
    prepare_font()?;
    let mut pixels = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
    draw(heat_map, &mut pixels).map_err(|error| DrawError(error.to_string()))?;
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, SIZE.0, SIZE.1);
    encoder.set_color(::png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(|error| DrawError(error.to_string()))?;
    Ok(bytes)
}

fn draw(heat_map: &HeatMapOverTime, pixels: &mut [u8]) -> Result<(), Box<dyn std::error::Error>> {
    let area = BitMapBackend::with_buffer(pixels, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (columns, rows) = (heat_map.times.len().max(1), heat_map.rows.len().max(1));
    let title = format!(
        "{}: page walks, at most {} in a cell; green is on huge pages",
        heat_map.title,
        rate(heat_map.hottest())
    );
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(150)
        .build_cartesian_2d(0.0..columns as f64, rows as f64..0.0)?;
    let time = |column: &f64| {
        heat_map.times.get(*column as usize).map_or(String::new(), |time| format!("{:.0} s", time.seconds()))
    };
    let address = |row: &f64| heat_map.rows.get(*row as usize).map_or(String::new(), |row| row.start.to_string());
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_labels(LABELS.min(columns)).y_labels(LABELS.min(rows)).label_style((FONT, 14));
    mesh.x_label_formatter(&time).y_label_formatter(&address).draw()?;
    let cells = heat_map.cells.iter().enumerate().flat_map(|(column, cells)| {
        cells.iter().enumerate().map(move |(row, cell)| {
            let corners = [(column as f64, row as f64), ((column + 1) as f64, (row + 1) as f64)];
            Rectangle::new(corners, color(cell, heat_map.hottest()).filled())
        })
    });
    chart.draw_series(cells)?;
    area.present()?;
    Ok(())
}

/// The colours of the page: dark blue through red to yellow, and green for huge pages.
fn color(cell: &Cell, hottest: f64) -> RGBColor {
    const SCALE: [(f64, f64, f64); 3] = [(40.0, 60.0, 160.0), (215.0, 40.0, 50.0), (255.0, 215.0, 40.0)];
    let walked = cell.walks_per_second > 0.0;
    match (cell.huge >= 0.5, walked) {
        (true, true) => RGBColor(30, 140, 60),
        (true, false) => RGBColor(150, 215, 165),
        (false, false) => RGBColor(236, 236, 240),
        (false, true) => {
            let place = warmth(cell.walks_per_second, hottest) * 2.0;
            let (from, to) = if place < 1.0 { (SCALE[0], SCALE[1]) } else { (SCALE[1], SCALE[2]) };
            let share = if place < 1.0 { place } else { place - 1.0 };
            let mix = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
            RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::heat_map_over_time::tests::{heat_map, moments};

    #[test]
    fn a_picture_shows_hot_cold_and_huge() {
        let bytes = picture(&heat_map("memcached", &moments(3))).unwrap();
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let shows = |color: [u8; 3]| pixels.chunks_exact(3).filter(|pixel| **pixel == color).count() > 1000;
        assert!(shows([255, 215, 40]), "the hottest");
        assert!(shows([30, 140, 60]), "huge and walked");
        assert!(shows([255, 255, 255]) && !shows([150, 215, 165]), "no huge page was idle");
    }

    #[test]
    fn nothing_seen_is_still_a_picture() {
        assert!(!picture(&heat_map("a", &[])).unwrap().is_empty());
    }
}
