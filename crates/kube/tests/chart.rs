//! The chart and the plain manifests: they are the same, say what the systemd unit says of rights, and give the daemon a right configuration.
//!
//! With Helm (on the path, or built by tests/kube/binaries) the chart itself is tested; without, what was made of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Parser;
use daemon::args::DaemonArgs;
use daemon::config::Config;
use daemon::metrics_server::MetricsPlace;
use hugepilot_kube::annotations::{Annotations, PodSettings, settings};
use hugepilot_kube::args::AgentArgs;
use serde_json::Value;

const UNIT: &str = include_str!("../../../integrations/systemd/hugepilot.service");
const MANIFESTS: &str = include_str!("../../../integrations/kubernetes/manifests/hugepilot.yaml");
const CHART: &str = include_str!("../../../integrations/kubernetes/chart/Chart.yaml");
/// Everything that can be switched on.
const EVERYTHING: &[&str] = &[
    "metrics.enabled=true",
    "metrics.tokenSecret=t",
    "metrics.tlsSecret=c",
    "metrics.networkPolicy.enabled=true",
    "metrics.serviceMonitor.enabled=true",
    "metrics.serviceMonitor.metricRelabelings[0].action=keep",
    "metrics.serviceMonitor.tlsConfig.serverName=hugepilot",
    "metrics.prometheusRule.enabled=true",
    "metrics.prometheusRule.disabled={HugepilotPaused}",
    "metrics.dashboard.enabled=true",
    "priorityClassName=high",
    "defaults.mode=promote",
    "defaults.maxGrowth=64M",
    "defaults.maxHuge=50%",
    "defaults.maxSlowdown=0.5%",
    "defaults.weight=2",
    "daemon.settings.max-huge=25%ram",
    "daemon.settings.give-back=false",
];

fn documents(text: &str) -> Vec<Value> {
    let parse = |document: &str| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error}: {document}"))
    };
    format!("\n{text}").split("\n---\n").map(parse).filter(|value| !value.is_null()).collect()
}

fn of_kind(documents: &[Value], kind: &str) -> Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("a {kind}")).clone()
}

fn container(documents: &[Value], name: &str) -> Value {
    let set = of_kind(documents, "DaemonSet");
    let all = set["spec"]["template"]["spec"]["containers"].as_array().expect("containers").clone();
    all.into_iter().find(|container| container["name"] == name).expect("it is there")
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|word| word.as_str().expect("a text")).collect()
}

