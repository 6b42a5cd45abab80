//! The outcome of actions: before, after, and what the kernel refused.

use std::collections::BTreeMap;

use super::{guest, joined, marked, plan, sums};
use crate::report::table::{or_dash, table};
use crate::report::{GiveBackReport, PilotReport, PromoteReport};
use heat::RefusalReason;
use heat::units::{Bytes, Nanos};
use heat::{Meaning, Snapshot};
use pilot::act::Outcome;
use pilot::decide::{PlanReasons, Reason};
use pilot::words::{about, count, count_of, mostly_kept, percent, rate, refusal};

/// The promotion: tried, applied and refused, then before and after.
pub fn promote(report: &PromoteReport) -> String {
    let outcome = report.outcome;
    let mut lines = account(report.plan.pid, "promoted", outcome);
    // Where nothing was tried, both scans saw the same program, and differ by chance.
    if outcome.tried > 0 || report.after.is_none() {
        lines.extend(before_and_after(&report.before, report.after.as_ref(), report.plan.meaning));
        lines.extend(of_one_process(report));
        lines.push(String::new());
    }
    let guest = report.guest.iter().flat_map(|guest| guest::promoted(guest, report.plan.pid));
    lines.extend(guest.chain(report.guest.map(|_| String::new())));
    lines.extend(plan::by_reason(report.plan));
    if report.plan.decisions.iter().any(|decision| decision.reason == Reason::GrowthLimit) {
        lines.push(format!("growth allowed: {}", plan::growth_limit(&report.growth_limit)));
    }
    lines.extend(pace(outcome).map(|pace| {
        let observing = report.elapsed.saturating_sub(outcome.elapsed);
        format!("took {}: {} promoting, {observing} observing; {pace}", report.elapsed, outcome.elapsed)
    }));
    let only_its_own = if report.processes > 1 { "; how long its other processes waited was not measured" } else { "" };
    lines.extend(stalls(outcome).map(|stalls| stalls + only_its_own));
    let pid = report.plan.pid;
    if outcome.tried == 0
        && let PlanReasons { regions, mostly_kept: most } = report.plan.reasons()
        && let Some(kept) = mostly_kept(&regions, most)
    {
        lines.push(format!("nothing was promoted; {kept} (`hugepilot explain {pid}` says more)"));
    }
    if outcome.applied > 0 && report.after.is_some() {
        let shared = plan::shared(report.plan, report.processes);
        lines.push(match report.guest {
            Some(_) => format!("`hugepilot give-back {pid}` undoes it"),
            None if shared > Bytes(0) => format!(
                "{shared} of it are shared by {} processes and stay on huge pages until these restart; compare what the program does before and after",
                report.processes
            ),
            None => format!("`hugepilot trial {pid}` measures what it gains; `hugepilot give-back {pid}` undoes it"),
        });
    }
    joined(lines)
}

/// What its figures leave out.
fn of_one_process(report: &PromoteReport) -> Option<String> {
    (report.processes > 1).then(|| {
        format!(
            "(of process {} alone: what it now maps of shared memory was in memory before, and its {} other processes follow as they touch it)",
            report.plan.pid,
            count(report.processes - 1)
        )
    })
}

/// How long collapses took, and what preparing their pages achieved; None without a collapse.
fn pace(outcome: &Outcome) -> Option<String> {
    if outcome.tried == 0 {
        return None;
    }
    let time = |share| outcome.times.percentile(share).unwrap_or_default();
    let prepared = match outcome.preparing {
        Nanos(0) => String::new(),
        preparing => format!("; preparing pages took {preparing} beside the program"),
    };
    let speed = Bytes((outcome.applied_bytes().0 as f64 / outcome.elapsed.seconds().max(f64::MIN_POSITIVE)) as u64);
    Some(format!("{speed}/s, a collapse {} (90 % within {}){prepared}", time(0.5), time(0.9)))
}

