//! The report as text: tables for each size, and the figures at each and over all.
//!
//! Owns: layout, and which numbers are held against which. Never touches: how they were measured.

use heat::statistics::{Interval, median, paired_ratio};
use heat::units::{Bytes, Nanos};

use super::record::Record;
use super::turn::Turn;
use super::way::Way;
use crate::table::{cell, strings, table};
use crate::verdict::FigureVerdict;

/// The figures: throughput of the default's ("at least level" means within one per cent), pages scanned for each reclaimed of the
/// default's, and the share of free and clean memory on huge pages.
const THROUGHPUT: f64 = 0.99;
const SCANNED: f64 = 0.5;
const OBTAINABLE: f64 = 0.95;

/// Turns that are held against each other.
struct Series<'a> {
    turns: Vec<&'a Turn>,
}

/// The whole report.
pub(super) fn text(record: &Record) -> String {
    let mut text = format!("io: {}\n", record.description);
    let all = all_series(record);
    for (size, series) in &all {
        text += &format!("\n{size} left to programs and page cache\n\n");
        text += &table(&series.speed_rows());
        text += "\n";
        text += &table(&series.huge_page_rows());
        text += &format!("\nfigures at {size}\n");
        text += &series.figures();
    }
    text += "\nfigures at every size: the worst of them, and throughput over all\n";
    text += &figures_of_all(record, &all);
    text + LEGEND
}

const LEGEND: &str = "
scanned: pages that the kernel scanned for each that left memory, whoever asked; stalls: allocations that had to reclaim memory themselves;
pressure: time in which somebody waited for memory; hugepilot, kswapd: of one processor; request: the longest of each tenth of a second, its
median, and of a hundred the longest but one; file faults: pages that the resident process had to read again; refaults: of all pages of
files, those that the kernel itself had let go (what is dropped on advice leaves no trace that it could be counted by).
Huge pages: what a program that starts then gets within 5 s; of reach: of what is free or clean, less what the kernel gives to no program;
mapped lost: what mapped files lost to it, which counts for neither.
";

/// One turn, while others follow.
pub(super) fn line(turn: &Turn) -> String {
    let megabytes = turn.throughput() / 1e6;
    let (scanned, huge) = (turn.scanned_for_each(), 100.0 * turn.obtainable());
    format!("{}: {megabytes:.0} MB/s, {scanned:.2} scanned for each, {huge:.0} % to be had on huge pages", turn.way)
}

