//! Reports for programs: JSON on one line, ended by a line break.
//!
//! Names carry their unit last; bytes and nanoseconds, addresses as numbers. Fields may be added; `version` changes
//! when one is renamed, removed or means something else.

mod clearing;
mod color;
mod explain;
mod group;
mod launch;
mod pool;
mod reclaim;
mod status;

use std::collections::{BTreeMap, BTreeSet};

pub use self::reclaim::{reclaim, reclaim_status};
use clearing::{ClearingFields, clearing_fields};
pub use color::color;
pub use explain::explain;
pub use group::group;
use launch::{LaunchFields, launch_fields};
pub use pool::{mount, persist, pools, resized};
use serde::Serialize;
pub use status::{given_back_by_daemon, status};

use super::{GiveBackReport, PilotReport, PlanReport, PromoteReport, RunReport};
use heat::Snapshot;
use heat::units::{Address, Bytes, Nanos};
use heat::{Heat, Obstacle, RefusalReason, Region, Summary, TrackerKind};
use pilot::act::Outcome;
use pilot::decide::{Decision, GainPercent, Reason, Verdict};
use pilot::words::name;

/// The version that every document carries.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct HeatDocument {
    version: u32,
    #[serde(flatten)]
    summary: SummaryFields,
    regions: Vec<RegionFields>,
}

/// What was seen of a process, shared by every document that tells it.
#[derive(Serialize)]
struct SummaryFields {
    pid: u32,
    tracker: TrackerKind,
    meaning: String,
    clearing: Option<ClearingFields>,
    window_ns: Nanos,
    busy_cpus: Option<f64>,
    rss_bytes: Bytes,
    pages_present: u64,
    pages_walked: u64,
    pages_unobserved: u64,
    walks_per_second: f64,
    walks_at_least_per_second: f64,
    /// 0 if walks go along addresses, 1 if they are at random; null if unknown.
    scattered: Option<f64>,
    huge_bytes: Bytes,
    cost: CostFields,
    /// Null where everything was observed; else `walks_per_second` and `pages_walked` are extrapolated from this.
    sample: Option<SampleFields>,
}

/// Errors are standard errors.
#[derive(Serialize)]
struct SampleFields {
    observed_bytes: Bytes,
    of_bytes: Bytes,
    walks_error_per_second: f64,
    pages_walked_error: f64,
}

#[derive(Serialize)]
struct CostFields {
    clear_ns: Nanos,
    longest_stall_ns: Nanos,
    read_ns: Nanos,
    reads: u32,
    interim_read_ns: Nanos,
    inspect_ns: Nanos,
    kernel_ns: Nanos,
    program_ns: Nanos,
}

#[derive(Serialize)]
struct RegionFields {
    start: Address,
    pages_present: usize,
    pages_walked: usize,
    pages_unobserved: u16,
    huge: bool,
    walks_per_second: f64,
    growth_bytes: Bytes,
    obstacle: Option<Obstacle>,
}

#[derive(Serialize)]
struct PlanDocument {
    version: u32,
    pid: u32,
    dry_run: bool,
    meaning: String,
    clearing: Option<ClearingFields>,
    walk_share: Option<f64>,
    walks_saved_per_second: f64,
    faults_saved_per_second: f64,
    page_tables_saved_bytes: Bytes,
    processes: u64,
    processes_observed: u64,
    growth_bytes: Bytes,
    expected_gain_percent: Option<GainFields>,
    expected_seconds: Option<f64>,
    expected_longest_stall_ns: Option<Nanos>,
    decisions: Vec<DecisionFields>,
}

#[derive(Serialize)]
struct GainFields {
    low: f64,
    likely: f64,
    high: f64,
}

