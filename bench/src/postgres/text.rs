//! The report: throughput and page tables of each setup, the effect of attaching, and the figures.
//!
//! Owns: layout, rounding, and what each figure demands. Never touches: measurements.

use clap::ValueEnum;
use heat::statistics::{Interval, paired_ratio};
use heat::units::Bytes;

use super::load::LoadSeen;
use super::record::{Attached, Felt, PostgresRecord, PostgresSetup, PostgresTurn};
use crate::comparison::{median_of, ratio_by_round};
use crate::table::{cell, head, interval, table};
use crate::verdict::{Bound, EXACT, JudgedFigure};

/// The whole report.
pub fn text(record: &PostgresRecord) -> String {
    let mut text = format!(
        "{}\npostgres {}: {} {} connections, buffers of {}, {} s each turn\n",
        record.machine,
        record.script,
        record.clients,
        record.connections,
        Bytes(record.buffers_bytes),
        record.seconds,
    );
    text += &format!("\n{}", table(&setup_rows(record)));
    for attached in &record.attached {
        text += &format!(
            "\nattached{}: {} on huge pages after {:.1} s; MemAvailable {:+.1} MiB; expected gain {}",
            if record.fast { " with --fast" } else { "" },
            Bytes(attached.huge_bytes),
            attached.seconds,
            -attached.taken_bytes as f64 / f64::from(1 << 20),
            forecast_text(&attached.forecast),
        );
    }
    if !record.felt.is_empty() {
        text += &format!("\n\n{}", table(&felt_rows(&record.felt)));
    }
    text += "\nfigures\n";
    figures(record).iter().for_each(|figure| text += &figure.line(58, 22));
    text
}

fn setup_rows(record: &PostgresRecord) -> Vec<Vec<String>> {
    let mut rows = vec![head(
        "setup | turns | transactions/s | of default | of the pool | page tables | of default | CPU each | default's is",
    )];
    for &setup in PostgresSetup::value_variants() {
        let Some(usual) = typical(record, setup, per_second) else { continue };
        let of = |reference, number| interval(ratio(record, setup, reference, number).filter(|_| reference != setup));
        rows.push(vec![
            format!("{setup:?}").to_lowercase(),
            record.turns.iter().filter(|turn| turn.setup == setup).count().to_string(),
            format!("{usual:.0}"),
            of(PostgresSetup::Default, per_second),
            of(PostgresSetup::Pool, per_second),
            cell(typical(record, setup, page_tables).map(|bytes| Bytes(bytes as u64).to_string())),
            of(PostgresSetup::Default, page_tables),
            cell(typical(record, setup, cpu_us).map(|us| format!("{us:.1} us"))),
            interval(ratio(record, PostgresSetup::Default, setup, cpu_us).filter(|_| setup != PostgresSetup::Default)),
        ]);
    }
    rows
}

fn felt_rows(felt: &[Felt]) -> Vec<Vec<String>> {
    let row = |name: &str, number: fn(&LoadSeen) -> f64| {
        let of = |phase: fn(&Felt) -> &LoadSeen| {
            format!("{:.2}", median_of(felt.iter().map(|felt| number(phase(felt)))).unwrap_or_default())
        };
        vec![name.to_owned(), of(|felt| &felt.alone), of(|felt| &felt.alone_again), of(|felt| &felt.promotion)]
    };
    vec![
        head("while promoted | alone | alone again | promoting"),
        row("worst window, of the usual one", |seen| seen.fewest / seen.usual),
        row("p99 in ms", |seen| seen.p99_ms),
        row("slowest in ms", |seen| seen.slowest_ms),
    ]
}

fn figures(record: &PostgresRecord) -> Vec<JudgedFigure> {
    use PostgresSetup::{Default, DefaultAgain, Hugepilot, Pool};
    let (level, again) = (ratio(record, Hugepilot, Pool, per_second), ratio(record, DefaultAgain, Default, per_second));
    let tables = ratio(record, Hugepilot, Default, page_tables);
    let slowest = record.attached.iter().map(|attached| attached.seconds).reduce(f64::max);
    let in_time = slowest.map(|seconds| seconds <= 20.0);
    let mut figures = vec![
        JudgedFigure::of_ratio("throughput >= 0.97 x a pool's", level, again, Bound::AtLeast(0.97)),
        JudgedFigure::of_ratio("page tables <= 5 % of the default's", tables, Some(EXACT), Bound::AtMost(0.05)),
        JudgedFigure::of_fact("on huge pages within 20 s of attaching, every time", None, in_time),
    ];
    figures.extend(record.attached.iter().flat_map(|attached| forecast_figures(record, attached)));
    figures.extend(observed_figures(record));
    figures.extend((!record.felt.is_empty()).then(|| felt_figure(&record.felt)));
    figures
}

fn forecast_figures(record: &PostgresRecord, attached: &Attached) -> [JudgedFigure; 2] {
    let likely = attached.forecast["likely"].as_f64();
    let figure = |what: &str, gain: Option<Interval>| {
        let text = format!("forecast {} within a factor 1.5 of {what}", forecast_text(&attached.forecast));
        JudgedFigure::of_fact(text, None, likely.zip(gain).map(|(likely, gain)| is_near(likely, gain)))
    };
    [
        figure("the throughput's gain", ratio(record, PostgresSetup::Hugepilot, PostgresSetup::Default, per_second)),
        // Excludes the clients' own time and the time that kernel threads took.
        figure(
            "the gain of the server's CPU time",
            ratio(record, PostgresSetup::Default, PostgresSetup::Hugepilot, cpu_us),
        ),
    ]
}