/// That the daemon can be started with these documents, and the agent, too.
fn start(documents: &[Value]) -> (Config, AgentArgs) {
    let config =
        of_kind(documents, "ConfigMap")["data"]["hugepilot.toml"].as_str().expect("a configuration").to_owned();
    let config = Config::parse(&config).unwrap_or_else(|mistake| panic!("{mistake}: {config}"));
    let daemon = container(documents, "daemon");
    DaemonArgs::try_parse_from(["hugepilotd"].into_iter().chain(words(&daemon["args"]))).expect("the daemon's options");
    let agent = container(documents, "agent");
    let args = ["hugepilot-kube", "--node=n"].into_iter().chain(words(&agent["args"]));
    (config, AgentArgs::try_parse_from(args).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn what_the_book_advises_to_drop_is_needed_by_no_rule_dashboard_or_trial_of_the_fleet() {
    let book = include_str!("../../../docs/kubernetes.md");
    let (_, after) = book.split_once("regex: \"hugepilot_target_(").expect("an advice");
    let (dropped, _) = after.split_once(')').expect("the end of the expression");
    let dropped: Vec<&str> = dropped.split('|').map(|name| name.trim_matches(['\\', '\n', ' '])).collect();
    let users = [
        include_str!("../../../integrations/prometheus/rules.yml"),
        include_str!("../../../integrations/grafana/what-it-did.json"),
        include_str!("../../../integrations/grafana/what-would-pay.json"),
        // `fleet trial`
        include_str!("../../trial/src/replicas.rs"),
    ];
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let used: BTreeSet<&str> = users.iter().flat_map(|text| text.split(|letter| !is_part(letter))).collect();
    assert!(dropped.len() == 9 && used.contains("hugepilot_target_held_back"), "{dropped:?}");
    let metrics = include_str!("../../../docs/reference/metrics.md");
    for name in dropped.iter().map(|name| format!("hugepilot_target_{name}")) {
        assert!(!used.contains(name.as_str()) && metrics.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn each_alert_is_tested_and_the_book_says_what_to_do() {
    let [rules, tests, book, schema] = [
        include_str!("../../../integrations/prometheus/rules.yml"),
        include_str!("../../../integrations/prometheus/rules-test.yml"),
        include_str!("../../../docs/kubernetes.md"),
        include_str!("../../../integrations/kubernetes/chart/values.schema.json"),
    ];
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 13, "{alerts:?}");
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")) && book.contains(&format!("`{alert}`")), "{alert}");
        assert!(schema.contains(&format!("\"{alert}\"")), "{alert}");
    }
}

/// The API server takes texts only, and YAML takes some words for something else.
#[test]
fn each_annotation_in_the_book_is_a_text_and_means_something() {
    let rows = include_str!("../../../docs/kubernetes.md").lines().filter(|line| line.starts_with("| `hugepilot.io/"));
    let mut values = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for value in cells[2].split(", ") {
            let (name, value) = (cells[1].trim_matches('`'), value.trim_matches('`'));
            let said = serde_saphyr::from_str::<Annotations>(&format!("{name}: {value}"));
            let said = said.unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
            let given: Value = serde_saphyr::from_str(&format!("{name}: {value}")).expect("YAML");
            assert!(given[name].is_string() && value != "off", "{name}: {value}");
            assert_eq!(settings(&PodSettings::default(), &Annotations::new(), &said).1, []);
            values += 1;
        }
    }
    assert!(values >= 10, "{values}");
}

#[test]
fn programs_understand_what_the_manifests_give_them() {
    let (config, args) = start(&documents(MANIFESTS));
    assert!(config.agents && config.scope.rules().is_empty());
    let Some(MetricsPlace::Socket { path, .. }) = config.metrics else { panic!("a socket") };
    assert_eq!(path, args.metrics.daemon_metrics);
    assert_eq!(args.metrics.metrics_address, None, "the cluster is told nothing unless that is asked for");
}

#[test]
fn the_daemon_has_the_rights_of_the_unit_and_the_agent_has_none() {
    let documents = documents(MANIFESTS);
    let named = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("a set");
    let of_unit: BTreeSet<&str> = named.split(' ').map(|name| name.trim_start_matches("CAP_")).collect();
    let daemon = container(&documents, "daemon")["securityContext"].clone();
    assert_eq!(words(&daemon["capabilities"]["add"]).into_iter().collect::<BTreeSet<_>>(), of_unit);
    let agent = container(&documents, "agent")["securityContext"].clone();
    assert!(agent["capabilities"]["add"].is_null());
    for each in [daemon, agent] {
        assert_eq!(
            (words(&each["capabilities"]["drop"]), &each["readOnlyRootFilesystem"]),
            (vec!["ALL"], &Value::Bool(true))
        );
        assert!(each["privileged"].is_null() && each["allowPrivilegeEscalation"] == false);
    }
    let spec = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(
        (&spec["hostPID"], &spec["hostNetwork"], &spec["automountServiceAccountToken"]),
        (&true.into(), &Value::Null, &false.into())
    );
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let mounts = |name| {
        let container = container(&documents, name);
        let mounts = container["volumeMounts"].as_array().expect("mounts").clone();
        mounts.into_iter().map(|mount| (mount["name"].clone(), mount["readOnly"] == true)).collect::<Vec<_>>()
    };
    assert!(!mounts("daemon").iter().any(|(name, _)| name == "api-access"), "the daemon has no way to the API server");
    assert_eq!(mounts("daemon").into_iter().filter(|(_, read_only)| !read_only).count(), 1, "only /run/hugepilot");
    assert!(mounts("agent").iter().all(|(_, read_only)| *read_only));
}

#[test]
fn an_update_waits_for_a_daemon_that_answers_and_for_its_end() {
    let daemon = container(&documents(MANIFESTS), "daemon");
    for probe in ["readinessProbe", "livenessProbe"] {
        let asked = words(&daemon[probe]["exec"]["command"]);
        let args = DaemonArgs::try_parse_from(&asked).unwrap_or_else(|error| panic!("{probe}: {error}"));
        assert!(asked[0] == "/hugepilotd" && args.check, "{probe}");
    }
    let spec = of_kind(&documents(MANIFESTS), "DaemonSet")["spec"].clone();
    assert!(spec["minReadySeconds"].as_u64() >= Some(30));
    assert!(spec["template"]["spec"]["terminationGracePeriodSeconds"].as_u64() >= Some(30));
    let book = include_str!("../../../docs/kubernetes.md");
    assert!(!book.lines().any(|line| line.contains("helm upgrade") && line.contains(" --reuse-values")));
}

#[test]
fn the_agent_may_watch_pods_and_namespaces_tell_events_and_ask_for_its_own_daemon_set() {
    let rights = |kind| {
        let rules = of_kind(&documents(MANIFESTS), kind)["rules"].as_array().expect("rules").clone();
        let list = |rule: &Value, key| words(&rule[key]).join(",");
        let may = |rule: &Value| {
            let [resources, names, verbs] = ["resources", "resourceNames", "verbs"].map(|key| list(rule, key));
            format!("{resources} {names}: {verbs}")
        };
        rules.iter().map(may).collect::<Vec<_>>()
    };
    assert_eq!(rights("ClusterRole"), ["pods : list,watch", "namespaces : list,watch", "events : create,patch"]);
    assert_eq!(rights("Role"), ["daemonsets hugepilot: get"]);
}

#[test]
fn the_chart_has_the_programs_version() {
    let chart: Value = serde_saphyr::from_str(CHART).expect("YAML");
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&env!("CARGO_PKG_VERSION").into(), &env!("CARGO_PKG_VERSION").into())
    );
}