#[derive(Serialize)]
struct RangeFields {
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct DecisionFields {
    start: Address,
    verdict: Verdict,
    reason: Reason,
    walks_per_second: f64,
    faults_per_second: f64,
    page_tables: u16,
    growth_bytes: Bytes,
}

/// What an action did, shared by every document that reports one.
#[derive(Serialize)]
struct OutcomeFields {
    tried: u64,
    applied: u64,
    refused: Vec<RefusalFields>,
    not_reached: u64,
    elapsed_ns: Nanos,
    busy_ns: Nanos,
    preparing_ns: Nanos,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    prepared_on_nodes: BTreeMap<u32, u64>,
    longest_step_ns: Nanos,
    step_median_ns: Option<Nanos>,
    step_p90_ns: Option<Nanos>,
    longest_stall_ns: Option<Nanos>,
    held_up_share: Option<f64>,
}

#[derive(Serialize)]
struct RefusalFields {
    start: Address,
    reason: RefusalReason,
    errno: i32,
}

/// Two moments, shared by every document that has them. Null where nobody read it.
#[derive(Serialize)]
struct BeforeAndAfter {
    rss_before_bytes: Option<Bytes>,
    rss_after_bytes: Option<Bytes>,
    huge_before_bytes: Option<Bytes>,
    huge_after_bytes: Option<Bytes>,
    page_tables_before_bytes: Option<Bytes>,
    page_tables_after_bytes: Option<Bytes>,
    walks_before_per_second: Option<f64>,
    walks_after_per_second: Option<f64>,
}

#[derive(Serialize)]
struct PromoteDocument {
    version: u32,
    pid: u32,
    meaning: String,
    #[serde(flatten)]
    outcome: OutcomeFields,
    #[serde(flatten)]
    moments: BeforeAndAfter,
    reasons: BTreeMap<Reason, u64>,
    seconds: f64,
}

#[derive(Serialize)]
struct GiveBackDocument {
    version: u32,
    pid: u32,
    #[serde(flatten)]
    outcome: OutcomeFields,
    #[serde(flatten)]
    moments: BeforeAndAfter,
    frees_empty_pages: Option<bool>,
    seconds: f64,
}

#[derive(Serialize)]
struct RunDocument<'a> {
    version: u32,
    command: &'a [String],
    exit_status: Option<i32>,
    signal: Option<i32>,
    #[serde(flatten)]
    pilot_summary: PilotFields<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch: Option<LaunchFields<'a>>,
}

#[derive(Serialize)]
struct AttachDocument<'a> {
    version: u32,
    pid: u32,
    #[serde(flatten)]
    pilot_summary: PilotFields<'a>,
}

#[derive(Serialize)]
struct PilotFields<'a> {
    rounds: u64,
    processes: usize,
    left_alone: &'a BTreeSet<String>,
    too_small_bytes: Option<Bytes>,
    given_back: u64,
    #[serde(flatten)]
    outcome: OutcomeFields,
    #[serde(flatten)]
    moments: BeforeAndAfter,
    growth_bytes: Bytes,
    pilot_cpu_ns: Nanos,
    seconds: f64,
}

/// The heat, each region listed.
pub fn heat(heat: &Heat) -> String {
    let regions = heat.regions.iter().map(region_fields).collect();
    line(&HeatDocument { version: VERSION, summary: summary_fields(&heat.summary()), regions })
}

/// The dry run, each decision listed.
pub fn plan(report: &PlanReport) -> String {
    let plan = report.plan;
    line(&PlanDocument {
        version: VERSION,
        pid: plan.pid,
        dry_run: true,
        meaning: name(plan.meaning),
        clearing: report.clearing.map(clearing_fields),
        walk_share: plan.walk_share,
        walks_saved_per_second: plan.walks_saved_per_second(),
        faults_saved_per_second: plan.faults_saved_per_second(),
        page_tables_saved_bytes: plan.page_tables_freed(),
        processes: report.family.processes,
        processes_observed: report.family.observed,
        growth_bytes: plan.growth(),
        expected_gain_percent: report.gain.map(gain_fields),
        expected_seconds: report.expectation.map(|expectation| expectation.elapsed.seconds()),
        expected_longest_stall_ns: report.expectation.map(|expectation| expectation.longest_stall),
        decisions: plan.decisions.iter().map(decision_fields).collect(),
    })
}

/// The promotion, each refused region listed.
pub fn promote(report: &PromoteReport) -> String {
    let counts = report.plan.counts();
    line(&PromoteDocument {
        version: VERSION,
        pid: report.plan.pid,
        meaning: name(report.plan.meaning),
        outcome: outcome_fields(report.outcome),
        moments: moments(Some(report.before), report.after),
        reasons: counts,
        seconds: report.elapsed.seconds(),
    })
}

/// What was given back.
pub fn give_back(report: &GiveBackReport) -> String {
    line(&GiveBackDocument {
        version: VERSION,
        pid: report.pid,
        outcome: outcome_fields(report.outcome),
        moments: moments(Some(report.before), report.after),
        frees_empty_pages: report.frees_empty_pages,
        seconds: report.outcome.elapsed.seconds(),
    })
}

