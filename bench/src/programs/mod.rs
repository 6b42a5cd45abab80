//! Real programs as their communities load them: what huge pages gain each, and what was forecast.
//!
//! Owns: the command, and one trial after the other. Never touches: how a trial goes; `hugepilot trial` does.

mod definition;
mod record;
mod running;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use hugepilot_os::stop::{SecondSignal, Stop};

use self::definition::{ProgramDefinition, names};
use self::record::ProgramTrial;
pub use self::record::ProgramsRecord;
use self::running::RunningProgram;
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

Each program is started, filled and put under load, then `hugepilot trial` switches its memory between base and huge pages until its gain is
known within 2 %, or time is up.";

/// Caches fill, and just-in-time compilers come to rest.
const WARMING: Duration = Duration::from_secs(10);
/// Where work is counted at once, many short windows tell most.
const WINDOW: &str = "1s";
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
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<std::path::PathBuf>,
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
        let tool = Tool::find(self.hugepilot.clone())?;
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let mut record = ProgramsRecord::new(MachineDescription::describe(&SavedSettings::of_this_machine()?)?);
        let measured = programs.iter().try_for_each(|(name, program)| {
            let trial = self
                .measure(name, program, &tool, &stop)
                .with_context(|| format!("{name} (needs {})", program.needs))?;
            record.trials.push(trial);
            Ok(())
        });
        if !record.trials.is_empty() {
            let name =
                format!("programs-{}", if self.programs.is_empty() { "all".to_owned() } else { chosen.join("+") });
            let (text, json) = (record.text(), json_lines(&record, "program")?);
            self.outputs.tell(&record.machine, &Results { name: &name, json, text: &text, draw: None })?;
        }
        rounds::ended(measured, &stop, "told")
    }

    fn measure(&self, name: &str, program: &ProgramDefinition, tool: &Tool, stop: &Stop) -> Result<ProgramTrial> {
        eprintln!("{name}: {}", program.what);
        let mut running = RunningProgram::start(program, stop)?;
        stop.sleep_until(Instant::now() + WARMING)?;
        running.check()?;
        let mut words =
            vec!["--rate", running.rate(), "--for", &self.limit, "--to", &self.precision, "--number", "total"];
        // Nobody minds how fast this program is meanwhile, so that more pairs fit into the time.
        words.extend(["--max-slowdown", "25%", "--window", program.window.as_deref().unwrap_or(WINDOW)]);
        words.extend(program.children.then_some("--children"));
        let trial = tool.start_on("trial", running.pid()?, &words)?;
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
