//! The state of a running pilot: what it does, its budget, its targets, and its last actions.

use heat::units::{Bytes, HUGE_PAGE, Nanos, Slowdown};
use heat::{Meaning, TrackerKind};
use pilot::decide::Reason;
use pilot::engine::shared_state::{ClientState, Counts, DecisionState, ForecastState, OtherDaemon, State, TargetState};
use pilot::programs::scan::WORTH_A_TRIAL;
use pilot::scope::PilotMode;
use pilot::words::{self, count, count_of, duration, name, percent, printable, rate};

use super::joined;
use crate::report::table::{or_dash, table};

/// Decisions shown, over all targets; JSON has more.
const MOST_DECISIONS: usize = 12;
const NAME_LIMIT: usize = 15;
/// Of why a configuration was refused, or metrics are not served.
const REFUSAL_LIMIT: usize = 500;
const NOBODY: &str = "no targets: no running process matches the configuration and is large enough (`min-size`), or those that do belong to \
                      other users, which only root sees";
const REASON_LIMIT: usize = 100;
/// A step that takes longer than this is told.
const WORTH_A_WORD: Nanos = Nanos(60_000_000_000);
/// Figures are usually taken every second.
const OLD: Nanos = Nanos(2_000_000_000);
/// Before that a share of CPU time says nothing.
const SHARE_AFTER: Nanos = Nanos(30_000_000_000);

/// The state of a pilot with its targets and its last actions.
pub fn status(state: &State) -> String {
    let mut lines: Vec<String> = problems(state).collect();
    lines.extend([
        format!(
            "{} for {}: {}, slowing programs down by {} at most, fairness by {}",
            doing(state),
            duration(state.up_ns),
            tracker(state.tracker),
            Slowdown(state.max_slowdown),
            name(state.fairness)
        ),
        format!("huge pages   {}", huge_pages(state)),
        format!("growth       {} of memory, by promoting", state.budget.growth_bytes),
    ]);
    if state.frees_empty_pages == Some(false) {
        lines.push("             this kernel frees none of it when huge pages are given back".to_owned());
    }
    lines.extend([
        format!(
            "CPU          {} since the start; observing and deciding may take {} of one",
            cpu(state.budget.cpu_ns, state.up_ns),
            percent(state.budget.max_cpu, 1.0)
        ),
        format!("so far       {}", so_far(&state.counts)),
        format!("held back    {}", held_back(state)),
    ]);
    lines.extend(slowed(state));
    lines.push(String::new());
    lines.extend(is_old(state));
    lines.extend(targets(state));
    lines.extend(clients(&state.clients));
    lines.extend(last_decisions(&state.targets));
    lines.extend(state.reclaim.as_ref().map(|reclaim| format!("\nreclaim      {}", super::reclaiming(reclaim))));
    joined(lines)
}

/// What somebody should look after.
fn problems(state: &State) -> impl Iterator<Item = String> {
    let idle = state.last_step_ns_ago.filter(|idle| *idle > WORTH_A_WORD);
    let hangs = idle.map(|idle| {
        format!("the daemon has done nothing for {}: it hangs, or scans a process of terabytes\n", duration(idle))
    });
    let refused = state.reload_refused.as_ref().map(|why| {
        format!("the configuration stayed as it was at the last reload: {}\n", printable(why, REFUSAL_LIMIT))
    });
    let unserved = state.metrics_not_served.as_ref().map(|why| {
        format!("no metrics are served, which is tried again every 10 s: {}\n", printable(why, REFUSAL_LIMIT))
    });
    let other = state.other_daemon.as_ref().map(|OtherDaemon { pid, socket }| {
        format!(
            "another hugepilot daemon (process {pid}, {}) pilots this machine, too: each keeps to its own limits only, and one may give back what \
             the other promotes. Stop one, or exclude each daemon's programs by [[never]] in the other's configuration\n",
            printable(socket, REFUSAL_LIMIT)
        )
    });
    hangs.into_iter().chain(refused).chain(unserved).chain(other)
}

/// Said while the daemon promotes.
fn is_old(state: &State) -> Option<String> {
    let hangs = state.last_step_ns_ago.is_some_and(|idle| idle > WORTH_A_WORD);
    let old = state.taken_ns_ago >= OLD && !state.paused && !hangs;
    old.then(|| {
        format!(
            "as of {}: the figures are taken again after the scan, or the promotion, that is under way\n",
            ago(state.taken_ns_ago)
        )
    })
}

