//! Workloads that are this very program, started again as a child: it maps memory, says that it is ready, and then
//! prints a line for each interval of work.
//!
//! Owns: those lines, on both sides of the pipe. Never touches: what the work is.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::progress::WorkInterval;
use super::{Progress, Running};
use crate::process::{BoundChild, Processors};
use crate::stop::Stop;

/// The line that says that memory is populated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadyLine {
    /// Where the mapping starts.
    pub address: u64,
    /// How long it is.
    pub size_bytes: u64,
    /// What is done with it.
    pub pattern: String,
    /// Where its random numbers start.
    pub seed: u64,
}

/// The line for one interval of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkLine {
    /// Operations in it.
    pub operations: u64,
    /// How long they took.
    pub nanoseconds: u64,
}

/// A child that works until it is ended.
pub struct OwnProcess {
    progress: Progress,
    child: BoundChild,
}

/// Prints one line at once; an error means that the harness is gone.
pub fn print_line(line: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, line)?;
    output.write_all(b"\n")?;
    output.flush().context("nobody reads the progress any more")
}

/// Does work until nobody reads the lines any more: `work` does one interval's and counts its operations.
pub fn report_forever(mut work: impl FnMut() -> u64) -> Result<()> {
    loop {
        let start = Instant::now();
        let operations = work();
        print_line(&WorkLine { operations, nanoseconds: start.elapsed().as_nanos() as u64 })?;
    }
}

impl OwnProcess {
    /// Starts this program with the given subcommand and waits until it is ready.
    pub fn start(arguments: Vec<String>, stop: &Stop) -> Result<Self> {
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.extend(arguments.into_iter().map(OsString::from));
        let mut child = BoundChild::start(&command, Processors::of_this_process()?.program, Stdio::piped())?;
        let output = child.child.stdout.take().context("the child has no output")?;
        let mut started = Self { progress: Progress::default(), child };
        let progress = started.progress.clone();
        let (is_ready, ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            if let Err(error) = read_lines(output, &progress, || _ = is_ready.send(())) {
                progress.fail(&error);
            }
        });
        while ready.recv_timeout(Duration::from_millis(20)).is_err() {
            stop.check()?;
            started.check()?;
        }
        Ok(started)
    }
}

fn read_lines(output: ChildStdout, progress: &Progress, ready: impl FnOnce()) -> Result<()> {
    let mut lines = BufReader::new(output).lines();
    let first = lines.next().context("the child ended before it was ready")??;
    serde_json::from_str::<ReadyLine>(&first).with_context(|| format!("unexpected first line '{first}'"))?;
    ready();
    for line in lines {
        let line = line?;
        let end = Instant::now();
        let work: WorkLine = serde_json::from_str(&line).with_context(|| format!("unexpected line '{line}'"))?;
        let duration = Duration::from_nanos(work.nanoseconds);
        progress.add(WorkInterval { end, duration, operations: work.operations, latencies: None });
    }
    bail!("the child ended")
}

impl Running for OwnProcess {
    fn pid(&self) -> u32 {
        self.child.pid()
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn check(&mut self) -> Result<()> {
        self.child.check()?;
        match self.progress.failure() {
            Some(failure) => bail!(failure),
            None => Ok(()),
        }
    }
}
