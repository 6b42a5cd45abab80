//! The report as text: tables of speed and memory, of searching where the program searches, and the verdicts.
//!
//! Owns: layout and rounding. Never touches: numbers beyond that.

use heat::units::{Bytes, Nanos};

use crate::comparison::{Metric, noise, ratio, slowest_tool, typical};
use crate::configuration::{Configuration, Launch};
use crate::figures::{verdicts, with_many_digits};
use crate::frontier;
use crate::pool::PoolUse;
use crate::real_time;
use crate::record::{Run, Turn, WorkloadRecord};
use crate::table::{cell, head, interval, table};
use crate::workload::SearchWork;

/// The whole report.
pub fn text(record: &WorkloadRecord) -> String {
    let machine = &record.machine;
    let mut text = format!("{machine}; transparent huge pages as found: {}\n", machine.huge_pages_enabled);
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
    if run.turns.iter().any(|turn| turn.search.is_some()) {
        text += "\n";
        text += &table(&search_rows(run));
    }
    if !run.frontier.is_empty() {
        text += "\n";
        text += &table(&frontier_rows(run));
    }
    text += &hottest_text(run);
    text += &launch_text(run);
    text += &noise_text(run);
    let judged = verdicts(run);
    if !judged.is_empty() {
        text += "\nfigures\n";
    }
    judged.iter().for_each(|figure| text += &figure.line(42, 28));
    text
}

fn speed_rows(run: &Run) -> Vec<Vec<String>> {
    let columns = "ns each | vs default [interval] | p50 | p99 | CPU each | busy | tool";
    let mut rows = vec![head(&format!("configuration | {}/s | {columns}", run.unit))];
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
    let columns = "configuration | RSS | without files | vs default [interval] | huge | page tables | taken of the machine | vs default [interval]";
    let mut rows = vec![head(columns)];
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
            compared(run, Metric::MachineMemory, configuration),
        ]);
    }
    rows
}

/// Gain against growth, and the best gain of any rule that leaves pages where they are.
fn frontier_rows(run: &Run) -> Vec<Vec<String>> {
    let mut rows = vec![head("configuration | growth | gain | of ideal's | best without moving pages, of ideal's")];
    let ceiling = frontier::ideal_gain(run);
    for row in frontier::rows(run) {
        let percent = |share: f64| format!("{:.3} %", share * 100.0);
        rows.push(vec![
            row.configuration.to_string(),
            percent(row.growth),
            percent(row.gain),
            cell(ceiling.map(|ceiling| format!("{:.2}", row.gain / ceiling))),
            format!("{:.4}", frontier::most_accesses(run, row.growth)),
        ]);
    }
    rows
}

fn search_rows(run: &Run) -> Vec<Vec<String>> {
    let columns = "configuration | look-ups/s | entries each | extract | look-up | rank | real-time factor | found";
    let load = real_time::is_loaded(run).then(|| real_time::streams(run)).flatten();
    let loaded = load.map(|streams| format!(" | streams kept up with, a thread | factor at {streams} streams"));
    let mut rows = vec![head(&format!("{columns}{}", loaded.unwrap_or_default()))];
    for configuration in run.configurations() {
        let number =
            |number: fn(&SearchWork) -> f64| typical(run, configuration, |turn| turn.search.as_ref().map(number));
        let look_ups = typical(run, configuration, |turn| Some(turn.throughput * look_ups_of_a_query(turn)?));
        let percent = |share: Option<f64>| cell(share.map(|share| format!("{:.1} %", share * 100.0)));
        let mut row = vec![
            configuration.to_string(),
            cell(look_ups.map(rate)),
            cell(number(|work| work.postings as f64 / work.look_ups.max(1) as f64).map(|each| format!("{each:.0}"))),
            percent(number(|work| work.share(work.extract_ns))),
            percent(number(|work| work.share(work.look_up_ns))),
            percent(number(|work| work.share(work.rank_ns))),
            cell(real_time::factor(run, configuration).map(|factor| format!("{factor:.5}"))),
            percent(number(SearchWork::recall)),
        ];
        if let Some(streams) = load {
            row.push(cell(real_time::kept_up_with(run, configuration).map(|streams| streams.to_string())));
            row.push(cell(real_time::factor(run, configuration).map(|factor| format!("{:.3}", factor * streams))));
        }
        rows.push(row);
    }
    rows
}

