//! Reports for programs: one line of JSON, ended by a line break.
//!
//! docs/reference/report.schema.json describes every field. Names end with their unit: bytes and nanoseconds; addresses are numbers. Fields may be
//! added; `version` changes when one is renamed, removed or changes its meaning.

#![expect(non_camel_case_types, reason = "the type of an object's field is named like the field")]

use std::path::Path;

mod cache;
mod clearing;
mod color;
mod explain;
mod fleet;
mod group;
mod guest;
mod launch;
mod pool;
mod reclaim;
mod scan;
#[cfg(test)]
#[path = "../../tests/schema/mod.rs"]
mod schema;
mod status;
mod trial;

pub use self::reclaim::{reclaim, reclaim_status};
pub use cache::cache;
use clearing::clearing;
pub use color::color;
pub use explain::explain;
pub use fleet::fleet_trial;
pub use group::group;
pub use guest::guest_plan;
use launch::launch;
pub use pool::{mount, persist, pool_plan, pools, resized};
pub use scan::scan;
use serde::Serialize;
pub use status::{given_back_by_daemon, paused, resumed, status};
pub use trial::trial;

use super::page_counts::{CountRun, PageCounts};
use super::{GiveBackReport, PilotReport, PlanReport, PromoteReport, RecordReport, RunReport};
use daemon::config::Config;
use heat::Snapshot;
use heat::{Heat, PageSizes, Region, Summary};
use pilot::act::Outcome;

/// The version that every document carries.
const VERSION: u32 = 1;

/// Which report a document is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ReportKind {
    Attach,
    Cache,
    ColorProbe,
    Config,
    Explain,
    FleetTrial,
    GiveBack,
    GiveBackByDaemon,
    Group,
    GuestPlan,
    Heat,
    Mount,
    Pages,
    Pause,
    Plan,
    PoolChanges,
    PoolFiles,
    PoolPlan,
    Pools,
    Promotion,
    Reclaim,
    ReclaimStatus,
    Record,
    Run,
    Scan,
    Status,
    Trial,
}

/// The heat, each region listed.
pub fn heat(heat: &Heat, smaller: Option<&[PageSizes]>) -> String {
    let region = |(index, region): (usize, &Region)| {
        object! {
            start: region.start,
            pages_present: region.present.len(),
            pages_walked: region.walked.len(),
            pages_unobserved: region.unobserved,
            huge: region.huge,
            smaller_huge_bytes_by_page_bytes: smaller.and_then(|smaller| smaller.get(index)),
            walks_per_second: region.walks_per_second,
            in_order: region.in_order,
            growth_bytes: region.growth.bytes(),
            obstacle: region.obstacle,
        }
    };
    document(
        ReportKind::Heat,
        &object! {
            #[serde(flatten)]
            summary: summary(heat.summary()),
            regions: heat.regions.iter().enumerate().map(region).collect::<Vec<_>>(),
        },
    )
}

/// In how many scans each page was walked.
pub fn pages(pid: u32, counts: &PageCounts) -> String {
    let run = |run: CountRun| object! { start: run.range.start, end: run.range.end, count: run.count };
    let runs = counts.runs().into_iter().map(run);
    document(ReportKind::Pages, &object! { pid, scans: counts.scans(), pages: runs.collect::<Vec<_>>() })
}

/// The dry run, each decision listed.
pub fn plan(report: &PlanReport) -> String {
    let plan = report.plan;
    document(
        ReportKind::Plan,
        &object! {
            pid: plan.pid,
            dry_run: true,
            meaning: plan.meaning,
            clearing: report.clearing.map(clearing),
            walk_share: plan.walk_share,
            walks_saved_per_second: plan.walks_saved_per_second(),
            faults_saved_per_second: plan.faults_saved_per_second(),
            page_tables_saved_bytes: plan.page_tables_freed(),
            processes: report.family.processes,
            processes_observed: report.family.observed,
            growth_bytes: plan.growth(),
            max_growth_bytes: report.growth_limit.limit,
            max_growth_of_bytes: report.growth_limit.share_of(),
            expected_gain_percent: report.forecast.gain(),
            expected_gain_from: report.forecast.from(),
            expected_gain_doubt: report.doubt,
            expected_from: report.basis,
            expected_seconds: report.expectation.map(|expectation| expectation.elapsed.seconds()),
            expected_longest_stall_ns: report.expectation.map(|expectation| expectation.longest_stall),
            decisions: &plan.decisions,
        },
    )
}

/// The promotion, each refused region listed.
pub fn promote(report: &PromoteReport) -> String {
    document(
        ReportKind::Promotion,
        &object! {
            pid: report.plan.pid,
            meaning: report.plan.meaning,
            #[serde(flatten)]
            outcome: outcome(report.outcome),
            #[serde(flatten)]
            moments: moments(Some(report.before), report.after),
            reasons: report.plan.counts(),
            seconds: report.elapsed.seconds(),
            #[serde(flatten)]
            guest: report.guest.map(|report| object! { guest: guest::before_and_after(report) }),
        },
    )
}

