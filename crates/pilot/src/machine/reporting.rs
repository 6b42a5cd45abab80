//! Free page reporting, held back while memory is promoted.
//!
//! Owns: the size of the smallest reported block (Documentation/mm/free_page_reporting.rst), for a while. Never touches: memory.
//!
//! In a virtual machine the kernel may report free blocks to the host, which takes them back. Base pages freed by collapses merge into such blocks.
//! On the measured host, half of the promotions of a memcached stopped it for 0.1 s when a few blocks were reported meanwhile, and none did without
//! reporting (docs/results/felt.md). Free memory is reported when promoting has ended: one in eight promotions met a stall then.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hugepilot_os::run_directory;
use kernel::Root;
use rustix::fs::{FlockOperation, flock};

/// The order of the smallest block that is reported (mm/page_reporting.c).
const ORDER: &str = "sys/module/page_reporting/parameters/page_reporting_order";
/// Above the order of any block. Kernels that refuse it keep reporting.
const NOTHING: &str = "11";
/// Held by the hugepilot that suspends reporting; contains the usual order.
const LOCK: &str = "reporting.lock";
/// Its input ends when no process holds the other end any more, for whatever reason. Its output is the lock.
const SCRIPT: &str = "trap '' HUP INT TERM
read -r line
echo \"$1\" > \"$2\" && : > \"$3\"";

/// Suspends reporting until this is dropped, or the process has ended.
#[derive(Debug)]
pub struct ReportingHeldBack {
    /// A shell that restores the usual order; it survives if this process is killed.
    restorer: Child,
}

impl ReportingHeldBack {
    /// None where nothing is reported, the kernel does not let us change that, or another hugepilot already holds it back.
    ///
    /// `directory`: the directory of the lock, usually [`run_directory::RUN_DIRECTORY`].
    pub fn begin(root: &Root, directory: &Path) -> Option<Self> {
        let order = root.path(ORDER);
        let now = fs::read_to_string(&order).ok()?;
        File::options().write(true).open(&order).ok()?;
        run_directory::ensure(directory).ok()?;
        let path = directory.join(LOCK);
        let mut lock =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        let mut left_behind = String::new();
        lock.read_to_string(&mut left_behind).ok()?;
        let usual = usual_order(now.trim(), left_behind.trim())?;
        lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| writeln!(lock, "{usual}")).ok()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "hugepilot-restorer", &usual]).args([&order, &path]);
        command.stdin(Stdio::piped()).stdout(lock).stderr(Stdio::null()).process_group(0);
        let held = Self { restorer: command.spawn().ok()? };
        fs::write(&order, NOTHING).inspect_err(|error| tracing::debug!("free memory is reported on: {error}")).ok()?;
        Some(held)
    }
}

/// The order to restore: the current one, or the one left behind by a hugepilot that was killed together with its restorer. None if someone else
/// turned reporting off.
fn usual_order(now: &str, left_behind: &str) -> Option<String> {
    let usual = if now == NOTHING { left_behind } else { now };
    usual.parse::<u8>().ok().map(|order| order.to_string())
}

impl Drop for ReportingHeldBack {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        // It has already ended if it was killed.
        let _ = self.restorer.wait();
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A machine that reports blocks of at least this order, with this left behind in its run directory.
    fn machine(order: &str, left_behind: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(ORDER).parent().unwrap()).unwrap();
        fs::write(folder.path().join(ORDER), order).unwrap();
        fs::write(folder.path().join(LOCK), left_behind).unwrap();
        folder
    }

    fn begin(machine: &TempDir) -> Option<ReportingHeldBack> {
        ReportingHeldBack::begin(&Root::at(machine.path()), machine.path())
    }

    fn text(machine: &TempDir, file: &str) -> String {
        fs::read_to_string(machine.path().join(file)).unwrap().trim().to_owned()
    }

    #[test]
    fn nothing_is_reported_until_it_is_dropped() {
        let machine = machine("9\n", "");
        let held = begin(&machine).unwrap();
        assert_eq!((text(&machine, ORDER), text(&machine, LOCK)), (NOTHING.to_owned(), "9".to_owned()));
        assert!(begin(&machine).is_none(), "one holds it back");
        assert_eq!(text(&machine, ORDER), NOTHING);
        drop(held);
        assert_eq!((text(&machine, ORDER), text(&machine, LOCK)), ("9".to_owned(), String::new()));
        assert!(begin(&machine).is_some());
    }

    #[test]
    fn what_was_left_behind_is_put_back() {
        let left = machine(NOTHING, "9\n");
        drop(begin(&left).unwrap());
        assert_eq!(text(&left, ORDER), "9");
        let wanted = machine(NOTHING, "");
        assert!(begin(&wanted).is_none(), "somebody else wants it so");
        assert_eq!(text(&wanted, ORDER), NOTHING);
        let changed_since = machine("10", "9");
        drop(begin(&changed_since).unwrap());
        assert_eq!(text(&changed_since, ORDER), "10");
    }

    #[test]
    fn machines_that_report_nothing_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(begin(&folder).is_none());
        assert!(!folder.path().join(LOCK).exists());
        assert!(begin(&machine("9; reboot", "")).is_none(), "not what the kernel says");
    }
}
