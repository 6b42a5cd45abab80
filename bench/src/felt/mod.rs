//! How promotion affects a running program: its throughput and response times in the meantime.
//!
//! Owns: the command, and the order of rounds. Never touches: how hugepilot promotes.
//!
//! In a turn a program under constant load is left alone twice and then promoted. All comparisons are within a turn, so that neither drift of the
//! machine nor differences between processes count. In each round the modes take turns in random order.

mod figures;
mod host;
mod mode;
mod plot;
mod program;
mod record;
mod text;
mod turn;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use heat::units::Bytes;
use hugepilot_os::stop::{SecondSignal, Stop};
use indicatif::ProgressBar;

use self::figures::ModeTurns;
use self::host::{Host, HostChoice};
use self::mode::{Mode, Promoter};
use self::program::{FeltProgram, FeltSetup, Loaded};
pub use self::record::FeltRecord;
use self::record::FeltTurn;
pub use self::text::text;
use self::turn::{FeltTiming, Stage};
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::rounds::{self, order_of_round, progress_bar, turns_done};
use crate::settings::SavedSettings;
use crate::tool::Tool;
use crate::values::{gib, seconds};

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench felt memcached --quick                a first result in minutes
  hugepilot-bench felt memcached --modes default,fast,daemon --keep
  hugepilot-bench felt reader --gib 16 --host both --plot felt.svg
  hugepilot-bench felt reader-busy --modes fast         no request waits: each stall shows in throughput
  hugepilot-bench felt redis --modes before --hugepilot /old/hugepilot --promote-args=--gentle
  hugepilot-bench report felt-memcached-1.json.zst --plot felt.svg

On cold memory each promotion gets a new program, on warm memory one program serves all: its huge pages are split again.
Run as root on a machine that does nothing else.";

/// `felt`
#[derive(Clone, Debug, Args)]
pub struct FeltArguments {
    /// What is promoted
    #[arg(value_enum)]
    program: FeltProgram,
    /// Who promotes, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["default"])]
    modes: Vec<Mode>,
    /// Two rounds of a small program: a quick check, not a published result
    #[arg(long)]
    quick: bool,
    /// Rounds; each mode has one turn in each [default: 20, with --quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The program's memory in GiB [default: 3, of readers 16; with --quick 0.5 and 1]
    #[arg(long, value_parser = gib)]
    gib: Option<f64>,
    /// The share of its capacity that is asked of the program
    #[arg(long, default_value_t = 0.3, value_parser = share)]
    load: f64,
    /// Let requests come from the second processor, so that none is left unused as it would be on a larger machine
    #[arg(long)]
    no_spare_processor: bool,
    /// What the host of this virtual machine does with free memory [default: cold where free memory is reported to it, else warm]
    #[arg(long, value_enum)]
    host: Option<HostChoice>,
    /// Seconds of each phase in which the program is left alone [default: 10, with --quick 4]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Arguments of `hugepilot promote` in the mode `before`, separated by spaces
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    promote_args: String,
    /// The pace of the daemon, as its configuration file has it
    #[arg(long, value_name = "TEXT", default_value = "max-slowdown = \"1%\"")]
    daemon_settings: String,
    /// Where the order of modes and all random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

impl FeltArguments {
    /// Measures, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let tool = Tool::find(self.hugepilot.clone())?;
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let hosts = host::hosts(self.host)?;
        let mut settings = SavedSettings::of_this_machine()?;
        let mut record = self.empty_record(MachineDescription::describe(&settings)?);
        self.announce(&record, &hosts);
        let ended = self.measure(&hosts, &tool, &mut settings, &mut record, &stop);
        settings.restore()?;
        if !record.turns.is_empty() {
            self.tell(&record)?;
        }
        rounds::ended(ended, &stop, "told")
    }

