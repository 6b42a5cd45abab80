//! The report as text: a table for each trace, next to the shape of the paper's figures.
//!
//! Owns: layout and rounding. Never touches: numbers beyond that.

use heat::units::{BASE_PAGE, Bytes, Nanos};
use hugepilot_bench::table::{cell, strings, table};

use super::pages::Class;
use super::record::ListsRecord;
use super::shape::{Shape, shapes};
use super::simulation::SimulationOutcome;
use super::throughput::hold_seconds;

/// The whole report.
pub fn text(record: &ListsRecord) -> String {
    let ListsRecord { page_bytes, disk_bytes_per_second, resident, seed, outcomes, .. } = record;
    let disk = Bytes(*disk_bytes_per_second);
    let mut text = format!(
        "A simulation, not a measurement: pages of {}, a disk of {disk}/s, --resident {:.0}%, seed {seed}\n",
        Bytes(*page_bytes),
        resident * 100.0
    );
    for group in outcomes.chunk_by(|one, other| one.trace == other.trace) {
        text += &format!("\n{}: {}\n\n", group[0].trace, group[0].description);
        text += &trace_text(group, disk);
    }
    text
}

fn trace_text(outcomes: &[SimulationOutcome], disk: Bytes) -> String {
    let mut rows = vec![strings(&[
        "memory    policy",
        "scanned",
        "at most",
        "lock held",
        "longest",
        "code",
        "read-only",
        "data",
        "shared",
        "cache",
        "swapped",
        "MiB/s",
        "variation",
    ])];
    rows.extend(outcomes.iter().map(|outcome| row(outcome, disk)));
    let mut text = table(&rows);
    text += LEGEND;
    text += &refused_text(outcomes);
    let outcomes: Vec<&SimulationOutcome> = outcomes.iter().collect();
    let shapes = shapes(&outcomes, disk);
    if !shapes.is_empty() {
        text += "figures\n";
    }
    for Shape { theirs, policy, ours, verdict } in shapes {
        text += &format!("  {:<80}  {ours:<42}  {verdict}\n", format!("{theirs}; {policy}"));
    }
    text
}

const LEGEND: &str = "
scanned: pages scanned for each reclaimed; at most: in any 10 s; lock held: for each time that memory ran low, and the longest
hold; code to cache: MiB that went and came back, for each GiB that files moved; swapped: MiB written to swap, likewise

";

fn row(outcome: &SimulationOutcome, disk: Bytes) -> Vec<String> {
    let account = &outcome.account;
    let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64).to_string();
    let digits = |number: Option<f64>| cell(number.map(|number| format!("{number:.2}")));
    let moved_gib = (account.moved * BASE_PAGE) as f64 / f64::from(1 << 30);
    let per_gib = |pages: u64| match pages {
        0 => "-".to_owned(),
        pages => format!("{:.2}", (pages * BASE_PAGE) as f64 / f64::from(1 << 20) / moved_gib.max(1e-9)),
    };
    let mut row = vec![
        format!("{:<10}{}", Bytes(outcome.memory_bytes).to_string(), outcome.policy),
        digits(account.scanned_per_reclaimed()),
        digits(outcome.most_scanned()),
        nanos(hold_seconds(account.scan.held) / account.reclaims.max(1) as f64),
        nanos(hold_seconds(account.scan.longest_hold)),
    ];
    row.extend(Class::ALL.map(|class| per_gib(account.refaults[class as usize])));
    row.extend([
        per_gib(account.swapped_out),
        format!("{:.1}", outcome.mean_throughput(disk)),
        format!("{:.1} %", outcome.variation() * 100.0),
    ]);
    row
}

/// Runs in which a policy could not free anything at all.
fn refused_text(outcomes: &[SimulationOutcome]) -> String {
    let refused = outcomes.iter().filter(|outcome| outcome.account.refused > 0);
    let line = |outcome: &SimulationOutcome| {
        let SimulationOutcome { policy, memory_bytes, account, .. } = outcome;
        let share = 100.0 * account.refused as f64 / (account.moved + account.refused).max(1) as f64;
        format!("{policy} at {}: nothing could be freed for {share:.2} % of all pages\n", Bytes(*memory_bytes))
    };
    let text: String = refused.map(line).collect();
    if text.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::lists::account::Account;
    use crate::lists::policy::{PolicyKind, Scan};
    use crate::lists::simulation::Length;
    use crate::record::ResearchRecord;

    /// Ten intervals in which 25,600 pages each are written; every second one has this many refaults, and scans `scanned` pages per page reclaimed.
    pub fn outcome(policy: PolicyKind, gib: u64, refaults: u64, scanned: f64) -> SimulationOutcome {
        let disk = Bytes(100 << 20);
        let interval = |number: u64| Account {
            moved: 25_600,
            reclaims: 4,
            refaults: [refaults * (number % 2), 0, 0, 0, 0],
            scan: Scan {
                scanned: (1000.0 * scanned) as u64,
                held: 2000,
                longest_hold: 32 * gib,
                reclaimed: 1000,
                ..Scan::default()
            },
            ..Account::default()
        };
        let mut outcome = SimulationOutcome {
            trace: "writers".to_owned(),
            description: "processes write files".to_owned(),
            memory_bytes: gib << 30,
            policy,
            account: Account::default(),
            throughput: Vec::new(),
            scanned: Vec::new(),
        };
        for number in 0..10 {
            let account = interval(number);
            outcome.account += account;
            outcome.throughput.push(crate::lists::throughput::throughput(&account, disk) / f64::from(1 << 20));
            outcome.scanned.push(account.scanned_per_reclaimed());
        }
        outcome
    }

    pub fn record() -> ListsRecord {
        let sizes = [(2, 1_000, 2.0), (4, 1_000, 3.0), (8, 9_000, 6.0)];
        let outcomes = sizes.into_iter().flat_map(|(gib, refaults, scanned)| {
            let mut mixed = outcome(PolicyKind::Mixed, gib, refaults, scanned);
            mixed.account.refused = if gib == 8 { 2_560 } else { 0 };
            [mixed, outcome(PolicyKind::Split(100), gib, 0, 1.0), outcome(PolicyKind::AnonFile, gib, 10, 1.25)]
        });
        ListsRecord {
            version: ListsRecord::VERSION,
            page_bytes: 65_536,
            disk_bytes_per_second: 100 << 20,
            resident: 0.4,
            seed: 1,
            length: Length { settle: 1.5, intervals: 10 },
            outcomes: outcomes.collect(),
        }
    }

    #[test]
    fn the_report_is_a_table_and_the_papers_shape() {
        insta::assert_snapshot!(text(&record()));
    }

    #[test]
    fn each_trace_has_its_table() {
        let mut record = record();
        for place in 6..9 {
            record.outcomes[place].trace = "backup".to_owned();
        }
        let text = text(&record);
        assert_eq!(text.matches("scanned: pages scanned").count(), 2, "{text}");
        assert!(text.contains("\nbackup: "), "{text}");
    }
}
