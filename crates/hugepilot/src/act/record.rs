//! The record of what was promoted in a process, so that `give-back` can undo just that.
//!
//! Owns: one small file a process under `/run/hugepilot`, which ends with the machine's uptime, and which only its writer can read,
//! for it holds addresses. Never touches: memory.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::target::Target;
use crate::units::Address;

const DIRECTORY: &str = "/run/hugepilot";
/// A record of a million regions, 2 TiB, has about 16 MiB; anything larger was not written by hugepilot.
const LARGEST_FILE: u64 = 64 << 20;

/// The regions of one process that hugepilot promoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// Where each region starts.
    pub regions: BTreeSet<Address>,
}

/// Why the record could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{doing} the record of promotions {path}: {source}{step}", path = path.display())]
pub struct RecordError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
    step: &'static str,
}

impl Record {
    /// The record of a process; empty if nothing was promoted in it.
    pub fn read(target: &Target) -> Result<Self, RecordError> {
        let path = path(target);
        read(&path).map_err(|source| unreadable(path, source))
    }

    /// Changes the record of a process, whole or not at all, while no other hugepilot does; removes it when nothing is left in
    /// it. Records of ended processes go as well.
    pub fn update<T>(target: &Target, change: impl FnOnce(&mut BTreeSet<Address>) -> T) -> Result<T, RecordError> {
        let path = path(target);
        let unwritable = |source| RecordError {
            doing: "cannot write",
            path: path.clone(),
            source,
            step: "; `give-back --all` still works",
        };
        let _lock = lock().map_err(unwritable)?;
        let mut record = read(&path).map_err(|source| unreadable(path.clone(), source))?;
        let changed = change(&mut record.regions);
        remove_ended().and_then(|()| record.write(&path)).map_err(unwritable)?;
        Ok(changed)
    }

    fn write(mut self, path: &Path) -> io::Result<()> {
        if self.regions.is_empty() {
            return absent_is_well(fs::remove_file(path));
        }
        self.version = 1;
        let unfinished = path.with_extension("new");
        own_file().truncate(true).open(&unfinished)?.write_all(&serde_json::to_vec(&self)?)?;
        fs::rename(unfinished, path)
    }
}

fn read(path: &Path) -> io::Result<Record> {
    match fs::metadata(path) {
        Err(error) if is_absent(&error) => Ok(Record::default()),
        Err(error) => Err(error),
        Ok(file) if file.len() > LARGEST_FILE => Err(io::Error::other("larger than hugepilot writes")),
        Ok(_) => Ok(serde_json::from_slice(&fs::read(path)?)?),
    }
}

fn unreadable(path: PathBuf, source: io::Error) -> RecordError {
    RecordError { doing: "cannot read", path, source, step: "; delete it, and use `give-back --all`" }
}

/// Held by whoever changes a record, and only as long as that takes. Nobody else can open it, and so hold it.
fn lock() -> io::Result<File> {
    fs::create_dir_all(DIRECTORY)?;
    let lock = own_file().open(Path::new(DIRECTORY).join("records.lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// How files are opened that are nobody else's business.
fn own_file() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).mode(0o600);
    options
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn absent_is_well(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if is_absent(&error) { Ok(()) } else { Err(error) })
}

/// Pid and start time together name a process for good.
fn path(target: &Target) -> PathBuf {
    format!("{DIRECTORY}/promoted-{}-{}.json", target.pid(), target.start_time).into()
}

fn remove_ended() -> io::Result<()> {
    for entry in fs::read_dir(DIRECTORY)? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("promoted-")?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            absent_is_well(fs::remove_file(PathBuf::from(DIRECTORY).join(name)))?;
        }
    }
    Ok(())
}
