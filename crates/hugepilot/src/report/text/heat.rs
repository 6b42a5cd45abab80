//! The heat of a process: totals, the hottest mappings, the map of regions.

use std::collections::BTreeMap;

use heat::units::{Bytes, Pages};
use heat::{Estimate, Heat, Meaning, PageSizes, SeenMemory, by_mapping};
use pilot::words::{count, count_of, meaning, percent, rate, unobserved};

use super::clearing::cleared;
use super::{joined, much_waiting};
use crate::report::heat_map::{Canvas, heat_map};
use crate::report::table::{Table, or_dash, table};
use crate::report::{Detail, mapping_name};

/// Mappings listed; a process may have thousands, and the tenth hottest is rarely warm.
const HOTTEST: usize = 10;
/// Characters shown of a mapping's name.
const NAME_LIMIT: usize = 48;
/// The share of pages walked within 100 ms from which one scan and the next may differ several times.
const ROUGH_FROM: f64 = 0.8;

/// The heat summary. `smaller`: memory on huge pages below 2 MiB, where that is known.
pub fn heat(heat: &Heat, smaller: Option<&PageSizes>, canvas: Canvas, detail: Detail) -> String {
    let mut lines = totals(heat, smaller, detail);
    if heat.regions.is_empty() {
        lines.push("no memory of the process is present".to_owned());
        return joined(lines);
    }
    lines.push(String::new());
    lines.extend(hottest_mappings(heat));
    lines.push(String::new());
    joined(lines) + &heat_map(&heat.regions, canvas)
}

fn totals(heat: &Heat, smaller: Option<&PageSizes>, detail: Detail) -> Vec<String> {
    let (present, walked) = (heat.pages_present(), heat.pages_walked());
    let share = percent(walked.0 as f64, present.0 as f64);
    let cost = &heat.cost;
    let smaller = smaller.filter(|sizes| sizes.total() > Bytes(0)).map_or(String::new(), |sizes| format!("; {sizes}"));
    let busy = heat.busy_cpus.map_or("unknown".to_owned(), |cpus| format!("{cpus:.2} CPUs"));
    let unobserved = heat.pages_unobserved();
    let sampling = heat.sample.and_then(|sample| error(&sample.pages_walked)).unwrap_or_default();
    let mut lines = vec![
        format!("process {}, watched for {} by {}", heat.pid, heat.window, heat.tracker),
        format!("  page walks   {}{}", rate(heat.walks_per_second()), how_sure(heat)),
        format!("  present      {} ({} pages)", present.bytes(), count(present.0)),
        format!(
            "  walked       {} ({} pages{sampling}, {share} of those present) within 100 ms",
            walked.bytes(),
            count(walked.0)
        ),
        format!("  huge pages   {}{smaller}", heat.huge_bytes()),
        format!("  busy         {busy}"),
    ];
    if detail == Detail::Full {
        lines.push(format!(
            "  observing    cleared in {} (longest stall {}), read {} in {}; costs the program about {}",
            cost.clear,
            cost.longest_stall,
            count_of(cost.reads.into(), "time"),
            cost.read,
            cost.program
        ));
    }
    lines.push(format!("  {}", meaning(heat.meaning)));
    lines.extend(cleared(heat).into_iter().map(|line| format!("  {line}")));
    if unobserved > Pages(0) {
        lines.insert(4, format!("  unobserved   {} ({})", unobserved.bytes(), why_unobserved(heat)));
    }
    lines
}

/// What the number of page walks is based on, in brackets; empty if all of it is certain.
fn how_sure(heat: &Heat) -> String {
    let at_least = rate(heat.walks_at_least_per_second());
    let sampled = heat.sample.map(|sample| {
        let error = error(&sample.walks_per_second).map_or(String::new(), |error| format!("{}, ", error.trim_start()));
        format!("{error}from a sample of {} of {}", sample.observed, sample.of)
    });
    let certain = (heat.meaning == Meaning::Accessed).then(|| format!("at least {at_least}"));
    let rough = is_rough(heat).then(|| "roughly: nearly all of it was walked before it was read".to_owned());
    let waited = much_waiting(heat.waited_share);
    let told: Vec<String> = sampled.into_iter().chain(certain).chain(rough).chain(waited).collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) }
}

/// Whether reads came too late to tell how often pages were walked.
fn is_rough(heat: &Heat) -> bool {
    let base = || heat.regions.iter().filter(|region| !region.huge);
    let observed: usize = base().map(|region| region.present.len().saturating_sub(region.unobserved.into())).sum();
    let walked: usize = base().map(|region| region.walked.len()).sum();
    walked > 0 && walked as f64 >= ROUGH_FROM * observed as f64
}

/// The sampling error, for people; None for a figure of 0.
fn error(estimate: &Estimate) -> Option<String> {
    estimate.percent().map(|percent| format!(" +-{percent:.0} %"))
}

/// Why some memory was not observed.
fn why_unobserved(heat: &Heat) -> String {
    let why = unobserved(heat.meaning);
    if heat.sample.is_some() { format!("not in the sample, or {why}") } else { why.to_owned() }
}

