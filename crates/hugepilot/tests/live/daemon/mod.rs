//! `hugepilotd`: each test has its own daemon, which pilots only the test's programs.
//!
//! Owns: starting, configuring and querying a daemon. Never touches: the machine's own daemon, its socket or its configuration.

mod assigned;
mod clients;
mod cost;
mod fairness;
mod own_machine;
mod scope;
mod sharing;
mod steering;
mod trouble;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

pub use trouble::settings;

use crate::support::{Ended, Program, Ran, binary, daemon_binary, finish, list, program_command, send, wait_until};

/// All tests of a daemon.
pub fn trials() -> Vec<libtest_mimic::Trial> {
    let modules = [
        scope::trials(),
        assigned::trials(),
        steering::trials(),
        fairness::trials(),
        sharing::trials(),
        trouble::trials(),
        clients::trials(),
        cost::trials(),
        own_machine::trials(),
    ];
    modules.into_iter().flatten().collect()
}

/// Short windows; and a larger CPU quota, because a debug build would otherwise rest for seconds to stay within it.
const OFTEN: &str = "window = '200ms'\nmax-cpu = '50%'\nmax-slowdown = '40%'\n";

const MIB: u64 = 1 << 20;

/// A test's own daemon, ended when dropped.
pub struct Daemon {
    child: Ended,
    folder: TempDir,
}

impl Daemon {
    /// Starts a daemon and waits until it pilots.
    pub fn start(rules: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), rules)
    }

    /// Starts a daemon with the socket and configuration path of an earlier one.
    pub fn start_in(folder: TempDir, rules: &str) -> Self {
        Self::of_command(&mut Command::new(daemon_binary()), folder, &format!("{OFTEN}{rules}"))
    }

    /// Starts a daemon with this command, to which `--config` and `--socket` are appended, and this configuration.
    pub fn of_command(command: &mut Command, folder: TempDir, text: &str) -> Self {
        fs::write(config(&folder), text).expect("a configuration");
        let said = File::create(folder.path().join("said")).expect("a file");
        command.arg("--config").arg(config(&folder)).arg("--socket").arg(socket(&folder));
        let child = Ended(command.stderr(said).spawn().expect("hugepilotd starts"));
        let mut daemon = Self { child, folder };
        wait_until("a daemon that pilots", || {
            assert_eq!(daemon.child.0.try_wait().expect("a child can be asked"), None, "{}", daemon.said());
            daemon.said().contains("piloting")
        });
        daemon
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Its standard error so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).expect("UTF-8")
    }

    /// The path of its socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// Replaces its configuration, and waits for this message.
    pub fn reload(&self, text: &str, says: &str) {
        fs::write(config(&self.folder), text).expect("a configuration");
        let before = self.said().len();
        send(self.pid(), Signal::HUP);
        wait_until(says, || self.said()[before..].contains(says));
    }

    /// Runs a hugepilot command against this daemon.
    pub fn ask(&self, words: &str) -> Ran {
        finish(Command::new(binary()).args(words.split(' ')).arg("--socket").arg(socket(&self.folder)))
    }

    pub fn status(&self) -> Value {
        self.ask("status --json").json()
    }

    /// The target with this process id; None if the daemon has none.
    pub fn target(&self, pid: u32) -> Option<Value> {
        list(&self.status(), "targets").iter().find(|target| target["pid"] == pid).cloned()
    }

    /// Ends it with a signal that it can handle.
    pub fn end(&mut self) -> ExitStatus {
        send(self.pid(), Signal::TERM);
        self.child.0.wait().expect("it ends")
    }

    /// Kills it, and keeps its files for the next daemon.
    pub fn kill(mut self) -> TempDir {
        send(self.pid(), Signal::KILL);
        self.child.0.wait().expect("it ends");
        self.folder
    }

    /// Makes scans due (an idle program gets ever fewer), and waits for this many.
    pub fn scan_again(&self, times: u64) {
        for _ in 0..times {
            let text = fs::read_to_string(config(&self.folder)).expect("a configuration");
            self.reload(&text, "anew");
            self.wait_for_scans(1);
        }
    }

    /// Waits for this many more scans.
    pub fn wait_for_scans(&self, more: u64) {
        let scans = || self.status()["counts"]["scans"].as_u64().expect("a number");
        let enough = scans() + more;
        wait_until("more scans", || scans() >= enough);
    }
}

fn config(folder: &TempDir) -> PathBuf {
    folder.path().join("hugepilot.toml")
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("control.sock")
}

/// A rule that matches these programs.
fn target(programs: &[&Program]) -> String {
    programs.iter().map(|program| format!("[[target]]\npid = {}\n", program.pid)).collect()
}

/// This test binary under another name of at most 15 characters, as a link in the folder.
pub fn named(folder: &Path, name: &str, steps: &str) -> Command {
    let (program, link) = (program_command(steps), folder.join(name));
    if !link.exists() {
        std::os::unix::fs::symlink(program.get_program(), &link).expect("a link");
    }
    let mut command = Command::new(link);
    command.args(program.get_args());
    command
}

/// The same rules at a slow pace: 256 regions take minutes.
fn slowly(rules: &str) -> String {
    format!("window = '200ms'\nmax-cpu = '50%'\nmax-slowdown = '0.1%'\nallow-stall = true\n{rules}")
}

/// Waits until this much of a program is on huge pages.
fn wait_until_huge(program: &Program, bytes: u64) {
    wait_until(&format!("{bytes} bytes on huge pages"), || program.huge_bytes() >= bytes);
}