/// The summary of a run.
pub fn run(report: &RunReport) -> String {
    line(&RunDocument {
        version: VERSION,
        command: report.command,
        exit_status: report.exit_status,
        signal: report.signal,
        pilot_summary: pilot_fields(&report.pilot_summary),
        launch: report.launch.as_ref().map(launch_fields),
    })
}

/// The summary of an attachment.
pub fn attach(pid: u32, report: &PilotReport) -> String {
    line(&AttachDocument { version: VERSION, pid, pilot_summary: pilot_fields(report) })
}

fn pilot_fields<'a>(report: &PilotReport<'a>) -> PilotFields<'a> {
    PilotFields {
        rounds: report.rounds,
        processes: report.processes,
        left_alone: report.left_alone,
        too_small_bytes: report.too_small,
        given_back: report.given_back,
        outcome: outcome_fields(report.outcome),
        moments: moments(report.before, report.after),
        growth_bytes: report.growth,
        pilot_cpu_ns: report.pilot,
        seconds: report.elapsed.seconds(),
    }
}

fn line(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("documents have string keys only and cannot fail") + "\n"
}

fn region_fields(region: &Region) -> RegionFields {
    RegionFields {
        start: region.start,
        pages_present: region.present.len(),
        pages_walked: region.walked.len(),
        pages_unobserved: region.unobserved,
        huge: region.huge,
        walks_per_second: region.walks_per_second,
        growth_bytes: region.growth.bytes(),
        obstacle: region.obstacle,
    }
}

fn summary_fields(summary: &Summary) -> SummaryFields {
    SummaryFields {
        pid: summary.pid,
        tracker: summary.tracker,
        meaning: name(summary.meaning),
        clearing: summary.clearing.map(clearing_fields),
        window_ns: summary.window,
        busy_cpus: summary.busy_cpus,
        rss_bytes: summary.rss,
        pages_present: summary.amount.present.0,
        pages_walked: summary.amount.walked.0,
        pages_unobserved: summary.unobserved.0,
        walks_per_second: summary.amount.walks_per_second,
        walks_at_least_per_second: summary.walks_at_least_per_second,
        scattered: summary.scattered,
        huge_bytes: summary.amount.huge,
        cost: CostFields {
            clear_ns: summary.cost.clear,
            longest_stall_ns: summary.cost.longest_stall,
            read_ns: summary.cost.read,
            reads: summary.cost.reads,
            interim_read_ns: summary.cost.interim_read,
            inspect_ns: summary.cost.inspect,
            kernel_ns: summary.cost.kernel,
            program_ns: summary.cost.program,
        },
        sample: summary.sample.map(|sample| SampleFields {
            observed_bytes: sample.observed,
            of_bytes: sample.of,
            walks_error_per_second: sample.walks_per_second.error,
            pages_walked_error: sample.pages_walked.error,
        }),
    }
}

fn gain_fields(gain: GainPercent) -> GainFields {
    GainFields { low: gain.low, likely: gain.likely, high: gain.high }
}

fn decision_fields(decision: &Decision) -> DecisionFields {
    DecisionFields {
        start: decision.start,
        verdict: decision.verdict,
        reason: decision.reason,
        walks_per_second: decision.walks_per_second,
        faults_per_second: decision.faults_per_second,
        page_tables: decision.page_tables,
        growth_bytes: decision.growth,
    }
}

fn outcome_fields(outcome: &Outcome) -> OutcomeFields {
    let refused = outcome.refused.iter().map(|refusal| RefusalFields {
        start: refusal.start,
        reason: refusal.reason,
        errno: refusal.errno,
    });
    OutcomeFields {
        tried: outcome.tried,
        applied: outcome.applied,
        refused: refused.collect(),
        not_reached: outcome.not_reached,
        elapsed_ns: outcome.elapsed,
        busy_ns: outcome.busy,
        preparing_ns: outcome.preparing,
        prepared_on_nodes: outcome.prepared_on.clone(),
        longest_step_ns: outcome.longest,
        step_median_ns: outcome.times.percentile(0.5),
        step_p90_ns: outcome.times.percentile(0.9),
        longest_stall_ns: outcome.waited.map(|waited| waited.longest),
        held_up_share: outcome.waited.and_then(|waited| waited.share()),
    }
}

