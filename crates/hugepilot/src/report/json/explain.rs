//! An explanation: which memory is on huge pages, why the rest is not, and whether more would pay.

use std::collections::BTreeMap;

use heat::TrackerKind;
use heat::units::{Address, Bytes, Nanos};
use pilot::decide::Reason;
use pilot::explain::{Explained, Why};
use pilot::words::name;
use serde::Serialize;

use super::clearing::{ClearingFields, clearing_fields};
use super::{GainFields, RangeFields, VERSION, gain_fields, line};
use crate::report::ExplainReport;

#[derive(Serialize)]
struct ExplainDocument<'a> {
    version: u32,
    pid: u32,
    tracker: TrackerKind,
    meaning: String,
    clearing: Option<ClearingFields>,
    page_tables_bytes: Bytes,
    page_tables_saved_bytes: Bytes,
    faults_saved_per_second: f64,
    processes: u64,
    processes_observed: u64,
    expected_gain_percent: Option<GainFields>,
    after_restart: Option<AfterRestartFields>,
    page_fault_cost_ns: f64,
    walk_cost_low_ns: Nanos,
    walk_cost_high_ns: Nanos,
    walk_cost_from: &'static str,
    walk_cycles_percent: Option<RangeFields>,
    mappings: Vec<ExplainedFields<'a>>,
}

#[derive(Serialize)]
struct AfterRestartFields {
    would_pay_bytes: Bytes,
    expected_gain_percent: Option<GainFields>,
}

#[derive(Serialize)]
struct ExplainedFields<'a> {
    start: Address,
    size_bytes: Bytes,
    name: &'a str,
    resident_bytes: Bytes,
    populated_elsewhere_bytes: Bytes,
    huge_bytes: Bytes,
    smaller_huge_bytes: Option<Bytes>,
    pages_walked: u64,
    walks_per_second: f64,
    would_pay_bytes: Bytes,
    not_huge_bytes: BTreeMap<Why, Bytes>,
    decided_bytes: BTreeMap<Reason, Bytes>,
}

/// The explanation, each mapping listed.
pub fn explain(report: &ExplainReport) -> String {
    line(&ExplainDocument {
        version: VERSION,
        pid: report.heat.pid,
        tracker: report.heat.tracker,
        meaning: name(report.heat.meaning),
        clearing: report.heat.clearing.map(clearing_fields),
        page_tables_bytes: report.family.page_tables,
        page_tables_saved_bytes: report.explanation.page_tables_saved,
        faults_saved_per_second: report.explanation.faults_saved_per_second,
        processes: report.family.processes,
        processes_observed: report.family.observed,
        expected_gain_percent: report.gain.map(gain_fields),
        after_restart: report.after_restart.map(|restarted| AfterRestartFields {
            would_pay_bytes: restarted.would_pay,
            expected_gain_percent: restarted.gain.map(gain_fields),
        }),
        page_fault_cost_ns: report.cost.page_fault_ns,
        walk_cost_low_ns: report.cost.low(),
        walk_cost_high_ns: report.cost.high(),
        walk_cost_from: report.cost_from,
        walk_cycles_percent: report
            .walk_share
            .map(|share| RangeFields { low: 100.0 * share.low, high: 100.0 * share.high }),
        mappings: report.explanation.mappings.iter().map(explained_fields).collect(),
    })
}

fn explained_fields(explained: &Explained) -> ExplainedFields<'_> {
    ExplainedFields {
        start: explained.mapping.range.start,
        size_bytes: explained.mapping.range.len(),
        name: &explained.mapping.name,
        populated_elsewhere_bytes: explained.elsewhere,
        resident_bytes: explained.resident,
        huge_bytes: explained.huge,
        smaller_huge_bytes: explained.smaller,
        pages_walked: explained.walked.0,
        walks_per_second: explained.walks_per_second,
        would_pay_bytes: explained.would_pay(),
        not_huge_bytes: explained.not_huge.clone(),
        decided_bytes: explained.decided.clone(),
    }
}
