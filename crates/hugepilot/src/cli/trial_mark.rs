//! What a process's memory lay on before its trial, so that the one after a trial that was killed knows it, too.
//!
//! Owns: one small file for each trial under `/run/hugepilot`, which its end removes. Never touches: memory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hugepilot_os::run_directory::{self, RUN_DIRECTORY, replace_file};
use kernel::target::Process;
use trial::Arm;

/// The mark of a trial under way; removed on drop.
pub(super) struct TrialMark {
    path: PathBuf,
    stays: bool,
}

impl TrialMark {
    /// What a trial of this process that was killed had found; None if none was.
    pub(super) fn of_killed(process: Process) -> Option<Arm> {
        match fs::read_to_string(path(process)).ok()?.trim() {
            "base" => Some(Arm::Base),
            "huge" => Some(Arm::Huge),
            _ => None,
        }
    }

    /// Marks that a trial begins, which found this. Errors: it cannot be written.
    pub(super) fn set(process: Process, found: Arm) -> anyhow::Result<Self> {
        let path = path(process);
        let word = match found {
            Arm::Base => "base\n",
            Arm::Huge => "huge\n",
        };
        run_directory::ensure(Path::new(RUN_DIRECTORY))
            .and_then(|()| replace_file(&path, 0o600, word.as_bytes()))
            .with_context(|| {
                format!("cannot write {}, which tells the next trial if this one is killed", path.display())
            })?;
        Ok(Self { path, stays: false })
    }

    /// Leaves it behind: memory could not be left as it should be.
    pub(super) fn stay(&mut self) {
        self.stays = true;
    }
}

impl Drop for TrialMark {
    fn drop(&mut self) {
        if !self.stays {
            // If it stays, the next trial of this process leaves its memory as this one found it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Pid and start time together identify a process for good.
fn path(process: Process) -> PathBuf {
    format!("{RUN_DIRECTORY}/trial-{}-{}", process.pid, process.start_ticks).into()
}
