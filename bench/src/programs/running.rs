//! A program under load in a directory of its own.
//!
//! Owns: the processes that its definition starts, and the directory. Never touches: its memory.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot_os::PidFd;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::{ProcessStatus, descendants};
use rustix::process::Signal;
use tempfile::TempDir;

use super::definition::ProgramDefinition;
use crate::process::BoundChild;

/// A program may have to be filled before it answers.
const PATIENCE: Duration = Duration::from_secs(300);
/// A server that does not end by itself within this time is killed.
const ENDING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// The first one's port; others have the next ones.
const FIRST_PORT: u16 = 18_080;

/// What distinguishes one that runs from others of its kind.
#[derive(Clone, Debug, Default)]
pub(super) struct HowStarted {
    /// Counted from 0.
    pub(super) number: u16,
    /// What starts it, such as `hugepilot run`.
    pub(super) with: String,
    /// Words that its experts add.
    pub(super) experts: String,
    /// Words added to those that load it.
    pub(super) load: String,
}

/// It ends with this value: first its load, then itself.
pub(crate) struct LoadedProgram {
    load: Option<BoundChild>,
    program: BoundChild,
    process: String,
    rate: String,
    _directory: TempDir,
}

impl LoadedProgram {
    /// Starts one of those that are built in, with these words added to what loads it. Errors: as [`LoadedProgram::start`].
    pub(crate) fn named(name: &str, load: &str, stop: &Stop) -> Result<Self> {
        let how = HowStarted { load: load.to_owned(), ..HowStarted::default() };
        Self::start(&ProgramDefinition::named(name)?, &how, stop)
    }

    /// Starts it, fills it, and puts load on it. Errors: a command fails, which is quoted with what it said.
    pub(super) fn start(definition: &ProgramDefinition, how: &HowStarted, stop: &Stop) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("hugepilot-bench-").tempdir_in("/var/tmp")?;
        // Servers that refuse to run as root run as their own user.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
        let port = (FIRST_PORT + how.number).to_string();
        for (name, text) in &definition.files {
            let text = text.replace("$PORT", &port);
            std::fs::write(directory.path().join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        let HowStarted { with, experts, .. } = how;
        let path = directory.path().to_owned();
        let bench = std::env::current_exe().context("cannot find this program")?;
        let there = |command: &str| {
            let directory = path.display();
            let bench = bench.display();
            format!("cd '{directory}'; PORT={port}; BENCH='{bench}'; WITH='{with}'; EXPERTS='{experts}'\n{command}")
        };
        definition.prepare.as_deref().map_or(Ok(()), |command| shell(&there(command), stop))?;
        let (process, script) = (definition.process.clone(), path.join("rate.sh"));
        std::fs::write(&script, there(&definition.rate)).context("cannot write how its work is counted")?;
        let rate = format!("sh '{}'", script.display());
        let program = background(&there(&definition.start))?;
        let mut started = Self { load: None, program, process, rate, _directory: directory };
        let asked = Instant::now();
        while let Err(error) = shell(&there(&definition.ready), stop) {
            started.program.check()?;
            ensure!(asked.elapsed() < PATIENCE, "it does not answer after {} s: {error:#}", PATIENCE.as_secs());
            stop.sleep_until(Instant::now() + POLL)?;
        }
        definition.fill.as_deref().map_or(Ok(()), |command| shell(&there(command), stop))?;
        let load = definition.load.as_deref().map(|command| background(&there(&format!("{command} {}", how.load))));
        started.load = load.transpose()?;
        Ok(started)
    }

    /// The process on trial. Errors: there is none of its name.
    pub(crate) fn pid(&self) -> Result<u32> {
        let is_it =
            |&pid: &u32| ProcessStatus::read(&Root::host(), pid).is_ok_and(|status| status.name == self.process);
        let below = descendants(&Root::host(), self.program.pid())?;
        let pid = [self.program.pid()].into_iter().chain(below).find(is_it);
        pid.with_context(|| format!("no process '{}' was started", self.process))
    }

    /// The command that prints its work.
    pub(crate) fn rate(&self) -> &str {
        &self.rate
    }

    /// Stops it and its load with all their processes, or lets them go on. Errors: they cannot be listed.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        for child in [Some(&self.program), self.load.as_ref()].into_iter().flatten() {
            family(child)?.iter().for_each(|process| send(process, signal));
        }
        Ok(())
    }

    /// Errors: the program or its load has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.program.check()?;
        self.load.as_mut().map_or(Ok(()), |load| load.check().context("its load"))
    }
}

impl Drop for LoadedProgram {
    fn drop(&mut self) {
        // Processes that are stopped would not end when asked.
        let _ = self.signal(Signal::CONT);
        let of = |child| family(child).unwrap_or_default();
        self.load.as_ref().map_or(Vec::new(), of).iter().for_each(|process| send(process, Signal::KILL));
        let processes = of(&self.program);
        // A server that is asked takes its children along, and leaves no shared memory behind.
        let Some(first) = processes.first() else { return };
        send(first, Signal::TERM);
        let asked = Instant::now();
        while !first.has_exited() && asked.elapsed() < ENDING {
            std::thread::sleep(POLL);
        }
        processes.iter().for_each(|process| send(process, Signal::KILL));
    }
}

/// A child with its descendants, itself first. Errors: they cannot be listed.
fn family(child: &BoundChild) -> Result<Vec<PidFd>> {
    let pids = [child.pid()].into_iter().chain(descendants(&Root::host(), child.pid())?);
    Ok(pids.filter_map(|pid| PidFd::open(pid).ok()).collect())
}

/// Who has ended meanwhile needs no signal.
fn send(process: &PidFd, signal: Signal) {
    let _ = process.signal(signal);
}

fn background(command: &str) -> Result<BoundChild> {
    BoundChild::start(&["sh", "-c", command].map(OsString::from), None, Stdio::null())
}

/// Runs a command to its end, or until a stop is requested.
fn shell(command: &str, stop: &Stop) -> Result<()> {
    stop.check()?;
    let output = Command::new("sh").args(["-ec", command]).stdin(Stdio::null()).output().context("cannot start sh")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "'{}' failed ({}): {}", command.trim(), output.status, said.trim());
    Ok(())
}
