//! The report as a picture, like the paper's figures 1 and 5: throughput against memory, and the scanning that it takes.
//!
//! Owns: these two panels, one row per trace. Never touches: the style of lines and keys, which all plots share.

use std::collections::BTreeSet;

use heat::units::Bytes;
use picture::chart::{ChartLine, draw_lines, headed};
use picture::color::COLORS;
use picture::{Area, DrawError, FONT, Picture};
use plotters::prelude::*;

use super::policy::PolicyKind;
use super::record::ListsRecord;
use super::simulation::SimulationOutcome;

const PANEL: (u32, u32) = (640, 420);
const GIB: f64 = (1 << 30) as f64;

impl Picture for ListsRecord {
    fn size(&self) -> (u32, u32) {
        (PANEL.0 * 2, PANEL.1 * traces(self).len().max(1) as u32)
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let (traces, disk) = (traces(self), Bytes(self.disk_bytes_per_second));
        for (outcomes, row) in traces.iter().zip(area.split_evenly((traces.len().max(1), 1))) {
            let panels = row.split_evenly((1, 2));
            let trace = &outcomes[0].trace;
            let throughput = |outcome: &SimulationOutcome| Some(outcome.mean_throughput(disk));
            draw_panel(&panels[0], outcomes, &format!("{trace}: predicted I/O throughput, MiB/s"), &throughput)?;
            let scanned = |outcome: &SimulationOutcome| outcome.account.scanned_per_reclaimed();
            draw_panel(&panels[1], outcomes, &format!("{trace}: pages scanned for each reclaimed"), &scanned)?;
        }
        Ok(())
    }
}

fn traces(record: &ListsRecord) -> Vec<&[SimulationOutcome]> {
    record.outcomes.chunk_by(|one, other| one.trace == other.trace).collect()
}

fn draw_panel(
    area: &Area<'_>,
    outcomes: &[SimulationOutcome],
    title: &str,
    number: &dyn Fn(&SimulationOutcome) -> Option<f64>,
) -> Result<(), DrawError> {
    let sizes = || outcomes.iter().map(|outcome| outcome.memory_bytes as f64 / GIB);
    let (first, last) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let highest = outcomes.iter().filter_map(number).fold(1e-9, f64::max);
    let lines = lines(outcomes, number);
    let key: Vec<_> = lines.iter().map(ChartLine::key).collect();
    let area = headed(area, title, &key)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((first * 0.9..last * 1.1).log_scale().base(2.0), 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_label_formatter(&|gib| format!("{gib}"))
        .x_desc("GiB of memory; a simulation")
        .label_style((FONT, 14))
        .draw()?;
    draw_lines(&mut chart, &lines, 3)
}

/// A line for each policy.
fn lines(outcomes: &[SimulationOutcome], number: &dyn Fn(&SimulationOutcome) -> Option<f64>) -> Vec<ChartLine> {
    let policies: BTreeSet<PolicyKind> = outcomes.iter().map(|outcome| outcome.policy).collect();
    let line = |(place, policy): (usize, PolicyKind)| {
        let of_policy = outcomes.iter().filter(|outcome| outcome.policy == policy);
        let point = |outcome: &SimulationOutcome| Some((outcome.memory_bytes as f64 / GIB, number(outcome)?));
        let style = COLORS[place % COLORS.len()].stroke_width(2);
        ChartLine { name: policy.to_string(), style, points: of_policy.filter_map(point).collect() }
    };
    policies.into_iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use crate::lists::report::tests::record;
    use picture::draw;

    #[test]
    fn both_panels_are_drawn_in_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        let (svg, png) = (folder.path().join("a.svg"), folder.path().join("a.png"));
        draw(&record(), &svg).unwrap();
        draw(&record(), &png).unwrap();
        let svg = std::fs::read_to_string(svg).unwrap();
        for told in ["predicted I/O throughput", "scanned for each reclaimed", "split-100", "anon-file"] {
            assert!(svg.contains(told), "{told}");
        }
        assert_eq!(&std::fs::read(png).unwrap()[1..4], b"PNG");
    }
}
