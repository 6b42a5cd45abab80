//! Real programs as their communities load them, and synthetic ones: what huge pages gain each, and what was forecast.
//!
//! Owns: the command, and one trial after the other. Never touches: how a trial goes; `hugepilot trial` does.

mod definition;
mod intervals;
mod record;
mod running;
mod setup;
mod setups_record;
mod side_by_side;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use hugepilot_os::stop::{SecondSignal, Stop};

use self::definition::{ProgramDefinition, names};
use self::record::ProgramTrial;
pub use self::record::ProgramsRecord;
use self::running::HowStarted;
pub(crate) use self::running::LoadedProgram;
use self::setup::ProgramSetup;
use self::setups_record::ProgramTurns;
pub use self::setups_record::SetupsRecord;
use self::side_by_side::SideBySide;
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::rounds;
use crate::settings::SavedSettings;
use crate::tool::Tool;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench programs redis --for 5m         one of them, at most five minutes
  hugepilot-bench programs --keep                 all of them: some hours
  hugepilot-bench programs --list                 what they are, and what each needs
  hugepilot-bench programs redis --setups default,default-again,always,promote,attach,ideal --starts 6

Each program is started, filled and put under load, then `hugepilot trial` switches its memory between base and huge pages until its gain is
known within 2 %, or time is up. With --setups it runs several times side by side instead, each in one setup and stopped except during its
turns.";

const POLL: Duration = Duration::from_millis(100);

/// `programs`
#[derive(Clone, Debug, Args)]
pub struct ProgramsArguments {
    /// Which programs [default: all]
    programs: Vec<String>,
    /// Only lists them
    #[arg(long)]
    list: bool,
    /// How long a trial takes at most, such as 10m
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    limit: String,
    /// How closely a gain is to be known, such as 2%
    #[arg(long = "to", value_name = "SHARE", default_value = "2%")]
    precision: String,
    /// Compares these setups of each program, separated by commas, in place of a trial
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with_all = ["limit", "precision"])]
    setups: Vec<ProgramSetup>,
    /// How often each setup is started anew; its memory then lies elsewhere, and each start counts once [default: rounds of one start count]
    #[arg(long, default_value_t = 1, requires = "setups", value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Rounds of each start; each setup has one turn in each
    #[arg(long, default_value_t = 20, requires = "setups", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each turn, such as 0.5; longer where work is counted late
    #[arg(long, default_value = "1", requires = "setups", value_parser = seconds)]
    seconds: Duration,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

impl ProgramsArguments {
    /// Measures one after the other, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        let chosen = if self.programs.is_empty() {
            names().into_iter().map(str::to_owned).collect()
        } else {
            self.programs.clone()
        };
        let defined = |name: &String| Ok((name.clone(), ProgramDefinition::named(name)?));
        let programs = chosen.iter().map(defined).collect::<Result<Vec<_>>>()?;
        if self.list {
            programs.iter().for_each(|(name, program)| println!("{name}: {}\n  needs {}", program.what, program.needs));
            return Ok(());
        }
        self.outputs.check()?;
        let name = if self.programs.is_empty() { "all".to_owned() } else { chosen.join("+") };
        let bench = Bench {
            tool: Tool::find(self.hugepilot.clone())?,
            stop: Stop::on_signals(SecondSignal::Ends)?,
            settings: SavedSettings::of_this_machine()?,
        };
        if self.setups.is_empty() {
            self.try_each(&programs, &name, bench)
        } else {
            self.compare(&programs, &name, bench)
        }
    }

    fn try_each(&self, programs: &[(String, ProgramDefinition)], name: &str, mut bench: Bench) -> Result<()> {
        let mut record = ProgramsRecord::new(MachineDescription::describe(&bench.settings)?);
        let measured = programs.iter().try_for_each(|(name, program)| {
            let trial = bench
                .with_settings(program, |bench| self.trial(name, program, bench))
                .with_context(|| format!("{name} (needs {})", program.needs))?;
            record.trials.push(trial);
            Ok(())
        });
        if !record.trials.is_empty() {
            let (text, json) = (record.text(), json_lines(&record, "program")?);
            let name = &format!("programs-{name}");
            self.outputs.tell(&record.machine, &Results { name, json, text: &text, draw: None })?;
        }
        rounds::ended(measured, &bench.stop, "told")
    }

    fn compare(&self, programs: &[(String, ProgramDefinition)], name: &str, mut bench: Bench) -> Result<()> {
        let mut record = SetupsRecord::new(MachineDescription::describe(&bench.settings)?, self.rounds);
        let measured = programs.iter().try_for_each(|(name, program)| {
            let experts = program.experts.as_ref().map(|experts| experts.what.clone());
            record.programs.push(ProgramTurns {
                program: name.clone(),
                what: program.what.clone(),
                experts,
                missing: Vec::new(),
                turns: Vec::new(),
            });
            let turns = record.programs.last_mut().expect("just added");
            bench.with_settings(program, |bench| {
                let Bench { tool, stop, settings } = bench;
                let lasting = program.shortest_window().max(self.seconds);
                SideBySide { setups: &self.setups, starts: self.starts, rounds: self.rounds, lasting, tool, stop }
                    .measure(program, settings, turns)
                    .with_context(|| format!("{name} (needs {})", program.needs))
            })
        });
        record.programs.retain(|program| !program.turns.is_empty() || !program.missing.is_empty());
        if !record.programs.is_empty() {
            let (text, json) = (record.text(), json_lines(&record, "round")?);
            let name = &format!("setups-{name}");
            self.outputs.tell(&record.machine, &Results { name, json, text: &text, draw: None })?;
        }
        rounds::ended(measured, &bench.stop, "told")
    }

    fn trial(&self, name: &str, program: &ProgramDefinition, bench: &Bench) -> Result<ProgramTrial> {
        eprintln!("{name}: {}", program.what);
        let stop = &bench.stop;
        let mut running = LoadedProgram::start(program, &HowStarted::default(), stop)?;
        stop.sleep_until(Instant::now() + program.warming())?;
        running.check()?;
        let window = program.window.map(|window| format!("{}s", window.seconds()));
        let mut words =
            vec!["--rate", running.rate(), "--for", &self.limit, "--to", &self.precision, "--number", "total"];
        // The forecast is to be that of a machine without earlier trials. Nobody minds how fast this program is meanwhile, so that more pairs fit
        // into the time.
        words.extend(["--no-calibration", "--max-slowdown", "25%"]);
        words.extend(window.iter().flat_map(|window| ["--window", window]));
        words.extend(program.children.then_some("--children"));
        let trial = bench.tool.start_on("trial", running.pid()?, &words)?;
        while !trial.has_ended()? {
            running.check()?;
            stop.sleep_until(Instant::now() + POLL)?;
        }
        let (trial, refused) = match trial.finish() {
            Ok(run) => (Some(run.output), None),
            // The next program is measured all the same.
            Err(error) => (None, format!("{error:#}").lines().last().map(str::to_owned)),
        };
        Ok(ProgramTrial { program: name.to_owned(), what: program.what.clone(), trial, refused })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "between 0.1 and 60".to_owned())
}

/// What every measurement needs.
struct Bench {
    tool: Tool,
    stop: Stop,
    settings: SavedSettings,
}

impl Bench {
    /// Works with the machine's settings as the program needs them.
    fn with_settings<T>(
        &mut self,
        program: &ProgramDefinition,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        program.settings.iter().try_for_each(|(name, value)| self.settings.change(name, value).map(|_| ()))?;
        let done = work(self);
        self.settings.restore().and(done)
    }
}
