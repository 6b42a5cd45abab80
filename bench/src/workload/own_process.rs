//! Workloads in this binary, started again as a child: it maps memory, reports that it is ready, and then prints a line for each interval of work.
//!
//! Owns: those lines, on both sides of the pipe. Never touches: the work itself.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use heat::units::Bytes;
use hugepilot_os::PidFd;
use hugepilot_os::memory::AlignedMemory;
use hugepilot_os::stop::Stop;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::client;
use super::progress::{Progress, Work};
use super::shape::{Running, Start};
use crate::process::{BoundChild, Pinning};

/// A killed program that takes longer to end is left to the kernel.
const PATIENCE: Duration = Duration::from_secs(60);

/// The line that reports that memory is populated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadyLine {
    /// The start of the mapping.
    pub address: u64,
    /// Its size.
    pub size_bytes: u64,
    /// The access pattern.
    pub pattern: String,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The process that prints it, which may differ from the one that was launched.
    pub pid: u32,
    /// Requests that come a second, where it makes its load itself.
    #[serde(default)]
    pub load: Option<OwnLoad>,
}

/// The load that a program generates for itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnLoad {
    /// Its capacity, measured at its start.
    pub capacity_per_second: f64,
    /// The requests that arrive.
    pub requests_per_second: f64,
}

impl ReadyLine {
    /// For a whole mapping, whose first `size` bytes are used.
    pub fn of(mapping: &AlignedMemory, size: Bytes, pattern: &str, seed: u64) -> Self {
        Self::at(mapping.address(), size, pattern, seed)
    }

    /// For memory at an address.
    pub fn at(address: u64, size: Bytes, pattern: &str, seed: u64) -> Self {
        let (pattern, pid) = (pattern.to_owned(), std::process::id());
        Self { address, size_bytes: size.0, pattern, seed, pid, load: None }
    }
}

/// A child that works until it is ended.
pub struct OwnProcess {
    ready: ReadyLine,
    progress: Progress,
    /// The program, if another process launched it and waits for it.
    launched: Option<PidFd>,
    child: BoundChild,
}

/// Prints one line at once. Errors: the harness is gone.
pub fn print_line(line: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, line)?;
    output.write_all(b"\n")?;
    output.flush().context("nobody reads the progress any more")
}

/// Works until the reader of the lines is gone, and prints a line per interval: `work` does a piece of work and returns its number of operations.
pub fn report_every(interval: Duration, mut work: impl FnMut() -> u64) -> Result<()> {
    report_with_waits(|| work_for(interval, &mut work), || None)
}

/// Like [`report_every`], but `work` does the work of a whole interval, and this asks for the longest wait after each.
pub fn report_with_waits(
    mut work: impl FnMut() -> u64,
    mut longest_wait: impl FnMut() -> Option<Duration>,
) -> Result<()> {
    loop {
        let start = Instant::now();
        let operations = work();
        let duration = start.elapsed();
        print_line(&Work { operations, duration, longest_wait: longest_wait(), ..Work::default() })?;
    }
}

/// Repeats `work` until `time` has passed; returns the number of operations.
pub fn work_for(time: Duration, mut work: impl FnMut() -> u64) -> u64 {
    let start = Instant::now();
    let mut operations = work();
    while start.elapsed() < time {
        operations += work();
    }
    operations
}

/// Ends a child whose threads never return.
pub fn end_child(error: &anyhow::Error) -> ! {
    eprintln!("{error:#}");
    std::process::exit(1)
}

/// A child's command line: its name and its options.
pub fn words(child: &str, options: &[(&str, &dyn Display)]) -> Vec<String> {
    let options = options.iter().map(|(name, value)| format!("--{name}={value}"));
    std::iter::once(child.to_owned()).chain(options).collect()
}

/// The command line of a child with one mapping.
pub fn words_for(child: &str, size: Bytes, pattern: impl Display, seed: u64, how: Start<'_>) -> Vec<String> {
    let options: [(&str, &dyn Display); 3] = [("size", &size.0), ("pattern", &pattern), ("seed", &seed)];
    words(child, &options).into_iter().chain(client::words(how)).collect()
}

impl OwnProcess {
    /// Starts this program with the given subcommand and waits until it is ready.
    pub fn start(arguments: Vec<String>, stop: &Stop) -> Result<Self> {
        Self::start_on(Pinning::of_this_process()?.program, arguments, stop)
    }

    /// Like [`OwnProcess::start`], on another processor.
    pub fn start_on(processor: Option<u32>, arguments: Vec<String>, stop: &Stop) -> Result<Self> {
        Self::start_by(&[], processor, arguments, stop)
    }

    /// Like [`OwnProcess::start_on`], with these words before the command.
    pub fn start_by(
        launcher: &[OsString],
        processor: Option<u32>,
        arguments: Vec<String>,
        stop: &Stop,
    ) -> Result<Self> {
        let mut command = launcher.to_vec();
        command.push(std::env::current_exe()?.into_os_string());
        command.extend(arguments.into_iter().map(OsString::from));
        let mut child = BoundChild::start(&command, processor, Stdio::piped())?;
        let output = child.child.stdout.take().context("the child has no output")?;
        let progress = Progress::default();
        let (is_ready, ready) = std::sync::mpsc::channel();
        let seen = progress.clone();
        std::thread::spawn(move || {
            if let Err(error) = read_lines(output, &seen, |line| _ = is_ready.send(line)) {
                seen.fail(&error);
            }
        });
        loop {
            match ready.recv_timeout(Duration::from_millis(20)) {
                Ok(ready) => {
                    let launched = (ready.pid != child.pid()).then(|| PidFd::open(ready.pid)).transpose();
                    let launched = launched.with_context(|| format!("cannot hold process {}", ready.pid))?;
                    return Ok(Self { ready, progress, launched, child });
                }
                Err(_) => {
                    stop.check()?;
                    child.check().and_then(|()| progress.check())?;
                }
            }
        }
    }

    /// Its report that its memory is populated.
    pub fn ready(&self) -> &ReadyLine {
        &self.ready
    }
}

fn read_lines(output: ChildStdout, progress: &Progress, ready: impl FnOnce(ReadyLine)) -> Result<()> {
    let mut lines = BufReader::new(output).lines();
    let first = lines.next().context("the child ended before it was ready")??;
    ready(serde_json::from_str(&first).with_context(|| format!("unexpected first line '{first}'"))?);
    for line in lines {
        let line = line?;
        let end = Instant::now();
        progress.add(end, serde_json::from_str(&line).with_context(|| format!("unexpected line '{line}'"))?);
    }
    bail!("the child ended")
}

impl Drop for OwnProcess {
    /// A killed launcher would leave its program behind, and a pool is not free again until that is gone.
    fn drop(&mut self) {
        let Some(program) = &self.launched else { return };
        // An error means that it has already ended.
        let _ = program.signal(Signal::KILL);
        let killed = Instant::now();
        while !program.has_exited() && killed.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Running for OwnProcess {
    fn pid(&self) -> u32 {
        self.ready.pid
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn check(&mut self) -> Result<()> {
        self.child.check().and_then(|()| self.progress.check())
    }
}
