//! Many programs at once, and a command that inspects all of them: how long it takes, and how much it slows each of them down.
//!
//! Owns: starting the programs, and the order of windows. Never touches: what the command does.

mod record;

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use heat::units::Bytes;
use hugepilot_os::stop::{SecondSignal, Stop};

pub use self::record::CrowdRecord;
use self::record::CrowdWindow;
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::rounds::{self, progress_bar, turns_done};
use crate::sample::cpu_time;
use crate::settings::SavedSettings;
use crate::workload::{ChasePattern, OwnProcess, POLL, Running, words};

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench crowd -- hugepilot scan                   50 programs of 80 MiB
  hugepilot-bench crowd --programs 200 --size 64M --busy 0.5 --keep -- hugepilot scan

Each round lets the programs work alone, runs the command, and lets them work alone again.";

/// Work before the first window, so that all programs are at their usual speed.
const WARMING: Duration = Duration::from_secs(5);
/// The shortest window in which the programs work alone.
const SHORTEST: Duration = Duration::from_secs(2);

/// `crowd`
#[derive(Clone, Debug, Args)]
pub struct CrowdArguments {
    /// How many programs
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    programs: u32,
    /// Memory of each
    #[arg(long, default_value_t = Bytes(80 << 20))]
    size: Bytes,
    /// The share of a processor that each keeps busy, in percent
    #[arg(long, default_value_t = 2.0, value_name = "PERCENT")]
    busy: f64,
    /// Rounds
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    #[command(flatten)]
    outputs: Outputs,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl CrowdArguments {
    /// Measures, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let settings = SavedSettings::of_this_machine()?;
        let mut record = CrowdRecord::new(MachineDescription::describe(&settings)?, self.programs, self.size);
        let mut programs = self.start_programs(&stop)?;
        stop.sleep_until(Instant::now() + WARMING)?;
        let measured = self.measure(&mut programs, &mut record, &stop);
        if !record.windows.is_empty() {
            let (text, json) = (record.text(), json_lines(&record, "round")?);
            self.outputs.tell(&record.machine, &Results { name: "crowd", json, text: &text, draw: None })?;
        }
        rounds::ended(measured, &stop, "told")
    }

    fn start_programs(&self, stop: &Stop) -> Result<Vec<OwnProcess>> {
        eprintln!("starting {} programs of {}", self.programs, self.size);
        let start = |number: u32| {
            let called = format!("crowd-{number}");
            let words = words(
                "workload-chase",
                &[
                    ("size", &self.size.0),
                    ("pattern", &ChasePattern::Independent),
                    ("seed", &(number + 1)),
                    ("busy", &self.busy),
                    ("called", &called),
                ],
            );
            // Wherever the scheduler likes, as it would be on a server.
            OwnProcess::start_on(None, words, stop)
        };
        (0..self.programs).map(start).collect()
    }

    fn measure(&self, programs: &mut [OwnProcess], record: &mut CrowdRecord, stop: &Stop) -> Result<()> {
        let bar = progress_bar(u64::from(self.rounds));
        let mut alone = SHORTEST;
        for round in 0..self.rounds {
            let before = window(programs, || Ok(stop.sleep_until(Instant::now() + alone)?))?;
            let beside = window(programs, || self.run_command(stop))?;
            // As long as the command takes, so that all windows are alike.
            alone = Duration::from_secs_f64(beside.seconds).max(SHORTEST);
            let after = window(programs, || Ok(stop.sleep_until(Instant::now() + alone)?))?;
            for program in programs.iter_mut() {
                program.check()?;
            }
            let windows = [(before, false), (beside, true), (after, false)];
            record.windows.extend(windows.map(|(window, beside)| CrowdWindow { round, beside, ..window }));
            turns_done(&bar, 1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn run_command(&self, stop: &Stop) -> Result<()> {
        let [program, arguments @ ..] = &self.command[..] else { unreachable!("clap requires one") };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let name = program.to_string_lossy();
        let mut child =
            command.spawn().with_context(|| format!("cannot run '{name}'; give its path, or check PATH"))?;
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                ensure!(status.success(), "'{name}' ended with {status}");
                return Ok(());
            }
            stop.sleep_until(Instant::now() + POLL / 10)?;
        }
    }
}

/// What each program does meanwhile.
fn window(programs: &[OwnProcess], meanwhile: impl FnOnce() -> Result<()>) -> Result<CrowdWindow> {
    let cpu = || programs.iter().map(|program| cpu_time(program.pid())).collect::<Result<Vec<_>>>();
    let (began, before) = (Instant::now(), cpu()?);
    meanwhile()?;
    let (ended, after) = (Instant::now(), cpu()?);
    let operations = programs.iter().map(|program| program.progress().window(began, ended).throughput()).collect();
    let used = before.into_iter().zip(after).map(|(before, after)| after.saturating_sub(before).as_secs_f64());
    Ok(CrowdWindow {
        round: 0,
        beside: false,
        seconds: ended.duration_since(began).as_secs_f64(),
        operations_per_second: operations,
        cpu_seconds: used.collect(),
    })
}
