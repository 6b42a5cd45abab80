//! Shared by all live tests: programs under test, runs of hugepilot, and settings that are restored.
//!
//! Owns: starting and ending processes. Never touches: processes that it did not start.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use heat::units::{BASE_PAGE, HUGE_PAGE, Nanos};
use kernel::Root;
use kernel::process::{ProcessStatus, cpu_time};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, getuid, kill_process};
use serde_json::Value;

use crate::program::Rule;
use crate::schema;

/// Longer than anything here takes, even on a machine that is busy with other work.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Why no live test can run here; None on any machine with root, BTF and huge pages.
pub fn missing() -> Option<&'static str> {
    if !getuid().is_root() {
        Some("not root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Some("the kernel has no BTF (/sys/kernel/btf/vmlinux)")
    } else if !Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists() {
        Some("the kernel has no transparent huge pages")
    } else {
        None
    }
}

/// Held while live tests run, so that two checkouts do not run them at the same time.
pub fn machine_lock() -> File {
    // Not in TMPDIR: whoever runs tests with another one changes the same machine.
    let file = File::create("/tmp/hugepilot-live-tests.lock").expect("a file for the lock");
    flock(&file, FlockOperation::LockExclusive).expect("the lock");
    file
}

/// A setting of the machine, changed until this is dropped.
pub struct Setting {
    path: PathBuf,
    found: String,
}

impl Setting {
    /// Changes the mode of transparent huge pages.
    pub fn huge_pages(mode: &str) -> Self {
        Self::change("/sys/kernel/mm/transparent_hugepage/enabled", mode)
    }

    /// Changes the mode of huge pages of one size, such as `64kB`; None where the kernel does not know the size.
    pub fn huge_pages_of(size: &str, mode: &str) -> Option<Self> {
        let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{size}/enabled");
        Path::new(&path).exists().then(|| Self::change(&path, mode))
    }

    /// Changes the mode for shared memory.
    pub fn shared(mode: &str) -> Self {
        Self::change("/sys/kernel/mm/transparent_hugepage/shmem_enabled", mode)
    }

    fn change(path: &str, mode: &str) -> Self {
        let path = PathBuf::from(path);
        let text = fs::read_to_string(&path).expect("the mode of huge pages");
        let found = text.split(['[', ']']).nth(1).expect("one mode is in brackets").to_owned();
        fs::write(&path, mode).expect("a new mode of huge pages");
        Self { path, found }
    }

    /// Reserves this many more huge pages, or as many as there is room for.
    pub fn reserved(more: u64) -> Self {
        let path = PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
        let found = fs::read_to_string(&path).expect("the size of the pool").trim().to_owned();
        fs::write(&path, (found.parse::<u64>().expect("a number") + more).to_string()).expect("a larger pool");
        Self { path, found }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        fs::write(&self.path, &self.found).expect("the old setting");
    }
}

/// A control group with the memory controller, of either version, removed when dropped.
pub struct Cgroup {
    /// Its directory.
    pub path: PathBuf,
    limit: &'static str,
    usage: &'static str,
}

impl Cgroup {
    /// None if no group with the memory controller can be made on this machine.
    pub fn new() -> Option<Self> {
        let name = format!("hugepilot-live-{}", std::process::id());
        let versions = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ];
        versions.into_iter().find_map(|(top, limit, usage)| {
            let path = Path::new(top).join(&name);
            fs::create_dir(&path).ok()?;
            let group = Self { path, limit, usage };
            group.path.join(usage).exists().then_some(group)
        })
    }

    /// Sets the limit to this much above the present use.
    pub fn limit_to(&self, more: u64) {
        let usage: u64 =
            fs::read_to_string(self.path.join(self.usage)).expect("usage").trim().parse().expect("a number");
        fs::write(self.path.join(self.limit), (usage + more).to_string()).expect("a limit");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may need a moment after the last process has ended before it lets the group be removed.
        wait_until("an empty control group", || fs::remove_dir(&self.path).is_ok());
    }
}

/// Waits until something holds. Panics with `what` if it never does.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_for(what, PATIENCE, holds);
}