/// How long the program was stalled: measured, or at most the longest collapse.
fn stalls(outcome: &Outcome) -> Option<String> {
    if outcome.tried == 0 {
        return None;
    }
    Some(match outcome.waited.and_then(|waited| Some((waited, waited.share()?))) {
        Some((waited, share)) => format!(
            "longest stall {} (a wait for the lock of its memory); its threads waited so for {} of the time in which they wanted to run",
            waited.longest,
            percent(share, 1.0)
        ),
        None => format!(
            "no stall was longer than {}; collapses were under way for {} of the time",
            outcome.longest,
            percent(outcome.busy.seconds(), outcome.elapsed.seconds())
        ),
    })
}

/// The huge pages given back.
pub fn give_back(report: &GiveBackReport) -> String {
    let mut lines = account(report.pid, "split", report.outcome);
    // It counts no walks.
    lines.extend(before_and_after(&report.before, report.after.as_ref(), Meaning::Walked));
    match report.frees_empty_pages {
        Some(true) => {}
        Some(false) => lines.push(
            "this kernel splits huge pages but frees none of their empty base pages: their growth stays until the \
             program frees it; limit it when promoting (--max-growth)"
                .to_owned(),
        ),
        None => lines.push("it could not be told whether this kernel frees the empty base pages".to_owned()),
    }
    joined(lines)
}

/// Reasons for leaving processes alone that a summary shows; JSON has all.
const MOST_LEFT_ALONE: usize = 3;

/// The short summary of `run` or `attach`. Each line is marked as ours, because it may appear among the program's own output. Only the most frequent
/// refusal is shown; JSON has all. `explain` is a command that says more about what was not promoted, if there is one that works.
pub fn pilot_summary(report: &PilotReport, explain: Option<&str>) -> String {
    let outcome = report.outcome;
    let mut lines = match (report.before.or(report.after), report.too_small) {
        (None, Some(most)) => {
            vec![format!(
                "too small to be observed: no process had more than {most} resident when that was checked, pools' pages not counted"
            )]
        }
        (None, None) if report.left_alone.is_empty() => {
            vec!["the program ended before it could be observed".to_owned()]
        }
        (None, None) => Vec::new(),
        (Some(_), _) if outcome.applied > 0 || report.given_back > 0 => what_changed(report),
        (Some(_), _) => vec![nothing_promoted(report, explain)],
    };
    lines.extend(report.left_alone.iter().take(MOST_LEFT_ALONE).map(|why| format!("left alone: {why}")));
    lines.extend(refusals(outcome).into_iter().next().into_iter().flatten());
    let share = percent(report.pilot.seconds(), report.elapsed.seconds());
    lines.push(format!(
        "ran {}; the pilot used {} of CPU time ({share}) in {}",
        report.elapsed,
        report.pilot,
        count_of(report.rounds, "round")
    ));
    marked(lines)
}

/// Before and after, and what was done.
fn what_changed(report: &PilotReport) -> Vec<String> {
    let walks = |snapshot: &Option<Snapshot>| snapshot.and_then(|snapshot| snapshot.walks_per_cpu_second()).map(about);
    let huge = report.after.map_or("an unknown amount".to_owned(), |after| after.huge.to_string());
    let if_any = |regions, done| if regions > 0 { format!(", {} {done}", count(regions)) } else { String::new() };
    let given_back = if_any(report.given_back, "given back");
    let (lost, refused) = (if_any(report.lost, "lost again"), if_any(report.outcome.refused.len() as u64, "refused"));
    vec![
        format!(
            "page walks per CPU second: {} before, {} after",
            walks(&report.before).unwrap_or("not known".to_owned()),
            walks(&report.after).unwrap_or("not observed".to_owned())
        ),
        format!(
            "{huge} on huge pages when last observed{}, {} promoted{given_back}{lost}{refused}",
            sums(report.processes),
            count_of(report.outcome.applied, "region")
        ),
        format!("memory grown by {}", report.growth),
    ]
}

