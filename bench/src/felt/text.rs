//! The report: what was promoted, throughput and response times in the meantime, and the figures.
//!
//! Owns: layout and rounding. Never touches: numbers beyond that.

use heat::units::{Bytes, Nanos};

use super::figures::{Collapses, ModeTurns};
use super::host::Host;
use super::mode::Mode;
use super::record::{FeltRecord, FeltTurn, Latency, Phase};
use crate::table::{cell, head, interval, table};
use crate::verdict::JudgedFigure;

/// A group and its name.
type Named<'a> = (Host, Mode, ModeTurns<'a>);
type OfPhase = fn(&FeltTurn) -> &Phase;
type OfLatency = fn(&Latency) -> u64;

/// Promoting less than this share of the program tells little about the effect of promoting all of it.
const LITTLE: f64 = 0.5;

/// The whole report.
pub fn text(record: &FeltRecord) -> String {
    let mut text = format!("{}\nfelt {}: {}; windows of 250 ms\n", record.machine, record.program, record.description);
    let groups: Vec<Named<'_>> = record
        .groups()
        .into_iter()
        .map(|(host, mode)| (host, mode, ModeTurns::of(mode, record.turns_of((host, mode)))))
        .collect();
    text += &format!("\n{}", table(&promotion_rows(&groups)));
    text += &format!("\n{}", table(&throughput_rows(&groups)));
    if record.program.has_requests() {
        text += &format!("\n{}", table(&latency_rows(&groups)));
    }
    text += &warnings(record, &groups);
    text + &figures(record, &groups)
}

/// What a reader must know before trusting the numbers.
fn warnings(record: &FeltRecord, groups: &[Named<'_>]) -> String {
    let mut text = String::new();
    for (host, mode, group) in groups {
        if group.in_vain > 0 {
            text +=
                &format!("\n{host} {mode}: turns that promoted nothing, and count for nothing: {}\n", group.in_vain);
        }
        // The daemon is measured for a few seconds only.
        let whole = group.typical(|turn| Some(turn.promoted.bytes as f64 / record.size_bytes as f64));
        if let Some(share) = whole.filter(|&share| share < LITTLE && *mode != Mode::Daemon) {
            let percent = share * 100.0;
            text += &format!(
                "\n{host} {mode}: {percent:.0} % of the program's memory was promoted; under so little load hugepilot sees no benefit in the rest\n"
            );
        }
    }
    text
}

fn promotion_rows(groups: &[Named<'_>]) -> Vec<Vec<String>> {
    let mut rows = vec![head(
        "host | mode | rounds | promoted | regions | time | MiB/s | hugepilot's CPU | collapse: mean | median | p90 | longest",
    )];
    for (host, mode, group) in groups {
        let nanos = |number: fn(&Collapses) -> Option<f64>| {
            let of = |turn: &FeltTurn| number(&Collapses::of(&turn.promoted.output));
            cell(group.typical(of).map(duration))
        };
        let seconds = |number: fn(&FeltTurn) -> f64| {
            cell(group.typical(|turn| Some(number(turn))).map(|it| format!("{it:.1} s")))
        };
        let bytes = group.typical(|turn| Some(turn.promoted.bytes as f64));
        let longest = group.largest(|turn| Collapses::of(&turn.promoted.output).longest_ns);
        rows.push(vec![
            host.to_string(),
            mode.to_string(),
            group.count().to_string(),
            cell(bytes.map(|bytes| Bytes(bytes as u64).to_string())),
            cell(group.typical(|turn| Some(turn.promoted.regions() as f64)).map(|regions| format!("{regions:.0}"))),
            seconds(|turn| turn.promoted.seconds),
            cell(group.mib_per_second().map(|speed| format!("{:.1}", speed.estimate))),
            seconds(|turn| turn.promoted.cpu_seconds),
            nanos(|collapses| collapses.mean_ns),
            nanos(|collapses| collapses.median_ns),
            nanos(|collapses| collapses.p90_ns),
            cell(longest.map(duration)),
        ]);
    }
    rows
}

fn throughput_rows(groups: &[Named<'_>]) -> Vec<Vec<String>> {
    let mut rows = vec![head(
        "throughput, of the usual window | requests/s | worst window | worst window alone (A/A) | all windows | afterwards",
    )];
    for (host, mode, group) in groups {
        let worst = |phase: OfPhase| interval(group.worst_window(phase));
        let all = |phase: OfPhase| interval(group.throughput(phase));
        rows.push(vec![
            format!("{host} {mode}"),
            cell(group.typical(FeltTurn::usual_throughput).map(|usual| format!("{usual:.0}"))),
            worst(|turn| &turn.promotion),
            worst(|turn| &turn.alone_again),
            all(|turn| &turn.promotion),
            all(|turn| &turn.after),
        ]);
    }
    rows
}

fn latency_rows(groups: &[Named<'_>]) -> Vec<Vec<String>> {
    let mut rows = vec![head(
        "response times |  | alone | alone again | promoting | afterwards | promoting, of alone again | alone again, of alone (A/A)",
    )];
    let percentiles: [(&str, OfLatency); 4] =
        [("p50", |it| it.p50_ns), ("p99", |it| it.p99_ns), ("p99.9", |it| it.p999_ns), ("max", |it| it.max_ns)];
    for (host, mode, group) in groups {
        for (name, number) in percentiles {
            let typical = |phase: OfPhase| {
                cell(group.typical(|turn| Some(number(phase(turn).latency.as_ref()?) as f64)).map(duration))
            };
            rows.push(vec![
                format!("{host} {mode}"),
                name.to_owned(),
                typical(|turn| &turn.alone),
                typical(|turn| &turn.alone_again),
                typical(|turn| &turn.promotion),
                typical(|turn| &turn.after),
                interval(group.latency(number)),
                interval(group.latency_noise(number)),
            ]);
        }
    }
    rows
}

fn figures(record: &FeltRecord, groups: &[Named<'_>]) -> String {
    let mut text = String::new();
    for (host, mode, group) in groups {
        for figure in group.figures(record.program) {
            let what = format!("{host} {mode}: {}", figure.text);
            text += &JudgedFigure { text: what, ..figure }.line(58, 28);
        }
    }
    if text.is_empty() { text } else { format!("\nfigures\n{text}") }
}

fn duration(nanoseconds: f64) -> String {
    Nanos(nanoseconds as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::program::FeltProgram;
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn a_report_tells_each_mode_and_its_noise() {
        let text = text(&record(Mode::Default, 8, 0.7, 1.2));
        for told in ["cold  default", "3 GiB", "76.8", "0.700 [", "0.960 [", "1.200 [", "NOT MET", "p99.9"] {
            assert!(text.contains(told), "'{told}' is missing: {text}");
        }
    }

    #[test]
    fn what_has_no_requests_has_no_response_times() {
        let mut record = record(Mode::Fast, 8, 0.7, 1.2);
        record.program = FeltProgram::ReaderBusy;
        let told = text(&record);
        assert!(!told.contains("response times") && told.contains("worst window"), "{told}");
        record.turns[0].promoted.bytes = 0;
        assert!(text(&record).contains("count for nothing: 1"));
    }

    #[test]
    fn a_small_part_of_the_program_is_told() {
        let mut record = record(Mode::Default, 8, 0.9, 1.2);
        assert!(!text(&record).contains("of the program's memory"));
        record.turns.iter_mut().for_each(|turn| turn.promoted.bytes >>= 2);
        assert!(text(&record).contains("cold default: 25 % of the program's memory"), "{}", text(&record));
    }
}