/// The huge pages given back.
pub fn give_back(report: &GiveBackReport) -> String {
    document(
        ReportKind::GiveBack,
        &object! {
            pid: report.pid,
            #[serde(flatten)]
            outcome: outcome(report.outcome),
            #[serde(flatten)]
            moments: moments(Some(report.before), report.after),
            frees_empty_pages: report.frees_empty_pages,
            seconds: report.outcome.elapsed.seconds(),
        },
    )
}

/// The summary of a run.
pub fn run(report: &RunReport) -> String {
    document(
        ReportKind::Run,
        &object! {
            command: report.command,
            exit_status: report.exit_status,
            signal: report.signal,
            #[serde(flatten)]
            pilot_summary: pilot_summary(&report.pilot_summary),
            #[serde(flatten)]
            launch: report.launch.map(|report| object! { launch: launch(report) }),
        },
    )
}

/// The summary of an attachment.
pub fn attach(pids: &[u32], report: &PilotReport) -> String {
    // Null for several.
    let pid = if let &[pid] = pids { Some(pid) } else { None };
    document(
        ReportKind::Attach,
        &object! {
            pid,
            pids,
            #[serde(flatten)]
            pilot_summary: pilot_summary(report),
        },
    )
}

/// The recording that was made.
pub fn record(report: &RecordReport) -> String {
    document(
        ReportKind::Record,
        &object! {
            pid: report.pid,
            name: report.name,
            observations: report.observations,
            seconds: report.elapsed.seconds(),
            size_bytes: report.size,
            path: report.path,
        },
    )
}

/// A configuration that is right.
pub fn config(path: &Path, config: &Config) -> String {
    document(
        ReportKind::Config,
        &object! {
            path,
            targets: config.scope.rules().len(),
            never: config.scope.never().len(),
            only_observes: config.only_observes(),
        },
    )
}

/// The outcome of piloting, shared by every document that reports it.
fn pilot_summary(report: &PilotReport) -> impl Serialize {
    object! {
        rounds: report.rounds,
        processes: report.processes,
        left_alone: report.left_alone,
        reasons: report.reasons,
        too_small_bytes: report.too_small,
        given_back: report.given_back,
        lost: report.lost,
        #[serde(flatten)]
        outcome: outcome(report.outcome),
        #[serde(flatten)]
        moments: moments(report.before, report.after),
        growth_bytes: report.growth,
        pilot_cpu_ns: report.pilot,
        seconds: report.elapsed.seconds(),
    }
}

/// A document with these fields.
fn document(report: ReportKind, fields: &impl Serialize) -> String {
    line(&object! {
        version: VERSION,
        report,
        #[serde(flatten)]
        fields,
    })
}

/// A document of a state that carries the version itself.
fn state_document(report: ReportKind, state: &impl Serialize) -> String {
    line(&object! {
        report,
        #[serde(flatten)]
        state,
    })
}

fn line(document: &impl Serialize) -> String {
    let text = serde_json::to_string(document).expect("documents have string keys only and cannot fail");
    // Whatever a test prints must be as the schema says.
    #[cfg(test)]
    schema::check(&serde_json::from_str(&text).expect("valid JSON"));
    text + "\n"
}

/// What was observed of a process, shared by every document that reports it.
fn summary(summary: Summary) -> impl Serialize {
    let cost = object! {
        clear_ns: summary.cost.clear,
        longest_stall_ns: summary.cost.longest_stall,
        read_ns: summary.cost.read,
        reads: summary.cost.reads,
        interim_read_ns: summary.cost.interim_read,
        inspect_ns: summary.cost.inspect,
        kernel_ns: summary.cost.kernel,
        program_ns: summary.cost.program,
    };
    // The errors are standard errors.
    let sample = summary.sample.map(|sample| {
        object! {
            observed_bytes: sample.observed,
            of_bytes: sample.of,
            walks_error_per_second: sample.walks_per_second.error,
            pages_walked_error: sample.pages_walked.error,
        }
    });
    object! {
        pid: summary.pid,
        tracker: summary.tracker,
        meaning: summary.meaning,
        clearing: summary.clearing.map(clearing),
        window_ns: summary.window,
        busy_cpus: summary.busy_cpus,
        waited_share: summary.waited_share,
        rss_bytes: summary.rss,
        pages_present: summary.amount.present,
        pages_walked: summary.amount.walked,
        pages_unobserved: summary.unobserved,
        walks_per_second: summary.amount.walks_per_second,
        walks_at_least_per_second: summary.walks_at_least_per_second,
        // 0 if walks are in address order, 1 if they are at random; null if unknown.
        scattered: summary.scattered,
        huge_bytes: summary.amount.huge,
        cost,
        // Null if everything was observed; otherwise `walks_per_second` and `pages_walked` are extrapolated from this sample.
        sample,
    }
}

