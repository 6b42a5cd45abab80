//! The explanation: which memory is on huge pages, why the rest is not, and whether more would help.

use heat::PageSizes;
use heat::units::{Bytes, HUGE_PAGE};
use launch::manager::Managed;
use pilot::decide::{GainPercent, Reason};
use pilot::engine::{Children, Family};
use pilot::explain::{Explained, Why};
use pilot::forecast::Forecast;
use pilot::words::{count, count_of, many_page_faults, meaning, rate, reason, why};

use super::clearing::cleared;
use super::plan::{and_corrected, perhaps_nothing};
use super::remedy::remedy;
use super::{contended, guest, joined, much_waiting};
use crate::report::table::table;
use crate::report::{AfterRestart, Detail, ExplainReport, mapping_name};

/// Mappings explained one by one, unless all are asked for.
const MOST: usize = 8;
const NAME_LIMIT: usize = 40;
/// A smaller share of walks that smaller huge pages save is not worth a word.
const NOTED_SAVED: f64 = 0.01;
/// A forecast below that many percent is no advice to promote.
const NOTICEABLE: f64 = 0.1;

/// The explanation.
pub fn explain(report: &ExplainReport, detail: Detail) -> String {
    let mappings = &report.explanation.mappings;
    let sum = |of: fn(&Explained) -> Bytes| mappings.iter().map(of).sum::<Bytes>();
    let (resident, huge, would_pay) = (sum(|each| each.resident), sum(|each| each.huge), sum(Explained::would_pay));
    let smaller = match sum(|each| each.smaller.as_ref().map_or(Bytes(0), PageSizes::total)) {
        Bytes(0) => String::new(),
        smaller => format!(", and {smaller} on smaller ones"),
    };
    let mut lines =
        vec![format!("process {}: {huge} of {resident} resident are on huge pages{smaller}", report.heat.pid)];
    lines.extend(children(report));
    let machine = report.virtual_machine.as_ref();
    let unseen = machine.filter(|machine| !machine.walks_are_seen);
    lines.extend(machine.and_then(guest::populated));
    lines.extend([
        format!("more huge pages?    {}", worth(report, would_pay)),
        format!(
            "page tables         {}; huge pages would free {} of it",
            report.family.page_tables, report.explanation.page_tables_saved
        ),
    ]);
    lines.extend(page_faults(report.explanation.faults_saved_per_second));
    lines.extend(report.fault_share.map(|share| {
        let advice = match report.heat.is_sparse() {
            true => "it fills less than half of each 2 MiB that it touches: huge pages from the start would waste more than they hold",
            false => "`hugepilot run --pages thp -- PROGRAM` starts it so",
        };
        format!("new memory          {}\n                    {advice}", many_page_faults(share))
    }));
    lines.extend(family(&report.family));
    lines.extend(report.after_restart.as_ref().map(after_restart));
    let told = |managed: &Managed| format!("managed by          {}", managed.told().join("\n                    "));
    lines.extend(report.managers.iter().map(told));
    if unseen.is_none() {
        lines.push(meaning(report.heat.meaning).to_owned());
    }
    lines.extend(cleared(report.heat));
    lines.push(String::new());
    // None of these holds a whole huge page.
    let is_small = |each: &&Explained| each.mapping.range.len() < Bytes(HUGE_PAGE);
    let (small, large): (Vec<&Explained>, Vec<&Explained>) = mappings.iter().partition(is_small);
    let shown: Vec<&Explained> = match detail {
        Detail::Usual => large.iter().take(MOST).copied().collect(),
        Detail::Full => mappings.iter().collect(),
    };
    lines.extend(if unseen.is_some() { unwalked(&shown) } else { overview(&shown) });
    for explained in shown.iter().filter(|each| each.huge < each.mapping.range.len()) {
        lines.push(String::new());
        lines.extend(details(explained, report));
    }
    if detail == Detail::Usual {
        lines.extend(left_out(&small, large.get(MOST..).unwrap_or_default()));
    }
    lines.extend(machine.into_iter().flat_map(guest::next_steps));
    joined(lines)
}

