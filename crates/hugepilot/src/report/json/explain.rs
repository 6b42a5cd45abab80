//! An explanation: which memory is on huge pages, why the rest is not, and whether more would help.

use heat::PageSizes;
use pilot::explain::Explained;
use serde::Serialize;

use super::{ReportKind, clearing, document, guest};
use crate::report::ExplainReport;

/// The explanation, each mapping listed.
pub fn explain(report: &ExplainReport) -> String {
    let walk_cycles = report.walk_share.map(|share| object! { low: 100.0 * share.low, high: 100.0 * share.high });
    document(
        ReportKind::Explain,
        &object! {
            pid: report.heat.pid,
            tracker: report.heat.tracker,
            meaning: report.heat.meaning,
            clearing: report.heat.clearing.map(clearing),
            page_tables_bytes: report.family.page_tables,
            page_tables_saved_bytes: report.explanation.page_tables_saved,
            faults_saved_per_second: report.explanation.faults_saved_per_second,
            processes: report.family.processes,
            processes_observed: report.family.observed,
            children: report.family.children.processes,
            children_hold_bytes: report.family.children.hold,
            expected_gain_percent: report.forecast.gain(),
            expected_gain_from: report.forecast.from(),
            expected_gain_doubt: report.doubt,
            expected_from: report.basis,
            after_restart: report.after_restart,
            page_fault_share: report.fault_share,
            page_fault_cost_ns: report.basis.cost.page_fault_ns,
            walk_cost_low_ns: report.basis.cost.low(),
            walk_cost_high_ns: report.basis.cost.high(),
            walk_cost_from: report.cost_from,
            walk_cycles_percent: walk_cycles,
            seems_virtual_machine: report.virtual_machine.is_some(),
            guest: report.virtual_machine.map(guest::explained),
            memory_managers: report.managers.iter().map(|managed| managed.manager).collect::<Vec<_>>(),
            memory_manager_settings: report.managers,
            mappings: report.explanation.mappings.iter().map(explained).collect::<Vec<_>>(),
        },
    )
}

fn explained(explained: &Explained) -> impl Serialize {
    object! {
        start: explained.mapping.range.start,
        size_bytes: explained.mapping.range.len(),
        name: &explained.mapping.name,
        resident_bytes: explained.resident,
        populated_elsewhere_bytes: explained.elsewhere,
        huge_bytes: explained.huge,
        smaller_huge_bytes: explained.smaller.as_ref().map(PageSizes::total),
        smaller_huge_bytes_by_page_bytes: &explained.smaller,
        pages_walked: explained.walked,
        walks_per_second: explained.walks_per_second,
        would_pay_bytes: explained.would_pay(),
        not_huge_bytes: &explained.not_huge,
        decided_bytes: &explained.decided,
    }
}
