//! How much of the paper a candidate explains: where the gain begins and ends, how large it becomes, and the paper's table.
//!
//! Owns: those figures, and the table of all candidates. Never touches: how the speeds came about.

use clap::ValueEnum;
use hugepilot_bench::table::{cell, strings, table};

use super::assumption::Assumption;
use super::model::Processor;
use super::paper;
use super::placement::Placement;
use super::record::{PointSeries, Subject};
use super::simulation::{GAIN, Point, gain};

/// "Off": the mean of absolute logarithms, over the dimensions of the paper's table.
const HEADING: [&str; 8] =
    ["assumed", "from 1.1", "for good", "most", "at", "below 1.1 from", "off: normal", "off: colored"];
/// The same of the paper.
const CELERON: [&str; 8] = ["the paper", "47", "47", "4.72", "85", "97", "-", "-"];
const PENTIUM4: [&str; 8] = ["the paper", "-", "-", "6", "-", "183 or later", "-", "-"];

/// Where coloring gains, and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Course {
    /// The first dimension at which it does.
    begins: u64,
    /// The first one from which on it does until where it gains most.
    for_good: u64,
    /// The most.
    most: f64,
    /// The dimension of that.
    at: u64,
    /// The first one behind it at which it does no more; None where the points end before.
    ends: Option<u64>,
}

impl Course {
    /// None where nothing gains.
    fn of(points: &[Point]) -> Option<Self> {
        let ratios: Vec<(u64, f64)> = points.iter().filter_map(|point| Some((point.dimension, gain(point)?))).collect();
        let gains = |&(_, ratio): &(u64, f64)| ratio >= GAIN;
        let begins = ratios.iter().find(|at| gains(at))?.0;
        let highest = (0..ratios.len()).max_by(|&one, &other| ratios[one].1.total_cmp(&ratios[other].1))?;
        let without = ratios[..highest].iter().rposition(|at| !gains(at));
        let ends = ratios[highest..].iter().find(|at| !gains(at));
        Some(Self {
            begins,
            for_good: ratios[without.map_or(0, |without| without + 1)].0,
            most: ratios[highest].1,
            at: ratios[highest].0,
            ends: ends.map(|&(dimension, _)| dimension),
        })
    }
}

/// How far a column of the paper's table is off: the mean of the logarithms of ratios, signs left out. None where a dimension is lacking.
fn deviation(points: &[Point], placement: Placement, theirs: impl Fn(&paper::TableRow) -> f64) -> Option<f64> {
    let off = |row: &paper::TableRow| {
        let point = points.iter().find(|point| point.dimension == row.dimension)?;
        Some((point.typical(placement)? / theirs(row)).ln().abs())
    };
    let all: Option<Vec<f64>> = paper::TABLE.iter().map(off).collect();
    all.map(|all| all.iter().sum::<f64>() / all.len() as f64)
}

/// What was simulated of one processor, by what was assumed.
type Assumed<'a> = Vec<(Assumption, &'a [Point])>;

