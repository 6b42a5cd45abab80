//! The report as text: two tables, speed and memory, and the verdicts.
//!
//! Owns: layout and rounding. Never touches: numbers beyond that.

use hugepilot::units::{Bytes, Nanos};

use crate::comparison::{Metric, noise, ratio, slowest_tool, typical};
use crate::configuration::Configuration;
use crate::prediction::Prediction;
use crate::record::{Record, Run, Turn};
use crate::statistics::Interval;
use crate::verdict::verdicts;

/// The whole report.
pub fn text(record: &Record) -> String {
    let machine = &record.machine;
    let mut text = format!(
        "{}, {} processors, {} memory, Linux {}, {}; transparent huge pages as found: {}\n",
        machine.processor,
        machine.processors,
        Bytes(machine.memory_bytes),
        machine.kernel,
        machine.date,
        machine.huge_pages_enabled
    );
    for run in record.runs.iter().filter(|run| !run.turns.is_empty()) {
        text += &run_text(run);
    }
    text
}

fn run_text(run: &Run) -> String {
    let rounds = run.turns.iter().map(|turn| turn.round + 1).max().unwrap_or(0);
    let together = if run.one_process { ", all configurations of a round in one process" } else { "" };
    let mut text = format!("\n{}: {}; {rounds} rounds{together}\n\n", run.workload, run.description);
    text += &table(&speed_rows(run));
    text += "\n";
    text += &table(&memory_rows(run));
    text += &hottest_text(run);
    text += &noise_text(run);
    if let Some(prediction) = Prediction::of(run) {
        text += &format!("\n{}\n", prediction.text());
    }
    let judged = verdicts(run);
    if !judged.is_empty() {
        text += "\nfigures\n";
    }
    for (figure, verdict, numbers) in judged {
        text += &format!("  {:<42} {numbers:<28} {verdict}\n", figure.text);
    }
    text
}

fn speed_rows(run: &Run) -> Vec<Vec<String>> {
    let head = ["configuration", &format!("{}/s", run.unit), "ns each", "vs default [interval]", "p50", "p99"];
    let mut rows = vec![strings(&[&head[..], &["CPU each", "busy", "tool"]].concat())];
    for configuration in run.configurations() {
        let number = |number: fn(&Turn) -> Option<f64>| typical(run, configuration, number);
        let nanos = |value: Option<f64>| value.map(|ns| Nanos(ns as u64).to_string());
        let throughput = number(|turn| Some(turn.throughput));
        rows.push(vec![
            configuration.to_string(),
            cell(throughput.map(rate)),
            cell(throughput.map(|throughput| format!("{:.1}", 1e9 / throughput))),
            compared(run, Metric::Throughput, configuration),
            cell(nanos(number(|turn| turn.p50_ns.map(|ns| ns as f64)))),
            cell(nanos(number(|turn| turn.p99_ns.map(|ns| ns as f64)))),
            cell(number(|turn| Some(turn.cpu_ns_per_operation)).map(|ns| format!("{ns:.0} ns"))),
            cell(number(|turn| Some(turn.cpu_share)).map(|share| format!("{:.0} %", share * 100.0))),
            cell(slowest_tool(run, configuration).map(|seconds| format!("{seconds:.1} s"))),
        ]);
    }
    rows
}

fn memory_rows(run: &Run) -> Vec<Vec<String>> {
    let mut rows = vec![strings(&[
        "configuration",
        "RSS",
        "without files",
        "vs default [interval]",
        "huge",
        "page tables",
        "taken of MemAvailable",
    ])];
    for configuration in run.configurations() {
        let bytes = |number: fn(&Turn) -> Option<f64>| {
            cell(typical(run, configuration, number).map(|bytes| Bytes(bytes as u64).to_string()))
        };
        rows.push(vec![
            configuration.to_string(),
            bytes(|turn| Some(turn.after.rss_bytes as f64)),
            bytes(|turn| Some(turn.after.own_bytes as f64)),
            compared(run, Metric::OwnMemory, configuration),
            bytes(|turn| Some(turn.after.huge_bytes as f64)),
            bytes(|turn| Some(turn.after.page_tables_bytes as f64)),
            bytes(|turn| Some(Metric::MachineMemory.of(turn))),
        ]);
    }
    rows
}

