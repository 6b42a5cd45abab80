//! A program under load in a directory of its own.
//!
//! Owns: the processes that its definition starts, and the directory. Never touches: its memory.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::{ProcessStatus, descendants};
use tempfile::TempDir;

use super::definition::ProgramDefinition;
use crate::process::BoundChild;

/// A program may have to be filled before it answers.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(100);

/// It ends with this value: first its load, then itself.
pub(super) struct RunningProgram {
    load: Option<BoundChild>,
    program: BoundChild,
    process: String,
    rate: String,
    _directory: TempDir,
}

impl RunningProgram {
    /// Starts it, fills it, and puts load on it. Errors: a command fails, which is quoted with what it said.
    pub(super) fn start(definition: &ProgramDefinition, stop: &Stop) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("hugepilot-bench-").tempdir_in("/var/tmp")?;
        // Servers that refuse to run as root run as their own user.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
        for (name, text) in &definition.files {
            std::fs::write(directory.path().join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        let there = |command: &str| format!("cd '{}'\n{command}", directory.path().display());
        definition.prepare.as_deref().map_or(Ok(()), |command| shell(&there(command), stop))?;
        let mut program = background(&there(&definition.start))?;
        let asked = Instant::now();
        while let Err(error) = shell(&there(&definition.ready), stop) {
            program.check()?;
            ensure!(asked.elapsed() < PATIENCE, "it does not answer after {} s: {error:#}", PATIENCE.as_secs());
            stop.sleep_until(Instant::now() + POLL)?;
        }
        definition.fill.as_deref().map_or(Ok(()), |command| shell(&there(command), stop))?;
        let load = definition.load.as_deref().map(|command| background(&there(command))).transpose()?;
        let (process, rate) = (definition.process.clone(), there(&definition.rate));
        Ok(Self { load, program, process, rate, _directory: directory })
    }

    /// The process on trial. Errors: there is none of its name.
    pub(super) fn pid(&self) -> Result<u32> {
        let is_it =
            |&pid: &u32| ProcessStatus::read(&Root::host(), pid).is_ok_and(|status| status.name == self.process);
        let below = descendants(&Root::host(), self.program.pid())?;
        let pid = [self.program.pid()].into_iter().chain(below).find(is_it);
        pid.with_context(|| format!("no process '{}' was started", self.process))
    }

    /// The command that prints its work.
    pub(super) fn rate(&self) -> &str {
        &self.rate
    }

    /// Errors: the program or its load has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        self.program.check()?;
        self.load.as_mut().map_or(Ok(()), |load| load.check().context("its load"))
    }
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
