//! The picture of searches: real-time factor against threads, and where a query's time goes.
//!
//! Owns: drawing these two. Never touches: the other panels.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use super::rows::{chart_of_rows, color};
use crate::comparison::typical;
use crate::configuration::Configuration;
use crate::picture::{FONT, draw_key};
use crate::record::Run;
use crate::workload::SearchWork;

/// A number of searches.
type Number = fn(&SearchWork) -> f64;

/// The parts of a query, each with its colour.
const PARTS: [(&str, RGBColor, Number); 3] = [
    ("extract", RGBColor(230, 159, 0), |work| work.share(work.extract_ns)),
    ("look-up", RGBColor(86, 180, 233), |work| work.share(work.look_up_ns)),
    ("rank", RGBColor(0, 158, 115), |work| work.share(work.rank_ns)),
];

/// Whether a run is of a program that searches.
pub fn is_search(run: &Run) -> bool {
    run.turns.iter().any(|turn| turn.search.is_some())
}

/// Draws runs of a program that searches, one for each number of threads.
pub fn draw<B>(area: &DrawingArea<B, Shift>, runs: &[&Run]) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let panels = area.split_evenly((1, 3));
    draw_real_time(&panels[0], runs)?;
    runs.first().map_or(Ok(()), |run| draw_shares(&panels[1], run))
}

fn draw_real_time<B>(area: &DrawingArea<B, Shift>, runs: &[&Run]) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let mut configurations: Vec<Configuration> = runs.iter().flat_map(|run| run.configurations()).collect();
    configurations.sort();
    configurations.dedup();
    let line = |configuration| {
        let point = |run: &&Run| Some((threads(run)?, typical_of(run, configuration, SearchWork::real_time_factor)?));
        runs.iter().filter_map(point).collect::<Vec<_>>()
    };
    let lines: Vec<_> = configurations.into_iter().map(|configuration| (configuration, line(configuration))).collect();
    let all = || lines.iter().flat_map(|(_, line)| line);
    let most_threads = all().map(|point| point.0).fold(1.0, f64::max);
    let highest = all().map(|point| point.1).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("real-time factor against threads", (FONT, 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.5..most_threads + 0.5, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("threads; below 1 each keeps up with music that is playing")
        .label_style((FONT, 14))
        .draw()?;
    for (configuration, line) in lines {
        let style = color(configuration).stroke_width(2);
        chart.draw_series(line.iter().map(|&point| Circle::new(point, 3, style.filled())))?;
        chart
            .draw_series(LineSeries::new(line, style))?
            .label(configuration.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    draw_key(&mut chart)
}

fn draw_shares<B>(area: &DrawingArea<B, Shift>, run: &Run) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    // From the bottom up, so that the default is on top.
    let configurations: Vec<_> = run.configurations().into_iter().rev().collect();
    let caption = format!("{}: shares of a query's time", run.workload);
    let mut chart = chart_of_rows(area, caption, 0.0..100.0, "percent", &configurations)?;
    let rows = configurations.len();
    let mut ends = vec![0.0; rows];
    for (name, color, share) in PARTS {
        let mut bars = Vec::new();
        for (row, end) in ends.iter_mut().enumerate() {
            let start = *end;
            *end += 100.0 * typical_of(run, configurations[row], share).unwrap_or(0.0);
            let top = if row + 1 < rows { SegmentValue::Exact(row + 1) } else { SegmentValue::Last };
            let mut bar = Rectangle::new([(start, SegmentValue::Exact(row)), (*end, top)], color.filled());
            bar.set_margin(3, 3, 0, 0);
            bars.push(bar);
        }
        let key = move |(x, y): (i32, i32)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled());
        chart.draw_series(bars)?.label(name).legend(key);
    }
    draw_key(&mut chart)
}

fn typical_of(run: &Run, configuration: Configuration, number: Number) -> Option<f64> {
    typical(run, configuration, |turn| turn.search.as_ref().map(number))
}

/// As its name tells: `fingerprint 2 threads`.
fn threads(run: &Run) -> Option<f64> {
    run.workload.split_whitespace().find_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;

    #[test]
    fn searches_are_told_from_others_and_by_their_threads() {
        let mut run = run_of("fingerprint 2 threads", &[(Configuration::Default, &[1.0], 1)]);
        assert_eq!(threads(&run), Some(2.0));
        assert!(!is_search(&run));
        run.turns[0].search = Some(SearchWork::default());
        assert!(is_search(&run));
        assert_eq!(threads(&run_of("memcached", &[])), None);
    }

    #[test]
    fn the_parts_of_a_query_are_all_of_it() {
        let work = SearchWork { extract_ns: 1, look_up_ns: 70, rank_ns: 29, ..SearchWork::default() };
        let shares = PARTS.iter().map(|(_, _, share)| share(&work)).sum::<f64>();
        assert!((shares - 1.0).abs() < 1e-9);
    }
}
