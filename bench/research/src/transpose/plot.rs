//! Ratios against the dimension, as in the paper's figures.
//!
//! Owns: drawing. Never touches: conclusions.

use picture::chart::{ChartLine, draw_lines, headed};
use picture::color::COLORS;
use picture::{Area, DrawError, FONT, Picture};
use plotters::prelude::*;

use super::record::{PointSeries, TransposeRecord};
use super::simulation::Point;

const PANEL: (u32, u32) = (720, 420);
/// The width of the separate panel for large dimensions: on the same axis they would squeeze the others.
const BESIDE: u32 = 260;
/// Space for a number on the axis.
const LABEL: u32 = 70;

/// A part of a series, with its own axes.
struct Panel<'a> {
    points: &'a [Point],
    /// Its first dimension.
    from: u64,
    /// The label of the horizontal axis.
    said: &'a str,
}

/// One row per processor.
impl Picture for TransposeRecord {
    fn size(&self) -> (u32, u32) {
        (PANEL.0 + BESIDE, PANEL.1 * self.series.len().max(1) as u32)
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let rows = area.split_evenly((self.series.len().max(1), 1));
        self.series.iter().zip(rows).try_for_each(|(series, row)| draw_row(&row, series))
    }
}

fn draw_row(area: &Area<'_>, series: &PointSeries) -> Result<(), DrawError> {
    let title = format!("throughput of a transpose: {}", series.subject.name());
    let whole = Panel { points: &series.points, from: 0, said: "dimension" };
    let key: Vec<_> = lines(series, &whole).iter().map(ChartLine::key).collect();
    let area = headed(area, &title, &key)?;
    let (around, large) = series.parts();
    match large.first() {
        Some(first) if !around.is_empty() => {
            let (left, right) = area.split_horizontally(PANEL.0);
            draw_panel(&left, series, &Panel { points: around, ..whole })?;
            draw_panel(&right, series, &Panel { points: large, from: first.dimension, said: "large dimensions" })
        }
        _ => draw_panel(&area, series, &whole),
    }
}

fn draw_panel(area: &Area<'_>, series: &PointSeries, panel: &Panel<'_>) -> Result<(), DrawError> {
    let ratios = series.ratios();
    let all = ratios.iter().flat_map(|&(one, other)| series.points.iter().filter_map(move |at| at.ratio(one, other)));
    // The same for all parts, so that they can be compared.
    let highest = all.fold(1.0, f64::max);
    let last = panel.points.last().map_or(0, |point| point.dimension).max(panel.from + 1);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(50)
        .build_cartesian_2d(panel.from as f64..last as f64, 0.0..highest * 1.05)?;
    let labels = (area.dim_in_pixel().0 / LABEL) as usize;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_labels(labels)
        .x_desc(panel.said)
        .y_desc("ratio")
        .label_style((FONT, 14))
        .draw()?;
    draw_lines(&mut chart, &lines(series, panel), 0)
}

fn lines(series: &PointSeries, panel: &Panel<'_>) -> Vec<ChartLine> {
    let line = |(number, (one, other)): (usize, (_, _))| {
        let at = |point: &Point| Some((point.dimension as f64, point.ratio(one, other)?));
        let points = panel.points.iter().filter_map(at).collect();
        ChartLine { name: format!("{one} / {other}"), style: COLORS[number].stroke_width(2), points }
    };
    series.ratios().into_iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::Processor;
    use super::super::placement::Placement;
    use super::super::record::Subject;
    use super::super::simulation::simulate;
    use super::*;
    use picture::draw;

    #[test]
    fn every_processor_has_its_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transpose.svg");
        let of = |processor| {
            let points = simulate(processor, &[Placement::Random, Placement::Colored], &[11, 13], 1, 1);
            PointSeries { subject: Subject::Simulated(processor), points }
        };
        draw(&TransposeRecord::new(None, vec![of(Processor::Celeron), of(Processor::Pentium4)]), &path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.contains("Celeron") && svg.contains("Pentium 4") && svg.contains("colored / random"));
        assert!(!svg.contains("large"));
    }

    #[test]
    fn large_dimensions_stand_beside_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transpose.svg");
        let point = |dimension: u64| Point {
            dimension,
            speeds: [("random", 1.0), ("colored", 1.0)].map(|(name, speed)| (name.to_owned(), vec![speed])).into(),
        };
        let svg = |dimensions: &[u64]| {
            let points = dimensions.iter().copied().map(point).collect();
            let series = PointSeries { subject: Subject::Simulated(Processor::Celeron), points };
            draw(&TransposeRecord::new(None, vec![series]), &path).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        assert!(svg(&[1, 155, 513, 999]).contains("large"));
        assert!(!svg(&[513, 999]).contains("large") && !svg(&[155]).contains("large"), "nothing is beside them");
    }
}
