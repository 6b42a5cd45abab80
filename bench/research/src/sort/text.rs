//! The report: a table for each algorithm, and whether the experiment's figures were reproduced.
//!
//! Owns: layout and rounding, and the list of figures. Never touches: how numbers were obtained.

use std::collections::BTreeSet;

use heat::statistics::{Interval, paired_ratio};
use heat::units::Bytes;
use hugepilot_bench::table::{cell, strings, table};
use hugepilot_bench::verdict::FigureVerdict;
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::task::PageChoice;

use super::record::SortRecord;

/// The size of the data in the experiment, and the gain of its heap sort.
const THEIR_BYTES: u64 = 64 << 20;
const THEIR_GAIN: f64 = 1.06;

/// The whole report.
pub(super) fn text(record: &SortRecord) -> String {
    let mut text = String::new();
    for (algorithm, sizes) in record.cases() {
        let mut rows =
            vec![strings(&["size", "ordinary ms", "large ms", "gain %", "ordinary again %", "on large pages %"])];
        rows.extend(sizes.iter().map(|&bytes| row(record, algorithm, bytes)));
        let shape = record.shape(algorithm).map(|shape| format!(" ({shape})")).unwrap_or_default();
        text += &format!(
            "\n{algorithm} sort{shape}: medians, and the gain with its interval, of 95 % from 6 rounds on\n\n{}",
            table(&rows)
        );
    }
    text += "\nfigures\n";
    for (figure, seen, verdict) in figures(record) {
        text += &format!("  {figure:<58} {seen:<28} {verdict}\n");
    }
    for refusal in refusals(record) {
        text += &format!("\nlarge pages were not had as asked for: {refusal}\n");
    }
    text
}

fn row(record: &SortRecord, algorithm: Algorithm, bytes: u64) -> Vec<String> {
    let milliseconds = |pages| cell(record.milliseconds(algorithm, bytes, pages).map(|time| format!("{time:.2}")));
    let gain = |pages| cell(record.speedup(algorithm, bytes, pages).map(|interval| percent(&interval)));
    let (mut large, mut taken) = (0, 0);
    for turn in record.turns_of(algorithm, bytes, PageChoice::Large) {
        (large, taken) = (large + turn.large_bytes, taken + turn.taken_bytes);
    }
    vec![
        Bytes(bytes).to_string(),
        milliseconds(PageChoice::Ordinary),
        milliseconds(PageChoice::Large),
        gain(PageChoice::Large),
        gain(PageChoice::OrdinaryAgain),
        cell((taken > 0).then(|| format!("{:.0}", 100.0 * large as f64 / taken as f64))),
    ]
}

/// A ratio as a gain.
fn percent(Interval { estimate, low, high, .. }: &Interval) -> String {
    let [estimate, low, high] = [estimate, low, high].map(|ratio| (ratio - 1.0) * 100.0);
    format!("{estimate:+.1} [{low:+.1}, {high:+.1}]")
}

/// The expected result, the observed one, and the verdict.
fn figures(record: &SortRecord) -> [(String, String, FigureVerdict); 2] {
    let of = |algorithm, pages| record.speedup(algorithm, THEIR_BYTES, pages);
    let noise = of(Algorithm::Heap, PageChoice::OrdinaryAgain);
    let size = Bytes(THEIR_BYTES);
    let least = (THEIR_GAIN - 1.0) * 100.0;
    let all_large =
        [Algorithm::Heap, Algorithm::Quick].map(|algorithm| record.all_on_large_pages(algorithm, THEIR_BYTES));
    let heap = (
        format!("heap sort of {size} gains at least {least:.0} %"),
        of(Algorithm::Heap, PageChoice::Large),
        THEIR_GAIN,
    );
    let quick = (format!("heap sort of {size} gains more than quick sort"), heap_against_quick(record), 1.0);
    let judged = [(heap, all_large[0]), (quick, all_large[0] && all_large[1])];
    judged.map(|((figure, seen, limit), all_large)| match (seen, &noise) {
        (Some(seen), Some(noise)) if all_large => {
            (figure, percent(&seen), FigureVerdict::at_least(limit, &seen, noise))
        }
        (Some(seen), _) if !all_large => (figure, percent(&seen), FigureVerdict::NoLargePages),
        _ => (figure, "-".to_owned(), FigureVerdict::NotMeasured),
    })
}