/// A series for each size, in the order of sizes.
fn all_series(record: &Record) -> Vec<(Bytes, Series<'_>)> {
    let mut sizes: Vec<Bytes> = record.turns.iter().map(|turn| turn.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let series = |size| Series { turns: record.turns.iter().filter(|turn| turn.size == size).collect() };
    sizes.into_iter().map(|size| (size, series(size))).collect()
}

/// Medians by size, for whoever draws them: in GiB.
pub(super) fn medians(record: &Record, way: Way, number: fn(&Turn) -> f64) -> Vec<(f64, f64)> {
    let gib = |size: Bytes| size.0 as f64 / (1u64 << 30) as f64;
    all_series(record).iter().filter_map(|(size, series)| Some((gib(*size), series.median(way, number)?))).collect()
}

impl Series<'_> {
    fn ways(&self) -> Vec<Way> {
        let mut ways: Vec<Way> = self.turns.iter().map(|turn| turn.way).collect();
        ways.sort_unstable();
        ways.dedup();
        ways
    }

    fn of(&self, way: Way) -> impl Iterator<Item = &Turn> {
        self.turns.iter().copied().filter(move |turn| turn.way == way)
    }

    fn median(&self, way: Way, number: impl Fn(&Turn) -> f64) -> Option<f64> {
        median(&self.of(way).map(number).collect::<Vec<_>>())
    }

    /// Of the default's in the same round at the same size.
    fn ratio(&self, way: Way, number: impl Fn(&Turn) -> f64) -> Option<Interval> {
        let partner = |turn: &Turn| {
            let is_partner = |other: &&Turn| (other.round, other.size) == (turn.round, turn.size);
            Some((number(turn), number(self.of(Way::Default).find(is_partner)?)))
        };
        paired_ratio(&self.of(way).filter_map(partner).collect::<Vec<_>>())
    }

    fn speed_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![strings(&[
            "memory reclaimed by",
            "written/s",
            "vs default [interval]",
            "varies by",
            "scanned",
            "stalls/s",
            "pressure",
            "kswapd",
            "hugepilot",
            "request",
            "p99",
            "file faults/s",
            "refaults/s",
        ])];
        rows.extend(self.ways().into_iter().map(|way| self.speed_row(way)));
        rows
    }

    fn speed_row(&self, way: Way) -> Vec<String> {
        let seconds = |turn: &Turn| turn.written_per_second.len().max(1) as f64;
        let rate =
            |number: &dyn Fn(&Turn) -> f64| self.median(way, |turn| number(turn) / seconds(turn)).unwrap_or_default();
        let typical = |number: &dyn Fn(&Turn) -> f64| self.median(way, number).unwrap_or_default();
        vec![
            way.to_string(),
            format!("{:.0} MB", typical(&Turn::throughput) / 1e6),
            cell(self.ratio(way, Turn::throughput).map(|ratio| interval(&ratio))),
            percent(typical(&Turn::variation)),
            format!("{:.2}", typical(&Turn::scanned_for_each)),
            format!("{:.1}", rate(&|turn| turn.kernel.stalls as f64)),
            percent(rate(&|turn| turn.kernel.pressure_seconds.unwrap_or_default())),
            percent(rate(&|turn| turn.kernel.kswapd_seconds)),
            percent(rate(&|turn| turn.reclaim_seconds)),
            time(typical(&|turn| turn.resident.usual_wait.0 as f64)),
            time(typical(&|turn| turn.resident.long_wait.0 as f64)),
            format!("{:.1}", rate(&|turn| turn.resident.major_faults as f64)),
            format!("{:.0}", rate(&|turn| turn.kernel.refaults as f64)),
        ]
    }

    fn huge_page_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![strings(&[
            "memory reclaimed by",
            "free",
            "clean cache",
            "huge pages",
            "of free + clean",
            "of reach",
            "within",
            "each",
            "p99",
            "mapped lost",
        ])];
        rows.extend(self.ways().into_iter().map(|way| self.huge_page_row(way)));
        rows
    }

    fn huge_page_row(&self, way: Way) -> Vec<String> {
        let typical = |number: &dyn Fn(&Turn) -> f64| self.median(way, number).unwrap_or_default();
        let size = |number: &dyn Fn(&Turn) -> f64| Bytes(typical(number) as u64).to_string();
        vec![
            way.to_string(),
            size(&|turn| turn.supply.free.0 as f64),
            size(&|turn| turn.supply.clean_cache.0 as f64),
            size(&|turn| turn.obtained.huge_bytes as f64),
            percent(typical(&Turn::obtainable)),
            percent(typical(&Turn::obtainable_within_reach)),
            format!("{:.1} s", typical(&|turn| turn.obtained.seconds)),
            time(typical(&|turn| turn.obtained.p50.0 as f64)),
            time(typical(&|turn| turn.obtained.p99.0 as f64)),
            size(&|turn| turn.mapped_lost.0 as f64),
        ]
    }

    /// Of the default's; None where either is missing, or the default scanned nothing.
    fn scanned(&self, way: Way) -> Option<f64> {
        let default = self.median(Way::Default, Turn::scanned_for_each).filter(|&default| default > 0.0)?;
        Some(self.median(way, Turn::scanned_for_each)? / default)
    }

    fn figures(&self) -> String {
        let mut text = String::new();
        for way in self.ways().into_iter().filter(|way| way.needs_hugepilot()) {
            text += &speed_figure(way, self.speed(way));
            text += &scanned_figure(way, self.scanned(way));
            text += &obtainable_figures(
                way,
                self.median(way, Turn::obtainable),
                self.median(way, Turn::obtainable_within_reach),
            );
        }
        text
    }

    fn speed(&self, way: Way) -> (Option<Interval>, FigureVerdict) {
        let (seen, noise) = (self.ratio(way, Turn::throughput), self.ratio(Way::DefaultAgain, Turn::throughput));
        let verdict = seen
            .zip(noise)
            .map_or(FigureVerdict::NotMeasured, |(seen, noise)| FigureVerdict::at_least(THROUGHPUT, &seen, &noise));
        (seen, verdict)
    }
}

