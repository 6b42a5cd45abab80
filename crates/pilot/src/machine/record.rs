//! The record of what was promoted in a process: `give-back` undoes exactly that, and a restarted pilot continues from it.
//!
//! Owns: one small file per process under `/run/hugepilot`, which does not survive a reboot. Only its writer can read it, because it holds addresses.
//! Never touches: memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hugepilot_os::run_directory::{self, RUN_DIRECTORY, replace_file};
use kernel::Root;
use kernel::process::address_space;
use kernel::target::Process;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::machine::trial_mark;
use crate::world::{Promotions, RecordError};

const VERSION: u32 = 1;
/// What begins the names of files about a process.
const OF_PROCESSES: [&str; 2] = ["promoted", "trial"];
/// A record of half a million regions (1 TiB) takes about 40 MiB; hugepilot did not write a larger one.
const LARGEST_FILE: u64 = 64 << 20;

/// The regions of one process that hugepilot promoted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromotionRecord {
    version: u32,
    /// Its address space: after exec these addresses mean nothing. None where that cannot be told.
    address_space: Option<u64>,
    /// By start address.
    pub regions: Promotions,
}

impl PromotionRecord {
    /// The record of a process; empty if nothing was promoted in it, if that was in another program before exec, or if another version of hugepilot
    /// wrote it. Errors: the file cannot be read, is larger than hugepilot writes, or holds no record.
    pub fn of(process: Process) -> Result<Self, RecordError> {
        let path = path(process);
        let record = read(&path).map_err(|cause| unreadable(path, cause))?;
        // If the process is gone, so is its memory.
        let address_space = address_space(&Root::host(), process.pid).unwrap_or_default();
        let is_known = record.version == VERSION;
        let is_same = is_known && record.address_space.zip(address_space).is_none_or(|(then, now)| then == now);
        Ok(if is_same { Self { address_space, ..record } } else { Self { address_space, ..Self::default() } })
    }

    /// Changes the record of a process atomically, and excludes other hugepilots meanwhile; removes it when nothing is left in it. Also removes
    /// records of ended processes.
    ///
    /// Errors: it cannot be read or written.
    pub fn update(process: Process, change: impl FnOnce(&mut Promotions)) -> Result<(), RecordError> {
        let path = path(process);
        let unwritable = |cause| RecordError {
            doing: "cannot write",
            path: path.clone(),
            cause,
            step: "; `give-back --all` still works",
        };
        let _lock = lock().map_err(unwritable)?;
        trial_mark::remove_stale(process);
        let mut record = Self::of(process)?;
        change(&mut record.regions);
        remove_ended().and_then(|()| record.write(&path)).map_err(unwritable)
    }

    fn write(mut self, path: &Path) -> io::Result<()> {
        if self.regions.is_empty() {
            return absent_is_well(fs::remove_file(path));
        }
        self.version = VERSION;
        replace_file(path, 0o600, &serde_json::to_vec(&self)?)
    }
}

fn read(path: &Path) -> io::Result<PromotionRecord> {
    match fs::metadata(path) {
        Err(error) if is_absent(&error) => Ok(PromotionRecord::default()),
        Err(error) => Err(error),
        Ok(file) if file.len() > LARGEST_FILE => Err(io::Error::other("larger than hugepilot writes")),
        Ok(_) => Ok(serde_json::from_slice(&fs::read(path)?)?),
    }
}

fn unreadable(path: PathBuf, cause: io::Error) -> RecordError {
    RecordError { doing: "cannot read", path, cause, step: "; delete it, and use `give-back --all`" }
}

/// Held while a record is changed, and no longer. No other user can open it, and so hold it.
fn lock() -> io::Result<File> {
    run_directory::ensure(Path::new(RUN_DIRECTORY))?;
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(Path::new(RUN_DIRECTORY).join("records.lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn absent_is_well(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if is_absent(&error) { Ok(()) } else { Err(error) })
}

/// Pid and start time together identify a process for good.
fn path(process: Process) -> PathBuf {
    format!("{RUN_DIRECTORY}/promoted-{}-{}.json", process.pid, process.start_ticks).into()
}

fn remove_ended() -> io::Result<()> {
    for entry in fs::read_dir(RUN_DIRECTORY)? {
        let name = entry?.file_name();
        let of_process = |(kind, process): (&str, &str)| {
            OF_PROCESSES.contains(&kind).then(|| process.split('-').next()?.parse::<u32>().ok()).flatten()
        };
        let pid = name.to_str().and_then(|name| name.split_once('-')).and_then(of_process);
        if pid.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            absent_is_well(fs::remove_file(Path::new(RUN_DIRECTORY).join(name)))?;
        }
    }
    Ok(())
}
