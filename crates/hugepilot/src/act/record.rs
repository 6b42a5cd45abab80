//! The record of what was promoted in a process, so that `give-back` can undo just that.
//!
//! Owns: one small file a process under `/run/hugepilot`, which ends with the machine's uptime. Never touches: memory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

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
        let read = || {
            if fs::metadata(&path)?.len() > LARGEST_FILE {
                return Err(io::Error::other("larger than hugepilot writes"));
            }
            Ok(serde_json::from_slice(&fs::read(&path)?)?)
        };
        match read() {
            Ok(record) => Ok(record),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => {
                let step = "; delete it, and use `give-back --all`";
                Err(RecordError { doing: "cannot read", path, source, step })
            }
        }
    }

    /// Writes the record, whole or not at all; removes it when it is empty. Records of ended processes go as well.
    pub fn write(&mut self, target: &Target) -> Result<(), RecordError> {
        self.version = 1;
        let path = path(target);
        let write = || {
            fs::create_dir_all(DIRECTORY)?;
            remove_ended()?;
            if self.regions.is_empty() {
                return fs::remove_file(&path).or_else(|e| if is_absent(&e) { Ok(()) } else { Err(e) });
            }
            let unfinished = path.with_extension("new");
            fs::write(&unfinished, serde_json::to_vec(self)?)?;
            fs::rename(unfinished, &path)
        };
        write().map_err(|source| {
            let step = "; `give-back --all` still works";
            RecordError { doing: "cannot write", path: path.clone(), source, step }
        })
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
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
            // Another hugepilot may be tidying up too.
            fs::remove_file(PathBuf::from(DIRECTORY).join(name))
                .or_else(|e| if is_absent(&e) { Ok(()) } else { Err(e) })?;
        }
    }
    Ok(())
}
