//! Who promotes: `hugepilot promote` at several paces, or the daemon.
//!
//! Owns: starting hugepilot, and reading what it did. Never touches: the load on the program.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use heat::units::HUGE_PAGE;
use hugepilot_os::stop::Stop;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::sample::{cpu_time, machine_memory};
use crate::tool::Tool;
use crate::workload::Running;

/// Between two checks whether hugepilot has ended; its time is measured until its end.
const POLL: Duration = Duration::from_millis(20);
/// A longer promotion is ended, and counts as far as it got.
const LONGEST: Duration = Duration::from_secs(1800);
/// A daemon that promotes nothing for this long never will.
const DAEMON_PATIENCE: Duration = Duration::from_secs(180);

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// `hugepilot promote PID`.
    Default,
    /// `hugepilot promote PID --fast`.
    Fast,
    /// `hugepilotd`, from the first region on that it promotes.
    Daemon,
    /// `hugepilot promote PID` with --promote-args: for another binary, named by --hugepilot.
    Before,
}

shown_as_typed!(Mode);

/// Their parameters.
#[derive(Clone, Debug)]
pub struct Promoter<'a> {
    /// hugepilot.
    pub tool: &'a Tool,
    /// The arguments in the mode `before`.
    pub arguments: &'a [String],
    /// Lines of the daemon's configuration file that precede the target.
    pub daemon_settings: &'a str,
    /// How long the daemon is measured.
    pub daemon_phase: Duration,
    /// Ends everything early.
    pub stop: &'a Stop,
}

/// A promotion that has ended.
#[derive(Debug)]
pub struct Done {
    /// When it started.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// hugepilot's CPU time.
    pub cpu: Duration,
    /// Its JSON.
    pub output: serde_json::Value,
}

impl Mode {
    /// hugepilot's arguments besides the process id; None for the daemon.
    fn arguments(self, before: &[String]) -> Option<Vec<&str>> {
        match self {
            Mode::Default => Some(Vec::new()),
            Mode::Fast => Some(vec!["--fast"]),
            Mode::Before => Some(before.iter().map(String::as_str).collect()),
            Mode::Daemon => None,
        }
    }
}

impl Promoter<'_> {
    /// Promotes a program in this mode. The daemon matches the program by name.
    pub fn promote(&self, mode: Mode, name: &str, program: &mut dyn Running) -> Result<Done> {
        match mode.arguments(self.arguments) {
            Some(arguments) => self.run(&arguments, program),
            None => self.run_daemon(name, program),
        }
    }

    fn run(&self, arguments: &[&str], program: &mut dyn Running) -> Result<Done> {
        let start = Instant::now();
        let process = self.tool.start_on("promote", program.pid(), arguments)?;
        let mut asked = false;
        while !process.has_ended()? {
            if start.elapsed() > LONGEST && !asked {
                process.signal(Signal::TERM)?;
                asked = true;
            }
            self.pause(program)?;
        }
        let (end, cpu) = (Instant::now(), process.cpu_time()?);
        Ok(Done { start, end, cpu, output: process.finish()?.output })
    }

    fn run_daemon(&self, name: &str, program: &mut dyn Running) -> Result<Done> {
        // The machine's counter costs the program nothing; a scan of its page tables would.
        let huge = || machine_memory().map(|memory| memory.anon_huge.0);
        let (asked, before) = (Instant::now(), huge()?);
        let mut daemon = self.tool.daemon_with(&self.configuration(name))?;
        while huge()? < before + HUGE_PAGE {
            daemon.process.check()?;
            if asked.elapsed() > DAEMON_PATIENCE {
                bail!("the daemon promoted nothing within {} s: see `hugepilot explain`", DAEMON_PATIENCE.as_secs());
            }
            self.pause(program)?;
        }
        let (start, cpu_before) = (Instant::now(), cpu_time(daemon.process.pid())?);
        while start.elapsed() < self.daemon_phase {
            daemon.process.check()?;
            self.pause(program)?;
        }
        let (end, cpu) = (Instant::now(), cpu_time(daemon.process.pid())?.saturating_sub(cpu_before));
        let output = self.tool.status(&daemon.socket()).context("cannot ask the daemon for its status")?;
        daemon.process.end()?;
        Ok(Done { start, end, cpu, output })
    }

    fn configuration(&self, name: &str) -> String {
        format!("{}\n\n[[target]]\nname = \"{name}\"\n", self.daemon_settings)
    }

    fn pause(&self, program: &mut dyn Running) -> Result<()> {
        self.stop.sleep_until(Instant::now() + POLL)?;
        program.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_arguments() {
        let before = ["--gentle".to_owned()];
        assert_eq!(Mode::Default.arguments(&before), Some(vec![]));
        assert_eq!(Mode::Fast.arguments(&before), Some(vec!["--fast"]));
        assert_eq!(Mode::Before.arguments(&before), Some(vec!["--gentle"]));
        assert_eq!(Mode::Daemon.arguments(&before), None);
    }
}