/// The tables of all candidates among these, for each processor.
pub(super) fn text(series: &[PointSeries]) -> String {
    let tables = Processor::value_variants().iter().map(|&processor| {
        let assumed = series.iter().filter_map(|series| match series.subject {
            Subject::Assumed(whose, candidate) if whose == processor => Some((candidate, &series.points[..])),
            _ => None,
        });
        (processor, assumed.collect::<Assumed<'_>>())
    });
    tables
        .filter(|(_, assumed)| !assumed.is_empty())
        .map(|(processor, assumed)| tables_of(processor, &assumed))
        .collect()
}

fn tables_of(processor: Processor, assumed: &Assumed<'_>) -> String {
    let theirs = match processor {
        Processor::Celeron => CELERON,
        Processor::Pentium4 => PENTIUM4,
    };
    let ours = assumed.iter().map(|&(candidate, points)| row(processor, candidate, points));
    let courses: Vec<Vec<String>> = [strings(&HEADING), strings(&theirs)].into_iter().chain(ours).collect();
    let speeds = match processor {
        Processor::Celeron => format!("\nMB/s, random/colored, by dimension\n\n{}", table(&speeds(assumed))),
        Processor::Pentium4 => String::new(),
    };
    format!(
        "\n{processor}, simulated: colored/random by what is assumed besides the datasheet\n\n{}{speeds}",
        table(&courses)
    )
}

/// The paper's table, and the same of all candidates.
fn speeds(assumed: &Assumed<'_>) -> Vec<Vec<String>> {
    let row = |name: String, speed: &dyn Fn(&paper::TableRow) -> Option<(f64, f64)>| {
        let cells = paper::TABLE
            .iter()
            .map(|row| cell(speed(row).map(|(normal, colored)| format!("{normal:.0}/{colored:.0}"))));
        std::iter::once(name).chain(cells).collect()
    };
    let heading = std::iter::once("assumed".to_owned()).chain(paper::TABLE.iter().map(|row| row.dimension.to_string()));
    let theirs = row("the paper".to_owned(), &|row| Some((row.normal, row.colored)));
    let ours = assumed.iter().map(|(candidate, points)| {
        row(candidate.to_string(), &|row| {
            let point = points.iter().find(|point| point.dimension == row.dimension)?;
            point.typical(Placement::Random).zip(point.typical(Placement::Colored))
        })
    });
    [heading.collect(), theirs].into_iter().chain(ours).collect()
}

fn row(processor: Processor, candidate: Assumption, points: &[Point]) -> Vec<String> {
    let course = Course::of(points);
    let tell = |what: fn(Course) -> String| cell(course.map(what));
    let off = |placement, theirs: fn(&paper::TableRow) -> f64| {
        let deviation = deviation(points, placement, theirs).filter(|_| processor == Processor::Celeron);
        cell(deviation.map(|deviation| format!("{deviation:.2}")))
    };
    vec![
        candidate.to_string(),
        tell(|course| course.begins.to_string()),
        tell(|course| course.for_good.to_string()),
        tell(|course| format!("{:.2}", course.most)),
        tell(|course| course.at.to_string()),
        tell(|course| cell(course.ends.map(|dimension| dimension.to_string()))),
        off(Placement::Random, |row| row.normal),
        off(Placement::Colored, |row| row.colored),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(dimension: u64, random: f64, colored: f64) -> Point {
        let speeds = [(Placement::Random, random), (Placement::Colored, colored)];
        Point { dimension, speeds: speeds.map(|(placement, speed)| (placement.to_string(), vec![speed])).into() }
    }

    fn course(ratios: &[f64]) -> Option<Course> {
        let points: Vec<Point> =
            (1..).step_by(2).zip(ratios).map(|(dimension, &ratio)| point(dimension, 1.0, ratio)).collect();
        Course::of(&points)
    }

    fn theirs(ratio: f64) -> Vec<Point> {
        paper::TABLE.iter().map(|row| point(row.dimension, row.normal * ratio, row.colored)).collect()
    }

    #[test]
    fn a_gain_is_for_good_from_where_no_dimension_is_without_until_the_highest() {
        let seen = course(&[1.0, 1.2, 1.0, 1.5, 3.0, 1.1, 1.0, 1.3]);
        assert_eq!(seen, Some(Course { begins: 3, for_good: 7, most: 3.0, at: 9, ends: Some(13) }));
        assert_eq!(course(&[1.2, 1.1]), Some(Course { begins: 1, for_good: 1, most: 1.2, at: 1, ends: None }));
        assert_eq!(course(&[1.0, 1.09]), None);
    }

    #[test]
    fn a_column_is_off_by_the_mean_of_logarithms() {
        let off = |points: &[Point]| deviation(points, Placement::Random, |row| row.normal);
        assert_eq!(off(&theirs(1.0)), Some(0.0));
        assert!([off(&theirs(2.0)), off(&theirs(0.5))].iter().all(|off| (off.unwrap() - 2f64.ln()).abs() < 1e-9));
        assert_eq!(off(&theirs(1.0)[1..]), None, "a dimension is lacking");
    }

    #[test]
    fn every_candidate_has_a_row_below_the_papers() {
        let series =
            |processor, candidate| PointSeries { subject: Subject::Assumed(processor, candidate), points: theirs(1.0) };
        let text = text(&[
            series(Processor::Celeron, Assumption::Plain),
            series(Processor::Celeron, Assumption::Gaps),
            series(Processor::Pentium4, Assumption::Tlb),
        ]);
        let line = |begins: &str| text.lines().find(|line| line.starts_with(begins)).unwrap().to_owned();
        let words = |begins| line(begins).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words("gaps"), ["gaps", "47", "47", "4.72", "85", "-", "0.00", "0.00"]);
        assert!(text.lines().any(|line| line.starts_with("gaps") && line.contains("519/1556")), "{text}");
        assert_eq!(words("tlb")[5..], ["-", "-", "-"], "the table is the Celeron's");
        let order =
            ["Celeron", "the paper", "plain", "gaps", "Pentium 4", "tlb"].map(|begins| text.find(begins).unwrap());
        assert!(order.is_sorted(), "{text}");
        assert_eq!(super::text(&[]), "");
    }
}