/// "At every size": what is a bound is judged at its worst, and throughput by all pairs together, unless one size alone misses it.
fn figures_of_all(record: &Record, all: &[(Bytes, Series<'_>)]) -> String {
    let together = Series { turns: record.turns.iter().collect() };
    let mut text = String::new();
    for way in together.ways().into_iter().filter(|way| way.needs_hugepilot()) {
        let worst = |number: &dyn Fn(&Series<'_>) -> Option<f64>, pick: fn(f64, f64) -> f64| {
            all.iter().filter_map(|(_, series)| number(series)).reduce(pick)
        };
        let (seen, verdict) = together.speed(way);
        let misses = all.iter().any(|(_, series)| series.speed(way).1 == FigureVerdict::NotMet);
        text += &speed_figure(way, (seen, if misses { FigureVerdict::NotMet } else { verdict }));
        text += &scanned_figure(way, worst(&|series| series.scanned(way), f64::max));
        let obtainable = |number: fn(&Turn) -> f64| worst(&move |series| series.median(way, number), f64::min);
        text += &obtainable_figures(way, obtainable(Turn::obtainable), obtainable(Turn::obtainable_within_reach));
    }
    text
}

fn speed_figure(way: Way, (seen, verdict): (Option<Interval>, FigureVerdict)) -> String {
    figure(&format!("{way}: throughput >= default"), seen.map(|seen| interval(&seen)), &verdict)
}

fn scanned_figure(way: Way, share: Option<f64>) -> String {
    bounded(&format!("{way}: scanned for each <= 0.5 x default"), share, |share| share <= SCANNED)
}

fn obtainable_figures(way: Way, of_all: Option<f64>, of_reach: Option<f64>) -> String {
    let enough = |share| share >= OBTAINABLE;
    bounded(&format!("{way}: on huge pages >= 0.95 of free + clean"), of_all, enough)
        + &bounded(&format!("{way}: the same of what is within reach"), of_reach, enough)
}

fn bounded(text: &str, seen: Option<f64>, is_within: impl Fn(f64) -> bool) -> String {
    let verdict = match seen {
        None => FigureVerdict::NotMeasured,
        Some(seen) if is_within(seen) => FigureVerdict::Met,
        Some(_) => FigureVerdict::NotMet,
    };
    figure(text, seen.map(|seen| format!("{seen:.3}")), &verdict)
}

fn figure(text: &str, numbers: Option<String>, verdict: &FigureVerdict) -> String {
    format!("  {text:<62} {:<24} {verdict}\n", cell(numbers))
}

fn interval(interval: &Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", interval.estimate, interval.low, interval.high)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn time(nanoseconds: f64) -> String {
    Nanos(nanoseconds as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::turn::tests::turn;
    use super::*;

    /// Throughput with reclaim, and what can be had with it on huge pages.
    fn record(reclaimed: f64, huge_share: f64) -> Record {
        let mut turns = Vec::new();
        for round in 0..8 {
            // The disk grows slower, which must not count against anyone.
            let drift = 1e8 - 1e6 * f64::from(round);
            for (way, speed) in [(Way::Default, 1.0), (Way::BackupServer, reclaimed), (Way::DefaultAgain, 1.001)] {
                let mut turn = turn(&[drift * speed, drift * speed]);
                (turn.round, turn.way) = (round, way);
                (turn.kernel_in_all.scanned, turn.kernel_in_all.reclaimed) = (2_000, 1_000);
                if way == Way::BackupServer {
                    turn.reclaimed_pages = Some(9_000);
                    turn.obtained.huge_bytes = (huge_share * turn.supply.all().0 as f64) as u64;
                }
                turns.push(turn);
            }
        }
        let mut record = Record::new(crate::machine::tests::machine(), "a test".to_owned());
        record.turns = turns;
        record
    }

    /// Of one size, and of all: each figure's words and whether it is met.
    fn verdicts(record: &Record) -> [Vec<bool>; 2] {
        let text = text(record);
        let told = |heading: &str| {
            let figures = text.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
            figures.take_while(|line| !line.is_empty()).map(|line| line.ends_with(" met")).collect()
        };
        [told("figures at 8 GiB"), told("figures at every size")]
    }

    #[test]
    fn each_figure_is_judged_by_its_own_numbers() {
        assert_eq!(verdicts(&record(1.1, 0.96)), [[true; 4]; 2]);
        assert_eq!(verdicts(&record(0.9, 0.90)), [[false, true, false, true]; 2], "a half of it is out of reach");
        let mut scanning = record(1.1, 0.96);
        scanning.turns.iter_mut().for_each(|turn| turn.reclaimed_pages = None);
        assert_eq!(verdicts(&scanning), [[true, false, true, true]; 2]);
    }

    #[test]
    fn few_rounds_at_each_size_are_many_over_all() {
        let mut record = record(1.1, 0.96);
        record.turns.retain(|turn| turn.round < 3);
        let smaller: Vec<Turn> =
            record.turns.iter().cloned().map(|turn| Turn { size: Bytes(2 << 30), ..turn }).collect();
        record.turns.extend(smaller);
        let [of_size, of_all] = verdicts(&record);
        assert_eq!((of_size[0], of_all[0]), (false, true), "6 pairs are needed");
        record.turns.iter_mut().filter(|turn| turn.size < Bytes(8 << 30)).for_each(|turn| turn.obtained.huge_bytes = 0);
        let [of_size, of_all] = verdicts(&record);
        assert_eq!((of_size[2], of_all[2]), (true, false), "the worst size counts");
    }

    #[test]
    fn a_loss_at_one_size_is_not_made_good_at_another() {
        let mut record = record(1.3, 0.96);
        let smaller = self::record(0.9, 0.96).turns.into_iter().map(|turn| Turn { size: Bytes(2 << 30), ..turn });
        record.turns.extend(smaller);
        let [of_size, of_all] = verdicts(&record);
        assert_eq!((of_size[0], of_all[0]), (true, false));
    }

    #[test]
    fn sizes_are_told_apart_and_medians_drawn() {
        let mut record = record(1.1, 0.96);
        let smaller: Vec<Turn> =
            record.turns.iter().cloned().map(|turn| Turn { size: Bytes(2 << 30), ..turn }).collect();
        record.turns.extend(smaller);
        let line = medians(&record, Way::Default, Turn::obtainable);
        assert_eq!(line.iter().map(|point| point.0).collect::<Vec<_>>(), [2.0, 8.0]);
        assert!(text(&record).contains("\n2 GiB left to programs"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("io.svg");
        crate::picture::draw(&record, &path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.contains("backup-server") && svg.contains("scanned for each"), "{svg}");
    }

    #[test]
    fn the_report_is_tables_and_figures() {
        let mut record = record(1.1, 0.96);
        record.turns.retain(|turn| turn.round < 1);
        insta::assert_snapshot!(text(&record));
    }
}
