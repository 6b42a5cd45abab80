//! Control groups that an owner assigns while the daemon runs, as the agent for Kubernetes does; and what a group's memory allows.

use std::fs;
use std::path::PathBuf;

use daemon::control::ControlClient;
use daemon::control::target_set::{GroupMode, GroupTarget, TargetSet};
use serde_json::{Value, json};

use super::{Daemon, MIB, wait_until_huge};
use crate::support::{Cgroup, Program, wait_until};

crate::trials!(what_is_assigned_to_a_group_is_done_to_its_programs, nothing_is_promoted_close_to_a_groups_memory_limit,);

/// Leaves everything to agents.
const AGENTS: &str = "agents = true\n";

/// A group below another one, removed when dropped.
struct Below {
    path: PathBuf,
}

impl Below {
    fn new(group: &Cgroup, name: &str) -> Self {
        let path = group.path.join(name);
        fs::create_dir(&path).expect("a group");
        Self { path }
    }

    /// As `/proc/PID/cgroup` names it.
    fn name(&self) -> String {
        let last: Vec<_> = self.path.iter().rev().take(2).map(|part| part.to_str().expect("a name")).collect();
        format!("/{}/{}", last[1], last[0])
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        wait_until("an empty control group", || fs::remove_dir(&self.path).is_ok());
    }
}

fn target(group: &Below, mode: GroupMode) -> GroupTarget {
    GroupTarget {
        // Its engine might have named it otherwise.
        cgroups: vec![format!("/other.slice{}", group.name()), group.name()],
        mode,
        max_growth: Some("50%".to_owned()),
        labels: [("pod".to_owned(), "web-0".to_owned())].into(),
        ..GroupTarget::default()
    }
}

fn groups() -> Option<Cgroup> {
    let group = Cgroup::new();
    if group.is_none() {
        eprintln!("no group of the memory controller can be made here: not tested");
    }
    group
}

fn assign(daemon: &Daemon, targets: Vec<GroupTarget>) {
    let set = TargetSet { owner: "test".to_owned(), targets };
    ControlClient::at(&daemon.socket()).set_targets(set).expect("root may");
}

fn in_group(group: &Below) -> Program {
    Program::start(&format!("join-cgroup={} map=64M fill ready read=all", group.path.display()))
}

fn what_is_assigned_to_a_group_is_done_to_its_programs() {
    let Some(top) = groups() else { return };
    let (group, other) = (Below::new(&top, "group"), Below::new(&top, "other"));
    let (mut program, outside) = (in_group(&group), in_group(&other));
    let daemon = Daemon::start(AGENTS);
    assign(&daemon, vec![target(&group, GroupMode::Observe), target(&other, GroupMode::Off)]);
    let forecast = || daemon.target(program.pid).is_some_and(|target| !target["forecast"].is_null());
    wait_until("a forecast", forecast);
    assert_eq!(program.huge_bytes(), 0);
    assign(&daemon, vec![target(&group, GroupMode::Promote), target(&other, GroupMode::Off)]);
    wait_until_huge(&program, 60 * MIB);
    assert_eq!(daemon.target(program.pid).expect("a target")["labels"], json!({ "pod": "web-0" }));
    assert!(daemon.target(outside.pid).is_none() && outside.huge_bytes() == 0, "it is off");
    assign(&daemon, vec![target(&other, GroupMode::Promote)]);
    wait_until_huge(&outside, 60 * MIB);
    wait_until("no target any more", || daemon.target(program.pid).is_none());
    program.assert_unharmed();
}

fn nothing_is_promoted_close_to_a_groups_memory_limit() {
    let Some(top) = groups() else { return };
    let group = Below::new(&top, "group");
    let program = in_group(&group);
    program.wait_until_at_work();
    // 64 MiB are in use, and a tenth of the limit is more than what is left.
    top.limit_to(2 * MIB);
    let daemon = Daemon::start(AGENTS);
    assign(&daemon, vec![target(&group, GroupMode::Promote)]);
    let held_back = || daemon.target(program.pid).map_or(Value::Null, |target| target["held_back"].clone());
    wait_until("it is held back", || held_back() == "near_memory_limit");
    daemon.wait_for_scans(2);
    assert_eq!((program.huge_bytes(), held_back()), (0, "near_memory_limit".into()));
    assert!(daemon.ask("status").stdout.contains("within 10 % of its memory limit"));
    top.limit_to(256 * MIB);
    wait_until_huge(&program, 60 * MIB);
    // The status of that round is published when the round is over.
    wait_until("it is held back no more", || held_back() == Value::Null);
}
