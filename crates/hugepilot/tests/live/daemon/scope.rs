//! Which processes a daemon pilots, and what it does when the configuration changes.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use kernel::Root;
use kernel::process::descendants;
use rustix::process::Signal;
use serde_json::Value;

use super::{Daemon, MIB, OFTEN, named, target, wait_until_huge};
use crate::support::{Cgroup, Ended, Program, daemon_binary, finish, list, number, program_command, send, wait_until};

crate::trials!(
    a_process_by_its_id_and_nobody_else,
    processes_by_name_unless_they_are_never_to_be,
    processes_of_a_control_group,
    children_if_asked,
    status_tells_everything,
    what_was_promoted_stays_when_it_ends,
    a_new_configuration_changes_targets_and_limits,
    a_wrong_configuration_changes_nothing,
    metrics_are_served_once_their_place_is_free,
    a_second_daemon_is_refused,
    a_daemon_at_another_socket_knows_of_the_first,
);

const STEPS: &str = "map=64M fill ready read=all";

fn a_process_by_its_id_and_nobody_else() {
    let (mut one, mut other) = (Program::start(STEPS), Program::start(STEPS));
    let daemon = Daemon::start(&target(&[&one]));
    wait_until_huge(&one, 60 * MIB);
    assert_eq!(other.huge_bytes(), 0);
    assert!(daemon.target(one.pid).is_some() && daemon.target(other.pid).is_none());
    one.assert_unharmed();
    other.assert_unharmed();
}

fn processes_by_name_unless_they_are_never_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start("[[target]]\nname = 'hpt-scope-*'\n[[never]]\nname = 'hpt-scope-not'\n");
    let start = |name: &str| Program::command(&mut named(folder.path(), name, STEPS));
    let programs = ["hpt-scope-not", "hpt-scope-one", "hpt-scope-two", "hpt-else"].map(start);
    wait_until_huge(&programs[1], 60 * MIB);
    wait_until_huge(&programs[2], 60 * MIB);
    assert_eq!([&programs[0], &programs[3]].map(Program::huge_bytes), [0, 0]);
    assert_eq!(list(&daemon.status(), "targets").len(), 2);
}

fn processes_of_a_control_group() {
    let Some(group) = Cgroup::new() else {
        return eprintln!("no group of the memory controller can be made here: not tested");
    };
    let directory = group.path.display();
    let daemon = Daemon::start(&format!("[[target]]\ncgroup = '{directory}'\n"));
    let inside = Program::start(&format!("join-cgroup={directory} {STEPS}"));
    let outside = Program::start(STEPS);
    wait_until_huge(&inside, 60 * MIB);
    assert_eq!(outside.huge_bytes(), 0);
    assert!(daemon.target(outside.pid).is_none());
}

fn children_if_asked() {
    let program = program_command("map=64M fill read=all,50s");
    let path = program.get_program().to_str().expect("UTF-8");
    let script = format!("{path} program map=64M fill read=all,50s; true");
    let mut parent = Ended(Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().expect("a shell"));
    let rule = format!("min-size = '1M'\n[[target]]\npid = {}\n", parent.0.id());
    let daemon = Daemon::start(&rule);
    daemon.wait_for_scans(1);
    let child = descendants(&Root::host(), parent.0.id()).expect("a list")[0];
    assert!(daemon.target(child).is_none());
    daemon.reload(&format!("{OFTEN}{rule}children = true\n"), "anew");
    let promoted = || daemon.target(child).map_or(0, |child| number(&child, "promoted_bytes"));
    wait_until("a child on huge pages", || promoted() >= 60 * MIB);
    // Ending the shell would leave its child behind.
    send(child, Signal::KILL);
    parent.0.wait().expect("it ends");
}

fn status_tells_everything() {
    let program = Program::start(STEPS);
    let daemon = Daemon::start(&format!("max-huge = '1G'\n{}", target(&[&program])));
    wait_until("all promoted, and scanned since", || {
        let promoted = daemon.target(program.pid).map_or(0, |target| number(&target, "promoted_bytes"));
        promoted >= 60 * MIB && number(&daemon.status()["counts"], "scans") >= 2
    });
    let status = daemon.status();
    assert_eq!([&status["tracker"], &status["fairness"]], ["page-walk", "benefit"]);
    assert_eq!(status["max_slowdown"].as_f64(), Some(0.4));
    assert_eq!((&status["paused"], &status["held_back"]), (&Value::Bool(false), &Value::Null));
    let budget = &status["budget"];
    assert_eq!((number(budget, "max_huge_bytes"), &budget["max_cpu"]), (1 << 30, &Value::from(0.5)));
    assert!(number(budget, "cpu_ns") > 0 && number(budget, "busy_ns") > 0, "{status}");
    let counts = &status["counts"];
    let collapses: u64 = list(counts, "collapse_classes").iter().filter_map(Value::as_u64).sum();
    assert_eq!((number(counts, "promoted"), number(counts, "given_back")), (collapses, 0), "{status}");
    let target = &status["targets"][0];
    assert_eq!(
        (number(target, "pid"), number(target, "uid"), &target["paused"]),
        (program.pid.into(), 0, &Value::Bool(false))
    );
    let huge = number(target, "huge_bytes");
    assert_eq!([huge, number(target, "promoted_bytes")], [program.huge_bytes(), collapses << 21], "{status}");
    assert_eq!(number(budget, "huge_bytes"), huge);
    assert!(number(target, "rss_bytes") >= 64 * MIB && number(target, "scanned_ns_ago") > 0, "{status}");
    assert!(target["walks_per_second_before"].as_f64() > target["walks_per_second"].as_f64(), "{status}");
    assert!(target["walks_saved_per_second"].as_f64() > Some(1e4), "{status}");
    let done = list(target, "last_decisions").last().expect("something was done");
    assert_eq!(done["done"], "promoted", "{status}");
    let text = daemon.ask("status");
    assert!(text.status.success() && text.stdout.contains(&program.pid.to_string()), "{text:?}");
}

