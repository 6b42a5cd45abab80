//! Tests of the whole text, of the parsed text, and of the dashboard that uses it.

use std::collections::{BTreeMap, BTreeSet};

use heat::{HeldBack, RefusalReason, TrackerKind};
use pilot::decide::Fairness;
use pilot::engine::shared_state::{BudgetState, SlowedBy, TargetHeldBack};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

const BOOK: &str = include_str!("../../../../docs/reference/metrics.md");
const DASHBOARD: &str = include_str!("../../../../integrations/grafana/hugepilot.json");
const RULES: &str = include_str!("../../../../integrations/prometheus/rules.yml");
const FLEET: [&str; 2] = [
    include_str!("../../../../integrations/grafana/what-would-pay.json"),
    include_str!("../../../../integrations/grafana/what-it-did.json"),
];

fn state() -> State {
    let mut smaller = PageSizes::default();
    for (page, memory) in [(16, 128), (64, 1024)] {
        smaller.add(Bytes(page << 10), Bytes(memory << 10));
    }
    let cache = TargetState {
        pid: 4242,
        start_ticks: 7,
        name: "memcached".to_owned(),
        unit: Some("memcached.service".to_owned()),
        busy_cpus: Some(1.5),
        proportional_bytes: Bytes(3 << 30),
        proportional_huge_bytes: Bytes(2 << 30),
        promoted_bytes: Bytes(1 << 30),
        growth_bytes: Bytes(64 << 10),
        smaller_huge_bytes: Some(smaller),
        may_have_bytes: Some(Bytes(5 << 29)),
        walks_per_second_before: Some(2.5e6),
        walks_per_second: Some(4e5),
        walks_saved_per_second: 2.1e6,
        ..TargetState::default()
    };
    let new = TargetState {
        pid: 99,
        name: "odd \"name\"\\\n".to_owned(),
        paused: true,
        left_alone: Some("it runs a virtual machine".to_owned()),
        ..TargetState::default()
    };
    State {
        tracker: Some(TrackerKind::PageWalk),
        max_slowdown: 0.01,
        fairness: Fairness::Benefit,
        up_ns: Nanos(90_000_000_000),
        taken_ns_ago: Nanos(4_000_000_000),
        last_step_ns_ago: None,
        held_back: Some(HeldBack::Pressure),
        slowed_by: vec![SlowedBy::MaxCpu],
        budget: BudgetState {
            max_huge_bytes: Some(Bytes(8 << 30)),
            max_growth_bytes: None,
            huge_bytes: Bytes(2 << 30),
            growth_bytes: Bytes(64 << 10),
            max_cpu: 0.01,
            cpu_ns: Nanos(1_250_000_000),
            busy_ns: Nanos(750_000_000),
        },
        counts: Counts {
            scans: 12,
            promoted: 512,
            refused: BTreeMap::from([(RefusalReason::NoContiguousMemory, 3), (RefusalReason::Changed, 1)]),
            given_back: 7,
            lost: 5,
            collapse_classes: vec![0, 400, 100, 10, 1, 0, 0, 0, 1],
        },
        targets: vec![new, cache],
        ..State::default()
    }
}

#[test]
fn every_metric_has_its_help_its_type_and_its_unit() {
    let text = open_metrics(state()).replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!(text);
}

#[test]
fn a_pilot_that_has_done_nothing_yet_shows_every_metric_too() {
    let families = |state| parse(&open_metrics(state)).into_keys().collect::<Vec<_>>();
    assert_eq!(families(State::default()), families(state()));
}

#[test]
fn without_limits_and_scans_there_are_no_numbers_for_them() {
    let families = parse(&open_metrics(State { targets: vec![TargetState::default()], ..State::default() }));
    for name in ["hugepilot_max_huge_bytes", "hugepilot_target_may_have_bytes", "hugepilot_target_walks_per_second"] {
        assert!(families[name].samples.is_empty(), "{name}");
    }
}