fn observed_figures(record: &PostgresRecord) -> impl Iterator<Item = JudgedFigure> {
    let pairs = record.observed.iter().map(|pair| (pair.observed_per_second, pair.alone_per_second));
    let seen = paired_ratio(&pairs.collect::<Vec<_>>());
    let speed = (!record.observed.is_empty()).then(|| {
        let text = "throughput while observed >= 0.995 x alone";
        JudgedFigure::of_ratio(text, seen, Some(EXACT), Bound::AtLeast(0.995))
    });
    let cost = record.observing_cpu_share.map(|share| {
        let text = format!("observing takes {:.2} % of a processor, <= 1", 100.0 * share);
        JudgedFigure::of_fact(text, None, Some(share <= 0.01))
    });
    speed.into_iter().chain(cost)
}

fn felt_figure(felt: &[Felt]) -> JudgedFigure {
    let ratio = |of: fn(&Felt) -> (f64, f64)| paired_ratio(&felt.iter().map(of).collect::<Vec<_>>());
    let p99 = ratio(|felt| (felt.promotion.p99_ms, felt.alone_again.p99_ms));
    let noise = ratio(|felt| (felt.alone_again.p99_ms, felt.alone.p99_ms));
    JudgedFigure::of_ratio("p99 while promoted <= 1.5 x alone", p99, noise, Bound::AtMost(1.5))
}

/// Whether the predicted gain is within a factor of 1.5 of the measured one; if the measured one is next to nothing, whether the predicted one is,
/// too.
fn is_near(likely_percent: f64, gained: Interval) -> bool {
    const NOTHING: f64 = 2.0;
    let gained_percent = 100.0 * (gained.estimate - 1.0);
    let factor = likely_percent.max(0.01) / gained_percent.max(0.01);
    (likely_percent < NOTHING && gained_percent < NOTHING) || (1.0 / 1.5..=1.5).contains(&factor)
}

fn forecast_text(forecast: &serde_json::Value) -> String {
    let number = |name: &str| forecast[name].as_f64().map(|number| format!("{number:.1}"));
    let all = number("likely").zip(number("low")).zip(number("high"));
    all.map_or("unknown".to_owned(), |((likely, low), high)| format!("{likely} % ({low} to {high})"))
}

fn per_second(turn: &PostgresTurn) -> f64 {
    turn.per_second
}

fn cpu_us(turn: &PostgresTurn) -> f64 {
    turn.cpu_us
}

fn page_tables(turn: &PostgresTurn) -> f64 {
    turn.page_tables_bytes as f64
}

fn typical(record: &PostgresRecord, setup: PostgresSetup, number: fn(&PostgresTurn) -> f64) -> Option<f64> {
    median_of(record.turns.iter().filter(|turn| turn.setup == setup).map(number))
}

/// One setup relative to another, round by round.
fn ratio(
    record: &PostgresRecord,
    subject: PostgresSetup,
    reference: PostgresSetup,
    number: fn(&PostgresTurn) -> f64,
) -> Option<Interval> {
    let of = |setup| record.turns.iter().filter(move |turn| turn.setup == setup).map(|turn| (turn.round, number(turn)));
    ratio_by_round(of(subject), of(reference))
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;
    use crate::verdict::FigureVerdict;

    fn verdicts(record: &PostgresRecord) -> Vec<FigureVerdict> {
        figures(record).into_iter().map(|figure| figure.verdict).collect()
    }

    #[test]
    fn each_figure_is_judged() {
        assert_eq!(verdicts(&record(8, 1.99)), [FigureVerdict::Met; 8]);
        let mut slow = record(8, 1.8);
        slow.turns.iter_mut().for_each(|turn| turn.page_tables_bytes = 600 << 20);
        slow.attached[0].seconds = 48.0;
        slow.attached[0].forecast["likely"] = serde_json::json!(6.0);
        slow.observed.iter_mut().for_each(|pair| pair.observed_per_second = 900.0);
        slow.observing_cpu_share = Some(0.02);
        slow.felt.iter_mut().for_each(|felt| felt.promotion.p99_ms = 50.0);
        assert_eq!(verdicts(&slow), [FigureVerdict::NotMet; 8]);
        assert_eq!(verdicts(&record(3, 1.99))[..2], [FigureVerdict::NotMeasured; 2], "too few");
    }

    #[test]
    fn a_forecast_of_nothing_where_nothing_came_is_right() {
        let gained = |estimate| Interval { estimate, ..EXACT };
        assert!(is_near(0.3, gained(1.01)) && is_near(0.0, gained(0.99)) && is_near(30.0, gained(1.4)));
        assert!(!is_near(0.3, gained(1.4)) && !is_near(30.0, gained(1.01)));
    }

    #[test]
    fn the_report_has_its_parts() {
        let text = text(&record(8, 1.99));
        for part in [
            "100 cold connections, buffers of 4 GiB",
            "attached: 4 GiB on huge pages after 13.0 s",
            "p99 in ms",
            "0.027",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