/// What an action did, shared by every document that reports one.
fn outcome(outcome: &Outcome) -> impl Serialize {
    let nodes = Some(&outcome.prepared_on).filter(|nodes| !nodes.is_empty());
    object! {
        tried: outcome.tried,
        applied: outcome.applied,
        refused: &outcome.refused,
        not_reached: outcome.not_reached,
        elapsed_ns: outcome.elapsed,
        busy_ns: outcome.busy,
        preparing_ns: outcome.preparing,
        #[serde(flatten)]
        prepared_on_nodes: nodes.map(|nodes| object! { prepared_on_nodes: nodes }),
        longest_step_ns: outcome.longest,
        step_median_ns: outcome.times.percentile(0.5),
        step_p90_ns: outcome.times.percentile(0.9),
        longest_stall_ns: outcome.waited.map(|waited| waited.longest),
        held_up_share: outcome.waited.and_then(|waited| waited.share()),
    }
}

/// Counters before and after, shared by every document that has them. Null where nobody read them.
fn moments(before: Option<Snapshot>, after: Option<Snapshot>) -> impl Serialize {
    object! {
        rss_before_bytes: before.map(|snapshot| snapshot.rss),
        rss_after_bytes: after.map(|snapshot| snapshot.rss),
        huge_before_bytes: before.map(|snapshot| snapshot.huge),
        huge_after_bytes: after.map(|snapshot| snapshot.huge),
        page_tables_before_bytes: before.map(|snapshot| snapshot.page_tables),
        page_tables_after_bytes: after.map(|snapshot| snapshot.page_tables),
        walks_before_per_second: before.and_then(|snapshot| snapshot.walks_per_second),
        walks_after_per_second: after.and_then(|snapshot| snapshot.walks_per_second),
        busy_cpus_before: before.and_then(|snapshot| snapshot.busy_cpus),
        busy_cpus_after: after.and_then(|snapshot| snapshot.busy_cpus),
    }
}

#[cfg(test)]
mod tests {
    use heat::clearing::{ClearReason, Clearing};
    use heat::samples::{clearing, heat_of, mixed_heat};
    use heat::units::{Bytes, Nanos};
    use heat::{Estimate, PageSizes, Reclaim, Sample, WalkShare};
    use pilot::decide::GainPercent;
    use pilot::engine::Family;
    use pilot::explain::{Surroundings, explain as explain_heat};
    use pilot::forecast::{Doubt, Forecast};
    use pilot::past_trials::EstimatedFrom;

    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::report::samples::{self, AFTER, mixed_plan, outcome, pilot_report};
    use crate::report::{
        AfterRestart, Expectation, ExplainReport, GuestPlanReport, GuestReport, LaunchReport, PoolPlanReport,
        ReclaimStatusReport, VirtualMachineReport, pool_samples,
    };