/// The mappings that are not shown, in one line.
fn left_out(small: &[&Explained], others: &[&Explained]) -> Option<String> {
    let resident: Bytes = small.iter().map(|each| each.resident).sum();
    let small = (!small.is_empty()).then(|| {
        let mappings = count_of(small.len() as u64, "mapping");
        format!("{mappings} below 2 MiB, which hold no whole huge page ({resident} resident)")
    });
    let others =
        (!others.is_empty()).then(|| format!("{} with fewer page walks", count_of(others.len() as u64, "mapping")));
    let told: Vec<String> = others.into_iter().chain(small).collect();
    (!told.is_empty()).then(|| format!("\nnot shown: {}; -v shows all", told.join(", and ")))
}

fn page_faults(saved_per_second: f64) -> Option<String> {
    (saved_per_second >= 1.0).then(|| {
        format!("page faults         {} on shared memory, which huge pages would save", rate(saved_per_second))
    })
}

fn family(family: &Family) -> Option<String> {
    (family.processes > 1).then(|| {
        format!(
            "processes           {} share memory, {} of them observed; what is told of that memory holds for all",
            count(family.processes),
            count(family.observed)
        )
    })
}

/// What its children hold, where they count, or where that is more than it has itself.
fn children(report: &ExplainReport) -> Option<String> {
    let Children { processes, hold } = report.family.children;
    let holds = match processes {
        1 => format!("1 child process holds {hold} more"),
        _ => format!("{} child processes hold {hold} more", count(processes)),
    };
    match report.family.processes {
        1 if hold > report.heat.rss => {
            Some(format!("its children        {holds}: `hugepilot explain {} --children` counts them", report.heat.pid))
        }
        2.. if processes > 0 => Some(format!("its children        {holds}, shared memory counted once")),
        _ => None,
    }
}

fn after_restart(restarted: &AfterRestart) -> String {
    let gain = restarted.gain.map_or(String::new(), |gain| format!(", which should gain {}", about(gain)));
    format!(
        "after a restart     {} in all, heap included, could be on huge pages{gain}; each mapping below says how",
        restarted.would_pay
    )
}

fn about(gain: GainPercent) -> String {
    format!("about {:.1} % of speed, {:.1} to {:.1}", gain.likely, gain.low, gain.high)
}

fn worth(report: &ExplainReport, would_pay: Bytes) -> String {
    let cost = match report.walk_share {
        None => {
            let cost = report.basis.cost;
            format!("at {} to {} a page walk, {}", cost.low(), cost.high(), report.cost_from)
        }
        Some(share) => format!(
            "page walks were under way in {:.1} to {:.1} % of its time, from the processor's walk cycles",
            100.0 * share.low,
            100.0 * share.high
        ),
    };
    if report.explanation.mappings.iter().any(|each| each.not_huge.contains_key(&Why::SwitchedOff)) {
        return format!("none may be: {}", why(Why::SwitchedOff));
    }
    if let Some(machine) = report.virtual_machine.filter(|machine| !machine.walks_are_seen) {
        return guest::worth(&machine);
    }
    match report.forecast {
        Forecast::Contended(share) => contended(share),
        Forecast::Idle if report.family.processes > 1 => {
            "unknown: neither the process nor its children used CPU time while they were watched".to_owned()
        }
        Forecast::Idle if report.family.children.processes > 0 && children(report).is_none() => format!(
            "unknown: the process used no CPU time while it was watched\n                    \
             `hugepilot explain {} --children` counts its children, if they do its work",
            report.heat.pid
        ),
        Forecast::Idle => "unknown: the process used no CPU time while it was watched".to_owned(),
        Forecast::Gain(..) if would_pay == Bytes(0) => {
            "no: no memory pays for the move, for the reasons below".to_owned()
        }
        Forecast::Gain(gain, _) if gain.high < NOTICEABLE => {
            format!("hardly: {would_pay} more would gain less than {NOTICEABLE} % of speed")
        }
        Forecast::Gain(gain, _) if gain.likely < NOTICEABLE / 2.0 => {
            format!("hardly: {would_pay} more would gain next to nothing, at most {:.1} % of speed", gain.high)
        }
        Forecast::Gain(gain, from) => format!(
            "{would_pay} more on huge pages should gain {} ({cost}{})\n                    {}\
             `hugepilot promote {}{}` does it, `--dry-run` shows the plan",
            about(gain),
            and_corrected(from),
            doubts(report),
            report.heat.pid,
            if report.family.processes > 1 { " --children" } else { "" }
        ),
    }
}