#[test]
fn the_largest_targets_are_shown_and_the_others_counted() {
    let target = |pid: u32| TargetState {
        pid,
        name: pid.to_string(),
        proportional_huge_bytes: Bytes(u64::from(pid) << 21),
        ..TargetState::default()
    };
    let families = parse(&open_metrics(State { targets: (1..=1_003).map(target).collect(), ..State::default() }));
    let shown = &families["hugepilot_target_huge_bytes"].samples;
    assert_eq!(
        (shown.len(), shown[0].labels["name"].as_str(), shown[999].labels["name"].as_str()),
        (1_000, "1003", "4")
    );
    let whole = |name| families[name].samples[0].value;
    assert_eq!((whole("hugepilot_targets"), whole("hugepilot_targets_not_shown")), (1_003.0, 3.0));
}

#[test]
fn of_two_processes_with_one_id_the_later_is_shown() {
    let target = |start_ticks, huge| TargetState {
        pid: 5,
        start_ticks,
        proportional_huge_bytes: Bytes(huge),
        ..TargetState::default()
    };
    let families = parse(&open_metrics(State { targets: vec![target(1, 100), target(2, 50)], ..State::default() }));
    let shown: Vec<f64> = families["hugepilot_target_huge_bytes"].samples.iter().map(|sample| sample.value).collect();
    assert_eq!(shown, [50.0]);
}

#[test]
fn a_container_has_its_labels_and_no_process_id() {
    let labels = BTreeMap::from(
        [("pod", "web-0"), ("namespace", "shop")].map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let target = |pid, huge, held_back| TargetState {
        pid,
        labels: labels.clone(),
        proportional_huge_bytes: Bytes(huge),
        held_back,
        ..TargetState::default()
    };
    let targets = vec![target(1, 2, None), target(2, 4, Some(TargetHeldBack::OomKilled))];
    let families = parse(&open_metrics(State { targets, ..State::default() }));
    let [seen] = &families["hugepilot_target_huge_bytes"].samples[..] else { panic!("both are one series") };
    assert_eq!((&seen.labels, seen.value), (&labels, 6.0));
    let held_back = &families["hugepilot_target_held_back"].samples[0].labels;
    assert_eq!((held_back["reason"].as_str(), held_back["pod"].as_str()), ("oom_killed", "web-0"));
    assert_eq!(families["hugepilot_targets"].samples[0].value, 2.0);
}

proptest! {
    #[test]
    fn whatever_a_process_is_called_is_read_back(name in any::<String>()) {
        let target = TargetState { name: name.clone(), ..TargetState::default() };
        let families = parse(&open_metrics(State { targets: vec![target], ..State::default() }));
        prop_assert_eq!(&families["hugepilot_target_paused"].samples[0].labels["name"], &name);
    }
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("valid JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let shown: BTreeSet<String> = panels.iter().flat_map(expressions).flat_map(metrics_in).collect();
    let families = parse(&open_metrics(state()));
    let written: BTreeSet<String> = families.values().flat_map(|family| family.queried.clone()).collect();
    let unknown: Vec<_> = shown.difference(&written).collect();
    assert!(unknown.is_empty(), "shown, but never written: {unknown:?}");
    let hidden = families.iter().filter(|(_, family)| family.queried.is_disjoint(&shown)).map(|(name, _)| name);
    assert_eq!(hidden.collect::<Vec<_>>(), [""; 0], "written, but on no panel");
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        let asked = metrics_in(variable["definition"].as_str().unwrap_or_default());
        assert!(asked.iter().all(|name| written.contains(name)), "{asked:?}");
    }
}

#[test]
fn rules_and_dashboards_of_a_fleet_ask_for_what_there_is() {
    let recorded: BTreeSet<String> =
        RULES.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).flat_map(metrics_in).collect();
    let of_the_agent = |name: &String| name.starts_with("hugepilot_agent_");
    let written: BTreeSet<String> =
        parse(&open_metrics(state())).into_values().flat_map(|family| family.queried).chain(recorded).collect();
    // Not in the names of groups, or in text for people.
    let asked = RULES.lines().filter(|line| !line.contains("name: ") && !line.contains("description: "));
    let mut asked: Vec<String> = asked.flat_map(metrics_in).collect();
    for dashboard in FLEET {
        let dashboard: Value = serde_json::from_str(dashboard).expect("valid JSON");
        asked.extend(dashboard["panels"].as_array().expect("panels").iter().flat_map(expressions).flat_map(metrics_in));
    }
    assert!(asked.len() > 30, "{asked:?}");
    asked.retain(|name| !written.contains(name) && !of_the_agent(name));
    assert!(asked.is_empty(), "asked for, but never written: {asked:?}");
}