fn doing(state: &State) -> &'static str {
    let only_observes = state.targets.iter().all(|target| target.mode == PilotMode::Observe);
    match only_observes {
        // A user who sees none does not know what is done with the targets of others.
        true if state.targets.is_empty() => "running",
        true => "observing",
        false => "piloting",
    }
}

/// The effect of pausing.
pub fn paused(pid: Option<u32>) -> String {
    let (subject, argument) = subject(pid);
    format!(
        "{subject} is left alone from now on, and stays on the huge pages it has; `hugepilot resume{argument}` ends that\n"
    )
}

/// The effect of resuming.
pub fn resumed(pid: Option<u32>, all_paused: bool) -> String {
    match (subject(pid).0, pid) {
        (subject, Some(_)) if all_paused => {
            format!("{subject} would be piloted again, but everything is paused; `hugepilot resume` ends that\n")
        }
        (subject, Some(_)) => format!("{subject} is piloted again\n"),
        (subject, None) => format!("{subject} is piloted again, but for processes that were paused one by one\n"),
    }
}

/// What the daemon gave back.
pub fn given_back_by_daemon(pid: u32, regions: u64) -> String {
    format!(
        "process {pid}: the daemon gave back {} ({}), and leaves the process alone from now on; `hugepilot resume {pid}` has it \
         piloted again\n",
        count_of(regions, "region"),
        regions_size(regions)
    )
}

fn regions_size(regions: u64) -> Bytes {
    Bytes(regions.saturating_mul(heat::units::HUGE_PAGE))
}

/// A subject, and the argument that names it on the command line.
fn subject(pid: Option<u32>) -> (String, String) {
    match pid {
        Some(pid) => (format!("process {pid}"), format!(" {pid}")),
        None => ("everything".to_owned(), String::new()),
    }
}

/// The share of a processor; at the beginning, when starting is most of it, the time.
fn cpu(used: Nanos, up: Nanos) -> String {
    if up < SHARE_AFTER { used.to_string() } else { format!("{} of one", percent(used.seconds(), up.seconds())) }
}

fn tracker(tracker: Option<TrackerKind>) -> String {
    tracker.map_or("nobody observed yet".to_owned(), |tracker| format!("tracker {tracker}"))
}

fn huge_pages(state: &State) -> String {
    let huge = state.budget.huge_bytes;
    match state.budget.max_huge_bytes {
        Some(most) => format!("{huge} of the {most} that all targets may have, {} left", most.saturating_sub(huge)),
        None => format!("{huge}, without a limit"),
    }
}

fn so_far(counts: &Counts) -> String {
    let refused: u64 = counts.refused.values().fold(0, |sum, count| sum.saturating_add(*count));
    format!(
        "{}, {} promoted, {} refused, {} given back, {} lost again",
        count_of(counts.scans, "scan"),
        count_of(counts.promoted, "region"),
        count(refused),
        count(counts.given_back),
        count(counts.lost)
    )
}

fn held_back(state: &State) -> String {
    match state.held_back {
        _ if state.paused => "everything is paused; `hugepilot resume` ends that".to_owned(),
        Some(why) => words::held_back(why).to_owned(),
        None => "by nothing".to_owned(),
    }
}

/// What makes promoting slow, where it is not held back.
fn slowed(state: &State) -> Option<String> {
    let is_under_way = !state.paused && state.held_back.is_none() && !state.slowed_by.is_empty();
    let limits = state.slowed_by.iter().map(|limit| words::slowed_by(*limit));
    is_under_way.then(|| format!("slowed       {}", limits.collect::<Vec<_>>().join("; ")))
}

