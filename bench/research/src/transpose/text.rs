//! The table of one processor next to the paper's numbers, and whether its figures were reproduced.
//!
//! Owns: layout and rounding, and the list of figures. Never touches: how numbers were obtained.

use clap::ValueEnum;
use heat::statistics::{Interval, median, paired_ratio};
use heat::units::Bytes;
use hugepilot_bench::table::table;

use super::comparison;
use super::measured::{self, AGAIN, Built};
use super::model::{Processor, matrices_bytes};
use super::paper;
use super::placement::Placement;
use super::record::{PointSeries, Subject, TransposeRecord};
use super::simulation::{Point, end_of_gain, gain};

const OF_THE_PAPER: [&str; 3] = ["paper: normal", "paper: colored", "paper: colored/normal"];
/// A less certain result gives no figure.
const SURE: f64 = 0.95;
/// A larger loss counts.
const LEVEL: f64 = 0.01;
const MOST_SECONDS: f64 = 2.0;
const FEWEST_EXACT: f64 = 0.999;
const FEWEST_CANDIDATES: f64 = 1.05;

impl Subject {
    /// The name in a heading.
    pub(super) fn name(&self) -> String {
        match self {
            Subject::Simulated(processor) => {
                let cache = Bytes(processor.datasheet().second.size_bytes);
                format!("{processor}, {cache} of second-level cache, simulated")
            }
            Subject::Assumed(processor, candidate) => format!("{processor}, simulated, {candidate}"),
            Subject::Measured { cache_bytes, colors, .. } => {
                format!("this machine, {cache_bytes} of second-level cache, {colors} colors, measured")
            }
        }
    }

    /// Lines that say what is missing when there are only this many points.
    fn shortfall(&self, points: usize) -> String {
        let Subject::Measured { colors, asked, skipped, .. } = self else { return String::new() };
        let mut lines = String::new();
        if *asked > points + skipped.len() {
            lines += &format!(
                "{points} of {asked} dimensions, from coarse to fine: the time was up, or something ended it\n"
            );
        }
        if !skipped.is_empty() {
            let which: Vec<String> = skipped.iter().map(u64::to_string).collect();
            lines += &format!("{} skipped, for which no huge page could be had: {}\n", skipped.len(), which.join(", "));
        }
        if !measured::placements(*colors).contains(&Placement::HugeAndColored) {
            lines += &format!("no {}: a huge page cannot have {colors} colors\n", Placement::HugeAndColored);
        }
        lines
    }

    fn has_the_papers_table(&self) -> bool {
        matches!(self, Subject::Simulated(Processor::Celeron))
    }
}

/// The whole report.
pub(super) fn text(record: &TransposeRecord) -> String {
    let of_their_own = record.series.iter().filter(|series| !matches!(series.subject, Subject::Assumed(..)));
    of_their_own.map(series_text).chain([comparison::text(&record.series)]).collect()
}

/// The report of one series.
fn series_text(series: &PointSeries) -> String {
    let name = series.subject.name();
    let mut rows = vec![heading(series)];
    rows.extend(series.points.iter().map(|point| row(series, point)));
    let mut figures = match &series.subject {
        Subject::Simulated(processor) | Subject::Assumed(processor, _) => figures_simulated(*processor, &series.points),
        Subject::Measured { built, .. } => figures_measured(built, &series.points),
    };
    figures.extend(placements(series).iter().filter_map(|placement| luck(placement, &series.points)));
    let line = |(figure, seen, met): Figure| format!("  {figure:<62} {seen:<28} {met}").trim_end().to_owned() + "\n";
    let lines = figures.into_iter().map(line);
    let (table, shortfall) = (table(&rows), series.subject.shortfall(series.points.len()));
    format!(
        "\n{name}: MB/s, median (worst to best choice of pages)\n{shortfall}\n{table}\nfigures\n{}",
        lines.collect::<String>()
    )
}

/// The names of all placements that have numbers.
fn placements(series: &PointSeries) -> Vec<String> {
    let all = Placement::value_variants().iter().map(ToString::to_string).chain([AGAIN.to_owned()]);
    all.filter(|placement| series.points.iter().any(|point| point.speeds.contains_key(placement))).collect()
}

fn heading(series: &PointSeries) -> Vec<String> {
    let paper = if series.subject.has_the_papers_table() { &OF_THE_PAPER[..] } else { &[] };
    let ratios = series.ratios().into_iter().map(|(one, other)| format!("{one}/{other}"));
    let before = std::iter::once("dimension".to_owned()).chain(placements(series));
    before.chain(ratios).chain(paper.iter().map(|&name| name.to_owned())).collect()
}

