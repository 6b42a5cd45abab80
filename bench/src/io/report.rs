//! The report as text: tables for each size, and the figures for each size and overall.
//!
//! Owns: layout, and which numbers are compared. Never touches: how they were measured.

use heat::statistics::Interval;
use heat::units::{Bytes, Nanos};

use super::record::Record;
use super::supply::SupplyBlocks;
use super::turn::Turn;
use super::way::Way;
use crate::comparison::{median_of, ratio_by_round};
use crate::table::{distinct, head, interval, table};
use crate::verdict::{Bound, FigureVerdict, JudgedFigure};

/// The figures: throughput relative to the default's ("at least level" means within one per cent), pages scanned per page reclaimed relative to the
/// default's, and the share of free and clean memory available on huge pages.
const THROUGHPUT: f64 = 0.99;
const SCANNED: f64 = 0.5;
const OBTAINABLE: f64 = 0.95;

/// Turns that are compared with each other.
struct Series<'a> {
    turns: Vec<&'a Turn>,
}

/// The whole report.
pub fn text(record: &Record) -> String {
    let mut text = format!("io: {}\n", record.description);
    let all = all_series(record);
    for (size, series) in &all {
        text += &format!("\n{size} left to programs and page cache\n\n");
        text += &table(&series.speed_rows());
        text += "\n";
        text += &table(&series.huge_page_rows());
        if let Some(rows) = series.block_rows() {
            text += "\n";
            text += &table(&rows);
        }
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
mapped lost: what mapped files lost to it, which counts for neither. What shares 2 MiB: the most stubborn of what is there; CPU lists: free pages
that the kernel keeps for each CPU, which cannot be told from its own memory and count as that.
";

/// One turn, printed while others follow.
pub(super) fn line(turn: &Turn) -> String {
    let megabytes = turn.throughput() / 1e6;
    let (scanned, huge) = (turn.scanned_for_each(), 100.0 * turn.obtainable());
    format!("{}: {megabytes:.0} MB/s, {scanned:.2} scanned for each, {huge:.0} % to be had on huge pages", turn.way)
}

/// One series per size, in ascending order.
fn all_series(record: &Record) -> Vec<(Bytes, Series<'_>)> {
    let sizes = distinct(record.turns.iter().map(|turn| turn.size));
    let series = |size| Series { turns: record.turns.iter().filter(|turn| turn.size == size).collect() };
    sizes.into_iter().map(|size| (size, series(size))).collect()
}

/// Medians by size in GiB, for plots.
pub(super) fn medians(record: &Record, way: Way, number: fn(&Turn) -> f64) -> Vec<(f64, f64)> {
    let gib = |size: Bytes| size.0 as f64 / (1u64 << 30) as f64;
    all_series(record).iter().filter_map(|(size, series)| Some((gib(*size), series.median(way, number)?))).collect()
}

impl Series<'_> {
    fn ways(&self) -> Vec<Way> {
        distinct(self.turns.iter().map(|turn| turn.way))
    }

    fn of(&self, way: Way) -> impl Iterator<Item = &Turn> {
        self.turns.iter().copied().filter(move |turn| turn.way == way)
    }

    fn median(&self, way: Way, number: impl Fn(&Turn) -> f64) -> Option<f64> {
        median_of(self.of(way).map(number))
    }

    /// The ratio to the default's number in the same round at the same size.
    fn ratio(&self, way: Way, number: impl Fn(&Turn) -> f64) -> Option<Interval> {
        let numbers = |way| self.of(way).map(|turn| ((turn.round, turn.size), number(turn)));
        ratio_by_round(numbers(way), numbers(Way::Default))
    }

    fn speed_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![head(
            "memory reclaimed by | written/s | vs default [interval] | varies by | scanned | stalls/s | pressure | kswapd \
             | hugepilot | request | p99 | file faults/s | refaults/s",
        )];
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
            interval(self.ratio(way, Turn::throughput)),
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
        let mut rows = vec![head(
            "memory reclaimed by | free | clean cache | huge pages | of free + clean | of reach | within | each | p99 | mapped lost",
        )];
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

    /// What kept huge pages from being made of free memory and clean cache; None where that was not recorded.
    fn block_rows(&self) -> Option<Vec<Vec<String>>> {
        let mut rows = vec![head(
            "free + clean, by what shares 2 MiB with it | nothing | clean cache | movable | locked | the kernel's | CPU lists | unmovable blocks",
        )];
        type Blocks = fn(&Turn) -> Option<SupplyBlocks>;
        let moments: [(&str, Blocks); 2] =
            [("before", |turn| turn.blocks), ("left by huge pages", |turn| turn.obtained.blocks_left)];
        for (way, (moment, blocks)) in self.ways().into_iter().flat_map(|way| moments.map(|moment| (way, moment))) {
            let typical = |number: &dyn Fn(SupplyBlocks) -> f64| median_of(self.of(way).filter_map(blocks).map(number));
            let size =
                |of: fn(SupplyBlocks) -> Bytes| Some(Bytes(typical(&|blocks| of(blocks).0 as f64)? as u64).to_string());
            rows.push(vec![
                format!("{way}, {moment}"),
                size(|blocks| blocks.spare.free_blocks)?,
                size(|blocks| blocks.spare.behind_cache)?,
                size(|blocks| blocks.spare.beside_movable)?,
                size(|blocks| blocks.spare.beside_unevictable)?,
                size(|blocks| blocks.spare.beside_kernel)?,
                size(|blocks| blocks.in_cpu_lists)?,
                percent(typical(&|blocks| blocks.unmovable_blocks as f64 / blocks.all_blocks.max(1) as f64)?),
            ]);
        }
        Some(rows)
    }

    /// The ratio to the default's; None if either is missing, or the default scanned nothing.
    fn scanned(&self, way: Way) -> Option<f64> {
        let default = self.median(Way::Default, Turn::scanned_for_each).filter(|&default| default > 0.0)?;
        Some(self.median(way, Turn::scanned_for_each)? / default)
    }

    fn figures(&self) -> String {
        let of = |way| {
            let on_huge_pages = [Turn::obtainable, Turn::obtainable_within_reach].map(|of| self.median(way, of));
            figures_of(self.speed(way), way, self.scanned(way), on_huge_pages)
        };
        self.ways().into_iter().filter(|way| way.needs_hugepilot()).map(of).collect()
    }

    fn speed(&self, way: Way) -> JudgedFigure {
        let (seen, noise) = (self.ratio(way, Turn::throughput), self.ratio(Way::DefaultAgain, Turn::throughput));
        JudgedFigure::of_ratio(format!("{way}: throughput >= default"), seen, noise, Bound::AtLeast(THROUGHPUT))
    }
}

/// "At every size": bounds are judged at their worst size, and throughput over all pairs, unless one size alone misses it.
fn figures_of_all(record: &Record, all: &[(Bytes, Series<'_>)]) -> String {
    let together = Series { turns: record.turns.iter().collect() };
    let of = |way| {
        let each = || all.iter().map(|(_, series)| series);
        let mut speed = together.speed(way);
        if each().any(|series| series.speed(way).verdict == FigureVerdict::NotMet) {
            speed.verdict = FigureVerdict::NotMet;
        }
        let scanned = each().filter_map(|series| series.scanned(way)).reduce(f64::max);
        let least = |number: fn(&Turn) -> f64| each().filter_map(|series| series.median(way, number)).reduce(f64::min);
        figures_of(speed, way, scanned, [least(Turn::obtainable), least(Turn::obtainable_within_reach)])
    };
    together.ways().into_iter().filter(|way| way.needs_hugepilot()).map(of).collect()
}

/// The share on huge pages: of all memory in question, and of the part within reach.
fn figures_of(speed: JudgedFigure, way: Way, scanned: Option<f64>, [of_all, of_reach]: [Option<f64>; 2]) -> String {
    let figure = |text: &str, seen: Option<f64>, is_within: fn(f64) -> bool| {
        JudgedFigure::of_fact(format!("{way}: {text}"), seen.map(|seen| format!("{seen:.3}")), seen.map(is_within))
    };
    let enough = |share| share >= OBTAINABLE;
    let figures = [
        speed,
        figure("scanned for each <= 0.5 x default", scanned, |share| share <= SCANNED),
        figure("on huge pages >= 0.95 of free + clean", of_all, enough),
        figure("the same of what is within reach", of_reach, enough),
    ];
    figures.map(|figure| figure.line(62, 24)).concat()
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

    /// A record with this throughput with reclaim, and this share available on huge pages.
    fn record(reclaimed: f64, huge_share: f64) -> Record {
        let mut turns = Vec::new();
        for round in 0..8 {
            // The disk slows down from round to round, which must not count against any way.
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

    /// For one size, and for all: whether each figure is met.
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
        picture::draw(&record, &path).unwrap();
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