/// The speedup of heap sort divided by that of quick sort, from the same rounds.
fn heap_against_quick(record: &SortRecord) -> Option<Interval> {
    let of = |algorithm| record.speedups(algorithm, THEIR_BYTES, PageChoice::Large);
    let quick = of(Algorithm::Quick);
    let same_round = |round| quick.iter().find(|(other, _)| *other == round).map(|(_, ratio)| *ratio);
    let pairs = of(Algorithm::Heap).into_iter().filter_map(|(round, ratio)| Some((ratio, same_round(round)?)));
    paired_ratio(&pairs.collect::<Vec<_>>())
}

/// Each reason once.
fn refusals(record: &SortRecord) -> BTreeSet<&str> {
    record.turns.iter().filter_map(|turn| turn.refusal.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{record, turns};
    use super::*;

    const THEIRS: u64 = THEIR_BYTES;

    fn line(text: &str, with: &str) -> String {
        text.lines().find(|line| line.trim_start().starts_with(with)).unwrap_or_default().to_owned()
    }

    fn told(heap: f64, quick: f64) -> String {
        text(&record([turns(Algorithm::Heap, THEIRS, heap), turns(Algorithm::Quick, THEIRS, quick)].concat()))
    }

    #[test]
    fn each_algorithm_has_its_table() {
        let text = told(1.25, 1.05);
        assert!(text.contains("heap sort (bottom-up):") && text.contains("quick sort (introsort):"), "{text}");
        let row = line(&text, "64 MiB");
        assert!(row.contains("12500.00") && row.contains("10000.00") && row.contains("+25.0 [+25.0, +25.0]"), "{row}");
        assert!(row.contains("+0.0 [+0.0, +0.0]") && row.ends_with("100"), "{row}");
    }

    #[test]
    fn what_was_kept_without_its_shape_is_told_without() {
        let mut turns = turns(Algorithm::Heap, THEIRS, 1.25);
        turns.iter_mut().for_each(|turn| turn.shape = None);
        assert!(text(&record(turns)).contains("\nheap sort: medians"));
    }

    #[test]
    fn the_experiments_figures_are_judged() {
        let figure = |text: &str, of: &str| line(text, &format!("heap sort of 64 MiB gains {of}"));
        let (good, bad) = (told(1.25, 1.05), told(1.02, 1.30));
        for of in ["at least 6 %", "more than quick sort"] {
            assert!(figure(&good, of).ends_with(" met"), "{good}");
            assert!(figure(&bad, of).ends_with("NOT MET"), "{bad}");
        }
        let mut ordinary = turns(Algorithm::Heap, THEIRS, 1.25);
        ordinary[0].large_bytes = 0;
        let ordinary = text(&record([ordinary, turns(Algorithm::Quick, THEIRS, 1.05)].concat()));
        for of in ["at least 6 %", "more than quick sort"] {
            assert!(figure(&ordinary, of).ends_with("not all of it was on large pages"), "{ordinary}");
        }
        let other = text(&record(turns(Algorithm::Heap, 1 << 20, 1.25)));
        assert!(figure(&other, "at least 6 %").contains("not measured"), "{other}");
    }

    #[test]
    fn what_was_refused_is_told_once() {
        let mut turns = turns(Algorithm::Heap, THEIRS, 1.0);
        turns.iter_mut().for_each(|turn| turn.refusal = Some("error 1300".to_owned()));
        assert_eq!(text(&record(turns)).matches("error 1300").count(), 1);
    }
}