fn row(series: &PointSeries, point: &Point) -> Vec<String> {
    let ratio = |(one, other)| point.ratio(one, other).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut cells = vec![point.dimension.to_string()];
    cells.extend(placements(series).iter().map(|placement| spread(point, placement)));
    cells.extend(series.ratios().into_iter().map(ratio));
    if series.subject.has_the_papers_table() {
        cells.extend(match paper::TABLE.iter().find(|row| row.dimension == point.dimension) {
            Some(paper::TableRow { normal, colored, .. }) => {
                [normal.to_string(), colored.to_string(), format!("{:.2}", colored / normal)]
            }
            None => ["-", "-", "-"].map(str::to_owned),
        });
    }
    cells
}

fn spread(point: &Point, placement: &str) -> String {
    match point.typical(placement).zip(point.spread(placement)) {
        Some((typical, (worst, best))) => format!("{typical:.0} ({worst:.0} to {best:.0})"),
        None => "-".to_owned(),
    }
}

/// The expected result, the observed one, and the verdict.
type Figure = (String, String, &'static str);

fn figures_simulated(processor: Processor, points: &[Point]) -> Vec<Figure> {
    let paper = paper::END.iter().filter(|(known, ..)| *known == processor);
    let figure = |&(_, end, within): &(Processor, u64, u64)| {
        let wanted = format!("colored/random falls below 1.1 at {end} +/- {within}");
        match end_of_gain(points) {
            Some(seen) => (wanted, seen.to_string(), met(seen.abs_diff(end) <= within)),
            None => (wanted, "-".to_owned(), "not seen: choose --dimensions around it"),
        }
    };
    paper.map(figure).chain(highest_gain(processor, points)).collect()
}

/// Where the ratio is highest: that should be where the cache holds both matrices.
fn highest_gain(processor: Processor, points: &[Point]) -> Option<Figure> {
    let gains = |point: &Point| Some((gain(point)?, point.dimension));
    let (ratio, dimension) = points.iter().filter_map(gains).max_by(|one, other| one.0.total_cmp(&other.0))?;
    let inside = matrices_bytes(dimension) <= processor.datasheet().second.size_bytes;
    Some(("colored/random is highest inside the cache".to_owned(), format!("{ratio:.2} at {dimension}"), met(inside)))
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
    figures.extend(loss("no loss: colored/random over all dimensions", "colored", "random", points));
    let of_the_rest = "no loss: huge+colored/huge+random over all dimensions";
    figures.extend(loss(of_the_rest, "huge+colored", "huge+random", points));
    let noise = over_all(AGAIN, "random", points);
    figures.extend(noise.map(|noise| (format!("noise: {AGAIN}/random over all dimensions"), interval(&noise), "")));
    figures
}

/// A loss counts if the interval over all dimensions shows it, and it exceeds the noise.
fn loss(figure: &str, one: &str, other: &str, points: &[Point]) -> Option<Figure> {
    let (seen, noise) = (over_all(one, other, points)?, over_all(AGAIN, "random", points)?);
    let verdict = match 1.0 - seen.high {
        _ if seen.confidence < SURE || noise.confidence < SURE => "not judged: fewer than 6 dimensions",
        loss if loss > noise.reach() => "NOT MET",
        _ if seen.low >= 1.0 - LEVEL => "met",
        _ => "open: it may be more than 1 %",
    };
    Some((figure.to_owned(), interval(&seen), verdict))
}

/// The typical ratio; None if any dimension lacks one of the two.
fn over_all(one: &str, other: &str, points: &[Point]) -> Option<Interval> {
    let pairs: Option<Vec<(f64, f64)>> =
        points.iter().map(|point| Some((point.typical(one)?, point.typical(other)?))).collect();
    paired_ratio(&pairs?)
}

fn interval(interval: &Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", interval.estimate, interval.low, interval.high)
}

/// How much chance matters with this placement.
fn luck(placement: &str, points: &[Point]) -> Option<Figure> {
    let spreads = points.iter().filter_map(|point| point.spread(placement));
    let typical = median(&spreads.map(|(worst, best)| worst / best).collect::<Vec<_>>())?;
    Some((format!("luck, {placement}: worst choice of pages/best, median"), format!("{typical:.3}"), ""))
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "NOT MET" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: Built = Built { bytes: 256 << 20, seconds: 0.5, candidates: 1.06, exact: 0.9995 };

    fn series(subject: Subject, colored: &[(u64, f64)]) -> PointSeries {
        let again = matches!(subject, Subject::Measured { .. }).then(|| AGAIN.to_owned());
        let names: Vec<String> = Placement::value_variants().iter().map(ToString::to_string).chain(again).collect();
        let point = |&(dimension, colored): &(u64, f64)| {
            let speed = |name: &String| match name.as_str() {
                "colored" => vec![colored],
                "random" => vec![100.0, 90.0, 110.0],
                _ => vec![100.0],
            };
            Point { dimension, speeds: names.iter().map(|name| (name.clone(), speed(name))).collect() }
        };
        PointSeries { subject, points: colored.iter().map(point).collect() }
    }

    fn simulated(colored: &[(u64, f64)]) -> PointSeries {
        series(Subject::Simulated(Processor::Celeron), colored)
    }

    fn measured(built: Built, colored: &[(u64, f64)]) -> String {
        let asked = colored.len();
        series_text(&series(subject(32, asked, &[], built), colored))
    }

    fn subject(colors: u32, asked: usize, skipped: &[u64], built: Built) -> Subject {
        Subject::Measured { cache_bytes: Bytes(2 << 20), colors, asked, skipped: skipped.to_vec(), built }
    }

    fn line(text: &str, with: &str) -> String {
        text.lines().find(|line| line.trim_start().starts_with(with)).unwrap_or_default().to_owned()
    }

    #[test]
    fn the_end_of_the_gain_is_judged() {
        let verdict = |points: &[(u64, f64)]| line(&series_text(&simulated(points)), "colored/random falls");
        assert!(verdict(&[(89, 300.0), (95, 150.0), (97, 105.0)]).ends_with(" met"));
        assert!(verdict(&[(69, 300.0), (71, 105.0)]).ends_with("NOT MET"));
        assert!(verdict(&[(69, 300.0)]).contains("not seen"));
    }

    #[test]
    fn the_gain_is_highest_inside_the_cache() {
        let verdict = |points: &[(u64, f64)]| line(&series_text(&simulated(points)), "colored/random is highest");
        assert!(verdict(&[(85, 300.0), (95, 200.0)]).ends_with(" met"));
        assert!(verdict(&[(85, 200.0), (95, 300.0)]).contains("3.00 at 95"));
        assert!(verdict(&[(85, 200.0), (95, 300.0)]).ends_with("NOT MET"));
    }

    #[test]
    fn the_papers_table_stands_beside() {
        let text = series_text(&simulated(&[(47, 300.0), (51, 300.0)]));
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
        assert!(line(&told, "no loss: colored/random").ends_with(" met"), "{told}");
        assert!(line(&told, "noise: random again/random").contains("1.000 [1.000, 1.000]"), "{told}");
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

    #[test]
    fn a_loss_within_noise_is_none_and_one_that_cannot_be_seen_is_open() {
        let point = |dimension: u64, colored, again| Point {
            dimension,
            speeds: [("random", 100.0), ("colored", colored), (AGAIN, again)]
                .map(|(name, speed)| (name.to_owned(), vec![speed]))
                .into(),
        };
        let verdict = |colored: fn(u64) -> f64, again: fn(u64) -> f64| {
            let points: Vec<Point> = (1..20).map(|number| point(number, colored(number), again(number))).collect();
            loss("", "colored", "random", &points).map(|(.., verdict)| verdict)
        };
        assert_eq!(verdict(|_| 99.5, |_| 99.9), Some("NOT MET"));
        assert_eq!(verdict(|_| 99.5, |_| 99.4), Some("met"), "the same is as far off itself");
        assert_eq!(verdict(|number| 90.0 + number as f64, |_| 100.0), Some("open: it may be more than 1 %"));
        assert_eq!(loss("", "colored", "random", &[]), None);
    }

    #[test]
    fn luck_and_what_is_missing_are_told() {
        let measured = measured(BUILT, &[(43, 90.0), (45, 90.0)]);
        assert!(line(&measured, "luck, random:").contains("0.818"), "{measured}");
        assert!(line(&measured, "43").contains("100 (90 to 110)") && !measured.contains("coarse"), "{measured}");
        let told = series_text(&series(subject(32, 9, &[], BUILT), &[(43, 90.0)]));
        assert!(line(&told, "1 of 9 dimensions").contains("coarse") && !told.contains("no huge"), "{told}");
        let told = series_text(&series(subject(1024, 3, &[45, 47], BUILT), &[(43, 90.0)]));
        assert!(line(&told, "2 skipped").ends_with("45, 47") && !told.contains("coarse"), "{told}");
        assert!(line(&told, "no huge+colored").contains("1024 colors"), "{told}");
        assert!(!series_text(&simulated(&[(43, 90.0)])).contains("random again"));
    }
}
