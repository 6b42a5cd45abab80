//! Switches DAMON off where hugepilot itself cannot: from another process once this one has been killed, and from another thread while
//! this one is late.
//!
//! Owns: that process and that thread. Never touches: any thread of DAMON other than the one it was told about.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use kernel::Root;
use kernel::damon::DIRECTORY;

use crate::{DamonError, write};

/// The script ends when its input does, that is, when nobody holds the other end any more, for whatever reason. What remains to be removed
/// is left to the next hugepilot. DAMON's files answer EBUSY now and then, and systemd sends SIGTERM to everything that a service leaves
/// behind.
const SCRIPT: &str = "trap '' HUP INT TERM
while read -r line; do thread=$line; done
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    read -r running < pid && case $running in $thread) echo off > state && exit ;; *) exit ;; esac
    sleep 1
done";
/// Between two polls of the thread.
const POLL: Duration = Duration::from_millis(250);

/// A process that switches DAMON off once this one has ended without dismissing it; dropping dismisses it.
#[derive(Debug)]
pub struct Guardian {
    process: Child,
    orders: Option<ChildStdin>,
}

impl Guardian {
    /// Starts waiting. It is a shell because that needs little memory, and the OOM killer picks large processes.
    ///
    /// Errors: `/bin/sh` cannot be started in the directory of DAMON's thread.
    pub fn post(root: &Root) -> Result<Self, DamonError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "hugepilot-guardian"]).current_dir(root.path(&format!("{DIRECTORY}/0")));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut process = command.spawn().map_err(|cause| DamonError::Guardian { cause })?;
        Ok(Self { orders: process.stdin.take(), process })
    }

    /// From now on the guardian is responsible for this thread of DAMON; for any running one while that is unknown.
    ///
    /// Errors: the guardian has ended (`EPIPE`).
    pub fn expect(&mut self, thread: Option<u32>) -> Result<(), DamonError> {
        let thread = thread.map_or_else(|| "*".to_owned(), |thread| thread.to_string());
        let told = self.orders.as_mut().map_or(Ok(()), |orders| writeln!(orders, "{thread}"));
        told.map_err(|cause| DamonError::Guardian { cause })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // It has ended already if something killed it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// When DAMON is switched off unless the deadline is extended; None while it is off.
#[derive(Clone, Debug, Default)]
pub struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    /// Starts a thread that enforces it. Do this only once DAMON is switched on, because a process gives up rights before it has threads.
    pub fn watch(&self, root: &Root) {
        if Arc::weak_count(&self.0) == 0 {
            let (deadline, root) = (Arc::downgrade(&self.0), root.clone());
            thread::spawn(move || enforce(&deadline, &root));
        }
    }

    /// The deadline cannot pass while this is held.
    pub fn hold(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn enforce(deadline: &Weak<Mutex<Option<Instant>>>, root: &Root) {
    while let Some(deadline) = deadline.upgrade().map(Deadline) {
        let mut until = deadline.hold();
        if until.is_some_and(|until| until <= Instant::now()) {
            match write(root, "0/state", "off") {
                Ok(()) => *until = None,
                Err(error) => tracing::debug!("reclaim is late, and goes on: {error}"),
            }
        }
        drop(until);
        drop(deadline);
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::samples::{text, tree};

    /// What happens to DAMON, running with thread `running`, after the end of a process that had announced the threads `told`.
    fn left_behind(running: &str, told: &[Option<u32>]) -> String {
        let (folder, root) = tree(1);
        let file = |name: &str| folder.path().join(DIRECTORY).join("0").join(name);
        fs::write(file("pid"), running).unwrap();
        fs::write(file("state"), "on\n").unwrap();
        let mut guardian = Guardian::post(&root).unwrap();
        told.iter().for_each(|&thread| guardian.expect(thread).unwrap());
        drop(guardian.orders.take());
        guardian.process.wait().unwrap();
        text(&root, "0/state").trim().to_owned()
    }

    #[test]
    fn damon_is_switched_off_when_who_had_it_at_work_has_ended() {
        assert_eq!(left_behind("71\n", &[None, Some(70), None, Some(71)]), "off");
        assert_eq!(left_behind("71\n", &[Some(70), None]), "off", "killed while it was switched on");
        assert_eq!(left_behind("71\n", &[Some(70)]), "on", "it is somebody else's");
        assert_eq!(left_behind("71\n", &[]), "on", "it never was ours");
    }

    #[test]
    fn damon_is_switched_off_when_nobody_comes_back_in_time() {
        let (_folder, root) = tree(1);
        fs::write(root.path(&format!("{DIRECTORY}/0/state")), "on").unwrap();
        let deadline = Deadline::default();
        deadline.watch(&root);
        *deadline.hold() = Some(Instant::now() + Duration::from_secs(600));
        thread::sleep(2 * POLL);
        assert_eq!(text(&root, "0/state"), "on");
        *deadline.hold() = Some(Instant::now());
        while deadline.hold().is_some() {
            thread::sleep(POLL / 10);
        }
        assert_eq!(text(&root, "0/state"), "off");
    }
}
