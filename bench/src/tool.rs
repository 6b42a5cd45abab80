//! Runs hugepilot from outside on the measured program, as an operator would.
//!
//! Owns: starting the binary, timing it, its output, its end. Never touches: what it does.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use heat::units::Bytes;
use hugepilot_os::PidFd;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::cpu_time;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::record::ToolRun;

/// The file name of a daemon's socket in its own directory.
const SOCKET: &str = "control.sock";
/// A tool that takes longer has failed: the figure to reach is 10 seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// A process that was asked to end is killed after this time.
const GRACE: Duration = Duration::from_secs(5);
/// Short, because the end of the tool is timed with it.
const POLL: Duration = Duration::from_millis(2);

/// The hugepilot binary.
#[derive(Clone, Debug)]
pub struct Tool(PathBuf);

/// One run of it.
#[derive(Debug)]
pub struct ToolProcess {
    child: Child,
    started: Instant,
    /// A file, because a long list of regions would fill a pipe that nobody reads.
    output: File,
    messages: File,
}

/// A daemon in its own directory.
#[derive(Debug)]
pub struct OwnDaemon {
    /// The daemon, which ends first.
    pub process: ToolProcess,
    directory: TempDir,
}

impl OwnDaemon {
    /// Its control socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }
}

impl Tool {
    /// The binary at `path`, or the one in this program's directory.
    pub fn find(path: Option<PathBuf>) -> Result<Self> {
        let path = match path {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("hugepilot"),
        };
        if !path.is_file() {
            bail!(
                "no hugepilot at {}: build it with `cargo build --release -p hugepilot -p daemon`, name it with --hugepilot PATH, \
                 or choose --configurations without it",
                path.display()
            );
        }
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Runs `explain` on a program: how much memory it would put on huge pages, and the expected gain.
    pub fn explain(&self, pid: u32, stop: &Stop) -> Result<ToolRun> {
        let mut run = self.run_on("explain", pid, &[], stop)?;
        let told = |mapping: &serde_json::Value| mapping["would_pay_bytes"].as_u64();
        let mappings = run.output["mappings"].as_array().context("hugepilot explain told of no mappings")?;
        let would_pay_bytes: u64 = mappings.iter().filter_map(told).sum();
        let gain = run.output["expected_gain_percent"].take();
        // The line for every mapping is not needed here.
        run.output = serde_json::json!({ "would_pay_bytes": would_pay_bytes, "expected_gain_percent": gain });
        Ok(run)
    }

    /// Runs a command on a process until it ends.
    pub fn run_on(&self, command: &str, pid: u32, arguments: &[&str], stop: &Stop) -> Result<ToolRun> {
        let mut process = self.start_on(command, pid, arguments)?;
        while process.child.try_wait()?.is_none() {
            stop.check()?;
            if process.started.elapsed() > PATIENCE {
                bail!("hugepilot {command} {pid} did not end within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(POLL);
        }
        process.finish()
    }

    /// Starts piloting a program.
    pub fn attach(&self, pid: u32, fast: bool, max_huge: Option<Bytes>) -> Result<ToolProcess> {
        let mut arguments: Vec<String> = fast.then(|| "--fast".to_owned()).into_iter().collect();
        arguments.extend(max_huge.map(|limit| format!("--max-huge={}B", limit.0)));
        self.start_on("attach", pid, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts piloting a program and its children.
    pub fn attach_family(&self, pid: u32, is_fast: bool) -> Result<ToolProcess> {
        let words: &[&str] = if is_fast { &["--children", "--fast"] } else { &["--children"] };
        self.start_on("attach", pid, words)
    }

    /// Starts reclaiming memory, including files written below a directory; it ends by itself if nobody ends it.
    pub fn reclaim(&self, words: &[String], directory: &Path) -> Result<ToolProcess> {
        let words = ["reclaim", "--json", "--for=2h"].map(OsStr::new).into_iter().chain(words.iter().map(OsStr::new));
        self.start(&words.chain([OsStr::new("--drop-behind"), directory.as_os_str()]).collect::<Vec<_>>())
    }

    /// Starts hugepilotd, from the binary's directory or from where `make install` puts it, with this configuration file and its own control socket.
    pub fn daemon(&self, configuration: &Path, socket: &Path) -> Result<ToolProcess> {
        let words = ["--config".as_ref(), configuration.as_os_str(), "--socket".as_ref(), socket.as_os_str()];
        let beside = self.0.with_file_name("hugepilotd");
        let installed = self.0.with_file_name("../sbin/hugepilotd");
        start(if beside.is_file() { &beside } else { &installed }, &words)
    }

    /// The same with the configuration's text; file and socket are in a new directory.
    pub fn daemon_with(&self, configuration: &str) -> Result<OwnDaemon> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("hugepilot.toml");
        std::fs::write(&file, configuration)?;
        let process = self.daemon(&file, &directory.path().join(SOCKET))?;
        Ok(OwnDaemon { process, directory })
    }

    /// That daemon's status.
    pub fn status(&self, socket: &Path) -> Result<serde_json::Value> {
        let words: [&OsStr; 4] = ["status".as_ref(), "--json".as_ref(), "--socket".as_ref(), socket.as_os_str()];
        Ok(self.start(&words)?.finish()?.output)
    }

    /// Starts a command on a process.
    pub fn start_on(&self, command: &str, pid: u32, arguments: &[&str]) -> Result<ToolProcess> {
        let pid = pid.to_string();
        let words = [command, &pid, "--json"].into_iter().chain(arguments.iter().copied());
        self.start(&words.map(OsStr::new).collect::<Vec<_>>())
    }

    fn start(&self, words: &[&OsStr]) -> Result<ToolProcess> {
        start(&self.0, words)
    }
}

fn start(program: &Path, words: &[&OsStr]) -> Result<ToolProcess> {
    let (output, messages) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut call = Command::new(program);
    // A separate process group, so that Ctrl-C reaches only the harness, which then ends it properly.
    call.args(words).process_group(0);
    call.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(messages.try_clone()?);
    let child = call.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    Ok(ToolProcess { child, started: Instant::now(), output, messages })
}

impl ToolProcess {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Errors: it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        bail!("hugepilot ended by itself ({status}): {}", text_of(&mut self.messages)?.trim())
    }

    /// Whether it has ended. It stays a zombie, whose CPU time can be read, until it is finished.
    pub fn has_ended(&self) -> Result<bool> {
        Ok(PidFd::open(self.pid())?.has_exited())
    }

    /// The CPU time of all its threads, including those that have ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        Ok(cpu_time(&Root::host(), self.pid())?.duration())
    }

    /// Sends it a signal: STOP pauses it, CONT resumes it.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(PidFd::open(self.pid())?.signal(signal)?)
    }

    /// Asks it to end, and reads its output.
    pub fn interrupt(mut self) -> Result<ToolRun> {
        self.ask_to_end()?;
        self.finish()
    }

    /// Asks it to end; its output is not used.
    pub fn end(mut self) -> Result<()> {
        self.ask_to_end()
    }

    fn ask_to_end(&mut self) -> Result<()> {
        self.check()?;
        // Not INT: programs that a shell starts in the background ignore that, and so do their children.
        self.signal(Signal::TERM)?;
        let asked = Instant::now();
        while self.child.try_wait()?.is_none() {
            if asked.elapsed() > PATIENCE {
                bail!("hugepilot (process {}) did not end within {} s of SIGTERM", self.pid(), PATIENCE.as_secs());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Asks it to end; of its output, keeps the cost of observing.
    pub fn end_watching(self) -> Result<ToolRun> {
        let mut run = self.interrupt()?;
        // The list of regions is long and not needed here.
        run.output = run.output.get("cost").cloned().unwrap_or_default();
        Ok(run)
    }

    /// Waits for its end and reads its output.
    pub fn finish(mut self) -> Result<ToolRun> {
        let status = self.child.wait()?;
        let seconds = self.started.elapsed().as_secs_f64();
        let (output, messages) = (text_of(&mut self.output)?, text_of(&mut self.messages)?);
        Ok(ToolRun { seconds, output: parse(status, &output, &messages)? })
    }
}

impl Drop for ToolProcess {
    /// Ends it properly if possible: it then removes what it has set up in the kernel.
    fn drop(&mut self) {
        let asked = Instant::now();
        let mut lives = matches!(self.child.try_wait(), Ok(None));
        // A stopped process handles the signal only after it continues.
        if lives && [Signal::TERM, Signal::CONT].into_iter().all(|signal| self.signal(signal).is_ok()) {
            while lives && asked.elapsed() < GRACE {
                std::thread::sleep(POLL);
                lives = matches!(self.child.try_wait(), Ok(None));
            }
        }
        // Fails only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text_of(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(status: ExitStatus, output: &str, messages: &str) -> Result<serde_json::Value> {
    if !status.success() {
        bail!("hugepilot failed ({status}): {}", messages.trim());
    }
    serde_json::from_str(output).with_context(|| format!("hugepilot --json printed no JSON: '{}'", output.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(script: &str) -> (tempfile::TempDir, Tool) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hugepilot");
        let daemon = directory.path().join("hugepilotd");
        // A child writes it. If the file were open here, any process forked in the meantime would hold it open, too, and the kernel does not execute
        // a file that is open for writing.
        let write = r##"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 755 "$2" && ln -s hugepilot "$3""##;
        let mut shell = std::process::Command::new("sh");
        let written = shell.args(["-c", write, "sh", script]).args([&path, &daemon]).status().unwrap();
        assert!(written.success());
        let tool = Tool::find(Some(path)).unwrap();
        (directory, tool)
    }

    #[test]
    fn the_tool_gets_the_process_and_the_arguments() {
        let (_directory, tool) = fake(r#"echo "{\"arguments\":\"$*\"}""#);
        let run = tool.run_on("promote", 42, &["--max-growth", "0"], &Stop::default()).unwrap();
        assert_eq!(run.output["arguments"], "promote 42 --json --max-growth 0");
    }

    #[test]
    fn of_an_explanation_the_sum_is_kept() {
        let (_directory, tool) = fake(
            r#"echo '{"expected_gain_percent":{"likely":0.5},"mappings":[{"would_pay_bytes":3},{"would_pay_bytes":4}]}'"#,
        );
        let told = tool.explain(42, &Stop::default()).unwrap().output;
        assert_eq!(told, serde_json::json!({ "would_pay_bytes": 7, "expected_gain_percent": { "likely": 0.5 } }));
    }

    #[test]
    fn a_pilot_is_told_its_limit_and_ended_by_a_signal() {
        let (_directory, tool) =
            fake(r#"trap 'echo "{\"arguments\":\"$*\"}"; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done"#);
        let mut process = tool.attach(42, true, Some(Bytes(1 << 30))).unwrap();
        while process.messages.metadata().unwrap().len() == 0 {
            process.check().unwrap();
        }
        assert_eq!(process.interrupt().unwrap().output["arguments"], "attach 42 --json --fast --max-huge=1073741824B");
    }

    #[test]
    fn one_that_is_dropped_is_asked_to_end_first() {
        let (directory, tool) =
            fake(r#"trap 'echo ended > "$0.ended"; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done"#);
        let mut process = tool.attach(42, true, None).unwrap();
        while process.messages.metadata().unwrap().len() == 0 {
            process.check().unwrap();
        }
        process.signal(Signal::STOP).unwrap();
        drop(process);
        assert!(directory.path().join("hugepilot.ended").exists());
    }

    #[test]
    fn a_pilot_that_ends_by_itself_is_quoted() {
        let (_directory, tool) = fake("echo 'unknown command' >&2; exit 2");
        let mut process = tool.daemon(Path::new("/x.toml"), Path::new("/x.sock")).unwrap();
        let error = loop {
            if let Err(error) = process.check() {
                break error.to_string();
            }
        };
        assert!(error.contains("unknown command"), "{error}");
    }

    #[test]
    fn one_that_has_ended_still_tells_its_cpu_time() {
        let (_directory, tool) = fake("echo '{}'");
        let process = tool.start_on("promote", 42, &[]).unwrap();
        while !process.has_ended().unwrap() {
            std::thread::yield_now();
        }
        process.cpu_time().unwrap();
        assert_eq!(process.finish().unwrap().output, serde_json::json!({}));
    }

    #[test]
    fn a_failing_tool_is_quoted() {
        let (_directory, tool) = fake("echo 'no such process' >&2; exit 1");
        let error = tool.run_on("promote", 42, &[], &Stop::default()).unwrap_err().to_string();
        assert!(error.contains("no such process"), "{error}");
    }

    #[test]
    fn more_output_than_a_pipe_holds_does_not_block() {
        let (_directory, tool) = fake(r#"printf '"'; head -c 300000 /dev/zero | tr '\0' x; printf '"'"#);
        let run = tool.run_on("promote", 42, &[], &Stop::default()).unwrap();
        assert_eq!(run.output.as_str().unwrap().len(), 300_000);
    }

    #[test]
    fn a_missing_tool_says_how_to_get_it() {
        let error = Tool::find(Some("/nonexistent/hugepilot".into())).unwrap_err().to_string();
        assert!(error.contains("cargo build"), "{error}");
    }
}
