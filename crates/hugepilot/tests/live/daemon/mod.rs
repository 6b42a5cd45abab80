//! `hugepilotd`: each test has one of its own, which pilots nobody but programs of the test.
//!
//! Owns: starting, configuring and asking a daemon. Never touches: the machine's own daemon, its socket or its configuration.

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

/// Every test of a daemon.
pub fn trials() -> Vec<libtest_mimic::Trial> {
    let modules = [
        scope::trials(),
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

/// Short windows; and unlike a release build, one for tests would rest for seconds to keep to its share of the CPU.
const OFTEN: &str = "window = '200ms'\nmax-cpu = '50%'\nmax-slowdown = '40%'\n";

const MIB: u64 = 1 << 20;

/// A daemon of a test's own, ended when dropped.
pub struct Daemon {
    child: Ended,
    folder: TempDir,
}

impl Daemon {
    /// Starts one and waits until it pilots.
    pub fn start(rules: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), rules)
    }

    /// Starts one with the socket and the configuration's place of an earlier one.
    pub fn start_in(folder: TempDir, rules: &str) -> Self {
        Self::of_command(&mut Command::new(daemon_binary()), folder, rules)
    }

    /// Starts one by a command of its own, to which `--config` and `--socket` are added.
    pub fn of_command(command: &mut Command, folder: TempDir, rules: &str) -> Self {
        fs::write(config(&folder), format!("{OFTEN}{rules}")).expect("a configuration");
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

    /// What it has said so far on standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).expect("UTF-8")
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// Gives it another configuration, and waits until it has said so.
    pub fn reload(&self, text: &str, says: &str) {
        fs::write(config(&self.folder), text).expect("a configuration");
        let before = self.said().len();
        send(self.pid(), Signal::HUP);
        wait_until(says, || self.said()[before..].contains(says));
    }

    /// Runs a command of hugepilot that asks this daemon.
    pub fn ask(&self, words: &str) -> Ran {
        finish(Command::new(binary()).args(words.split(' ')).arg("--socket").arg(socket(&self.folder)))
    }

    pub fn status(&self) -> Value {
        self.ask("status --json").json()
    }

    /// What it shows of a process; None if that is no target.
    pub fn target(&self, pid: u32) -> Option<Value> {
        list(&self.status(), "targets").iter().find(|target| target["pid"] == pid).cloned()
    }

    /// Ends it kindly.
    pub fn end(&mut self) -> ExitStatus {
        send(self.pid(), Signal::TERM);
        self.child.0.wait().expect("it ends")
    }

    /// Ends it at once, and leaves its files to the next.
    pub fn kill(mut self) -> TempDir {
        send(self.pid(), Signal::KILL);
        self.child.0.wait().expect("it ends");
        self.folder
    }

    /// Makes scans due (an idle program gets ever fewer), and waits until there were so many.
    pub fn scan_again(&self, times: u64) {
        for _ in 0..times {
            let text = fs::read_to_string(config(&self.folder)).expect("a configuration");
            self.reload(&text, "anew");
            self.wait_for_scans(1);
        }
    }

    /// Waits until there were so many more scans.
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

/// A rule for these programs.
fn target(programs: &[&Program]) -> String {
    programs.iter().map(|program| format!("[[target]]\npid = {}\n", program.pid)).collect()
}

/// This test binary as a program of another name, at most 15 characters, as a link in the folder.
pub fn named(folder: &Path, name: &str, steps: &str) -> Command {
    let (program, link) = (program_command(steps), folder.join(name));
    if !link.exists() {
        std::os::unix::fs::symlink(program.get_program(), &link).expect("a link");
    }
    let mut command = Command::new(link);
    command.args(program.get_args());
    command
}

/// The same rules at a slow pace, at which 256 regions take minutes.
fn slowly(rules: &str) -> String {
    format!("window = '200ms'\nmax-cpu = '50%'\nmax-slowdown = '0.1%'\nallow-stall = true\n{rules}")
}

/// Waits until so much of a program is on huge pages.
fn wait_until_huge(program: &Program, bytes: u64) {
    wait_until(&format!("{bytes} bytes on huge pages"), || program.huge_bytes() >= bytes);
}
