//! Servers other than PostgreSQL: the effect of hugepilot on them with its defaults only.
//!
//! Owns: the command, and the order of turns. Never touches: how servers are started or loaded.
//!
//! Two servers of a kind run side by side and are loaded in turn. hugepilot is attached to the second one; if that server disables all huge pages
//! except a pool's, hugepilot starts it.

mod program;
mod record;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use heat::units::{Bytes, HUGE_PAGE};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::process::{ProcessStatus, descendants};

pub use self::program::{RunningServer, ServerPlace, ServerProgram};
pub use self::record::ServersRecord;
use self::record::{ServerSetup, ServerTurn};
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::pool::FilledPool;
use crate::rounds::{self, order_of_round, progress_bar, turns_done};
use crate::sample::huge_memory;
use crate::settings::SavedSettings;
use crate::tool::{Tool, ToolProcess};

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench servers --keep
  hugepilot-bench servers --programs redis --rounds 20 --keep

Needs mariadb-server and sysbench, gunicorn and apache2-utils, redis-server and redis-tools, for those that are named.";

const SETUPS: [ServerSetup; 3] = [ServerSetup::Default, ServerSetup::DefaultAgain, ServerSetup::Hugepilot];
/// hugepilot is done when nothing more became huge during this many turns.
const SETTLED: usize = 4;
/// The limit on turns for that.
const PATIENCE: usize = 40;
/// Requests in progress at the end of a turn still occupy memory.
const REST: Duration = Duration::from_millis(200);

/// `servers`
#[derive(Clone, Debug, Args)]
pub struct ServersArguments {
    /// Which servers, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["mariadb", "gunicorn", "redis"])]
    programs: Vec<ServerProgram>,
    /// Rounds; each setup has one turn in each
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Seconds of each turn, roughly
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Where the order of setups starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<std::path::PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

impl ServersArguments {
    /// Measures, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let tool = Tool::find(self.hugepilot.clone())?;
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let mut settings = SavedSettings::of_this_machine()?;
        let mut record = ServersRecord::new(MachineDescription::describe(&settings)?, self.seconds, self.rounds);
        let measured = self.programs.iter().try_for_each(|&program| {
            let measured = self.measure(program, &tool, &mut settings, &stop, &mut record);
            settings.restore().and(measured)
        });
        if !record.turns.is_empty() {
            let (text, json) = (record.text(), json_lines(&record, "round")?);
            self.outputs.tell(&record.machine, &Results { name: "servers", json, text: &text, draw: None })?;
        }
        rounds::ended(measured, &stop, "told")
    }

    fn measure(
        &self,
        program: ServerProgram,
        tool: &Tool,
        settings: &mut SavedSettings,
        stop: &Stop,
        record: &mut ServersRecord,
    ) -> Result<()> {
        let directory = tempfile::Builder::new().prefix("hugepilot-bench-").tempdir_in("/var/tmp")?;
        let bar = progress_bar(u64::from(self.rounds) * 3);
        bar.set_message(format!("starting {program}"));
        let start = |number: u16, tool| {
            let directory = directory.path().join(number.to_string());
            program.start(&ServerPlace { directory, number, seconds: self.seconds, tool, stop })
        };
        let mut default = start(0, None)?;
        if let Some(memory) = program.pool() {
            FilledPool::for_program(settings, Bytes(HUGE_PAGE), memory)?.fill(settings)?;
        }
        let mut piloted = start(1, program.pool().map(|_| tool))?;
        bar.set_message(format!("waiting until hugepilot has done what it will for {program}"));
        let attached = program.pool().is_none().then(|| attach(tool, &mut piloted, stop)).transpose()?;
        for round in 0..self.rounds {
            for setup in order_of_round(&SETUPS, self.seed, round) {
                bar.set_message(format!("{program} round {}: {setup:?}", round + 1));
                let server = if setup == ServerSetup::Hugepilot { &mut piloted } else { &mut default };
                stop.check()?;
                let per_second = server.load()?;
                stop.sleep_until(Instant::now() + REST)?;
                let (own_bytes, huge_bytes) = (own_memory(server.pid()?)?.0, family(server.pid()?)?.map(huge).sum());
                record.turns.push(ServerTurn { round, program, setup, per_second, own_bytes, huge_bytes });
                turns_done(&bar, 1);
            }
        }
        bar.finish_and_clear();
        attached.map_or(Ok(()), ToolProcess::end)
    }
}

/// Attaches hugepilot under load, and waits until nothing more becomes huge.
fn attach(tool: &Tool, server: &mut RunningServer, stop: &Stop) -> Result<ToolProcess> {
    let mut attached = tool.attach_family(server.pid()?, false)?;
    let (mut largest, mut still) = (0, 0);
    for _ in 0..PATIENCE {
        stop.check()?;
        attached.check()?;
        server.load()?;
        let now: u64 = family(server.pid()?)?.map(huge).sum();
        still = if now > largest + largest / 50 { 0 } else { still + 1 };
        largest = largest.max(now);
        if still == SETTLED {
            break;
        }
    }
    Ok(attached)
}

fn family(pid: u32) -> Result<impl Iterator<Item = u32>> {
    Ok(descendants(&Root::host(), pid)?.into_iter().chain([pid]))
}

/// Memory of one process on huge pages; 0 if it has ended.
fn huge(pid: u32) -> u64 {
    huge_memory(pid).map_or(0, |bytes| bytes.0)
}

/// Private memory of a server; for children, the memory that they have written to.
fn own_memory(pid: u32) -> Result<Bytes> {
    let own = |pid| {
        ProcessStatus::read(&Root::host(), pid).map_or(Bytes(0), |status| Bytes(status.rss_anon.0 + status.hugetlb.0))
    };
    Ok(family(pid)?.map(own).sum())
}
