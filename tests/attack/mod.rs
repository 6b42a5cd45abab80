//! Attacks on the daemon by a user without rights, beside honest targets and an honest client.
//!
//! Owns: the siege: a daemon under the rights and limits of the shipped unit, and what must hold during each attack. Never touches: the attacks
//! themselves ([`attackers`]).
//!
//! The daemon and the honest programs have one processor, the attackers another: what attackers take from others by running at all is the
//! scheduler's business.

pub mod attackers;
mod soak;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kernel::Root;
use kernel::process::cpu_time;
use rustix::process::{Pid, Signal, kill_process_group};

use self::attackers::{ATTACKS, Attack, GAINED, HARMS, SET_GID, SET_UID, WRITABLE};
use crate::daemon::Daemon;
use crate::support::{
    Cgroup, Program, as_user, daemon_binary, list, number, program_command, public_copy, send, wait_until,
};

/// Every test of this module, and the soak.
pub fn trials() -> Vec<libtest_mimic::Trial> {
    let trial = |name: &str, test: fn()| {
        let run = move || {
            test();
            Ok(())
        };
        libtest_mimic::Trial::test(format!("attack::{name}"), run)
    };
    let siege = trial(
        "honest_programs_keep_what_they_have_during_each_attack",
        honest_programs_keep_what_they_have_during_each_attack,
    );
    let signals = trial("a_client_of_another_user_is_signalled", a_client_of_another_user_is_signalled);
    let names = trial("names_do_not_steer_the_terminal", names_do_not_steer_the_terminal);
    let mut trials = soak::trials();
    trials.extend([siege, signals, names]);
    trials
}

const UNIT: &str = include_str!("../../integrations/systemd/hugepilot.service");
const NOBODY: u32 = 65_534;
/// How long each attack is watched: for this many scans, one of each target, or so long.
const SCANS: u64 = TARGETS as u64;
const LONGEST: Duration = Duration::from_secs(15);
/// How often, if other work on the machine may have been in the way.
const TRIES: usize = 4;
/// How often a scan is asked for meanwhile.
const AGAIN: Duration = Duration::from_millis(150);
/// Honest targets.
const TARGETS: usize = 8;
/// What honest targets keep at least of the scans that they have without an attack.
const KEPT: f64 = 0.8;
const MEMORY_MAX: u64 = 256 << 20;
/// What the configuration allows for observing, a tenth for answering, and what a window of some seconds saves up.
const MOST_CPU: f64 = 0.8;
/// File descriptors, as the unit gives them to the daemon.
const DESCRIPTORS: usize = 4096;
/// Of these, what an attack may make it use.
const MOST_DESCRIPTORS: usize = 512;

/// A daemon that is attacked, and honest programs beside it.
struct Siege {
    daemon: Daemon,
    targets: Vec<Program>,
    client: Program,
    attacker: PathBuf,
    folder: tempfile::TempDir,
    /// Its memory is limited as the unit says; None where no control group can be made. Dropped after the daemon.
    group: Option<Cgroup>,
}

/// What was seen in a time.
#[derive(Debug)]
struct Seen {
    scans: f64,
    lists: f64,
    cpu_share: f64,
}

/// An attack that goes on until this is dropped.
struct Attackers {
    children: Vec<Child>,
    said: PathBuf,
}