#[test]
fn an_engine_builds_the_image_with_one_compiler_and_without_what_was_built_here() {
    let container = include_str!("../../../integrations/kubernetes/Containerfile");
    let (_, tag) = container.split_once("FROM docker.io/library/rust:").expect("a compiler");
    let (version, _) = tag.split_once('-').expect("a system");
    let version: Vec<u32> = version.split('.').map(|number| number.parse().expect("a number")).collect();
    let oldest = env!("CARGO_PKG_RUST_VERSION").split('.').map(|number| number.parse().expect("a number"));
    assert!(version.len() == 3 && version >= oldest.collect(), "{version:?}");
    let left_out: BTreeSet<&str> = include_str!("../../../.dockerignore").lines().collect();
    let built = include_str!("../../../.gitignore").lines().filter(|line| line.ends_with("/target"));
    for each in built.chain(["/.git"]) {
        assert!(left_out.contains(each), "{each}");
    }
}

fn integrations() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/kubernetes")
}

/// Runs Helm on the chart; None where it is not installed.
fn helm(words: &[&str], set: &[&str]) -> Option<Output> {
    let built = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/hugepilot/kube"));
    let versions = built.into_iter().filter_map(|cache| cache.read_dir().ok()).flatten().flatten();
    let built = versions.map(|version| version.path().join("helm")).find(|helm| helm.exists());
    let program = std::env::var_os("HELM").map(PathBuf::from).or(built).unwrap_or_else(|| "helm".into());
    let mut command = Command::new(program);
    command.args(words).current_dir(integrations());
    for value in set {
        command.args(["--set-string", value]);
    }
    let output = command.output().ok();
    if output.is_none() {
        eprintln!("skipped: there is no Helm here (tests/kube/binaries builds it)");
    }
    output
}

const TEMPLATE: &[&str] = &[
    "template",
    "hugepilot",
    "chart",
    "--namespace",
    "hugepilot",
    "--kube-version",
    "1.34.0",
    "--api-versions",
    "monitoring.coreos.com/v1",
    "--set",
    "image.repository=hugepilot",
];

