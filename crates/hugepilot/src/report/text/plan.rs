//! A plan before it is carried out: what would be done, and why.

use heat::Meaning;
use heat::units::{Address, Bytes, HUGE_PAGE};
use pilot::decide::{Decision, GrowthLimit, Plan, Verdict};
use pilot::forecast::{Doubt, Forecast};
use pilot::past_trials::EstimatedFrom;
use pilot::words::{corrected, count, count_of, meaning, rate, reason};

use super::clearing::clearing;
use super::{contended, expectation, joined, much_waiting};
use crate::report::PlanReport;
use crate::report::table::table;

/// Runs of regions listed; the others add up to little, and JSON has them.
const MAX_RUNS: usize = 40;

/// The dry run: expectations, regions by reason, then runs of adjacent regions that share a reason.
pub fn plan(report: &PlanReport) -> String {
    format!("{}no memory was moved: this was a dry run\n", plan_of_nothing_done(report))
}

/// The same for whoever did not ask for a dry run.
pub fn plan_of_nothing_done(report: &PlanReport) -> String {
    let plan = report.plan;
    let saved = format!("  page walks saved  {}{}", at_most(plan.meaning), rate(plan.walks_saved_per_second()));
    let mut lines =
        vec![would_promote(plan), format!("  growth allowed    {}", growth_limit(&report.growth_limit)), saved];
    lines.extend(saved_besides(report));
    lines.push(format!("  expected gain     {}", gain(report.forecast)));
    let waited = report.basis.and_then(|basis| much_waiting(basis.waited_share));
    let doubts =
        report.doubt.map(perhaps_nothing).into_iter().chain(waited.filter(|_| report.forecast.gain().is_some()));
    // Nobody acts on a plan without an expectation, such as that of a recording.
    let nevertheless = report.expectation.and_then(|_| expectation::nevertheless(report.forecast, "would be"));
    lines.extend(doubts.chain(nevertheless).map(|doubt| format!("                    {doubt}")));
    lines.push(format!("  {}", meaning(plan.meaning)));
    lines.extend(report.clearing.iter().flat_map(clearing).map(|line| format!("  {line}")));
    if let Some(expectation) = &report.expectation {
        lines.push(format!("  {}", expectation::expected(expectation)));
    }
    lines.push(String::new());
    lines.extend(by_reason(plan));
    lines.push(String::new());
    lines.extend(runs_table(plan));
    joined(lines)
}

/// What stands before page walks that were counted so.
pub(super) fn at_most(meaning: Meaning) -> &'static str {
    if meaning == Meaning::Accessed { "at most " } else { "" }
}

/// How much would be promoted.
pub(super) fn would_promote(plan: &Plan) -> String {
    let promoted = plan.promotions().count() as u64;
    format!(
        "process {}: would promote {} of {} ({}), growing memory by {}",
        plan.pid,
        count(promoted),
        count_of(plan.decisions.len() as u64, "region"),
        Bytes(promoted * HUGE_PAGE),
        plan.growth()
    )
}

/// The growth allowed, and what it is a share of.
pub(super) fn growth_limit(limit: &GrowthLimit) -> String {
    match limit.share_of() {
        Some(memory) => format!(
            "{}: {} of {memory} resident, shared memory that only others touched included",
            limit.limit, limit.allowed
        ),
        None => limit.limit.to_string(),
    }
}

/// What huge pages save for shared memory besides page walks.
fn saved_besides(report: &PlanReport) -> Vec<String> {
    let (plan, family) = (report.plan, report.family);
    let mut lines = Vec::new();
    if plan.faults_saved_per_second() >= 1.0 {
        lines.push(format!("  page faults saved {}", rate(plan.faults_saved_per_second())));
    }
    if plan.page_tables_freed() > Bytes(0) {
        lines.push(format!("  page tables freed {} of {}", plan.page_tables_freed(), family.page_tables));
    }
    if family.processes > 1 {
        let (all, observed) = (count(family.processes), count(family.observed));
        lines.push(format!("  counted for       {all} processes that share memory; {observed} of them observed"));
    }
    let shared = shared(plan, family.processes);
    if shared > Bytes(0) {
        lines.push(format!("  no way back       for {shared} that they share but a restart: the kernel splits no huge page that several processes map"));
    }
    lines
}

/// What would be promoted of memory that several processes share: only its page tables go.
pub(super) fn shared(plan: &Plan, processes: u64) -> Bytes {
    let regions = plan.promotions().filter(|decision| processes > 1 && decision.page_tables > 0).count();
    Bytes(regions as u64 * HUGE_PAGE)
}