impl Drop for Attackers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let group = Pid::from_raw(child.id() as i32).expect("a process id");
            // Those that have ended already are no reason to fail.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Siege {
    fn lay() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let attacker = public_copy(&folder, std::env::current_exe().expect("our own path"));
        for (name, mode) in [(SET_UID, 0o4755), (SET_GID, 0o2755)] {
            let copy = attacker.with_file_name(name);
            fs::copy(&attacker, &copy).expect("a copy");
            fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        let writable = attacker.with_file_name(WRITABLE);
        fs::create_dir(&writable).expect("a folder");
        fs::set_permissions(&writable, fs::Permissions::from_mode(0o777)).expect("it is ours");
        let on_one = |steps: &str| {
            let program = program_command(steps);
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]).arg(program.get_program()).args(program.get_args());
            Program::command(&mut command)
        };
        let targets: Vec<Program> = (0..TARGETS).map(|_| on_one("map=24M fill ready sleep=86400s")).collect();
        let group = Cgroup::new();
        let daemon = restricted_daemon(group.as_ref(), tempfile::tempdir().expect("a folder"), &targets);
        // It cannot convert what it is told of, so it is told again and again.
        let client = on_one(&format!("map=8M fill nohugepage track={} ready read=all", daemon.socket().display()));
        wait_until("the targets are scanned", || number(&daemon.status()["counts"], "scans") > 0);
        Self { daemon, targets, client, attacker, folder, group }
    }

    /// The same after the daemon was killed and another took its place.
    fn with_a_new_daemon(self) -> Self {
        let daemon = restricted_daemon(self.group.as_ref(), self.daemon.kill(), &self.targets);
        Self { daemon, ..self }
    }

    fn begin(&self, number: usize, attack: &Attack) -> Attackers {
        let said = self.folder.path().join(format!("said-{number}"));
        let start = |_| {
            let mut command = as_user(NOBODY);
            command.args(["--", "taskset", "-c", "1"]).arg(&self.attacker).args(["attack", &number.to_string()]);
            command.arg(self.daemon.socket()).arg(self.targets[0].pid.to_string()).current_dir("/").process_group(0);
            let output = fs::File::options().create(true).append(true).open(&said).expect("a file");
            command.stdout(output).stderr(Stdio::null()).spawn().expect("an attacker starts")
        };
        Attackers { children: (0..attack.times).map(start).collect(), said }
    }

    fn counts(&self) -> (u64, u64) {
        let status = self.daemon.status();
        let lists = list(&status, "clients").iter().find(|client| client["pid"] == self.client.pid);
        (number(&status["counts"], "scans"), lists.map_or(0, |client| number(client, "lists")))
    }

    /// Watches from a scan on until this many more, or for so long.
    fn watch(&self, more: u64, longest: Duration) -> Seen {
        let cpu = || cpu_time(&Root::host(), self.daemon.pid()).expect("it lives").seconds();
        let ask_again = || {
            // A program that changes little is scanned ever more rarely; a configuration that is read anew makes a scan due.
            send(self.daemon.pid(), Signal::HUP);
            std::thread::sleep(AGAIN);
            self.counts()
        };
        let (called, first) = (Instant::now(), self.counts());
        let mut before = first;
        while before.0 == first.0 && called.elapsed() < longest {
            before = ask_again();
        }
        let (began, cpu_before, mut now) = (Instant::now(), cpu(), before);
        while now.0 - before.0 < more && called.elapsed() < longest {
            now = ask_again();
        }
        let seconds = began.elapsed().as_secs_f64().max(AGAIN.as_secs_f64());
        Seen {
            scans: (now.0 - before.0) as f64 / seconds,
            lists: (now.1 - first.1) as f64 / called.elapsed().as_secs_f64(),
            cpu_share: (cpu() - cpu_before) / seconds,
        }
    }

    /// How long root waits for an answer.
    fn status_takes(&self) -> Duration {
        let began = Instant::now();
        self.daemon.status();
        began.elapsed()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.daemon.pid())).expect("it lives").count()
    }

    fn rss(&self) -> u64 {
        kernel::process::ProcessStatus::read(&Root::host(), self.daemon.pid()).expect("it lives").vm_rss.0
    }
}

/// A daemon with the rights and limits of the unit, which pilots a target and whatever is named for it.
fn restricted_daemon(group: Option<&Cgroup>, folder: tempfile::TempDir, targets: &[Program]) -> Daemon {
    // Others than root must reach the socket.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let targets: String = targets.iter().map(|program| format!("[[target]]\npid = {}\n", program.pid)).collect();
    // Short windows, and a larger CPU quota, because a debug build would rest for seconds; all else is as shipped.
    let rules = format!(
        "window = '200ms'\nmax-cpu = '50%'\nmax-huge = 0\nmetrics = '127.0.0.1:0'\n{targets}[[target]]\nname = 'hpt-*'\n"
    );
    Daemon::of_command(&mut restricted(group), folder, &rules)
}

