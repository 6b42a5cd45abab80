//! The table of one processor, with the paper's numbers beside, and what became of the figures.
//!
//! Owns: layout and rounding, and which figures there are. Never touches: how numbers came about.

use clap::ValueEnum;
use hugepilot::statistics::paired_ratio;
use hugepilot::units::Bytes;

use super::measured::Built;
use super::model::Processor;
use super::placement::Placement;
use super::simulation::{Point, end_of_gain};
use super::{Series, Subject};
use crate::report::table;

/// The end of the gain that the paper's figures show, and how far off it may be.
const PAPER_END: [(Processor, u64, u64); 2] = [(Processor::Celeron, 97, 4), (Processor::Pentium4, 187, 4)];
/// The paper's table, Celeron: dimension, megabytes a second on ordinary pages and on colored ones.
const PAPER_TABLE: [(u64, f64, f64); 10] = [
    (43, 1468.0, 1537.0),
    (45, 1513.0, 1529.0),
    (47, 519.0, 1556.0),
    (49, 379.0, 1560.0),
    (85, 342.0, 1614.0),
    (87, 353.0, 1608.0),
    (89, 362.0, 1211.0),
    (91, 285.0, 706.0),
    (93, 262.0, 457.0),
    (95, 263.0, 301.0),
];
const RATIOS: [&str; 3] = ["colored/random", "huge/random", "huge+colored/huge+random"];
const OF_THE_PAPER: [&str; 3] = ["paper: normal", "colored", "colored/normal"];
/// What is less sure than this is no figure.
const SURE: f64 = 0.95;
const MOST_SECONDS: f64 = 2.0;
const FEWEST_EXACT: f64 = 0.999;
const FEWEST_CANDIDATES: f64 = 1.05;

impl Subject {
    /// For a heading.
    pub(super) fn name(&self) -> String {
        match self {
            Subject::Simulated(processor) => {
                let cache = Bytes(processor.datasheet().second.size_bytes);
                format!("{processor}, {cache} of second-level cache, simulated")
            }
            Subject::Measured { cache_bytes, colors, .. } => {
                format!("this machine, {cache_bytes} of second-level cache, {colors} colors, measured")
            }
        }
    }

    fn has_the_papers_table(&self) -> bool {
        matches!(self, Subject::Simulated(Processor::Celeron))
    }
}

/// All that is said of one.
pub(super) fn text(series: &Series) -> String {
    let name = series.subject.name();
    let mut rows = vec![heading(&series.subject)];
    rows.extend(series.points.iter().map(|point| row(&series.subject, point)));
    let figures = match &series.subject {
        Subject::Simulated(processor) => figures_simulated(*processor, &series.points),
        Subject::Measured { built, .. } => figures_measured(built, &series.points),
    };
    let lines = figures.into_iter().map(|(figure, seen, met)| format!("  {figure:<62} {seen:<28} {met}\n"));
    let table = table(&rows);
    format!("\n{name}: MB/s, median (worst to best choice of pages)\n\n{table}\nfigures\n{}", lines.collect::<String>())
}

fn heading(subject: &Subject) -> Vec<String> {
    let placements = Placement::value_variants().iter().map(ToString::to_string);
    let paper = if subject.has_the_papers_table() { &OF_THE_PAPER[..] } else { &[] };
    let ratios = RATIOS.iter().chain(paper).map(|&name| name.to_owned());
    std::iter::once("dimension".to_owned()).chain(placements).chain(ratios).collect()
}

fn row(subject: &Subject, point: &Point) -> Vec<String> {
    use Placement::{Colored, Huge, HugeAndColored, HugeAndRandom, Random};
    let ratio = |one, other| point.ratio(one, other).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut cells = vec![point.dimension.to_string()];
    cells.extend(Placement::value_variants().iter().map(|&placement| spread(point, placement)));
    cells.extend([ratio(Colored, Random), ratio(Huge, Random), ratio(HugeAndColored, HugeAndRandom)]);
    if subject.has_the_papers_table() {
        cells.extend(match PAPER_TABLE.iter().find(|(dimension, ..)| *dimension == point.dimension) {
            Some((_, normal, colored)) => [normal.to_string(), colored.to_string(), format!("{:.2}", colored / normal)],
            None => ["", "", ""].map(str::to_owned),
        });
    }
    cells
}

fn spread(point: &Point, placement: Placement) -> String {
    let speeds = point.speeds.get(&placement.to_string()).map_or(&[][..], Vec::as_slice);
    let (worst, best) = speeds.iter().fold((f64::MAX, 0.0), |(low, high), &speed| (speed.min(low), speed.max(high)));
    point.typical(placement).map_or("-".to_owned(), |typical| format!("{typical:.0} ({worst:.0} to {best:.0})"))
}