/// Why a forecast may be wrong, each on a line of its own.
fn doubts(report: &ExplainReport) -> String {
    let waited = much_waiting(report.basis.waited_share);
    let smaller = report.basis.saved_already.filter(|&saved| saved >= NOTED_SAVED).map(|saved| {
        format!("at least less: smaller huge pages may save {:.0} % of these page walks already", 100.0 * saved)
    });
    let doubts = report.doubt.map(perhaps_nothing).into_iter().chain(smaller).chain(waited);
    doubts.map(|doubt| format!("{doubt}\n                    ")).collect()
}

fn overview(mappings: &[&Explained]) -> Vec<String> {
    table(mappings.iter().copied())
        .right("walks", |each| rate(each.walks_per_second))
        .right("size", |each| each.mapping.range.len())
        .right("resident", |each| each.resident)
        .right("huge", |each| each.huge)
        .right("walked", |each| each.walked.bytes())
        .right("would pay", |each| each.would_pay())
        .right("start", |each| each.mapping.range.start)
        .left("mapping", |each| name(each))
        .lines()
}

/// The same where page walks are not seen.
fn unwalked(mappings: &[&Explained]) -> Vec<String> {
    table(mappings.iter().copied())
        .right("size", |each| each.mapping.range.len())
        .right("resident", |each| each.resident)
        .right("huge", |each| each.huge)
        .right("start", |each| each.mapping.range.start)
        .left("mapping", |each| name(each))
        .lines()
}

fn name(explained: &Explained) -> String {
    mapping_name(Some(&explained.mapping), NAME_LIMIT)
}

fn details(explained: &Explained, report: &ExplainReport) -> Vec<String> {
    let meaning = report.heat.meaning;
    let mut lines = vec![format!("{} at {}", name(explained), explained.mapping.range.start)];
    let smaller = explained.smaller.as_ref().filter(|smaller| smaller.total() > Bytes(0));
    let elsewhere = Some(explained.elsewhere).filter(|elsewhere| *elsewhere > Bytes(0));
    lines.extend(elsewhere.map(|size| format!("  {size} populated by other processes, and not touched by this one")));
    lines.extend(smaller.map(|sizes| format!("  {} on smaller huge pages: {sizes}", sizes.total())));
    for (&reason, size) in &explained.not_huge {
        lines.push(format!("  {size} not huge: {}", why(reason)));
        lines.extend(remedy(reason, &explained.mapping, report.collapses_files).map(|step| format!("    {step}")));
    }
    let told: Vec<&str> = explained.not_huge.keys().map(|&reason| why(reason)).collect();
    // What keeps the kernel from promoting often keeps the pilot from it, too.
    let decided = explained.decided.iter().map(|(&what, size)| (benefit(what), reason(what, meaning), size));
    let decided = decided.filter(|(_, reason, _)| !told.contains(reason));
    lines.extend(decided.map(|(benefit, reason, size)| format!("  {size} {benefit}: {reason}")));
    lines
}