/// hugepilotd with the capabilities of the unit, its memory and its number of descriptors, on one processor.
fn restricted(group: Option<&Cgroup>) -> Command {
    let bound = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("the unit has one");
    let bound = format!("-all,{}", bound.to_lowercase().replace("cap_", "+").replace(' ', ","));
    let join = group.map_or(String::new(), |group| {
        group.limit_to(MEMORY_MAX);
        format!("echo $$ > {}/cgroup.procs && ", group.path.display())
    });
    let script = format!(
        "{join}ulimit -n {DESCRIPTORS} && exec taskset -c 0 setpriv --bounding-set={bound} --no-new-privs {} \"$@\"",
        daemon_binary().display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]);
    command
}

fn honest_programs_keep_what_they_have_during_each_attack() {
    let siege = Siege::lay();
    let peace = siege.watch(4 * SCANS, LONGEST);
    eprintln!("without an attack: {peace:?}");
    assert!(peace.scans > 1.0 && peace.lists > 0.1, "{peace:?}");
    // To try one again: a part of its name.
    let only = std::env::var("HUGEPILOT_ATTACK").unwrap_or_default();
    for (attack_number, attack) in ATTACKS.iter().enumerate().filter(|(_, attack)| attack.name.contains(&only)) {
        let attackers = siege.begin(attack_number, attack);
        let harms = || fs::read_to_string(&attackers.said).is_ok_and(|said| said.contains(HARMS));
        wait_until(&format!("a user {}", attack.name), || !attack.prepares || harms());
        let is_kept = |seen: &Seen| seen.scans >= KEPT * peace.scans && seen.lists > 0.0;
        let mut tries = (0..TRIES).map(|_| siege.watch(SCANS, LONGEST));
        let first = tries.next().expect("there is one");
        let seen = if is_kept(&first) { first } else { tries.find(is_kept).unwrap_or(first) };
        let (answer, descriptors, rss) = (siege.status_takes(), siege.descriptors(), siege.rss());
        let said = fs::read_to_string(&attackers.said).expect("what it says is text");
        drop(attackers);
        let what = format!(
            "a user who {}: {seen:?}, {answer:?} for an answer, {descriptors} descriptors, {rss} bytes",
            attack.name
        );
        eprintln!("{what}");
        assert!(seen.scans >= KEPT * peace.scans, "targets were neglected: {what}; without: {peace:?}");
        // Its part is halved by another user's clients.
        assert!(seen.lists > 0.0, "the client was neglected: {what}; without: {peace:?}");
        assert!(seen.cpu_share < MOST_CPU, "it takes too much CPU time: {what}");
        assert!(answer < Duration::from_secs(1), "root had to wait: {what}");
        assert!(descriptors < MOST_DESCRIPTORS, "descriptors leak: {what}");
        assert!(rss < MEMORY_MAX, "memory grows: {what}");
        assert!(!said.contains(GAINED), "{what}: {said}");
    }
    wait_until("places and descriptors are free again", || siege.descriptors() < 64);
}

fn a_client_of_another_user_is_signalled() {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = restricted_daemon(None, tempfile::tempdir().expect("a folder"), &[]);
    let steps = program_command(&format!("map=96M fill track={} ready read=all", daemon.socket().display()));
    let copy = public_copy(&folder, steps.get_program());
    let mut program = Program::command(as_user(NOBODY).current_dir("/").arg(copy).args(steps.get_args()));
    wait_until("what it uses is huge", || program.huge_bytes() >= 90 << 20);
    assert!(!daemon.said().contains("CAP_KILL"), "{}", daemon.said());
    program.assert_unharmed();
}

fn names_do_not_steer_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program_command("map=32M fill ready read=all");
    let link = folder.path().join("hpt-\u{1b}[2J\n");
    std::os::unix::fs::symlink(program.get_program(), &link).expect("a link");
    let program = Program::command(Command::new(&link).args(program.get_args()));
    let daemon = Daemon::start("[[target]]\nname = 'hpt-*'\n");
    wait_until("it is a target", || daemon.target(program.pid).is_some());
    let shown = daemon.ask("status").stdout;
    assert!(shown.contains("hpt-") && !shown.contains('\u{1b}'), "{shown:?}");
    let line = shown.lines().find(|line| line.contains("hpt-")).expect("one line");
    assert!(line.contains(&program.pid.to_string()), "a name makes no line of its own: {line:?}");
    assert!(Path::new(&format!("/proc/{}", program.pid)).exists());
}