fn hottest_mappings(heat: &Heat) -> Vec<String> {
    let mut totals: BTreeMap<Option<usize>, SeenMemory> = BTreeMap::new();
    for part in by_mapping(heat) {
        *totals.entry(part.mapping).or_default() += extrapolated(part.amount, heat.times_observed());
    }
    let of = |mapping: Option<usize>| mapping.and_then(|index| heat.mappings.get(index));
    let mut totals: Vec<_> = totals.into_iter().map(|(mapping, amount)| (of(mapping), amount)).collect();
    totals.sort_by(|(_, left), (_, right)| right.walks_per_second.total_cmp(&left.walks_per_second));

    let hottest = table(totals.iter().take(HOTTEST));
    let mut lines = amounts(hottest, heat.walks_per_second(), |(_, amount)| *amount)
        .right("start", |(mapping, _)| or_dash(mapping.map(|mapping| mapping.range.start)))
        .left("mapping", |(mapping, _)| mapping_name(*mapping, NAME_LIMIT))
        .lines();
    if totals.len() > HOTTEST {
        lines.push(format!("and {} with fewer page walks", count_of((totals.len() - HOTTEST) as u64, "mapping")));
    }
    lines
}

/// A part of a sample, extrapolated to the whole.
fn extrapolated(amount: SeenMemory, times: f64) -> SeenMemory {
    let walked = Pages((amount.walked.0 as f64 * times).round() as u64);
    SeenMemory { walks_per_second: amount.walks_per_second * times, walked, ..amount }
}

/// A table with columns for the memory of each row; `all` is the total of page walks.
pub(super) fn amounts<Row>(rows: Table<Row>, all: f64, amount: impl Fn(&Row) -> SeenMemory) -> Table<Row> {
    rows.right("walks", |row| rate(amount(row).walks_per_second))
        .right("share", |row| percent(amount(row).walks_per_second, all))
        .right("present", |row| amount(row).present.bytes())
        .right("walked", |row| amount(row).walked.bytes())
        .right("huge", |row| amount(row).huge)
}

#[cfg(test)]
mod tests {
    use heat::samples::{heat_of, mixed_heat};
    use heat::units::Bytes;
    use heat::{Sample, Walks};

    use super::*;

    const PLAIN: Canvas = Canvas { width: 60, color: false };

    #[test]
    fn a_heat_reads_from_totals_to_regions() {
        insta::assert_snapshot!(heat(&mixed_heat(), None, PLAIN, Detail::Full));
        assert!(!heat(&mixed_heat(), None, PLAIN, Detail::Usual).contains("observing "));
        let mut smaller = PageSizes::default();
        smaller.add(Bytes(1 << 16), Bytes(1 << 20));
        let told = heat(&mixed_heat(), Some(&smaller), PLAIN, Detail::Usual);
        assert!(told.contains("huge pages   2 MiB; 1 MiB on pages of 64 KiB\n"), "{told}");
    }

    #[test]
    fn accessed_bits_are_said_to_be_an_upper_bound() {
        let text = heat(&Heat { meaning: Meaning::Accessed, ..mixed_heat() }, None, PLAIN, Detail::Usual);
        assert!(text.contains("bits mean accessed: page walks are at most this. The TLB was flushed"), "{text}");
        assert!(!heat(&mixed_heat(), None, PLAIN, Detail::Usual).contains("accessed:"));
    }

    #[test]
    fn rates_of_a_program_that_waits_for_processors_are_rough() {
        let told = |waited_share| heat(&Heat { waited_share, ..mixed_heat() }, None, PLAIN, Detail::Usual);
        assert!(
            told(Some(0.47)).contains("roughly: it waited for a processor 47 % of the time"),
            "{}",
            told(Some(0.47))
        );
        assert_eq!(told(Some(0.2)), told(None));
    }

    #[test]
    fn a_sample_states_its_error() {
        let estimate = |value| Estimate { value, error: 0.04 * value };
        let sample = Sample {
            observed: Bytes(2 << 30),
            of: Bytes(64 << 30),
            walks_per_second: estimate(1.2e6),
            pages_walked: estimate(4e6),
        };
        let walks = Walks { at_least_per_second: 31.25e3, ..Walks::default() };
        let sampled = Heat { meaning: Meaning::Accessed, sample: Some(sample), walks, ..mixed_heat() };
        let text = heat(&sampled, None, PLAIN, Detail::Usual);
        let told = "page walks   1.20 M/s (+-8 %, from a sample of 2 GiB of 64 GiB; at least 1.00 M/s; roughly: nearly all of it was walked before it was read)";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("(4,000,000 pages +-8 %, "), "{text}");
    }

    #[test]
    fn only_the_hottest_mappings_are_listed() {
        let mut heat_of_many = heat_of((0..14).map(|n| heat::samples::region(n, n as f64, 0)).collect());
        for (index, region) in heat_of_many.regions.iter_mut().enumerate() {
            region.mapping = Some(index as u32);
        }
        let lines = hottest_mappings(&heat_of_many);
        assert_eq!(lines.len(), 12);
        assert!(lines[1].trim_start().starts_with("13.0 /s  14.3 %"), "{lines:#?}");
        assert_eq!(lines[11], "and 4 mappings with fewer page walks");
    }

    #[test]
    fn an_empty_process_says_so() {
        let text = heat(&heat_of(Vec::new()), None, PLAIN, Detail::Usual);
        assert!(text.ends_with("no memory of the process is present\n"), "{text}");
    }
}