/// A forecast as a clause.
pub(super) fn gain(forecast: Forecast) -> String {
    match forecast {
        Forecast::Idle => "unknown: the process used no CPU time while it was watched".to_owned(),
        Forecast::Contended(share) => contended(share),
        Forecast::Gain(gain, from) => format!(
            "about {:.1} % of speed ({:.1} to {:.1}), an estimate: page walks saved × the cost of a walk{}",
            gain.likely,
            gain.low,
            gain.high,
            and_corrected(from)
        ),
    }
}

/// Why a forecast may be nothing.
pub(super) fn perhaps_nothing(doubt: Doubt) -> String {
    let why = match doubt {
        Doubt::Order => "whether page walks go along addresses could not be told",
        Doubt::NewMemory | Doubt::SparseNewMemory => {
            "it maps so much new memory that what is promoted may soon be gone"
        }
    };
    let next_step = match doubt {
        Doubt::NewMemory => {
            "\n                    `hugepilot run --pages thp -- PROGRAM` starts it with new memory on huge pages"
        }
        Doubt::Order | Doubt::SparseNewMemory => "",
    };
    format!("perhaps nothing: {why}{next_step}")
}

/// How past trials correct a forecast, to follow what else it rests on.
pub(super) fn and_corrected(from: EstimatedFrom) -> String {
    corrected(from).map_or(String::new(), |corrected| format!(", {corrected}"))
}

/// The number of regions for each reason, one line each.
pub(super) fn by_reason(plan: &Plan) -> Vec<String> {
    let any_promoted = |why| plan.decisions.iter().any(|decision| decision.reason == why && is_promoted(decision));
    table(plan.counts())
        .left("", |&(why, _)| done(any_promoted(why)))
        .right("regions", |&(_, regions)| count(regions))
        .left("reason", |&(why, _)| reason(why, plan.meaning))
        .lines()
}

fn done(is_promoted: bool) -> &'static str {
    if is_promoted { "promote" } else { "keep" }
}

fn is_promoted(decision: &Decision) -> bool {
    decision.verdict == Verdict::Promote
}

fn runs_table(plan: &Plan) -> Vec<String> {
    let mut by_address: Vec<_> = plan.decisions.iter().collect();
    by_address.sort_by_key(|decision| decision.start);
    let all: Vec<_> = by_address.chunk_by(|left, right| continues(left, right)).collect();
    let shown = hottest_runs(&all);

    let mut lines = table(shown)
        .right("start", |run| run[0].start)
        .right("regions", |run| count(run.len() as u64))
        .right("walks", |run| rate(walks(run)))
        .right("growth", |run| run.iter().map(|decision| decision.growth).sum::<Bytes>())
        .left("decision", |run| done(is_promoted(run[0])))
        .left("reason", |run| reason(run[0].reason, plan.meaning))
        .lines();
    let left_out = all.len().saturating_sub(MAX_RUNS);
    if left_out > 0 {
        lines
            .push(format!("and {} with fewer page walks; --json lists every region", count_of(left_out as u64, "run")));
    }
    lines
}

/// Whether a region directly follows another and has the same decision.
fn continues(left: &Decision, right: &Decision) -> bool {
    left.reason == right.reason && Address(left.start.0.saturating_add(HUGE_PAGE)) == right.start
}