/// The same with another time limit.
pub fn wait_for(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether it holds in one of a few tries, because a busy machine may spoil some.
pub fn in_some_try(mut holds: impl FnMut() -> bool) -> bool {
    (0..5).any(|_| holds())
}

/// A child that is ended when dropped, so that a failing test leaves nothing behind.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // If it has ended already, all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test binary as a program with these steps.
pub fn program_command(steps: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.arg("program").args(steps.split(' '));
    command
}

/// A program under test, ended when dropped.
pub struct Program {
    child: Ended,
    /// Its process id.
    pub pid: u32,
    /// Where its last mapping starts.
    pub start: u64,
    /// Its length.
    pub len: u64,
}

impl Program {
    /// Starts a program and waits for its step `ready`.
    pub fn start(steps: &str) -> Self {
        Self::try_start(steps).unwrap_or_else(|| panic!("'{steps}' ended before it was ready"))
    }

    /// The same; None if a step failed.
    pub fn try_start(steps: &str) -> Option<Self> {
        Self::try_command(&mut program_command(steps))
    }

    /// Starts a program with a given command, which must exec it.
    pub fn command(command: &mut Command) -> Self {
        Self::try_command(command).unwrap_or_else(|| panic!("{command:?} ended before it was ready"))
    }

    fn try_command(command: &mut Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("our own binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            child.wait().expect("it has ended");
            return None;
        };
        let number = |name: &str| ready[name].as_u64().expect("a number");
        Some(Self { pid: child.id(), start: number("start"), len: number("len"), child: Ended(child) })
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.0.wait().expect("a child can be waited for")
    }

    /// Panics if it has ended: every read checks its data, so a running program has lost none.
    pub fn assert_unharmed(&mut self) {
        assert_eq!(self.child.0.try_wait().expect("a child can be asked"), None, "the program lost data, or crashed");
    }

    /// The start addresses of the regions of its mapping.
    pub fn regions(&self) -> impl Iterator<Item = u64> {
        (self.start..self.start + self.len).step_by(HUGE_PAGE as usize)
    }

    /// Regions in which the rule names a page.
    pub fn regions_named(&self, rule: Rule) -> Vec<u64> {
        let pages = (self.len / BASE_PAGE) as usize;
        let named = |start: &u64| {
            let first = ((start - self.start) / BASE_PAGE) as usize;
            (first..first + 512).any(|page| rule.names(page, pages))
        };
        self.regions().filter(named).collect()
    }

    /// Whether an address is in its mapping.
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.start + self.len).contains(&address)
    }

    /// Waits until hugepilot has begun a scan, that is, has cleared accessed bits that the program set before; the program must be idle.
    pub fn wait_until_watched(&self) {
        wait_until_watched(self.pid, self.len);
    }

    /// Waits until the program has had CPU time for a while: it first shuffles the order of its reads, and a scan on a slow machine might see nothing
    /// but that.
    pub fn wait_until_at_work(&self) {
        let had = || cpu_time(&Root::host(), self.pid).expect("it lives");
        let enough = had() + Nanos(300_000_000);
        wait_until("the program at work", || had() >= enough);
    }

    /// Its memory present, as the kernel counts it.
    pub fn rss(&self) -> u64 {
        ProcessStatus::read(&Root::host(), self.pid).expect("it lives").vm_rss.0
    }

    /// Its memory on huge pages, as the kernel counts it.
    pub fn huge_bytes(&self) -> u64 {
        huge_bytes_of(self.pid)
    }
}

/// The memory of any process on huge pages, as the kernel counts it.
pub fn huge_bytes_of(pid: u32) -> u64 {
    smaps_sum(pid, &["AnonHugePages:", "ShmemPmdMapped:"])
}

/// The sum of these lines over all mappings of a process, in bytes, from the kernel.
fn smaps_sum(pid: u32, names: &[&str]) -> u64 {
    let read = || fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    // A process that calls exec has no memory for a moment.
    let text = read().or_else(|_| {
        std::thread::sleep(Duration::from_millis(50));
        read()
    });
    let text = text.expect("it lives");
    let kibibytes = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    let is_named = |line: &&str| names.iter().any(|name| line.starts_with(name));
    text.lines().filter(is_named).filter_map(kibibytes).sum::<u64>() * 1024
}

/// Waits until hugepilot has begun a scan of a process, that is, has cleared accessed bits of the `touched` bytes that it accessed before; the
/// process must be idle.
pub fn wait_until_watched(pid: u32, touched: u64) {
    wait_until("accessed bits are cleared", || smaps_sum(pid, &["Referenced:"]) < touched / 2);
}

/// Sends a signal to a process that these tests started.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    kill_process(pid, signal).expect("our own child can be signalled");
}

/// hugepilot, as built for these tests.
pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_hugepilot")
}

/// hugepilotd. Cargo builds it for the tests of its own package, and so for those of the workspace.
pub fn daemon_binary() -> PathBuf {
    let path = Path::new(binary()).with_file_name("hugepilotd");
    assert!(path.exists(), "{} is missing; `cargo build -p daemon` builds it", path.display());
    path
}

/// A copy of a program in a folder, executable by every user.
pub fn public_copy(folder: &tempfile::TempDir, program: impl AsRef<Path>) -> PathBuf {
    let path = folder.path().join(program.as_ref().file_name().expect("a program's name"));
    if !path.exists() {
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
        fs::copy(program, &path).expect("a copy");
    }
    path
}

/// The beginning of a command that runs as another user without any rights.
pub fn as_user(uid: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
    command
}

/// The output and status of a hugepilot run.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs hugepilot with these arguments until it ends.
pub fn hugepilot(words: &str) -> Ran {
    finish(Command::new(binary()).args(words.split(' ')))
}

/// Runs a shell script, in which `$HUGEPILOT` is the binary, until it ends.
pub fn shell(script: &str) -> Ran {
    finish(Command::new("sh").args(["-c", script]).env("HUGEPILOT", binary()))
}

/// Runs a command until it ends.
pub fn finish(command: &mut Command) -> Ran {
    Ran::of(command.stdin(Stdio::null()).output().expect("the command starts"))
}

impl Ran {
    /// The output of a command that has ended.
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The JSON it printed. Panics unless it succeeded.
    pub fn json(&self) -> Value {
        assert!(self.status.success(), "{self:?}");
        let json: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        schema::check(&json);
        json
    }

    /// Asserts that hugepilot failed with status 1, with one line on standard error that contains each of these words.
    pub fn assert_fails_with(&self, words: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "'{word}' is missing: {}", self.stderr);
        }
    }
}

/// A number in a JSON document. Panics with the document if it is missing.
pub fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("'{name}' is no number in {json}"))
}

/// A list in a JSON document.
pub fn list<'a>(json: &'a Value, name: &str) -> &'a [Value] {
    json[name].as_array().unwrap_or_else(|| panic!("'{name}' is no list in {json}"))
}