    fn measure(
        &self,
        hosts: &[Host],
        tool: &Tool,
        settings: &mut SavedSettings,
        record: &mut FeltRecord,
        stop: &Stop,
    ) -> Result<()> {
        let promoter = Promoter {
            tool,
            arguments: &record.promote_arguments.clone(),
            daemon_settings: &self.daemon_settings,
            daemon_phase: Duration::from_secs(if self.quick { 10 } else { 20 }),
            stop,
        };
        let bar = progress_bar((hosts.len() * self.modes.len()) as u64 * u64::from(self.rounds()));
        let (setup, timing) = (self.setup(), self.timing());
        for &host in hosts {
            host.set_up(settings, if self.quick { 2 * setup.size.0 } else { u64::MAX }, stop)?;
            let stage = Stage { setup: &setup, timing, promoter: &promoter, stop, bar: &bar };
            let mut program = None;
            for round in 0..self.rounds() {
                for mode in order_of_round(&self.modes, self.seed, round) {
                    let turn = self.turn(&stage, (host, mode, round), &mut program, settings)?;
                    record.turns.push(turn);
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// One turn, with the present program or a new one; keeps the program if another turn may use it.
    fn turn(
        &self,
        stage: &Stage<'_>,
        (host, mode, round): (Host, Mode, u32),
        program: &mut Option<Loaded>,
        settings: &mut SavedSettings,
    ) -> Result<FeltTurn> {
        let about = format!("round {} of {}, {host} {mode}", round + 1, self.rounds());
        if program.is_none() {
            stage.say(&about, "starting the program");
        }
        let mut loaded = program.take().map_or_else(|| stage.setup.start(stage.stop), Ok)?;
        let turn = stage.turn((host, mode, round), &about, &mut loaded, settings)?;
        if !host.needs_new_program() {
            stage.say(&about, "giving back");
            stage.give_back(&mut loaded)?;
            *program = Some(loaded);
        }
        tell_turn(stage.bar, &about, mode, &turn);
        turns_done(stage.bar, 1);
        Ok(turn)
    }

    fn empty_record(&self, machine: MachineDescription) -> FeltRecord {
        let promote_arguments = self.promote_args.split_whitespace().map(str::to_owned).collect();
        FeltRecord { rounds: self.rounds(), promote_arguments, ..FeltRecord::new(machine, &self.setup()) }
    }

    fn announce(&self, record: &FeltRecord, hosts: &[Host]) {
        let setup = self.setup();
        let turn = |host: &Host| self.timing().turn_time(*host, &setup);
        let round: Duration = hosts.iter().map(turn).sum::<Duration>() * self.modes.len() as u32;
        let minutes = (round.as_secs_f64() * f64::from(record.rounds) / 60.0).ceil();
        let names = |names: Vec<String>| names.join(", ");
        eprintln!(
            "felt {}: {}\n{} rounds of {} on {} memory, about {minutes} min and what promoting takes; Ctrl-C ends early and reports what there is",
            self.program,
            record.description,
            record.rounds,
            names(self.modes.iter().map(Mode::to_string).collect()),
            names(hosts.iter().map(Host::to_string).collect()),
        );
    }

    fn setup(&self) -> FeltSetup {
        let gib = match (self.program.is_reader(), self.quick) {
            (true, true) => 1.0,
            (true, false) => 16.0,
            (false, true) => 0.5,
            (false, false) => 3.0,
        };
        FeltSetup {
            program: self.program,
            size: Bytes((self.gib.unwrap_or(gib) * (1u64 << 30) as f64) as u64),
            load: self.load,
            capacity: Duration::from_secs(if self.quick { 2 } else { 4 }),
            spare_processor: !self.no_spare_processor,
            seed: self.seed,
        }
    }

    fn timing(&self) -> FeltTiming {
        let alone = self.seconds.unwrap_or(if self.quick { 4.0 } else { 10.0 });
        FeltTiming { alone: Duration::from_secs_f64(alone) }
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 2 } else { 20 })
    }

    fn tell(&self, record: &FeltRecord) -> Result<()> {
        let (text, name) = (text(record), format!("felt-{}", self.program));
        let draw = |path: &Path| Ok(picture::draw(record, path)?);
        let json = json_lines(record, "round")?;
        self.outputs.tell(&record.machine, &Results { name: &name, json, text: &text, draw: Some(&draw) })
    }
}

/// Prints a line about a turn on standard error.
fn tell_turn(bar: &ProgressBar, about: &str, mode: Mode, turn: &FeltTurn) {
    let group = ModeTurns::of(mode, vec![turn]);
    let share = |ratio: Option<heat::statistics::Interval>| {
        ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.estimate))
    };
    bar.suspend(|| {
        eprintln!(
            "{about}: {} in {:.1} s; worst window {}, alone {}; p99 {} of alone, A/A {}",
            Bytes(turn.promoted.bytes),
            turn.promoted.seconds,
            share(group.worst_window(|turn| &turn.promotion)),
            share(group.worst_window(|turn| &turn.alone_again)),
            share(group.latency(|latency| latency.p99_ns)),
            share(group.latency_noise(|latency| latency.p99_ns)),
        );
    });
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!("'{text}' is not a share between 0 and 1: write 0.3")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        felt: FeltArguments,
    }

    fn parse(line: &str) -> Result<FeltArguments, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.felt)
    }

    #[test]
    fn sizes_suit_the_program() {
        let size = |line: &str| parse(line).unwrap().setup().size;
        assert_eq!(size("felt memcached"), Bytes(3 << 30));
        assert_eq!(size("felt reader"), Bytes(16 << 30));
        assert_eq!(size("felt reader-busy"), Bytes(16 << 30));
        assert_eq!(size("felt redis --quick"), Bytes(1 << 29));
        assert_eq!(size("felt reader-busy --gib 2.5"), Bytes(5 << 29));
    }

    #[test]
    fn arguments_of_another_binary_are_passed_on() {
        let before = parse("felt redis --modes before,fast --promote-args=--gentle").unwrap();
        assert_eq!(before.modes, [Mode::Before, Mode::Fast]);
        let record = before.empty_record(crate::machine::tests::machine());
        assert_eq!((record.promote_arguments, record.rounds), (vec!["--gentle".to_owned()], 20));
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["felt", "felt nginx", "felt redis --load 1", "felt redis --gib 0", "felt redis --rounds 0"] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