fn what_was_promoted_stays_when_it_ends() {
    let mut program = Program::start(STEPS);
    let mut daemon = Daemon::start(&target(&[&program]));
    wait_until_huge(&program, 60 * MIB);
    assert_eq!(daemon.end().code(), Some(0), "{}", daemon.said());
    assert!(daemon.said().contains("what was promoted stays"), "{}", daemon.said());
    assert!(program.huge_bytes() >= 60 * MIB);
    daemon.ask("status").assert_fails_with(&["no hugepilot daemon listens"]);
    let given_back = number(&daemon.ask(&format!("give-back {} --json", program.pid)).json(), "applied");
    assert!(given_back >= 30 && program.huge_bytes() == 0);
    program.assert_unharmed();
}

fn a_new_configuration_changes_targets_and_limits() {
    let (one, other) = (Program::start(STEPS), Program::start(STEPS));
    let daemon = Daemon::start(&target(&[&one]));
    wait_until_huge(&one, 60 * MIB);
    daemon.reload(&format!("{OFTEN}max-huge = '16M'\nfairness = 'share'\n{}", target(&[&one, &other])), "anew");
    wait_until("the new limit", || one.huge_bytes() <= 8 * MIB && (1..=8 * MIB).contains(&other.huge_bytes()));
    assert_eq!(number(&daemon.status()["budget"], "max_huge_bytes"), 16 * MIB);
    daemon.reload(&format!("{OFTEN}{}", target(&[&other])), "anew");
    wait_until_huge(&other, 60 * MIB);
    assert!(daemon.target(one.pid).is_none() && one.huge_bytes() <= 8 * MIB);
}

fn a_wrong_configuration_changes_nothing() {
    let program = Program::start("map=64M fill ready await=/nonexistent");
    let daemon = Daemon::start(&format!("max-huge = '100M'\n{}", target(&[&program])));
    let wrong = ["max-hug = '1M'\n", "\n", "give-back = 'yes'\n[[target]]\npid = 1\n", "[[target]\n"];
    for text in wrong {
        daemon.reload(text, "the configuration stays as it was");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    daemon.reload(&format!("metrics = '{address}'\n{}", target(&[&program])), "the configuration stays as it was");
    assert!(daemon.ask("status").stdout.contains(&format!("cannot serve metrics on {address}")));
    let said = daemon.said();
    for word in ["did you mean 'max-huge'?", "is empty", "give-back in line 1", "not TOML"] {
        assert!(said.contains(word), "'{word}' is missing: {said}");
    }
    assert_eq!(number(&daemon.status()["budget"], "max_huge_bytes"), 100 * MIB);
    assert!(daemon.target(program.pid).is_some());
}

fn metrics_are_served_once_their_place_is_free() {
    let program = Program::start("map=16M fill ready await=/nonexistent");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let daemon = Daemon::start(&format!("metrics = '{address}'\n{}", target(&[&program])));
    let problem = format!("no metrics are served, which is tried again every 10 s: cannot serve metrics on {address}");
    assert!(daemon.ask("status").stdout.starts_with(&problem), "{}", daemon.ask("status").stdout);
    drop(taken);
    wait_until("metrics", || TcpStream::connect(address).is_ok());
    wait_until("no problem", || daemon.status()["metrics_not_served"].is_null());
    assert!(daemon.said().contains(&format!("metrics are served on {address} now")), "{}", daemon.said());
}

fn a_second_daemon_is_refused() {
    let program = Program::start("map=16M fill ready await=/nonexistent");
    let mut daemon = Daemon::start(&target(&[&program]));
    let config = daemon.folder.path().join("hugepilot.toml");
    let mut second = Command::new(daemon_binary());
    second.arg("--config").arg(config).arg("--socket").arg(super::socket(&daemon.folder));
    finish(&mut second).assert_fails_with(&["another hugepilot daemon", &daemon.pid().to_string(), "status"]);
    assert!(daemon.ask("status").status.success(), "the first goes on");
    assert!(daemon.end().success());
}

fn a_daemon_at_another_socket_knows_of_the_first() {
    let program = Program::start("map=16M fill ready await=/nonexistent");
    let mut first = Daemon::start(&target(&[&program]));
    if !first.status()["other_daemon"].is_null() {
        return eprintln!("another daemon pilots this machine: only the unit tests of `lock` have it");
    }
    let second = Daemon::start(&target(&[&program]));
    let (pid, socket) = (first.pid(), first.socket());
    let expected = serde_json::json!({ "pid": pid, "socket": socket });
    assert_eq!(second.status()["other_daemon"], expected);
    assert!(first.status()["other_daemon"].is_null());
    let words = format!("another hugepilot daemon (process {pid}) serves {}. ", socket.display());
    assert!(second.said().contains(&words), "{}", second.said());
    assert!(first.end().success());
    wait_until("it is alone", || second.status()["other_daemon"].is_null());
}