#[test]
fn the_book_lists_every_metric_and_no_other() {
    let listed: Vec<&str> = BOOK.lines().filter(|line| line.starts_with("| `")).collect();
    let families = parse(&open_metrics(state()));
    assert_eq!(listed.len(), families.len());
    for Written { kind, help, queried, .. } in families.values() {
        // Of the names of a histogram, the family's own is not queried.
        let is_listed = |line: &&str| line.ends_with(&format!("` | {kind} | {help} |"));
        let line = listed.iter().find(|line| is_listed(line)).unwrap_or_else(|| panic!("'{help}' is not listed"));
        let named = metrics_in(line);
        assert!(queried.iter().any(|name| name.starts_with(&named[0])), "{line}");
    }
}

#[test]
fn panels_of_a_dashboard_have_ids_of_their_own_and_do_not_overlap() {
    for dashboard in FLEET.into_iter().chain([DASHBOARD]) {
        let dashboard: Value = serde_json::from_str(dashboard).expect("valid JSON");
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("panels") {
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
            assert!(x + w <= 24, "wider than Grafana's grid: {}", panel["title"]);
            for place in (x..x + w).flat_map(|column| (y..y + h).map(move |row| (column, row))) {
                assert!(taken.insert(place), "{} overlaps", panel["title"]);
            }
        }
    }
}

fn expressions(panel: &Value) -> Vec<&str> {
    let queries = panel["targets"].as_array().into_iter().flatten();
    queries.map(|query| query["expr"].as_str().expect("an expression")).collect()
}

fn metrics_in(expression: &str) -> Vec<String> {
    let words = expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("hugepilot_")).map(str::to_owned).collect()
}

/// What one pair of HELP and TYPE declares.
#[derive(Debug)]
struct Written {
    kind: String,
    help: String,
    /// Names under which its samples are queried.
    queried: BTreeSet<String>,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Parses OpenMetrics text as specified, and panics on any violation.
fn parse(text: &str) -> BTreeMap<String, Written> {
    let mut families = BTreeMap::new();
    let mut series = BTreeSet::new();
    let mut lines = text.strip_suffix("# EOF\n").expect("it ends with EOF").lines().peekable();
    while let Some(help) = lines.next() {
        let (name, told) = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(help);
        assert!(!told.is_empty(), "{help}");
        let kind =
            lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type").to_owned();
        let suffixes: &[&str] = match kind.as_str() {
            "gauge" => &[""],
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other} is no type used here"),
        };
        let queried: BTreeSet<String> = suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect();
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sampled, sample) = parse_sample(line);
            assert!(queried.contains(sampled), "{line} is no sample of {name}");
            assert!(series.insert((sampled.to_owned(), sample.labels.clone())), "{line} is there twice");
            samples.push(sample);
        }
        let earlier = families.insert(name.to_owned(), Written { kind, help: told.to_owned(), queried, samples });
        assert!(earlier.is_none(), "{name} is there twice");
    }
    assert!(families.values().any(|family| family.kind == "histogram"));
    families
}

fn parse_sample(line: &str) -> (&str, Sample) {
    let name_end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"").expect(line);
            let (value, after) = unquoted(quoted);
            labels.insert(label.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').and_then(|number| number.parse().ok()).expect(line);
    (name, Sample { labels, value })
}

/// The text up to the closing quote, unescaped, and the rest after the quote.
fn unquoted(quoted: &str) -> (String, &str) {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (text, &quoted[at + 1..]),
            '\\' => match characters.next().expect("something is escaped").1 {
                'n' => text.push('\n'),
                escaped => text.push(escaped),
            },
            other => text.push(other),
        }
    }
    panic!("no closing quote: {quoted}")
}