fn moments(before: Option<Snapshot>, after: Option<Snapshot>) -> BeforeAndAfter {
    BeforeAndAfter {
        rss_before_bytes: before.map(|snapshot| snapshot.rss),
        rss_after_bytes: after.map(|snapshot| snapshot.rss),
        huge_before_bytes: before.map(|snapshot| snapshot.huge),
        huge_after_bytes: after.map(|snapshot| snapshot.huge),
        page_tables_before_bytes: before.map(|snapshot| snapshot.page_tables),
        page_tables_after_bytes: after.map(|snapshot| snapshot.page_tables),
        walks_before_per_second: before.and_then(|snapshot| snapshot.walks_per_second),
        walks_after_per_second: after.and_then(|snapshot| snapshot.walks_per_second),
    }
}

#[cfg(test)]
mod tests {
    use heat::clearing::{ClearReason, Clearing};
    use heat::samples::{clearing, heat_of, mixed_heat};
    use heat::{Estimate, Reclaim, Sample, WalkCost, WalkShare};
    use pilot::decide::GainPercent;
    use pilot::engine::Family;
    use pilot::explain::{Surroundings, explain as explain_heat};

    use super::*;
    use crate::report::page_counts::PageCounts;
    use crate::report::samples::{self, AFTER, BEFORE, mixed_plan, outcome};
    use crate::report::{AfterRestart, Expectation, ExplainReport, LaunchReport, ReclaimStatusReport, pool_samples};

    /// The document as people can read it in a snapshot; fails if it is not one line of JSON.
    pub(super) fn pretty(document: &str) -> String {
        assert_eq!(document.find('\n'), Some(document.len() - 1));
        let value: serde_json::Value = serde_json::from_str(document).expect("valid JSON");
        assert_eq!(value["version"], 1);
        serde_json::to_string_pretty(&value).unwrap()
    }

    #[test]
    fn a_heat_has_its_fields() {
        let mut heat_of_two = mixed_heat();
        heat_of_two.regions.drain(..7);
        heat_of_two.clearing = Some(clearing());
        insta::assert_snapshot!(pretty(&heat(&heat_of_two)));
    }

    #[test]
    fn a_plan_has_its_fields() {
        let mut plan_of_three = mixed_plan();
        plan_of_three.decisions.drain(1..7);
        let gain = Some(GainPercent { low: 5.0, likely: 12.0, high: 25.0 });
        let expectation = Some(Expectation {
            regions: 1,
            growth: Bytes(0),
            elapsed: Nanos(5_000_000),
            max_slowdown: heat::units::Slowdown::ASKED_FOR,
            longest_stall: Nanos(5_000_000),
        });
        insta::assert_snapshot!(pretty(&plan(&PlanReport {
            plan: &plan_of_three,
            family: Family::alone(Bytes(0), Bytes(0)),
            clearing: None,
            gain,
            expectation
        })));
    }

