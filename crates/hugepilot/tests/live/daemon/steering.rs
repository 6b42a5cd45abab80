//! Pause, resume and give back through the control socket, by root and by others.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{Daemon, MIB, OFTEN, slowly, socket, target, wait_until_huge};
use crate::support::{Program, Ran, as_user, binary, finish, number, program_command, public_copy, wait_until};

crate::trials!(
    whoever_is_paused_is_left_alone_until_resumed,
    everything_is_paused_and_resumed,
    a_pause_ends_what_goes_on,
    who_is_only_observed_is_told_what_it_would_gain,
    what_is_given_back_stays_so,
    users_steer_their_own_processes_and_no_others,
);

fn whoever_is_paused_is_left_alone_until_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let program = Program::start(&format!("map=64M fill ready await={} read=all", go.display()));
    let other = Program::start(&format!("map=64M fill ready await={} read=all", go.display()));
    let daemon = Daemon::start(&target(&[&program, &other]));
    wait_until("both are targets", || daemon.target(program.pid).and(daemon.target(other.pid)).is_some());
    assert!(daemon.ask(&format!("pause {}", program.pid)).status.success());
    fs::write(go, "").expect("a file");
    wait_until_huge(&other, 60 * MIB);
    assert_eq!(program.huge_bytes(), 0);
    let paused = |pid| daemon.target(pid).expect("a target")["paused"].clone();
    assert_eq!((paused(program.pid), paused(other.pid)), (Value::Bool(true), Value::Bool(false)));
    assert!(daemon.ask(&format!("resume {}", program.pid)).status.success());
    wait_until_huge(&program, 60 * MIB);
}

fn everything_is_paused_and_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let program = Program::start(&format!("map=64M fill ready await={} read=all", go.display()));
    let daemon = Daemon::start(&target(&[&program]));
    assert!(daemon.ask("pause").status.success());
    // A scan that has begun is not cancelled.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let scans = || number(&daemon.status()["counts"], "scans");
    let before = scans();
    fs::write(go, "").expect("a file");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((scans(), program.huge_bytes()), (before, 0), "a newcomer would have been scanned");
    assert_eq!(daemon.status()["paused"], true);
    assert!(daemon.ask("resume").status.success());
    wait_until_huge(&program, 60 * MIB);
}

fn who_is_only_observed_is_told_what_it_would_gain() {
    let (program, other) =
        (Program::start("map=64M fill ready read=all"), Program::start("map=64M fill ready read=all"));
    let observe = format!("{}mode = 'observe'\n", target(&[&program]));
    let daemon = Daemon::start(&format!("{observe}{}", target(&[&other])));
    wait_until_huge(&other, 60 * MIB);
    let state = || daemon.target(program.pid).expect("a target");
    let would_gain = || state()["forecast"]["gain_percent"]["likely"].as_f64();
    wait_until("a forecast", || would_gain() > Some(0.0));
    assert_eq!((state()["mode"].as_str(), program.huge_bytes()), (Some("observe"), 0), "{}", state());
    assert!(number(&state()["forecast"], "would_pay_bytes") >= 60 * MIB, "{}", state());
    let shown = daemon.ask("status").stdout;
    assert!(shown.contains("only observed"), "{shown}");
    daemon.reload(&format!("{OFTEN}{}", target(&[&program, &other])), "anew");
    wait_until_huge(&program, 60 * MIB);
}

fn a_pause_ends_what_goes_on() {
    let mut program = Program::start("map=512M fill ready read=all");
    let daemon = Daemon::start("[[target]]\nname = 'hpt-nobody'\n");
    daemon.reload(&slowly(&target(&[&program])), "anew");
    wait_until_huge(&program, 2 * MIB);
    assert!(daemon.ask(&format!("pause {}", program.pid)).status.success());
    let huge = program.huge_bytes();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let now = program.huge_bytes();
    assert!((huge..=huge + 2 * MIB).contains(&now) && now < 500 * MIB, "{huge} bytes became {now}");
    program.assert_unharmed();
}

fn what_is_given_back_stays_so() {
    let mut program = Program::start("map=64M fill ready read=all");
    let daemon = Daemon::start(&target(&[&program]));
    wait_until_huge(&program, 60 * MIB);
    let ran = daemon.ask(&format!("give-back {} --json", program.pid));
    assert!(number(&ran.json(), "applied") >= 30, "{ran:?}");
    let shown = || daemon.target(program.pid).expect("a target");
    wait_until("it shows what is left", || number(&shown(), "huge_bytes") == program.huge_bytes());
    assert_eq!((program.huge_bytes(), number(&daemon.status()["budget"], "huge_bytes")), (0, 0));
    assert_eq!((shown()["paused"].clone(), number(&shown(), "promoted_bytes")), (Value::Bool(true), 0));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

/// The daemon's answer to another user's hugepilot command.
fn ask_as(uid: u32, daemon: &Daemon, words: &str) -> Ran {
    let mut command = as_user(uid);
    command.arg(public_copy(&daemon.folder, binary())).args(words.split(' '));
    command.arg("--socket").arg(socket(&daemon.folder));
    finish(command.current_dir("/"))
}

fn users_steer_their_own_processes_and_no_others() {
    const OWNER: u32 = 65_533;
    const STRANGER: u32 = 65_532;
    let folder = tempfile::tempdir().expect("a folder");
    let steps = program_command("map=64M fill ready read=all");
    let copy = public_copy(&folder, steps.get_program());
    let start = || Program::command(as_user(OWNER).current_dir("/").arg(&copy).args(steps.get_args()));
    let (mut one, mut other, roots) = (start(), start(), Program::start("map=64M fill ready read=all"));
    let daemon = Daemon::start(&target(&[&one, &other, &roots]));
    [&one, &other, &roots].iter().for_each(|program| wait_until_huge(program, 60 * MIB));
    let (pid, roots_pid) = (one.pid, roots.pid);
    for words in ["give-back", "pause", "resume"] {
        ask_as(STRANGER, &daemon, &format!("pause {pid}")).assert_fails_with(&["refused", "no target of yours"]);
        let refused = ask_as(OWNER, &daemon, &format!("{words} {roots_pid}"));
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    let lock = fs::metadata(socket(&daemon.folder).with_extension("lock")).expect("a lock").permissions().mode();
    assert_eq!(lock & 0o777, 0o600, "or a stranger could hold it, and no daemon would start any more");
    ask_as(OWNER, &daemon, "pause").assert_fails_with(&["only root"]);
    assert_eq!(ask_as(STRANGER, &daemon, "status --json").json()["targets"], Value::Array(Vec::new()));
    assert!(one.huge_bytes() >= 60 * MIB && roots.huge_bytes() >= 60 * MIB, "nothing was changed");
    let own = ask_as(OWNER, &daemon, &format!("give-back {pid} --json"));
    assert!(number(&own.json(), "applied") >= 30 && one.huge_bytes() == 0, "{own:?}");
    let by_root = daemon.ask(&format!("give-back {} --json", other.pid));
    assert!(number(&by_root.json(), "applied") >= 30 && other.huge_bytes() == 0, "{by_root:?}");
    one.assert_unharmed();
    other.assert_unharmed();
}