fn targets(state: &State) -> Vec<String> {
    let State { targets, budget, .. } = state;
    if targets.is_empty() {
        return vec![NOBODY.to_owned()];
    }
    table(targets)
        .right("pid", |target| target.pid)
        .left("name", |target| printable(&target.name, NAME_LIMIT))
        .right("resident", |target| target.rss_bytes)
        .right("huge", |target| or_dash(target.scanned_ns_ago.map(|_| target.huge_bytes)))
        .right("growth", |target| target.growth_bytes)
        .right("walks before", |target| or_dash(target.walks_per_second_before.map(rate)))
        .right("walks now", |target| or_dash(target.walks_per_second.map(rate)))
        .right("page faults", |target| rate(target.faults_per_second))
        .right("page tables", |target| target.page_tables_bytes)
        .right("would gain", |target| or_dash(target.forecast.map(|forecast| would_gain(&forecast))))
        .right("may have", |target| match target.may_have_bytes {
            None if budget.max_huge_bytes.is_none() => "no limit".to_owned(),
            may_have => or_dash(may_have),
        })
        .right("last scan", |target| target.scanned_ns_ago.map_or("not yet".to_owned(), ago))
        .left("", |target| remark(target))
        .lines()
}

fn would_gain(forecast: &ForecastState) -> String {
    match (forecast.gain_percent, forecast.waited_share) {
        (Some(gain), _) => format!("{:.0} % ({:.0} to {:.0})", gain.likely, gain.low, gain.high),
        (None, Some(waited)) => format!("unknown: waited {:.0} % for a CPU", 100.0 * waited),
        (None, None) => "idle".to_owned(),
    }
}

fn ago(time: Nanos) -> String {
    format!("{} ago", duration(time))
}

fn remark(target: &TargetState) -> String {
    match &target.left_alone {
        _ if target.paused => "paused".to_owned(),
        Some(why) => printable(why, REASON_LIMIT),
        None if target.held_back.is_some() => target.held_back.map_or("", words::target_held_back).to_owned(),
        None if target.mode == PilotMode::Observe => observed_only(target),
        None if target.promoted_bytes == Bytes(0) => nothing_promoted(target),
        None => waiting(target).unwrap_or_default(),
    }
}

/// Why more regions wait than are promoted, if they do.
fn waiting(target: &TargetState) -> Option<String> {
    let why =
        [Reason::GivenBackByPage, Reason::KeptSplitting, Reason::CoolingDown, Reason::GrowthLimit, Reason::HugeLimit];
    let of_each = why.iter().filter_map(|reason| Some((*target.reasons.get(reason)?, *reason)));
    let (regions, reason) = of_each.max()?;
    (regions * HUGE_PAGE > target.promoted_bytes.0).then(|| {
        let limit = if reason == Reason::GrowthLimit { growth_limit(target) } else { String::new() };
        format!("{} more not promoted: {}{limit}", count_of(regions, "region"), words::reason(reason, Meaning::Walked))
    })
}

/// A share of a process's memory is another size in each.
fn growth_limit(target: &TargetState) -> String {
    target.may_grow_bytes.map_or(String::new(), |limit| format!(", {limit} here"))
}

fn observed_only(target: &TargetState) -> String {
    let gain = target.forecast.and_then(|forecast| forecast.gain_percent).map_or(0.0, |gain| gain.likely);
    match words::mostly_kept(&target.reasons, target.mostly_kept) {
        _ if gain >= WORTH_A_TRIAL => format!("only observed; `hugepilot trial {}` proves the gain", target.pid),
        Some(kept) => format!("only observed; {kept}"),
        None => "only observed".to_owned(),
    }
}

fn nothing_promoted(target: &TargetState) -> String {
    words::mostly_kept(&target.reasons, target.mostly_kept).map_or(String::new(), |kept| {
        let limit = if target.mostly_kept == Some(Reason::GrowthLimit) { growth_limit(target) } else { String::new() };
        format!("nothing promoted; {kept}{limit} (`hugepilot explain {}` says more)", target.pid)
    })
}

/// Programs that manage their own huge pages.
fn clients(clients: &[ClientState]) -> Vec<String> {
    if clients.is_empty() {
        Vec::new()
    } else {
        [
            vec![String::new()],
            table(clients)
                .right("pid", |client| client.pid)
                .right("active pages", |client| count(client.active_pages))
                .right("lists", |client| count(client.lists))
                .left("libhps client", |client| match &client.left_alone {
                    Some(why) => printable(why, REASON_LIMIT),
                    None if client.resting => "rests".to_owned(),
                    None => "tracked".to_owned(),
                })
                .lines(),
        ]
        .concat()
    }
}

/// The reason for a decision, in words.
fn why(decision: &DecisionState) -> &'static str {
    match decision.refused {
        Some(refused) => words::refusal(refused).0,
        None => words::reason(decision.reason, Meaning::Walked),
    }
}