/// Why nothing was promoted. Page walks before and after would compare a program with itself.
fn nothing_promoted(report: &PilotReport, explain: Option<&str>) -> String {
    let regions = |reason| report.reasons.get(&reason).copied().unwrap_or_default();
    let (refused, would_pay) = (report.outcome.refused.len() as u64, regions(Reason::Pays));
    let why = match mostly_kept(report.reasons, report.mostly_kept) {
        // What follows says why.
        _ if refused > 0 => format!("the kernel refused {}", count_of(refused, "region")),
        _ if would_pay > 0 => {
            format!("piloting ended before it could promote {} that would pay", count_of(would_pay, "region"))
        }
        Some(kept) => kept,
        None if regions(Reason::AlreadyHuge) > 0 => "all that could be huge is already".to_owned(),
        None => "no memory that could be huge was seen".to_owned(),
    };
    let more = explain.map_or(String::new(), |explain| format!(" ({explain})"));
    format!("nothing was promoted: {why}{more}")
}

/// The outcome of a run so far, in a few words.
pub fn under_way(report: &PilotReport) -> String {
    let promoted = count_of(report.outcome.applied, "region");
    let because = mostly_kept(report.reasons, report.mostly_kept).filter(|_| report.outcome.applied == 0);
    let because = because.map_or(String::new(), |kept| format!("; {kept}"));
    format!("{}, {promoted} promoted, memory grown by {}{because}", count_of(report.rounds, "round"), report.growth)
}

/// Refusals grouped by reason and errno, most regions first. Each group has a line that says why and one that says what to do next.
fn refusals(outcome: &Outcome) -> Vec<[String; 2]> {
    let mut groups: BTreeMap<(RefusalReason, i32), u64> = BTreeMap::new();
    for refused in &outcome.refused {
        *groups.entry((refused.reason, refused.errno)).or_default() += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|&(_, regions)| std::cmp::Reverse(regions));
    let lines = groups.into_iter().map(|((reason, errno), regions)| {
        let (why, next_step) = refusal(reason);
        let regions = count_of(regions, "region");
        let errno = if errno == 0 { String::new() } else { format!(" (errno {errno})") };
        [format!("{regions} refused: {why}{errno}"), format!("next step: {next_step}")]
    });
    lines.collect()
}

/// What was tried: the tally, every refusal, and the regions not reached.
fn account(pid: u32, done: &str, outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![format!(
        "process {pid}: {} tried, {} {done} ({}), {} refused",
        count_of(outcome.tried, "region"),
        count(outcome.applied),
        outcome.applied_bytes(),
        count(outcome.refused.len() as u64)
    )];
    for [why, next_step] in refusals(outcome) {
        lines.push(format!("  {why}"));
        lines.push(format!("    {next_step}"));
    }
    if outcome.not_reached > 0 {
        let regions = count_of(outcome.not_reached, "region");
        lines.push(format!("  {regions} not reached: interrupted, or the process ended; run again to go on"));
    }
    lines.push(String::new());
    lines
}

fn before_and_after(before: &Snapshot, after: Option<&Snapshot>, meaning: Meaning) -> Vec<String> {
    let mut rows = Vec::new();
    rows.extend(walks_before_and_after(before, after, plan::at_most(meaning)));
    let mut size_row = |name, size: fn(&Snapshot) -> Bytes| {
        let (was, now) = (size(before), after.map(size));
        rows.push(row(name, was.to_string(), now.map(|now| now.to_string()), now.map(|now| grown(was, now))));
    };
    size_row("resident", |snapshot| snapshot.rss);
    size_row("on huge pages", |snapshot| snapshot.huge);
    size_row("page tables", |snapshot| snapshot.page_tables);
    let mut lines = table(rows)
        .left("", |row| row[0].clone())
        .right("before", |row| row[1].clone())
        .right("after", |row| row[2].clone())
        .left("change", |row| row[3].clone())
        .lines();
    if after.is_none() {
        lines.push("not observed again: a signal ended the command, or the process has ended".to_owned());
    }
    lines
}

