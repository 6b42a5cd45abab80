//! Children of the harness: bound to one processor, ended with the harness, and ended by process id.
//!
//! Owns: their start and their end. Never touches: processes that this harness did not start.
//!
//! The program gets one processor and its load the other, so that the two do not disturb each other and the program's speed is the limit. The harness
//! and the tools under test are not bound.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use hugepilot_os::nodes::{allowed_cpus, stay_on};
use rustix::process::{Signal, set_parent_process_death_signal};

/// A child that is ended when this value is dropped.
#[derive(Debug)]
pub struct BoundChild {
    /// The child, for its pipes.
    pub child: Child,
}

/// `bound`, which each harness has: binds itself to a processor and becomes another program.
#[derive(Clone, Debug, clap::Args)]
pub struct BoundArguments {
    /// The processor.
    #[arg(long)]
    processor: Option<u32>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The processors for the program and for its load; None if there are fewer than two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinning {
    /// Where the measured program runs.
    pub program: Option<u32>,
    /// Where its load is made.
    pub load: Option<u32>,
}

impl Pinning {
    /// The first two that this process may use.
    pub fn of_this_process() -> Result<Self> {
        let mut usable = allowed_cpus().context("cannot read the allowed processors")?.into_iter();
        Ok(match (usable.next(), usable.next()) {
            (Some(program), Some(load)) => Self { program: Some(program), load: Some(load) },
            _ => Self { program: None, load: None },
        })
    }
}

/// Binds the calling thread to one processor.
pub fn bind_this_thread(processor: Option<u32>) -> io::Result<()> {
    processor.map_or(Ok(()), |processor| stay_on(&[processor]))
}

impl BoundChild {
    /// Starts a command through this binary's subcommand `bound`, which binds itself to the processor and then execs the command.
    pub fn start(command: &[OsString], processor: Option<u32>, output: Stdio) -> Result<Self> {
        let mut call = Command::new(std::env::current_exe()?);
        call.arg("bound");
        if let Some(processor) = processor {
            call.arg("--processor").arg(processor.to_string());
        }
        call.arg("--").args(command);
        // A separate process group, so that Ctrl-C reaches only the harness, which then ends the child properly.
        call.stdin(Stdio::null()).stdout(output).process_group(0);
        let child = call.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Errors: the child has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the measured program ended by itself ({})", describe(status)),
            None => Ok(()),
        }
    }
}

impl Drop for BoundChild {
    fn drop(&mut self) {
        // Fails only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl BoundArguments {
    /// Returns only if the command could not be started.
    pub fn run(&self) -> Result<Infallible> {
        let Self { processor, command } = self;
        // This setting survives the exec below, so that a killed harness leaves no program behind.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        bind_this_thread(*processor).with_context(|| format!("cannot bind to processor {processor:?}"))?;
        let (program, arguments) = command.split_first().context("no command to start")?;
        Err(Command::new(program).args(arguments).exec()).with_context(|| format!("cannot start {}", program.display()))
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(9) => "killed; was the machine out of memory?".to_owned(),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_and_load_get_different_processors() {
        let processors = Pinning::of_this_process().unwrap();
        assert!(processors.program.is_none() || processors.program != processors.load);
    }
}