    /// The document indented for a snapshot; fails if it is not one line of JSON.
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
        heat_of_two.regions[1].in_order = true;
        heat_of_two.clearing = Some(clearing());
        insta::assert_snapshot!(pretty(&heat(&heat_of_two, None)));
    }

    #[test]
    fn a_plan_has_its_fields() {
        let mut plan_of_three = mixed_plan();
        plan_of_three.decisions.drain(1..7);
        let forecast = Forecast::Gain(GainPercent { low: 5.0, likely: 12.0, high: 25.0 }, EstimatedFrom::Model);
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
            growth_limit: samples::growth_limit(),
            clearing: None,
            forecast,
            basis: None,
            doubt: None,
            expectation
        })));
    }

    #[test]
    fn a_promotion_has_its_fields() {
        let (plan, outcome) = (mixed_plan(), outcome());
        let report = samples::promotion(&plan, &outcome);
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
        let (outcome, left_alone) = (outcome(), BTreeSet::from(["process 7 is a virtual machine".to_owned()]));
        let report = RunReport {
            command: &["memcached".to_owned(), "-m".to_owned()],
            exit_status: None,
            signal: Some(15),
            pilot_summary: pilot_report(&outcome, &left_alone),
            launch: None,
        };
        insta::assert_snapshot!(pretty(&run(&report)));
        assert!(
            attach(&[42], &report.pilot_summary)
                .starts_with(r#"{"version":1,"report":"attach","pid":42,"pids":[42],"rounds":3,"#)
        );
        assert!(
            attach(&[7, 8], &report.pilot_summary)
                .starts_with(r#"{"version":1,"report":"attach","pid":null,"pids":[7,8],"#)
        );
    }

    /// Scripts that do not parse JSON rely on the fields, their order and their spelling, too.
    #[test]
    fn every_document_keeps_its_form() {
        let (plan, outcome) = (mixed_plan(), outcome());
        let estimate = Estimate { value: 1.5, error: 0.5 };
        let sample = Sample { observed: Bytes(1), of: Bytes(2), walks_per_second: estimate, pages_walked: estimate };
        let heat_of_all = Heat { clearing: Some(clearing()), sample: Some(sample), ..mixed_heat() };
        let after = Some(AFTER);
        let (prepared, account) = (samples::prepared_search(), samples::account_of_a_search());
        let left_alone = BTreeSet::from(["process 7 is a virtual machine".to_owned()]);
        let prepared_on_nodes = Outcome { prepared_on: BTreeMap::from([(1, 2)]), ..outcome.clone() };
        let pilot_summary = PilotReport { too_small: Some(Bytes(7)), ..pilot_report(&prepared_on_nodes, &left_alone) };
        let launch = Some(LaunchReport { prepared: &prepared, account: &account });
        let (family, forecast) = (
            Family::alone(Bytes(80), Bytes(0)),
            Forecast::Gain(GainPercent { low: 3.0, likely: 4.5, high: 12.0 }, EstimatedFrom::Model),
        );
        let mut sizes = PageSizes::default();
        sizes.add(Bytes(1 << 16), Bytes(1 << 16));
        let smaller = vec![sizes; heat_of_all.regions.len()];
        let explanation = explain_heat(&heat_of_all, &plan, Some(&smaller), &Surroundings::default());
        let managers = [samples::jemalloc()];
        let basis = crate::report::trial_samples::forecast_basis();
        let explain_report = ExplainReport {
            heat: &heat_of_all,
            explanation: &explanation,
            family,
            forecast,
            basis,
            doubt: Some(Doubt::NewMemory),
            after_restart: Some(AfterRestart { would_pay: Bytes(4 << 30), gain: forecast.gain() }),
            fault_share: Some(0.18),
            cost_from: "as other machines showed",
            walk_share: Some(WalkShare { low: 0.1, high: 0.125 }),
            collapses_files: None,
            virtual_machine: Some(VirtualMachineReport {
                guest: &samples::guest(),
                plan: &samples::guest_plan(),
                walks_are_seen: true,
            }),
            managers: &managers,
        };
        let clearing = heat_of_all.clearing;
        let (census, now) = (samples::census(), samples::moment(9));
        let mut counts = PageCounts::default();
        counts.add(&heat_of_all);
        let guest = samples::guest();
        let in_guest = GuestReport { before: &guest, after: None };
        let (replica_trial, replicas) = crate::report::trial_samples::replicas_on_trial(4, 0.8);
        insta::assert_snapshot!(
            [
                heat(&heat_of_all, Some(&smaller)),
                super::plan(&PlanReport {
                    plan: &plan,
                    family,
                    growth_limit: samples::growth_limit(),
                    clearing,
                    forecast,
                    basis: Some(basis),
                    doubt: None,
                    expectation: None
                }),
                promote(&PromoteReport { elapsed: Nanos(15), ..samples::promotion(&plan, &outcome) }),
                give_back(&GiveBackReport { pid: 1, outcome: &outcome, before: AFTER, after, frees_empty_pages: None }),
                run(&RunReport {
                    command: &["a".to_owned()],
                    exit_status: Some(1),
                    signal: None,
                    pilot_summary,
                    launch
                }),
                attach(&[42], &pilot_summary),
                explain(&explain_report),
                group(&samples::group_seen()),
                pools(&pool_samples::view()),
                resized(&[pool_samples::short()]),
                pool_plan(&PoolPlanReport {
                    changes: &[pool_samples::short().change],
                    available: Some(Bytes(1 << 30))
                }),
                reclaim_status(&ReclaimStatusReport { census: Ok(&census), now: &now, state: None, is_alive: false }),
                pages(7, &counts),
                guest_plan(&GuestPlanReport { plan: &samples::guest_plan(), guest: &guest, expectation: None }),
                promote(&PromoteReport { guest: Some(in_guest), ..samples::promotion(&plan, &outcome) }),
                fleet_trial(&crate::report::FleetTrialReport { trial: &replica_trial, replicas: &replicas }),
                super::cache(&samples::cached()),
            ]
            .concat()
        );
    }

    #[test]
    fn every_reason_for_clearing_has_its_name() {
        let clearing_with = |reason, reclaim| {
            let clearing = Clearing { reason, method: reason.method(), reclaim, ..clearing() };
            heat(&Heat { clearing: Some(clearing), ..heat_of(Vec::new()) }, None)
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
