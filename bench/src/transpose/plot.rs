//! Ratios against the dimension, as the paper's figures have them.
//!
//! Owns: drawing. Never touches: conclusions.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Series;
use crate::plot::{COLORS, FONT, Picture, draw_key};

const PANEL: (u32, u32) = (720, 420);

/// A row for each processor.
impl Picture for [Series] {
    fn size(&self) -> (u32, u32) {
        (PANEL.0, PANEL.1 * self.len().max(1) as u32)
    }

    fn draw_on<B>(&self, area: &DrawingArea<B, Shift>) -> Result<()>
    where
        B: DrawingBackend,
        B::ErrorType: 'static,
    {
        let rows = area.split_evenly((self.len().max(1), 1));
        self.iter().zip(rows).try_for_each(|(series, row)| draw_ratios(&row, series))
    }
}

fn draw_ratios<B>(area: &DrawingArea<B, Shift>, series: &Series) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let line = |(one, other)| -> (String, Vec<(f64, f64)>) {
        let ratios = series.points.iter().filter_map(|point| Some((point.dimension as f64, point.ratio(one, other)?)));
        (format!("{one} / {other}"), ratios.collect())
    };
    let lines: Vec<_> = series.ratios().into_iter().map(line).collect();
    let highest = |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|(_, line)| line).map(of).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("throughput of a transpose: {}", series.subject.name()), (FONT, 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..highest(|point| point.0), 0.0..highest(|point| point.1) * 1.05)?;
    chart.configure_mesh().max_light_lines(0).x_desc("dimension").y_desc("ratio").label_style((FONT, 14)).draw()?;
    for (number, (name, line)) in lines.into_iter().enumerate() {
        let style = COLORS[number].stroke_width(2);
        chart
            .draw_series(LineSeries::new(line, style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    draw_key(&mut chart)
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::super::model::Processor;
    use super::super::placement::Placement;
    use super::super::simulation::simulate;
    use super::*;
    use crate::plot::draw;

    #[test]
    fn every_processor_has_its_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("transpose.svg");
        let of = |processor| {
            let points = simulate(processor, &[Placement::Random, Placement::Colored], &[11, 13], 1, 1);
            Series { subject: Subject::Simulated(processor), points }
        };
        draw(&[of(Processor::Celeron), of(Processor::Pentium4)][..], &path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.contains("Celeron") && svg.contains("Pentium 4") && svg.contains("colored / random"));
    }
}