fn look_ups_of_a_query(turn: &Turn) -> Option<f64> {
    turn.search.as_ref().map(|work| work.each(work.look_ups))
}

/// What a reader must know about how programs were started: which could not be, which lacked a pool, which launch had no effect.
fn launch_text(run: &Run) -> String {
    let mut text = String::new();
    for missing in &run.missing {
        text += &format!("\nnot measured here: {missing}\n");
    }
    for configuration in run.configurations() {
        if let Some(pool) = scarcest_pool(run, configuration) {
            let PoolUse { page_bytes, wanted, obtained } = pool;
            text += &format!(
                "\n{configuration}: the pool had {obtained} of {wanted} pages of {} in some round\n",
                Bytes(page_bytes)
            );
        }
        if did_nothing(run, configuration) {
            text += &format!("\n{configuration}: asked for huge pages, and got next to none\n");
        }
    }
    text
}

/// The pool with the largest shortfall.
fn scarcest_pool(run: &Run, configuration: Configuration) -> Option<PoolUse> {
    let pools = run.turns_of(configuration).filter_map(|turn| turn.pool);
    pools.filter(|pool| pool.obtained < pool.wanted).min_by_key(|pool| pool.obtained)
}

/// Whether a way to start the program that should bring huge pages brought none.
fn did_nothing(run: &Run, configuration: Configuration) -> bool {
    let share = |turn: &Turn| Some(turn.after.huge_bytes as f64 / turn.after.own_bytes.max(1) as f64);
    configuration.launch() != Launch::Nothing && typical(run, configuration, share).is_some_and(|share| share < 0.01)
}

fn compared(run: &Run, metric: Metric, configuration: Configuration) -> String {
    if configuration == Configuration::Default {
        return "1".to_owned();
    }
    let seen = ratio(run, metric, configuration, Configuration::Default);
    match metric {
        Metric::Throughput => interval(seen),
        // Memory differs less than speed does.
        Metric::OwnMemory | Metric::MachineMemory => cell(seen.as_ref().map(with_many_digits)),
    }
}

/// How good the choice of regions was, which noise does not affect; empty if unknown.
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
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;

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
    fn a_search_is_told_by_its_parts() {
        let mut run = run_of("fingerprint 1 thread", &[(Configuration::Default, &[140.0; 2], 1 << 30)]);
        assert!(!run_text(&run).contains("look-ups/s"), "a program that does not search");
        let search = SearchWork {
            queries: 100,
            found: 100,
            look_ups: 100_000,
            postings: 70_000_000,
            extract_ns: 10_000_000,
            look_up_ns: 590_000_000,
            rank_ns: 400_000_000,
        };
        run.turns.iter_mut().for_each(|turn| turn.search = Some(search));
        let text = run_text(&run);
        for told in ["140.0 k", "700", "1.0 %", "59.0 %", "40.0 %", "0.00128", "100.0 %"] {
            assert!(text.contains(told), "{told} is missing: {text}");
        }
        assert!(!text.contains("streams"), "kept before there were any: {text}");
        run.workload = "music search 1 thread".to_owned();
        let text = run_text(&run);
        for told in ["0.00128", "factor at 782 streams", "781", "1.001"] {
            assert!(text.contains(told), "{told} is missing: {text}");
        }
    }

    #[test]
    fn what_did_nothing_or_could_not_is_told() {
        let mut run = run_of(
            "fingerprint 1 thread",
            &[
                (Configuration::Default, &[1e6; 2], 1 << 30),
                (Configuration::Libhugetlbfs, &[1e6; 2], 1 << 30),
                (Configuration::Run1G, &[1e6; 2], 1 << 30),
            ],
        );
        run.missing = vec!["mimalloc (it is not there)".to_owned()];
        for turn in run.turns.iter_mut().filter(|turn| turn.configuration == Configuration::Run1G) {
            turn.after.huge_bytes = 1 << 30;
            turn.pool = Some(PoolUse { page_bytes: 1 << 30, wanted: 9, obtained: 5 + u64::from(turn.round) });
        }
        let text = run_text(&run);
        assert!(text.contains("not measured here: mimalloc (it is not there)"), "{text}");
        assert!(text.contains("run-1g: the pool had 5 of 9 pages of 1 GiB"), "{text}");
        assert!(text.contains("libhugetlbfs: asked for huge pages, and got next to none"), "{text}");
        assert_eq!(text.matches("next to none").count(), 1, "{text}");
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