/// The runs with the most page walks, at most `MAX_RUNS`, in address order.
fn hottest_runs<'a>(all: &[&'a [&'a Decision]]) -> Vec<&'a [&'a Decision]> {
    let mut runs = all.to_vec();
    runs.sort_by(|left, right| walks(right).total_cmp(&walks(left)));
    runs.truncate(MAX_RUNS);
    runs.sort_by_key(|run| run[0].start);
    runs
}

fn walks(run: &[&Decision]) -> f64 {
    run.iter().map(|decision| decision.walks_per_second).fold(0.0, |sum, walks| sum + walks)
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, heat_of, region};
    use heat::units::{Nanos, Slowdown};
    use pilot::decide::{Allowance, GainPercent, Past, Spent, decide};
    use pilot::engine::Family;
    use pilot::forecast::ForecastBasis;

    use super::*;
    use crate::report::Expectation;
    use crate::report::samples::{growth_limit, mixed_plan};
    use crate::report::trial_samples::forecast_basis;

    #[test]
    fn a_dry_run_gives_a_reason_for_every_region() {
        let forecast = Forecast::Gain(GainPercent { low: 5.26, likely: 12.0, high: 33.3 }, EstimatedFrom::Model);
        let expectation = Some(Expectation {
            regions: 2,
            growth: Bytes(4096),
            elapsed: Nanos(4_200_000),
            max_slowdown: Slowdown::ASKED_FOR,
            longest_stall: Nanos(2_100_000),
        });
        insta::assert_snapshot!(plan(&PlanReport {
            family: Family::alone(Bytes(0), Bytes(0)),
            plan: &mixed_plan(),
            growth_limit: growth_limit(),
            clearing: None,
            forecast,
            basis: None,
            doubt: Some(Doubt::NewMemory),
            expectation
        }));
    }

    #[test]
    fn what_is_not_certain_is_told() {
        let forecast = Forecast::Gain(GainPercent { low: 5.0, likely: 12.0, high: 33.0 }, EstimatedFrom::Model);
        let told = |meaning, waited_share, forecast| {
            let plan_of_few = Plan { meaning, ..mixed_plan() };
            let basis = Some(ForecastBasis { waited_share, ..forecast_basis() });
            let family = Family::alone(Bytes(0), Bytes(0));
            let (clearing, doubt, expectation) = (None, None, None);
            plan(&PlanReport {
                plan: &plan_of_few,
                family,
                growth_limit: growth_limit(),
                clearing,
                forecast,
                basis,
                doubt,
                expectation,
            })
        };
        let certain = told(Meaning::Walked, Some(0.2), forecast);
        assert!(!certain.contains("at most") && !certain.contains("roughly"), "{certain}");
        let rough = told(Meaning::Accessed, Some(0.3), forecast);
        assert!(rough.contains("page walks saved  at most 3.00 M/s"), "{rough}");
        assert!(rough.contains("roughly: it waited for a processor 30 % of the time"), "{rough}");
        assert!(!told(Meaning::Walked, Some(0.9), Forecast::Contended(0.9)).contains("roughly"), "it is unknown");
    }

    #[test]
    fn a_dry_run_says_that_an_unknown_gain_stops_nothing() {
        let (times, slowdown) = (Nanos(4_200_000), Slowdown::ASKED_FOR);
        let expectation =
            Expectation { regions: 2, growth: Bytes(0), elapsed: times, max_slowdown: slowdown, longest_stall: times };
        let told = |expectation| {
            let (forecast, family) = (Forecast::Idle, Family::alone(Bytes(0), Bytes(0)));
            plan(&PlanReport {
                plan: &mixed_plan(),
                family,
                growth_limit: growth_limit(),
                clearing: None,
                forecast,
                basis: None,
                doubt: None,
                expectation,
            })
        };
        let text = told(Some(expectation));
        let nevertheless =
            "what is walked most would be promoted all the same, though its gain is unknown; --window 10s";
        assert!(text.contains(nevertheless), "{text}");
        assert!(!told(None).contains("all the same"), "nobody acts on the plan of a recording");
    }

    #[test]
    fn ten_thousand_regions_stay_readable() {
        let limits = Allowance::default().limits(Bytes(0), &Spent::default());
        let regions = (0..10_000).map(|n| region(n, f64::from(u32::from(n % 2 == 0)) * (1e3 + n as f64), 0)).collect();
        let plan_of_many = decide(&heat_of(regions), &limits, &Past::default());
        let text = plan(&PlanReport {
            family: Family::alone(Bytes(0), Bytes(0)),
            plan: &plan_of_many,
            growth_limit: Allowance::default().growth_limit(Bytes(1 << 30)),
            clearing: None,
            forecast: Forecast::Idle,
            basis: None,
            doubt: None,
            expectation: None,
        });
        assert!(text.lines().count() < 60, "{text}");
        assert!(text.contains("and 9,960 runs with fewer page walks; --json lists every region"), "{text}");
        assert!(text.contains(&at(9_998).to_string()), "the hottest region is missing: {text}");
        assert!(text.contains("unknown: the process used no CPU time"), "{text}");
        assert!(text.contains("growth allowed    10.24 MiB: 1% of 1 GiB resident, "), "{text}");
        let one_run = decide(&heat_of((0..10_000).map(|n| region(n, 0.0, 0)).collect()), &limits, &Past::default());
        assert_eq!(runs_table(&one_run).len(), 2);
    }

    #[test]
    fn a_gap_ends_a_run() {
        let limits = Allowance::default().limits(Bytes(0), &Spent::default());
        let plan =
            decide(&heat_of(vec![region(0, 0.0, 0), region(1, 0.0, 0), region(3, 0.0, 0)]), &limits, &Past::default());
        assert_eq!(runs_table(&plan).len(), 3);
    }
}