fn rendered(set: &[&str]) -> Option<String> {
    // Helm tells numbers and flags from texts by their form; a text is never meant here where the schema wants those.
    let words: Vec<&str> = TEMPLATE.iter().copied().chain(set.iter().flat_map(|value| ["--set", value])).collect();
    let output = helm(&words, &[])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn the_plain_manifests_are_what_the_chart_says() {
    let Some(chart) = rendered(&[]) else { return };
    // Helm manages nothing there.
    let is_helms = |line: &str| line.trim_start().starts_with("helm.sh/chart:") || line.ends_with("/managed-by: Helm");
    let chart: String = chart.split_inclusive('\n').filter(|line| !is_helms(line.trim_end())).collect();
    let path = integrations().join("manifests/hugepilot.yaml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &chart).expect("it can be written");
    }
    assert!(
        std::fs::read_to_string(path).expect("it is there") == chart,
        "run this test with UPDATE=1, and read the difference"
    );
}

#[test]
fn everything_at_once_is_understood_too() {
    let Some(chart) = rendered(EVERYTHING) else { return };
    let documents = documents(&chart);
    let (config, args) = start(&documents);
    assert!(!config.give_back && args.metrics.metrics_tls_key.is_some() && args.metrics.metrics_token_file.is_some());
    assert_eq!(args.defaults.default_max_huge.as_deref(), Some("50%"));
    for kind in ["Service", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"] {
        of_kind(&documents, kind);
    }
    assert_eq!(of_kind(&documents, "ServiceMonitor")["spec"]["endpoints"][0]["honorLabels"], true);
    let rule = of_kind(&documents, "PrometheusRule");
    let written = serde_saphyr::from_str::<Value>(include_str!("../../../integrations/prometheus/rules.yml"));
    let [mut expected, given] = [&written.expect("YAML"), &rule["spec"]].map(|spec| {
        let groups = spec["groups"].as_array().expect("groups");
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect::<Vec<_>>()
    });
    expected.retain(|rule| rule["alert"] != "HugepilotPaused");
    assert!(expected == given && given.len() >= 20, "{given:?}");
    for name in ["hugepilot.json", "what-would-pay.json", "what-it-did.json"] {
        let dashboard = documents.iter().find_map(|document| document["data"][name].as_str()).expect("a dashboard");
        assert!(serde_json::from_str::<Value>(dashboard).is_ok(), "{name}");
    }
}

#[test]
fn helm_finds_no_fault_and_wrong_values_are_refused() {
    let Some(lint) = helm(&["lint", "--strict", "chart"], &[]) else { return };
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    for (wrong, expected) in [
        ("defaults.mode=on", "mode"),
        ("defaults.maxGrowth=lots", "maxGrowth"),
        ("defaults.maxGrowth=1.2.3G", "maxGrowth"),
        ("defaults.maxSlowdown=1", "maxSlowdown"),
        ("defaults.weight=heavy", "weight"),
        ("metrics.address=everywhere", "address"),
        ("updateStrategy.type=Sometimes", "type"),
        ("daemon.settings.max-hge=1G", "max-hge"),
        ("metrics.enable=true", "enable"),
        ("image.digest=sha256:1", "digest"),
    ] {
        let output = helm(TEMPLATE, &[wrong]).expect("it was there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{wrong}: {said}");
    }
}

#[test]
fn values_that_would_fail_later_are_refused() {
    for (wrong, expected) in [
        (&["image.repository="][..], "image.repository is not set"),
        (&["metrics.enabled=true"], "metrics.enabled needs metrics.tokenSecret"),
        (&["metrics.enabled=true", "metrics.withoutToken=true"], "needs metrics.networkPolicy.enabled"),
        (&["metrics.serviceMonitor.enabled=true"], "metrics.serviceMonitor.enabled needs metrics.enabled"),
        (&["metrics.prometheusRule.enabled=true"], "metrics.prometheusRule.enabled needs metrics.enabled"),
        (&["metrics.dashboard.enabled=true"], "metrics.dashboard.enabled needs metrics.enabled"),
        (
            &[
                "metrics.enabled=true",
                "metrics.tokenSecret=t",
                "metrics.tlsSecret=c",
                "metrics.serviceMonitor.enabled=true",
            ],
            "needs metrics.serviceMonitor.tlsConfig",
        ),
    ] {
        let words: Vec<&str> =
            TEMPLATE.iter().copied().chain(wrong.iter().flat_map(|value| ["--set", value])).collect();
        let Some(output) = helm(&words, &[]) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{wrong:?}: {said}");
    }
}

/// The daemon would refuse its configuration only on the node; and what it takes, the chart takes, too.
#[test]
fn the_chart_takes_the_settings_that_the_daemon_takes() {
    for (key, right, wrong) in [
        ("tracker", &["auto", "page-walk", "damon-vaddr", "idle-page", "damon-paddr", "perf-mem"][..], "foo"),
        ("window", &["500ms", "2s"], "soon"),
        ("max-cpu", &["4%", "0.5%"], "4"),
        ("min-size", &["16M", "1.5 GiB", "4096"], "1.2.3G"),
        ("max-growth", &["1%", "0.5%ram", "64M", "2 GiB", "0"], "1.2.3G"),
        ("max-huge", &["25%ram", "1T"], "12"),
        ("max-slowdown", &["0.5%"], "fast"),
        ("fairness", &["benefit", "share"], "mine"),
    ] {
        for (value, is_right) in right.iter().map(|value| (*value, true)).chain([(wrong, false)]) {
            assert_eq!(Config::parse(&format!("{key} = '{value}'")).is_ok(), is_right, "{key} = {value}");
            let Some(output) = helm(TEMPLATE, &[&format!("daemon.settings.{key}={value}")]) else { return };
            assert_eq!(output.status.success(), is_right, "{key}={value}");
        }
    }
}

#[test]
fn names_are_those_that_were_asked_for_and_alerts_find_the_job_nevertheless() {
    let name = |release: &str, set: &[&str]| {
        let words = ["template", release, "chart", "--kube-version=1.34.0", "--set=image.repository=r"];
        let output = helm(&words, set)?;
        let documents = documents(&String::from_utf8(output.stdout).expect("UTF-8"));
        Some(of_kind(&documents, "DaemonSet")["metadata"]["name"].as_str().expect("a name").to_owned())
    };
    let Some(plain) = name("hugepilot", &[]) else { return };
    assert_eq!((plain.as_str(), name("a", &[])), ("hugepilot", Some("a-hugepilot".to_owned())));
    assert_eq!(name("a", &["nameOverride=b"]).as_deref(), Some("a-b"));
    assert_eq!(name("a", &["fullnameOverride=c"]).as_deref(), Some("c"));
    // Its 50th letter is a dash.
    let long = name("a", &[&format!("nameOverride={}-bc", "b".repeat(47))]);
    assert_eq!(long, Some(format!("a-{}", "b".repeat(47))));
    let chart = documents(&rendered(EVERYTHING).expect("it was there"));
    let label = of_kind(&chart, "ServiceMonitor")["spec"]["jobLabel"].as_str().expect("a label").to_owned();
    assert_eq!(of_kind(&chart, "Service")["metadata"]["labels"][label.as_str()], "hugepilot");
}

#[test]
fn addresses_of_both_kinds_and_no_update_strategy_are_understood() {
    let metrics = ["metrics.enabled=true", "metrics.tokenSecret=t", "updateStrategy=null"];
    for (address, expected) in [("::", "[::]:9472"), ("[::1]", "[::1]:9472"), ("0.0.0.0", "0.0.0.0:9472")] {
        let address = format!("metrics.address={address}");
        let Some(chart) = rendered(&[&metrics[..], &[&address]].concat()) else { return };
        let documents = documents(&chart);
        assert_eq!(start(&documents).1.metrics.metrics_address, Some(expected.parse().expect("an address")));
        assert!(of_kind(&documents, "DaemonSet")["spec"].get("updateStrategy").is_none());
    }
}

/// Helm shows notes only where there is a cluster, so that they stand in for a manifest.
#[test]
fn notes_say_how_to_see_that_it_runs_and_why_it_does_not() {
    let folder = tempfile::tempdir().expect("a directory");
    let chart = folder.path().join("chart");
    let copied = Command::new("cp").arg("-rL").args([integrations().join("chart"), chart.clone()]).status();
    assert!(copied.expect("cp").success());
    let notes = std::fs::read_to_string(chart.join("templates/NOTES.txt")).expect("notes");
    let document = notes.lines().fold("notes: |".to_owned(), |document, line| format!("{document}\n  {line}"));
    std::fs::write(chart.join("templates/notes.yaml"), document).expect("it can be written");
    let show = |set: &[&str]| {
        let chart = chart.to_str().expect("UTF-8");
        let words = ["template", "hugepilot", chart, "--namespace=pilots", "--kube-version=1.34.0"];
        let output = helm(&words, &[&["image.repository=r"], set].concat())?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let documents = documents(&String::from_utf8(output.stdout).expect("UTF-8"));
        documents.iter().find_map(|document| document["notes"].as_str().map(ToOwned::to_owned))
    };
    let Some(notes) = show(&[]) else { return };
    for expected in [
        "kubectl -n pilots rollout status daemonset/hugepilot\n",
        "kubectl -n pilots get events --field-selector type=Warning\n",
        "kubectl label namespace pilots pod-security.kubernetes.io/enforce=privileged\n",
        "The cluster collects no metrics",
    ] {
        assert!(notes.contains(expected), "{expected} in {notes}");
    }
}
