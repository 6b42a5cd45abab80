//! The report: throughput and page tables of each setup, what attaching did, and the figures.
//!
//! Owns: layout, rounding, and what each figure demands. Never touches: measurements.

use heat::statistics::{Interval, median, paired_ratio};
use heat::units::Bytes;

use super::record::{Felt, PostgresRecord, PostgresSetup, PostgresTurn};
use crate::comparison::Metric;
use crate::report::interval_text;
use crate::table::{strings, table};
use crate::verdict::FigureVerdict;

const SETUPS: [PostgresSetup; 5] = [
    PostgresSetup::Default,
    PostgresSetup::DefaultAgain,
    PostgresSetup::Pool,
    PostgresSetup::Always,
    PostgresSetup::Hugepilot,
];
/// No noise: for what is held against a number and not against another server.
const EXACT: Interval = Interval { estimate: 1.0, low: 1.0, high: 1.0, confidence: 1.0, pairs: 0 };

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
    for (words, seen, verdict) in figures(record) {
        let numbers = seen.map_or("-".to_owned(), |seen| interval_text(Metric::Throughput, &seen));
        text += &format!("  {words:<58} {numbers:<22} {verdict}\n");
    }
    text
}

fn setup_rows(record: &PostgresRecord) -> Vec<Vec<String>> {
    let head = [
        "setup",
        "turns",
        "transactions/s",
        "of default",
        "of the pool",
        "page tables",
        "of default",
        "CPU each",
        "default's is",
    ];
    let mut rows = vec![strings(&head)];
    for setup in SETUPS {
        let Some(usual) = typical(record, setup, |turn| turn.per_second) else { continue };
        let of = |reference, number| {
            let ratio = ratio(record, setup, reference, number).filter(|_| reference != setup);
            ratio.map_or("-".to_owned(), |ratio| interval_text(Metric::Throughput, &ratio))
        };
        rows.push(vec![
            format!("{setup:?}").to_lowercase(),
            record.turns.iter().filter(|turn| turn.setup == setup).count().to_string(),
            format!("{usual:.0}"),
            of(PostgresSetup::Default, per_second),
            of(PostgresSetup::Pool, per_second),
            typical(record, setup, page_tables).map_or("-".to_owned(), |bytes| Bytes(bytes as u64).to_string()),
            of(PostgresSetup::Default, page_tables),
            typical(record, setup, cpu_us).map_or("-".to_owned(), |us| format!("{us:.1} us")),
            ratio(record, PostgresSetup::Default, setup, cpu_us)
                .filter(|_| setup != PostgresSetup::Default)
                .map_or("-".to_owned(), |ratio| interval_text(Metric::Throughput, &ratio)),
        ]);
    }
    rows
}

fn felt_rows(felt: &[Felt]) -> Vec<Vec<String>> {
    let mut rows = vec![strings(&["while promoted", "alone", "alone again", "promoting"])];
    let typical =
        |number: &dyn Fn(&Felt) -> f64| median(&felt.iter().map(number).collect::<Vec<_>>()).unwrap_or_default();
    let mut row = |name: &str, number: fn(&super::load::LoadSeen) -> f64| {
        let of = |phase: fn(&Felt) -> &super::load::LoadSeen| format!("{:.2}", typical(&|felt| number(phase(felt))));
        rows.push(vec![
            name.to_owned(),
            of(|felt| &felt.alone),
            of(|felt| &felt.alone_again),
            of(|felt| &felt.promotion),
        ]);
    };
    row("worst window, of the usual one", |seen| seen.fewest / seen.usual);
    row("p99 in ms", |seen| seen.p99_ms);
    row("slowest in ms", |seen| seen.slowest_ms);
    rows
}

type Figure = (String, Option<Interval>, FigureVerdict);