/// A busier or a faster program walks more often by the clock, so CPU time is the measure wherever it is known.
fn walks_before_and_after(before: &Snapshot, after: Option<&Snapshot>, at_most: &str) -> Option<[String; 4]> {
    let is_known = |snapshot: &Snapshot| snapshot.walks_per_cpu_second().is_some();
    let by_cpu_time = is_known(before) && after.is_none_or(is_known);
    let (name, shown): (_, fn(f64) -> String) =
        if by_cpu_time { ("page walks per CPU second", about) } else { ("page walks", rate) };
    let walks = |snapshot: &Snapshot| match by_cpu_time {
        true => snapshot.walks_per_cpu_second(),
        false => snapshot.walks_per_second,
    };
    let (was, now) = (walks(before)?, after.and_then(walks));
    let change = now.and_then(|now| relative(was, now));
    Some(row(&format!("{at_most}{name}"), shown(was), now.map(shown), change))
}

fn row(name: &str, before: String, after: Option<String>, change: Option<String>) -> [String; 4] {
    [name.to_owned(), before, or_dash(after), or_dash(change)]
}

/// The difference in size, with a percentage where that is readable.
fn grown(before: Bytes, after: Bytes) -> String {
    let (sign, difference) =
        if after < before { ('-', before.saturating_sub(after)) } else { ('+', after.saturating_sub(before)) };
    let percent = relative(before.0 as f64, after.0 as f64).map_or(String::new(), |change| format!(" ({change})"));
    format!("{sign}{difference}{percent}")
}

