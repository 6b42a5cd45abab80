//! What a process's memory lay on before its trial, so that the one after a trial that was killed knows it, too.
//!
//! Owns: one small file for each trial under `/run/hugepilot`. A trial holds a lock on it, which the kernel releases even at a kill, and removes it at its
//! end. Whoever else changes what is on record of the process removes a mark that nobody holds: it says no more what the user wants. Never touches:
//! memory.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hugepilot_os::run_directory::{self, RUN_DIRECTORY};
use kernel::Root;
use kernel::process::address_space;
use kernel::target::Process;
use rustix::fs::{FlockOperation, flock};

/// A mark is no longer.
const LONGEST: u64 = 256;

/// What memory lay on before a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundOn {
    /// Base pages.
    BasePages,
    /// Huge pages that hugepilot had promoted.
    HugePages,
}

/// The lock of a process's trials, and what a killed one left there.
#[derive(Debug)]
pub struct TrialMark {
    file: File,
    path: PathBuf,
    of_killed: Option<FoundOn>,
}

/// The mark of a trial that has begun; removed on drop.
#[derive(Debug)]
pub struct WrittenMark {
    /// Locked.
    _file: File,
    path: PathBuf,
    stays: Cell<bool>,
}

impl TrialMark {
    /// Takes the lock of this process's trials. Errors: another trial of it is under way, or the file cannot be written.
    pub fn take(process: Process) -> io::Result<Self> {
        run_directory::ensure(Path::new(RUN_DIRECTORY))?;
        let path = path(process);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(under_way(process));
        }
        let mut left = String::new();
        Read::by_ref(&mut file).take(LONGEST).read_to_string(&mut left)?;
        Ok(Self { of_killed: found(&left, process), file, path })
    }

    /// What a trial of the same program that was killed had found; None if none was.
    pub fn of_killed(&self) -> Option<FoundOn> {
        self.of_killed
    }

    /// Writes down what this trial found, before it changes anything. Errors: the file cannot be written.
    pub fn write(mut self, process: Process, found: FoundOn) -> io::Result<WrittenMark> {
        let word = match found {
            FoundOn::BasePages => "base",
            FoundOn::HugePages => "huge",
        };
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{word} {}", program(process))?;
        Ok(WrittenMark { _file: self.file, path: self.path, stays: Cell::new(false) })
    }
}

impl WrittenMark {
    /// Memory could not be left as it should be: the next trial is to know what this one found.
    pub fn keep(&self) {
        self.stays.set(true);
    }
}

impl Drop for WrittenMark {
    fn drop(&mut self) {
        if !self.stays.get() {
            // If it stays, the next trial of this process leaves its memory as this one found it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Errors: a trial of the process is under way; whoever moves its memory meanwhile would spoil what the trial measures, and leave memory on what nobody
/// chose.
pub fn ensure_no_trial(process: Process) -> io::Result<()> {
    match File::open(path(process)) {
        Ok(file) if flock(&file, FlockOperation::NonBlockingLockShared).is_err() => Err(under_way(process)),
        _ => Ok(()),
    }
}

fn under_way(process: Process) -> io::Error {
    io::Error::other(format!("a trial of process {} is under way: wait for its end, or end it", process.pid))
}

/// Removes the mark of a trial that was killed; that of one under way stays.
pub(crate) fn remove_stale(process: Process) {
    let path = path(process);
    let Ok(file) = File::open(&path) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        // An error leaves it for the next one who changes something.
        let _ = fs::remove_file(path);
    }
}

/// After exec another program has the same pid and start time.
fn program(process: Process) -> String {
    address_space(&Root::host(), process.pid).ok().flatten().map_or("-".to_owned(), |number| number.to_string())
}

fn found(text: &str, process: Process) -> Option<FoundOn> {
    let (word, of) = text.trim().split_once(' ')?;
    let found = match word {
        "base" => FoundOn::BasePages,
        "huge" => FoundOn::HugePages,
        _ => return None,
    };
    (of == program(process)).then_some(found)
}

/// Pid and start time together identify a process for good.
fn path(process: Process) -> PathBuf {
    format!("{RUN_DIRECTORY}/trial-{}-{}", process.pid, process.start_ticks).into()
}