    #[test]
    fn a_promotion_has_its_fields() {
        let (plan, outcome) = (mixed_plan(), outcome());
        let report = PromoteReport {
            plan: &plan,
            outcome: &outcome,
            before: BEFORE,
            after: Some(AFTER),
            elapsed: Nanos(1_500_000_000),
        };
        insta::assert_snapshot!(pretty(&promote(&report)));
        let gone = promote(&PromoteReport { after: None, ..report });
        assert!(
            gone.contains(r#""rss_after_bytes":null"#) && gone.contains(r#""walks_after_per_second":null"#),
            "{gone}"
        );
    }

    #[test]
    fn giving_back_has_its_fields() {
        let outcome = outcome();
        let report =
            GiveBackReport { pid: 4242, outcome: &outcome, before: AFTER, after: None, frees_empty_pages: Some(true) };
        insta::assert_snapshot!(pretty(&give_back(&report)));
    }

    #[test]
    fn a_run_has_its_fields() {
        let outcome = outcome();
        let report = RunReport {
            command: &["memcached".to_owned(), "-m".to_owned()],
            exit_status: None,
            signal: Some(15),
            pilot_summary: PilotReport {
                rounds: 3,
                processes: 1,
                left_alone: &BTreeSet::from(["process 7 is a virtual machine".to_owned()]),
                too_small: None,
                outcome: &outcome,
                given_back: 2,
                growth: Bytes(4096),
                before: Some(BEFORE),
                after: Some(AFTER),
                pilot: Nanos(5),
                elapsed: Nanos(500_000_000),
            },
            launch: None,
        };
        insta::assert_snapshot!(pretty(&run(&report)));
        assert!(attach(42, &report.pilot_summary).starts_with(r#"{"version":1,"pid":42,"rounds":3,"#));
    }

    /// What scripts that do not parse JSON rely on, too: which fields there are, in which order, and how each is spelled.
    #[test]
    fn every_document_keeps_its_form() {
        let (plan, outcome) = (mixed_plan(), outcome());
        let estimate = Estimate { value: 1.5, error: 0.5 };
        let sample = Sample { observed: Bytes(1), of: Bytes(2), walks_per_second: estimate, pages_walked: estimate };
        let heat_of_all = Heat { clearing: Some(clearing()), sample: Some(sample), ..mixed_heat() };
        let (before, after) = (Some(BEFORE), Some(AFTER));
        let (prepared, account) = (samples::prepared_search(), samples::account_of_a_search());
        let left_alone = BTreeSet::from(["process 7 is a virtual machine".to_owned()]);
        let pilot_summary = PilotReport {
            rounds: 3,
            processes: 1,
            left_alone: &left_alone,
            too_small: Some(Bytes(7)),
            outcome: &Outcome { prepared_on: BTreeMap::from([(1, 2)]), ..outcome.clone() },
            given_back: 2,
            growth: Bytes(4096),
            before,
            after,
            pilot: Nanos(5),
            elapsed: Nanos(500_000_000),
        };
        let launch = Some(LaunchReport { prepared: &prepared, account: &account });
        let (family, gain) =
            (Family::alone(Bytes(80), Bytes(0)), Some(GainPercent { low: 3.0, likely: 4.5, high: 12.0 }));
        let smaller = vec![Bytes(1 << 16); heat_of_all.regions.len()];
        let explanation = explain_heat(&heat_of_all, &plan, Some(&smaller), &Surroundings::default());
        let explain_report = ExplainReport {
            heat: &heat_of_all,
            explanation: &explanation,
            family,
            gain,
            after_restart: Some(AfterRestart { would_pay: Bytes(4 << 30), gain }),
            cost: WalkCost::UNCALIBRATED,
            cost_from: "as other machines showed",
            walk_share: Some(WalkShare { low: 0.1, high: 0.125 }),
        };
        let clearing = heat_of_all.clearing;
        let (census, now) = (samples::census(), samples::moment(9));
        let mut counts = PageCounts::default();
        counts.add(&heat_of_all);
        insta::assert_snapshot!(
            [
                heat(&heat_of_all),
                super::plan(&PlanReport { plan: &plan, family, clearing, gain, expectation: None }),
                promote(&PromoteReport { plan: &plan, outcome: &outcome, before: BEFORE, after, elapsed: Nanos(15) }),
                give_back(&GiveBackReport { pid: 1, outcome: &outcome, before: AFTER, after, frees_empty_pages: None }),
                run(&RunReport {
                    command: &["a".to_owned()],
                    exit_status: Some(1),
                    signal: None,
                    pilot_summary,
                    launch
                }),
                attach(42, &pilot_summary),
                explain(&explain_report),
                group(&samples::group_seen()),
                pools(&pool_samples::view()),
                resized(&[pool_samples::short()]),
                reclaim_status(&ReclaimStatusReport { census: Ok(&census), now: &now, state: None, is_alive: false }),
                counts.json(7),
            ]
            .concat()
        );
    }

    #[test]
    fn every_reason_for_clearing_has_its_name() {
        let clearing_with = |reason, reclaim| {
            let clearing = Clearing { reason, method: reason.method(), reclaim, ..clearing() };
            heat(&Heat { clearing: Some(clearing), ..heat_of(Vec::new()) })
        };
        let reasons = [
            (ClearReason::Short, None),
            (ClearReason::FewCalls, Some(Reclaim::MemoryShort)),
            (ClearReason::ManyCalls, Some(Reclaim::SwapInUse)),
            (ClearReason::UnknownCalls, None),
            (ClearReason::BitsSetAgain, None),
            (ClearReason::StallAllowed, None),
            (ClearReason::SlicesWanted, None),
            (ClearReason::Sampled, None),
            (ClearReason::OneOfMany, None),
        ];
        insta::assert_snapshot!(reasons.map(|(reason, reclaim)| clearing_with(reason, reclaim)).concat());
    }
}