/// How the savings of a huge page compare with its costs.
fn benefit(reason: Reason) -> &'static str {
    match reason {
        Reason::Pays => "benefit above cost",
        Reason::NotWalked | Reason::TooCold | Reason::LivesInTlb | Reason::InOrder | Reason::Covered => {
            "benefit below cost"
        }
        Reason::NotObserved | Reason::NotInSample | Reason::Populated => "benefit unknown",
        _ => "not promoted",
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::mixed_heat;
    use heat::{Heat, Obstacle, PageSet, WalkShare};
    use pilot::decide::{Allowance, GuestMemory, Limits, Past, Spent, decide};
    use pilot::explain::{Explanation, Surroundings, explain as explanation_of};
    use pilot::forecast::{Doubt, ForecastBasis};
    use pilot::past_trials::EstimatedFrom;

    use super::*;
    use crate::report::VirtualMachineReport;
    use crate::report::samples::{mixed_plan, virtual_machine};
    use crate::report::trial_samples::forecast_basis;

    fn with_children(processes: u64, children: Children, forecast: Forecast) -> String {
        let (heat, plan) = (mixed_heat(), mixed_plan());
        let explanation = explanation_of(&heat, &plan, None, &Surroundings::default());
        let family = Family { processes, children, ..Family::alone(Bytes(0), Bytes(0)) };
        explain(&ExplainReport { family, forecast, ..idle(&heat, &explanation) }, Detail::Usual)
    }

    /// The explanation of a process that is alone and used no CPU time.
    fn idle<'a>(heat: &'a Heat, explanation: &'a Explanation) -> ExplainReport<'a> {
        ExplainReport {
            heat,
            explanation,
            family: Family::alone(Bytes(0), Bytes(0)),
            forecast: Forecast::Idle,
            basis: forecast_basis(),
            doubt: None,
            after_restart: None,
            fault_share: None,
            cost_from: "as measured on this machine",
            walk_share: None,
            virtual_machine: None,
            collapses_files: None,
            managers: &[],
        }
    }

    #[test]
    fn children_that_hold_most_are_told() {
        let gain = Forecast::Gain(GainPercent { low: 3.0, likely: 12.0, high: 12.0 }, EstimatedFrom::Model);
        let told = |processes, hold: u64, forecast| {
            let text = with_children(processes, Children { processes: 12, hold: Bytes(hold << 20) }, forecast);
            text.lines()
                .filter(|line| !line.contains("promote") && line.contains("child"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let line = "its children        12 child processes hold 1.20 GiB more";
        assert_eq!(told(1, 1229, gain), [format!("{line}: `hugepilot explain 4242 --children` counts them")]);
        assert_eq!(told(1, 1229, Forecast::Idle).len(), 1, "once is enough");
        assert_eq!(told(13, 1229, gain), [format!("{line}, shared memory counted once")]);
        assert!(told(1, 12, gain).is_empty(), "it has more itself");
        assert!(told(1, 12, Forecast::Idle)[0].contains("if they do its work"), "who does its work?");
        let childless = with_children(1, Children::default(), Forecast::Idle);
        assert!(!childless.contains("child"), "{childless}");
    }

    /// The explanation of a virtual machine with this much memory changed.
    fn of_virtual_machine(walks_are_seen: bool, change: impl Fn(&mut Heat)) -> String {
        let mut heat = virtual_machine();
        change(&mut heat);
        let limits = Limits { guest: true, ..Allowance::default().limits(heat.rss, &Spent::default()) };
        let (plan, guest) = (decide(&heat, &limits, &Past::default()), GuestMemory::of(&heat));
        let machine = VirtualMachineReport { guest: &guest, plan: &plan, walks_are_seen };
        let explanation = explanation_of(&heat, &plan, None, &Surroundings::default());
        explain(&ExplainReport { virtual_machine: Some(machine), ..idle(&heat, &explanation) }, Detail::Usual)
    }

    #[test]
    fn a_virtual_machine_is_explained_whatever_it_has() {
        insta::assert_snapshot!(of_virtual_machine(false, |_| ()));
        let off = of_virtual_machine(false, |heat| {
            heat.mappings[0].obstacle = Some(Obstacle::NoHugePage);
            heat.mappings[1].range.end = heat.mappings[1].range.start;
            heat.regions.iter_mut().for_each(|region| region.obstacle = Some(Obstacle::NoHugePage));
        });
        assert!(off.contains("more huge pages?    no more can be: ") && off.contains("(MADV_NOHUGEPAGE)"), "{off}");
        assert!(off.contains("start the guest without that") && !off.contains("promote --guest"), "{off}");
        let none = |walks_are_seen| {
            of_virtual_machine(walks_are_seen, |heat| heat.mappings.iter_mut().for_each(|each| each.executable = true))
        };
        assert!(none(false).contains("more huge pages?    no: it maps no memory that looks like"), "{}", none(false));
        assert!(none(true).contains("named as a virtual machine is") && !none(true).contains("promote --guest"));
        let without_kvm = of_virtual_machine(true, |_| ());
        assert!(without_kvm.lines().last().unwrap().contains("`hugepilot promote --guest 4242`"), "{without_kvm}");
    }

    #[test]
    fn an_explanation_answers_both_questions() {
        let surroundings = Surroundings { enabled: Some("madvise".to_owned()), ..Surroundings::default() };
        let (heat, plan) = (mixed_heat(), mixed_plan());
        let sizes = |number: u64| {
            let mut sizes = PageSizes::default();
            (14..17).for_each(|bits| sizes.add(Bytes(1 << bits), Bytes((number + 1) << 16)));
            sizes
        };
        let smaller: Vec<PageSizes> = (0..heat.mappings.len() as u64).map(sizes).collect();
        let explanation = explanation_of(&heat, &plan, Some(&smaller), &surroundings);
        let managers = [crate::report::samples::jemalloc()];
        let report = ExplainReport {
            heat: &heat,
            explanation: &explanation,
            family: Family::alone(Bytes(80 << 10), Bytes(0)),
            forecast: Forecast::Gain(GainPercent { low: 3.0, likely: 12.0, high: 12.0 }, EstimatedFrom::Model),
            basis: forecast_basis(),
            doubt: None,
            after_restart: None,
            fault_share: None,
            cost_from: "as other machines showed",
            walk_share: None,
            virtual_machine: None,
            collapses_files: None,
            managers: &managers,
        };
        let explain = |report: &ExplainReport| super::explain(report, Detail::Usual);
        insta::assert_snapshot!(explain(&report));
        let counted = explain(&ExplainReport { walk_share: Some(WalkShare { low: 0.1, high: 0.125 }), ..report });
        assert!(counted.contains("10.0 to 12.5 % of its time, from the processor's walk cycles)"), "{counted}");
        assert!(!counted.contains("a page walk, as other machines showed"), "{counted}");
        let after_restart = Some(AfterRestart { would_pay: Bytes(4 << 30), gain: report.forecast.gain() });
        let restarted = explain(&ExplainReport { after_restart, ..report });
        assert!(
            restarted.contains("after a restart     4 GiB in all, heap included, could be on huge pages, which should gain about 12.0 %"),
            "{restarted}"
        );
        let faulting = explain(&ExplainReport { fault_share: Some(0.18), ..report });
        assert!(faulting.contains("new memory          page faults take up to 18 % of its CPU time"), "{faulting}");
        assert!(faulting.contains("`hugepilot run --pages thp -- PROGRAM` starts it so"), "{faulting}");
        let mut sparse_heat = heat.clone();
        sparse_heat.regions.iter_mut().for_each(|region| region.present = PageSet::first(100));
        let sparse = explain(&ExplainReport { fault_share: Some(0.18), heat: &sparse_heat, ..report });
        assert!(sparse.contains("would waste more than they hold") && !sparse.contains("hugepilot run"), "{sparse}");
        let untold = explain(&ExplainReport { doubt: Some(Doubt::Order), ..report });
        assert!(
            untold.contains("perhaps nothing: whether page walks go along addresses could not be told"),
            "{untold}"
        );
        let soon_gone = explain(&ExplainReport { doubt: Some(Doubt::NewMemory), ..report });
        assert!(soon_gone.contains("`hugepilot run --pages thp -- PROGRAM` starts it with new memory"), "{soon_gone}");
        let basis = ForecastBasis { waited_share: Some(0.3), ..report.basis };
        let rough = explain(&ExplainReport { basis, ..report });
        assert!(rough.contains("roughly: it waited for a processor 30 % of the time"), "{rough}");
        let basis = ForecastBasis { saved_already: Some(0.47), ..report.basis };
        let smaller = explain(&ExplainReport { basis, ..report });
        assert!(smaller.contains("smaller huge pages may save 47 % of these page walks already"), "{smaller}");
        let nothing = GainPercent { low: 0.0, likely: 0.01, high: 0.04 };
        let hardly = explain(&ExplainReport { forecast: Forecast::Gain(nothing, EstimatedFrom::Model), ..report });
        assert!(hardly.contains("more would gain less than 0.1 % of speed"), "{hardly}");
        let perhaps = GainPercent { high: 0.3, ..nothing };
        let perhaps = explain(&ExplainReport { forecast: Forecast::Gain(perhaps, EstimatedFrom::Model), ..report });
        assert!(
            perhaps.contains("next to nothing, at most 0.3 % of") && !perhaps.contains("hugepilot promote 4242"),
            "{perhaps}"
        );
        let idle = explain(&ExplainReport { forecast: Forecast::Idle, ..report });
        assert!(idle.contains("more huge pages?    unknown: the process used no CPU time"), "{idle}");
        let contended = explain(&ExplainReport { forecast: Forecast::Contended(0.9), ..report });
        assert!(contended.contains("unknown: it was ready to run but waited for a processor 90 % of"), "{contended}");
    }
}