fn figures(record: &PostgresRecord) -> Vec<Figure> {
    let noise = ratio(record, PostgresSetup::DefaultAgain, PostgresSetup::Default, per_second);
    let judged = |seen: &Option<Interval>, verdict: &dyn Fn(&Interval) -> FigureVerdict| {
        seen.as_ref().map_or(FigureVerdict::NotMeasured, verdict)
    };
    let against = ratio(record, PostgresSetup::Hugepilot, PostgresSetup::Pool, per_second);
    let tables = ratio(record, PostgresSetup::Hugepilot, PostgresSetup::Default, page_tables);
    let mut figures = vec![
        (
            "throughput >= 0.97 x a pool's".to_owned(),
            against,
            judged(&against, &|seen| {
                noise.as_ref().map_or(FigureVerdict::NotMeasured, |noise| FigureVerdict::at_least(0.97, seen, noise))
            }),
        ),
        (
            "page tables <= 5 % of the default's".to_owned(),
            tables,
            judged(&tables, &|seen| FigureVerdict::at_most(0.05, seen, &EXACT)),
        ),
    ];
    let slowest = record.attached.iter().map(|attached| attached.seconds).reduce(f64::max);
    figures.push(plain("on huge pages within 20 s of attaching, every time", slowest.map(|seconds| seconds <= 20.0)));
    for attached in &record.attached {
        let words = format!("forecast {} within a factor 1.5 of", forecast_text(&attached.forecast));
        let near = |gain: Option<Interval>| {
            attached.forecast["likely"].as_f64().zip(gain).map(|(likely, gain)| is_near(likely, gain))
        };
        let throughput = ratio(record, PostgresSetup::Hugepilot, PostgresSetup::Default, per_second);
        figures.push(plain(&format!("{words} the throughput's gain"), near(throughput)));
        // Without the clients' own time, and what the kernel's threads took of the machine meanwhile.
        let cpu = ratio(record, PostgresSetup::Default, PostgresSetup::Hugepilot, cpu_us);
        figures.push(plain(&format!("{words} the gain of the server's CPU time"), near(cpu)));
    }
    if !record.observed.is_empty() {
        let pairs: Vec<_> =
            record.observed.iter().map(|pair| (pair.observed_per_second, pair.alone_per_second)).collect();
        let seen = paired_ratio(&pairs);
        let verdict = judged(&seen, &|seen| FigureVerdict::at_least(0.995, seen, &EXACT));
        figures.push(("throughput while observed >= 0.995 x alone".to_owned(), seen, verdict));
    }
    if let Some(share) = record.observing_cpu_share {
        figures
            .push(plain(&format!("observing takes {:.2} % of a processor, <= 1", 100.0 * share), Some(share <= 0.01)));
    }
    if !record.felt.is_empty() {
        let p99 = paired_ratio(&pairs(&record.felt, |felt| (felt.promotion.p99_ms, felt.alone_again.p99_ms)));
        let noise = paired_ratio(&pairs(&record.felt, |felt| (felt.alone_again.p99_ms, felt.alone.p99_ms)));
        let both = p99.as_ref().zip(noise.as_ref());
        let verdict = both.map_or(FigureVerdict::NotMeasured, |(seen, noise)| FigureVerdict::at_most(1.5, seen, noise));
        figures.push(("p99 while promoted <= 1.5 x alone".to_owned(), p99, verdict));
    }
    figures
}

fn plain(words: &str, met: Option<bool>) -> Figure {
    let verdict =
        met.map_or(FigureVerdict::NotMeasured, |met| if met { FigureVerdict::Met } else { FigureVerdict::NotMet });
    (words.to_owned(), None, verdict)
}

/// Whether the speed that was expected is within a factor 1.5 of the gain that came; where next to nothing came, that nothing was expected.
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

fn pairs(felt: &[Felt], of: fn(&Felt) -> (f64, f64)) -> Vec<(f64, f64)> {
    felt.iter().map(of).collect()
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
    median(&record.turns.iter().filter(|turn| turn.setup == setup).map(number).collect::<Vec<_>>())
}

/// One setup against another, round by round.
fn ratio(
    record: &PostgresRecord,
    subject: PostgresSetup,
    reference: PostgresSetup,
    number: fn(&PostgresTurn) -> f64,
) -> Option<Interval> {
    let of = |setup| record.turns.iter().filter(move |turn| turn.setup == setup);
    let partner = |turn: &PostgresTurn| of(reference).find(|other| other.round == turn.round).map(number);
    let pairs: Vec<_> = of(subject).filter_map(|turn| Some((number(turn), partner(turn)?))).collect();
    paired_ratio(&pairs)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    fn verdicts(record: &PostgresRecord) -> Vec<FigureVerdict> {
        figures(record).into_iter().map(|(_, _, verdict)| verdict).collect()
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
