//! The picture of searches: real-time factor against threads, and where the time of a query goes.
//!
//! Owns: drawing these two. Never touches: the other panels.

use picture::chart::{ChartLine, KeyEntry, Mark, bounds, headed, line_chart};
use picture::{Area, DrawError};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use super::rows::{chart_of_rows, color};
use crate::comparison::typical;
use crate::configuration::Configuration;
use crate::real_time;
use crate::record::Run;
use crate::table::distinct;
use crate::workload::SearchWork;

/// A number of a search.
type Number = fn(&SearchWork) -> f64;

/// The parts of a query with their colours.
const PARTS: [(&str, RGBColor, Number); 3] = [
    ("extract", RGBColor(230, 159, 0), |work| work.share(work.extract_ns)),
    ("look-up", RGBColor(86, 180, 233), |work| work.share(work.look_up_ns)),
    ("rank", RGBColor(0, 158, 115), |work| work.share(work.rank_ns)),
];

/// Whether a run is of a program that searches.
pub fn is_search(run: &Run) -> bool {
    run.turns.iter().any(|turn| turn.search.is_some())
}

/// Draws the runs of a program that searches, one per number of threads.
pub fn draw(area: &Area<'_>, runs: &[&Run]) -> Result<(), DrawError> {
    let panels = area.split_evenly((1, 3));
    draw_real_time(&panels[0], runs)?;
    runs.first().map_or(Ok(()), |run| draw_shares(&panels[1], run))
}

fn draw_real_time(area: &Area<'_>, runs: &[&Run]) -> Result<(), DrawError> {
    // The load of the first, so that numbers of threads can be compared.
    let load = runs.first().filter(|run| real_time::is_loaded(run)).and_then(|run| real_time::streams(run));
    let streams = load.unwrap_or(1.0);
    let caption = match load {
        Some(streams) => format!("real-time factor against threads, {streams} streams each"),
        None => "real-time factor against threads".to_owned(),
    };
    let all = distinct(runs.iter().flat_map(|run| run.configurations()));
    let line = |configuration: Configuration| {
        let point = |run: &&Run| Some((threads(run)?, streams * real_time::factor(run, configuration)?));
        ChartLine {
            name: configuration.to_string(),
            style: color(configuration, &all).stroke_width(2).filled(),
            points: runs.iter().filter_map(point).collect(),
        }
    };
    let lines: Vec<ChartLine> = all.iter().copied().map(line).collect();
    let [_, most_threads, _, highest] = bounds(&lines);
    let across = (0.5..most_threads.max(1.0) + 0.5, "threads; below 1 each keeps up with music that is playing");
    line_chart(area, &caption, across, 0.0..highest.max(1e-9) * 1.05, (&lines, 3))
}

fn draw_shares(area: &Area<'_>, run: &Run) -> Result<(), DrawError> {
    // From the bottom up, so that the default is at the top.
    let configurations: Vec<_> = run.configurations().into_iter().rev().collect();
    let caption = format!("{}: shares of a query's time", run.workload);
    let key =
        PARTS.map(|(name, color, _)| KeyEntry { name: name.to_owned(), style: color.filled(), mark: Mark::Block });
    let area = headed(area, &caption, &key)?;
    let mut chart = chart_of_rows(&area, 0.0..100.0, "percent", &configurations)?;
    let rows = configurations.len();
    let mut ends = vec![0.0; rows];
    for (_, color, share) in PARTS {
        let mut bars = Vec::new();
        for (row, end) in ends.iter_mut().enumerate() {
            let start = *end;
            *end += 100.0 * typical_of(run, configurations[row], share).unwrap_or(0.0);
            let top = if row + 1 < rows { SegmentValue::Exact(row + 1) } else { SegmentValue::Last };
            let mut bar = Rectangle::new([(start, SegmentValue::Exact(row)), (*end, top)], color.filled());
            bar.set_margin(3, 3, 0, 0);
            bars.push(bar);
        }
        chart.draw_series(bars)?;
    }
    Ok(())
}

fn typical_of(run: &Run, configuration: Configuration, number: Number) -> Option<f64> {
    typical(run, configuration, |turn| turn.search.as_ref().map(number))
}

/// From its name: `fingerprint 2 threads`.
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