fn compared(run: &Run, metric: Metric, configuration: Configuration) -> String {
    if configuration == Configuration::Default {
        return "1".to_owned();
    }
    cell(ratio(run, metric, configuration, Configuration::Default).map(|interval| interval_text(metric, &interval)))
}

/// Memory differs by less than speed does, so it gets more digits.
pub fn interval_text(metric: Metric, interval: &Interval) -> String {
    let Interval { estimate, low, high, .. } = interval;
    match metric {
        Metric::Throughput => format!("{estimate:.3} [{low:.3}, {high:.3}]"),
        Metric::OwnMemory | Metric::MachineMemory => format!("{estimate:.5} [{low:.5}, {high:.5}]"),
    }
}

/// How good the choice of regions was, which no noise touches; empty where nobody knows.
fn hottest_text(run: &Run) -> String {
    let share = |configuration| {
        let share = typical(run, configuration, |turn| turn.hottest_huge_share)?;
        Some(format!("{configuration} {:.1} %", share * 100.0))
    };
    let shares: Vec<String> = run.configurations().into_iter().filter_map(share).collect();
    match shares.is_empty() {
        true => String::new(),
        false => format!("\nof the quarter that is read most, huge: {}\n", shares.join(", ")),
    }
}

fn noise_text(run: &Run) -> String {
    let Some(noise) = noise(run, Metric::Throughput) else {
        return "\nno default-again: the machine's noise is unknown\n".to_owned();
    };
    let confidence = (noise.confidence * 1000.0).floor() / 10.0;
    let warning = if noise.confidence < 0.95 { "; too few rounds for a published figure" } else { "" };
    format!(
        "\nintervals hold the true ratio with {confidence} %{warning}; default against default: +/- {:.2} %\n",
        noise.reach() * 100.0
    )
}

fn rate(per_second: f64) -> String {
    match per_second {
        value if value >= 1e6 => format!("{:.3} M", value / 1e6),
        value => format!("{:.1} k", value / 1e3),
    }
}

fn cell(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Aligns columns: the first to the left, numbers to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &cells.collect::<Vec<_>>().join("  ");
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;

    #[test]
    fn columns_line_up() {
        let rows = [strings(&["a", "bbb"]), strings(&["aaaa", "b"])];
        assert_eq!(table(&rows), "a     bbb\naaaa    b\n");
    }

    #[test]
    fn a_report_names_every_configuration_and_its_ratio() {
        let run = run_of(
            "memcached",
            &[(Configuration::Default, &[1e6; 6], 1 << 30), (Configuration::Ideal, &[1.25e6; 6], 1 << 30)],
        );
        let text = run_text(&run);
        assert!(text.contains("ideal"), "{text}");
        assert!(text.contains("1.250 [1.250, 1.250]"), "{text}");
        assert!(text.contains("noise is unknown"), "{text}");
        assert!(!text.contains("read most"), "nobody knows: {text}");
    }

    #[test]
    fn a_known_choice_is_judged_without_noise() {
        let mut run =
            run_of("pilot budget", &[(Configuration::Default, &[1e6; 3], 1), (Configuration::Oracle, &[1.2e6; 3], 1)]);
        run.turns.iter_mut().for_each(|turn| {
            turn.hottest_huge_share = Some(if turn.configuration == Configuration::Oracle { 1.0 } else { 0.0 });
        });
        let text = run_text(&run);
        assert!(text.contains("read most, huge: default 0.0 %, oracle 100.0 %"), "{text}");
    }
}