/// What was to be seen, what was, and whether that is it.
type Figure = (String, String, &'static str);

fn figures_simulated(processor: Processor, points: &[Point]) -> Vec<Figure> {
    let paper = PAPER_END.iter().filter(|(known, ..)| *known == processor);
    let figure = |&(_, end, within): &(Processor, u64, u64)| {
        let wanted = format!("colored/random falls below 1.1 at {end} +/- {within}");
        match end_of_gain(points) {
            Some(seen) => (wanted, seen.to_string(), met(seen.abs_diff(end) <= within)),
            None => (wanted, "-".to_owned(), "not seen: choose --dimensions around it"),
        }
    };
    paper.map(figure).collect()
}

fn figures_measured(built: &Built, points: &[Point]) -> Vec<Figure> {
    let size = Bytes(built.bytes);
    let mut figures = vec![
        (
            format!("{size} built in at most {MOST_SECONDS:.0} s"),
            format!("{:.2} s", built.seconds),
            met(built.seconds <= MOST_SECONDS),
        ),
        (
            format!("from {FEWEST_CANDIDATES} candidates a page or more"),
            format!("{:.3}", built.candidates),
            met(built.candidates >= FEWEST_CANDIDATES),
        ),
        (
            format!("of which at least {:.1} % have the exact color", FEWEST_EXACT * 100.0),
            format!("{:.3} %", built.exact * 100.0),
            met(built.exact >= FEWEST_EXACT),
        ),
    ];
    figures.extend(loss("no loss: colored/random over all dimensions", Placement::Colored, Placement::Random, points));
    let of_the_rest = "no loss: huge+colored/huge+random over all dimensions";
    figures.extend(loss(of_the_rest, Placement::HugeAndColored, Placement::HugeAndRandom, points));
    figures
}

/// A loss is one that the interval over all dimensions shows.
fn loss(figure: &str, one: Placement, other: Placement, points: &[Point]) -> Option<Figure> {
    let pairs: Option<Vec<(f64, f64)>> =
        points.iter().map(|point| Some((point.typical(one)?, point.typical(other)?))).collect();
    let interval = paired_ratio(&pairs?)?;
    let seen = format!("{:.3} [{:.3}, {:.3}]", interval.estimate, interval.low, interval.high);
    let verdict =
        if interval.confidence < SURE { "not judged: fewer than 6 dimensions" } else { met(interval.high >= 1.0) };
    Some((figure.to_owned(), seen, verdict))
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "NOT MET" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: Built = Built { bytes: 256 << 20, seconds: 0.5, candidates: 1.06, exact: 0.9995 };

    fn series(subject: Subject, colored: &[(u64, f64)]) -> Series {
        let speed = |placement, colored| if placement == Placement::Colored { colored } else { 100.0 };
        let point = |&(dimension, colored): &(u64, f64)| Point {
            dimension,
            speeds: Placement::value_variants()
                .iter()
                .map(|placement| (placement.to_string(), vec![speed(*placement, colored)]))
                .collect(),
        };
        Series { subject, points: colored.iter().map(point).collect() }
    }

    fn simulated(colored: &[(u64, f64)]) -> Series {
        series(Subject::Simulated(Processor::Celeron), colored)
    }

    fn measured(built: Built, colored: &[(u64, f64)]) -> String {
        text(&series(Subject::Measured { cache_bytes: Bytes(2 << 20), colors: 32, built }, colored))
    }

    fn line(text: &str, with: &str) -> String {
        text.lines().find(|line| line.trim_start().starts_with(with)).unwrap_or_default().to_owned()
    }

    #[test]
    fn the_end_of_the_gain_is_judged() {
        let verdict = |points: &[(u64, f64)]| text(&simulated(points)).lines().last().unwrap_or_default().to_owned();
        assert!(verdict(&[(89, 300.0), (95, 150.0), (97, 105.0)]).ends_with(" met"));
        assert!(verdict(&[(69, 300.0), (71, 105.0)]).ends_with("NOT MET"));
        assert!(verdict(&[(69, 300.0)]).contains("not seen"));
    }

    #[test]
    fn the_papers_table_stands_beside() {
        let text = text(&simulated(&[(47, 300.0), (51, 300.0)]));
        assert!(line(&text, "47").contains("519") && line(&text, "47").contains("3.00"), "{text}");
        assert!(!line(&text, "51").contains("519"), "{text}");
        assert!(!measured(BUILT, &[(47, 300.0)]).contains("519"));
    }

    #[test]
    fn an_arena_and_its_losses_are_judged() {
        let alike: Vec<(u64, f64)> =
            (1..20).map(|dimension| (dimension, 100.0 + (dimension % 3) as f64 - 1.0)).collect();
        let told = measured(BUILT, &alike);
        assert!(!told.contains("NOT MET"), "{told}");
        assert!(line(&measured(BUILT, &[(43, 90.0)]), "no loss: colored/random").contains("not judged"));
        let slower: Vec<(u64, f64)> = alike.iter().map(|&(dimension, speed)| (dimension, speed * 0.9)).collect();
        assert!(line(&measured(BUILT, &slower), "no loss: colored/random").ends_with("NOT MET"));
        for (wrong, figure) in [
            (Built { seconds: 2.1, ..BUILT }, "256 MiB built"),
            (Built { candidates: 1.04, ..BUILT }, "from 1.05"),
            (Built { exact: 0.998, ..BUILT }, "of which at least 99.9 %"),
        ] {
            assert!(line(&measured(wrong, &alike), figure).ends_with("NOT MET"), "{figure}");
        }
    }
}