/// The change in percent; None if the value before is 0, or so small that the percentage means nothing.
fn relative(before: f64, after: f64) -> Option<String> {
    let change = 100.0 * (after - before) / before;
    // Beyond that it means nothing.
    (change.abs() < 1000.0).then(|| format!("{change:+.1} %"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use pilot::decide::Plan;

    use crate::report::samples::{AFTER, BEFORE, mixed_plan, outcome, pilot_report, promotion};

    #[test]
    fn a_promotion_shows_before_and_after_and_every_refusal() {
        let (plan, outcome) = (mixed_plan(), outcome());
        let report = PromoteReport { elapsed: Nanos(2_300_000_000), ..promotion(&plan, &outcome) };
        insta::assert_snapshot!(promote(&report));
        let gone = promote(&PromoteReport { after: None, ..report });
        assert!(gone.contains("not observed again"), "{gone}");
        assert!(!gone.contains("undoes it"), "{gone}");
        assert!(gone.contains("\npage walks per CPU second  25.0 M"), "{gone}");
        let accessed = Plan { meaning: Meaning::Accessed, ..plan.clone() };
        let idle = Snapshot { busy_cpus: Some(0.0), ..AFTER };
        let by_the_clock = promote(&PromoteReport { plan: &accessed, after: Some(idle), ..report });
        assert!(by_the_clock.contains("\nat most page walks  12.5 M/s   125 k/s"), "{by_the_clock}");
    }

    #[test]
    fn a_promotion_of_nothing_says_why() {
        let (plan, outcome) = (mixed_plan(), Outcome::default());
        let told = promote(&promotion(&plan, &outcome));
        assert!(
            told.contains("nothing was promoted; ") && told.contains("`hugepilot explain 4242` says more"),
            "{told}"
        );
        assert!(!told.contains("resident"), "nothing has changed: {told}");
        let gone = promote(&PromoteReport { after: None, ..promotion(&plan, &outcome) });
        assert!(gone.contains("not observed again"), "{gone}");
    }

    #[test]
    fn giving_back_says_what_the_kernel_cannot_free() {
        let outcome = Outcome { refused: Vec::new(), not_reached: 0, ..outcome() };
        let before = Snapshot { walks_per_second: None, ..AFTER };
        let after = Some(Snapshot { walks_per_second: None, ..BEFORE });
        let report = GiveBackReport { pid: 4242, outcome: &outcome, before, after, frees_empty_pages: Some(false) };
        insta::assert_snapshot!(give_back(&report));
        assert!(!give_back(&GiveBackReport { frees_empty_pages: Some(true), ..report }).contains("this kernel"));
        assert!(give_back(&GiveBackReport { frees_empty_pages: None, ..report }).contains("could not be told"));
    }

    #[test]
    fn a_run_ends_with_a_few_lines() {
        let outcome = outcome();
        let nobody = BTreeSet::new();
        let report = PilotReport {
            processes: 2,
            given_back: 1200,
            growth: Bytes(12 << 10),
            pilot: Nanos(1_200_000_000),
            elapsed: Nanos(60_000_000_000),
            ..pilot_report(&outcome, &nobody)
        };
        let pilot_summary =
            |report: &PilotReport| super::pilot_summary(report, Some("`hugepilot explain 4242` says more"));
        insta::assert_snapshot!(pilot_summary(&report));
        let short = pilot_summary(&PilotReport { before: None, after: None, outcome: &Outcome::default(), ..report });
        assert!(short.starts_with("hugepilot: the program ended before it could be observed\n"), "{short}");
        // What was promoted before this command began, it has not seen otherwise.
        let again = pilot_summary(&PilotReport { before: None, ..report });
        assert!(again.starts_with("hugepilot: page walks per CPU second: not known before, "), "{again}");
        let unseen = PilotReport { before: None, after: None, outcome: &Outcome::default(), ..report };
        let small = pilot_summary(&PilotReport { too_small: Some(Bytes(5 << 20)), ..unseen });
        assert!(small.contains("no process had more than 5 MiB resident"), "{small}");
        let left_alone = BTreeSet::from(["process 7 runs a virtual machine".to_owned()]);
        let alone = pilot_summary(&PilotReport { left_alone: &left_alone, ..unseen });
        assert!(alone.starts_with("hugepilot: left alone: process 7 runs a virtual machine\n"), "{alone}");
    }

    #[test]
    fn a_run_that_promoted_nothing_says_why_and_compares_nothing() {
        let (outcome, nobody) = (Outcome::default(), BTreeSet::new());
        let report = PilotReport { given_back: 0, lost: 0, ..pilot_report(&outcome, &nobody) };
        let told = |report: &PilotReport| pilot_summary(report, Some("`hugepilot explain 4242` says more"));
        let because = |reasons: &[(Reason, u64)], mostly_kept| {
            told(&PilotReport { reasons: &reasons.iter().copied().collect(), mostly_kept, ..report })
        };
        let mixed = [(Reason::AlreadyHuge, 90), (Reason::LivesInTlb, 40), (Reason::NotWalked, 3)];
        let kept = because(&mixed, None);
        assert!(
            kept.starts_with(
                "hugepilot: nothing was promoted: 90 of 133 regions are huge already; 40 of the others: the process gains"
            ),
            "{kept}"
        );
        assert!(kept.contains("(`hugepilot explain 4242` says more)\nhugepilot: ran "), "{kept}");
        assert!(!kept.contains("page walks per") && !kept.contains("memory grown"), "{kept}");
        assert!(!pilot_summary(&report, None).contains("explain"));
        let kept = because(&mixed, Some(Reason::NotWalked));
        assert!(kept.contains("90 of 133 regions are huge already; 3 of the others: no page walk"), "{kept}");
        for (reasons, expected) in [
            (&[(Reason::Pays, 3)][..], "piloting ended before it could promote 3 regions that would pay"),
            (&[(Reason::Pays, 3), (Reason::NotWalked, 1)], "piloting ended before it could promote 3 regions"),
            (&[(Reason::AlreadyHuge, 3)], "all that could be huge is already"),
            (&[], "no memory that could be huge was seen"),
        ] {
            let told = because(reasons, None);
            assert!(told.starts_with(&format!("hugepilot: nothing was promoted: {expected}")), "{told}");
        }
        let refused = Outcome { applied: 0, ..self::outcome() };
        let told = told(&PilotReport { outcome: &refused, ..report });
        assert!(told.starts_with("hugepilot: nothing was promoted: the kernel refused 3 regions"), "{told}");
        assert!(told.contains("\nhugepilot: next step: "), "{told}");
        let given_back = pilot_summary(&PilotReport { given_back: 1, ..report }, None);
        assert!(given_back.contains("page walks per") && !given_back.contains("nothing was"), "{given_back}");
    }
}