/// The last decisions of all targets, latest first.
fn last_decisions(targets: &[TargetState]) -> Vec<String> {
    let mut decisions: Vec<(u32, &DecisionState)> =
        targets.iter().flat_map(|target| target.last_decisions.iter().map(|each| (target.pid, each))).collect();
    decisions.sort_by_key(|(_, decision)| decision.ns_ago);
    decisions.truncate(MOST_DECISIONS);
    if decisions.is_empty() {
        return Vec::new();
    }
    [
        vec![String::new()],
        table(decisions)
            .right("done", |(_, decision)| ago(decision.ns_ago))
            .right("pid", |(pid, _)| *pid)
            .right("region", |(_, decision)| decision.start)
            .left("what", |(_, decision)| name(decision.done).replace('_', " "))
            .right("walks then", |(_, decision)| rate(decision.walks_per_second))
            .left("why", |(_, decision)| why(decision))
            .lines(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use heat::HeldBack;
    use pilot::engine::shared_state::{BudgetState, SlowedBy};

    use super::*;
    use crate::report::samples::pilot_state;

    #[test]
    fn a_status_reads_from_budget_to_decisions() {
        insta::assert_snapshot!(status(&pilot_state()));
    }

    #[test]
    fn old_figures_are_told() {
        let told = |seconds: u64| status(&State { taken_ns_ago: Nanos(1_000_000_000 * seconds), ..pilot_state() });
        assert!(told(7).contains("as of 7 s ago: ") && !told(1).contains("as of"), "{}", told(7));
    }

    #[test]
    fn a_daemon_that_does_nothing_is_told_to_hang() {
        let state = State { last_step_ns_ago: Some(Nanos(240_000_000_000)), ..pilot_state() };
        assert!(status(&state).starts_with("the daemon has done nothing for 4 min"), "{}", status(&state));
        assert!(!status(&pilot_state()).contains("done nothing"));
    }

    #[test]
    fn how_memory_is_reclaimed_is_told_where_it_is() {
        let state = State { reclaim: Some(crate::report::samples::reclaim_state()), ..pilot_state() };
        assert!(
            status(&state)
                .ends_with("\n\nreclaim      reclaims: 3 GiB freed so far; 4 GiB free, 2 GiB of it in huge pages\n")
        );
        assert!(!status(&pilot_state()).contains("reclaim"));
    }

    #[test]
    fn a_target_in_which_nothing_is_promoted_says_why() {
        let mut state = pilot_state();
        state.targets.truncate(1);
        assert!(!status(&state).contains("nothing promoted"));
        state.targets[0].promoted_bytes = Bytes(0);
        state.targets[0].reasons = [(pilot::decide::Reason::NotWalked, 7)].into();
        let (text, pid) = (status(&state), state.targets[0].pid);
        let expected =
            format!("nothing promoted; 7 of 7 regions: no page walk was seen (`hugepilot explain {pid}` says more)");
        assert!(text.contains(&expected), "{text}");
    }

    #[test]
    fn who_promotes_nothing_observes() {
        let mut state = pilot_state();
        assert!(status(&state).starts_with("piloting for"));
        state.targets.iter_mut().for_each(|target| target.mode = PilotMode::Observe);
        assert!(status(&state).starts_with("observing for"));
    }

    #[test]
    fn what_holds_the_pilot_back_is_told() {
        let state = State { held_back: None, ..pilot_state() };
        assert!(status(&state).contains("held back    by nothing\n"));
        let refused = status(&State { reload_refused: Some("no such key: `max-slowdwn`".to_owned()), ..pilot_state() });
        let first = "the configuration stayed as it was at the last reload: no such key: `max-slowdwn`\n\npiloting for";
        assert!(refused.starts_with(first), "{refused}");
        let paused = status(&State { paused: true, ..pilot_state() });
        assert!(paused.contains("held back    everything is paused; `hugepilot resume` ends that\n"), "{paused}");
    }

    #[test]
    fn metrics_that_are_not_served_come_first() {
        let why = "cannot serve metrics on 127.0.0.1:9472: Address already in use; choose a port".to_owned();
        let text = status(&State { metrics_not_served: Some(why), ..pilot_state() });
        let first = "no metrics are served, which is tried again every 10 s: cannot serve metrics on 127.0.0.1:9472: ";
        assert!(text.starts_with(first) && text.contains("choose a port\n\npiloting for"), "{text}");
    }

    #[test]
    fn another_daemon_of_the_machine_comes_first() {
        let other = OtherDaemon { pid: 7, socket: "/tmp/own.sock".to_owned() };
        let text = status(&State { other_daemon: Some(other), ..pilot_state() });
        let first = "another hugepilot daemon (process 7, /tmp/own.sock) pilots this machine, too: ";
        assert!(text.starts_with(first) && text.contains("in the other's configuration\n\npiloting for"), "{text}");
    }

    #[test]
    fn what_makes_promoting_slow_is_told_unless_nothing_is_promoted() {
        let held_back = |held_back| {
            let slowed_by = vec![SlowedBy::BusyPrograms, SlowedBy::MaxCpu];
            let text = status(&State { held_back, slowed_by, ..pilot_state() });
            text.lines().find(|line| line.starts_with("slowed ")).map(str::to_owned)
        };
        let slow = held_back(None).expect("it is told");
        assert!(slow.contains("by busy programs: ") && slow.contains("; by max-cpu: "), "{slow}");
        assert_eq!(held_back(Some(HeldBack::Pressure)), None);
    }

    #[test]
    fn a_target_of_which_more_waits_than_is_promoted_says_why() {
        let waiting = |regions| {
            let mut state = pilot_state();
            state.targets.truncate(1);
            state.targets[0].promoted_bytes = Bytes(4 * HUGE_PAGE);
            state.targets[0].reasons = [(Reason::GivenBackByPage, regions), (Reason::TooCold, 900)].into();
            status(&state).contains("more not promoted: the program's allocator gave memory back by the page")
        };
        assert_eq!([4, 5].map(waiting), [false, true]);
    }

    #[test]
    fn a_limit_on_growth_is_told_as_a_size() {
        let mut state = pilot_state();
        state.targets.truncate(1);
        let target = &mut state.targets[0];
        (target.promoted_bytes, target.may_grow_bytes) = (Bytes(HUGE_PAGE), Some(Bytes(252 << 10)));
        (target.reasons, target.mostly_kept) = ([(Reason::GrowthLimit, 9)].into(), Some(Reason::GrowthLimit));
        assert!(
            status(&state).contains(
                "9 regions more not promoted: would grow memory beyond the limit (--max-growth), 252 KiB here"
            )
        );
        state.targets[0].promoted_bytes = Bytes(0);
        assert!(status(&state).contains("(--max-growth), 252 KiB here (`hugepilot explain"), "{}", status(&state));
    }

    #[test]
    fn what_a_target_may_have_is_unknown_until_it_is_divided() {
        let mut state = pilot_state();
        state.targets.truncate(1);
        state.targets[0].may_have_bytes = None;
        assert!(!status(&state).contains("no limit"), "{}", status(&state));
        state.budget.max_huge_bytes = None;
        assert!(status(&state).contains("no limit"), "{}", status(&state));
    }

    #[test]
    fn a_pilot_without_targets_and_limits_says_so() {
        let state =
            State { budget: BudgetState { max_huge_bytes: None, ..BudgetState::default() }, ..State::default() };
        let text = status(&state);
        assert!(text.contains("huge pages   0 B, without a limit\n"), "{text}");
        assert!(text.ends_with(&format!("{NOBODY}\n")), "{text}");
        let cannot_free = status(&State { frees_empty_pages: Some(false), ..state });
        assert!(cannot_free.contains("this kernel frees none of it"), "{cannot_free}");
    }

    #[test]
    fn what_was_told_to_the_daemon_says_how_to_end_it() {
        assert!(
            paused(Some(7)).starts_with("process 7 is left alone") && paused(Some(7)).contains("`hugepilot resume 7`")
        );
        assert!(paused(None).contains("`hugepilot resume`"));
        assert_eq!(resumed(Some(7), false), "process 7 is piloted again\n");
        assert!(resumed(Some(7), true).contains("everything is paused"));
        assert!(resumed(None, false).contains("one by one"));
        let given_back = given_back_by_daemon(7, 512);
        assert!(
            given_back.contains("512 regions (1 GiB)") && given_back.contains("`hugepilot resume 7`"),
            "{given_back}"
        );
    }
}
