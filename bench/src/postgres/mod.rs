//! PostgreSQL: how huge pages help a server of many processes, from a reserved pool and with hugepilot.
//!
//! Owns: the command, the servers of a run, and the order of their turns. Never touches: how PostgreSQL is started or loaded.
//!
//! If memory allows it, all servers run side by side and are loaded in turn, so that changes of the machine affect all of them. Otherwise each turn
//! has its own server.

mod clients;
mod load;
mod record;
mod server;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use heat::units::{Bytes, HUGE_PAGE, Nanos};
use hugepilot_os::stop::{SecondSignal, Stop};
use indicatif::ProgressBar;
use rustix::process::Signal;

use self::clients::PgbenchClients;
use self::load::{Connections, Load, LoadSeen, Log, Script, transactions_per_second};
pub use self::record::PostgresRecord;
use self::record::{Attached, Felt, Observed, PostgresSetup, PostgresTurn};
use self::server::{Data, PostgresServer, Programs};
pub use self::text::text;
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::pool::FilledPool;
use crate::rounds::{self, order_of_round, progress_bar, turns_done};
use crate::sample::{huge_memory, machine_memory};
use crate::settings::SavedSettings;
use crate::table::distinct;
use crate::tool::{Tool, ToolProcess};

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench postgres --quick                      a first result in minutes
  hugepilot-bench postgres --keep                       100 connections look rows up, 4 GiB of buffers
  hugepilot-bench postgres --connections warm --keep    the same, with connections that last
  hugepilot-bench postgres --script connect --keep      a new connection for each transaction
  hugepilot-bench postgres --script write --clients 4
  hugepilot-bench postgres --felt-rounds 6 --rounds 0   what clients notice while hugepilot is attached
  hugepilot-bench postgres --buffers-gib 12 --rounds 3

Needs PostgreSQL's programs and its extension pg_prewarm, root, and a machine that does nothing else.";

/// Servers run side by side if their buffers take no more than this in total.
const BESIDE: Bytes = Bytes(13 << 30);
/// When page tables are read, counted from the end of a turn.
const BEFORE_END: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(100);
/// hugepilot is done when nothing more became huge for this long: within its CPU budget it may scan a server of many processes only once a minute.
const SETTLED: Duration = Duration::from_secs(60);
/// The time limit for that.
const PATIENCE: Duration = Duration::from_secs(240);
/// How long hugepilot's CPU time is counted while it observes; the same time passes before, so that it has no savings left.
const OBSERVED: Duration = Duration::from_secs(60);
/// Each of the phases in which a server under constant load is left alone.
const ALONE: Duration = Duration::from_secs(8);
/// How long new connections work before hugepilot predicts the gain, and is attached.
const BEGUN: Duration = Duration::from_secs(2);
/// The longest observation of a promotion under that load.
const PROMOTION: Duration = Duration::from_secs(60);
/// The load in that case, as a share of the server's capacity.
const SHARE: f64 = 0.3;
const WINDOW: f64 = 0.25;

/// `postgres`
#[derive(Clone, Debug, Args)]
pub struct PostgresArguments {
    /// What clients do
    #[arg(long, value_enum, default_value_t = Script::Select)]
    script: Script,
    /// Connections
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=550))]
    clients: u32,
    /// Whether clients connect anew for each turn
    #[arg(long, value_enum, default_value_t = Connections::Cold)]
    connections: Connections,
    /// Shared buffers in GiB [default: 4, with --quick 0.5]
    #[arg(long, value_parser = crate::values::gib)]
    buffers_gib: Option<f64>,
    /// What is compared, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["default", "default-again", "pool", "hugepilot"])]
    setups: Vec<PostgresSetup>,
    /// Attach hugepilot with --fast: clients notice it, and it is over sooner
    #[arg(long)]
    fast: bool,
    /// Two rounds with small buffers: a quick check, not a published result
    #[arg(long)]
    quick: bool,
    /// Rounds; each setup has one turn in each [default: 20, with --quick 2]
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds of each turn
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=3600))]
    seconds: u32,
    /// Rounds in which clients are asked for little, and watched while hugepilot promotes
    #[arg(long, default_value_t = 0)]
    felt_rounds: u32,
    /// Pairs of turns in which hugepilot, which stays attached, is at work or at rest; needs --connections warm
    #[arg(long, default_value_t = 0)]
    observed_pairs: u32,
    /// Where PostgreSQL's programs are [default: the newest below /usr/lib/postgresql]
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
    /// Where the servers' data goes, some GiB for each, removed afterwards
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    /// Where the order of setups starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

/// Everything that turns need.
struct Bench<'a> {
    arguments: &'a PostgresArguments,
    settings: SavedSettings,
    tool: Tool,
    stop: Stop,
    bar: ProgressBar,
}

/// A server, and hugepilot if it is attached.
struct Running<'a> {
    server: PostgresServer<'a>,
    /// Clients that stay connected; they end before it.
    clients: Option<PgbenchClients>,
    attached: Option<ToolProcess>,
}

/// The possible servers with their data, and the running ones.
struct Servers<'a> {
    data: BTreeMap<PostgresSetup, &'a Data>,
    /// Whether they run side by side.
    beside: bool,
    running: BTreeMap<PostgresSetup, Running<'a>>,
}

impl Servers<'_> {
    fn end_all(&mut self) -> Result<()> {
        while let Some((_, Running { server, clients, attached })) = self.running.pop_first() {
            attached.map_or(Ok(()), ToolProcess::end)?;
            drop(clients);
            server.stop()?;
        }
        Ok(())
    }
}

impl PostgresArguments {
    /// Measures, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        ensure!(
            (self.script, self.connections) != (Script::Connect, Connections::Warm),
            "--script connect connects anew for each transaction; leave out --connections warm"
        );
        ensure!(
            self.observed_pairs == 0
                || self.connections == Connections::Warm && self.setups.contains(&PostgresSetup::Hugepilot),
            "--observed-pairs needs --connections warm, and hugepilot among --setups"
        );
        let settings = SavedSettings::of_this_machine()?;
        let mut record = self.empty_record(MachineDescription::describe(&settings)?);
        let others = u64::from(self.felt_rounds) + u64::from(self.observed_pairs);
        let turns = u64::from(record.rounds) * self.setups.len() as u64 + others;
        let mut bench = Bench {
            arguments: self,
            settings,
            tool: Tool::find(self.hugepilot.clone())?,
            stop: Stop::on_signals(SecondSignal::Waits)?,
            bar: progress_bar(turns),
        };
        eprintln!(
            "postgres {}: {} connections, buffers of {}; filling them takes a minute, then {} rounds; Ctrl-C ends early and reports what there is",
            self.script,
            self.clients,
            self.buffers(),
            record.rounds
        );
        let ended = bench.measure(&mut record);
        bench.bar.finish_and_clear();
        bench.settings.restore()?;
        if !(record.turns.is_empty() && record.felt.is_empty() && record.observed.is_empty()) {
            self.tell(&record)?;
        }
        rounds::ended(ended, &bench.stop, "told")
    }

    fn empty_record(&self, machine: MachineDescription) -> PostgresRecord {
        PostgresRecord {
            script: self.script,
            clients: self.clients,
            connections: self.connections,
            buffers_bytes: self.buffers().0,
            seconds: self.seconds,
            fast: self.fast,
            rounds: self.rounds.unwrap_or(if self.quick { 2 } else { 20 }),
            seed: self.seed,
            ..PostgresRecord::new(machine)
        }
    }

    fn buffers(&self) -> Bytes {
        let gib = self.buffers_gib.unwrap_or(if self.quick { 0.5 } else { 4.0 });
        Bytes((gib * (1u64 << 30) as f64) as u64)
    }

    fn load(&self) -> Load {
        Load { script: self.script, clients: self.clients, seconds: self.seconds, rate: None, progress: false }
    }

    fn tell(&self, record: &PostgresRecord) -> Result<()> {
        let (text, name) = (text(record), format!("postgres-{}", self.script));
        let json = json_lines(record, "round")?;
        self.outputs.tell(&record.machine, &Results { name: &name, json, text: &text, draw: None })
    }
}

impl PostgresSetup {
    /// The setup whose server is used.
    fn server(self) -> Self {
        if self == Self::DefaultAgain { Self::Default } else { self }
    }

    fn huge_pages(self) -> &'static str {
        if self == Self::Pool { "on" } else { "off" }
    }
}

impl Bench<'_> {
    fn measure(&mut self, record: &mut PostgresRecord) -> Result<()> {
        let directory = tempfile::Builder::new().prefix("hugepilot-bench-").tempdir_in(&self.arguments.directory)?;
        let programs = Programs::find(self.arguments.programs.clone())?;
        let setups = distinct(self.arguments.setups.iter().map(|setup| setup.server()));
        let buffers = self.arguments.buffers();
        let beside = buffers.0 * setups.len() as u64 <= BESIDE.0;
        self.bar.set_message("making pgbench's tables");
        let first = Data::create(&programs, directory.path(), buffers, &self.stop)?;
        let copies = setups.iter().skip(1).filter(|_| beside).map(|setup| first.copy(&format!("{setup:?}")));
        let copies = copies.collect::<Result<Vec<Data>>>()?;
        // Servers that do not run side by side use the same data.
        let data = std::iter::once(&first).chain(&copies).chain(std::iter::repeat(&first));
        let data = setups.iter().copied().zip(data).collect();
        let mut servers = Servers { data, beside, running: BTreeMap::new() };
        self.rounds(&mut servers, record)?;
        self.observe(&mut servers, record)?;
        servers.end_all()?;
        for _ in 0..self.arguments.felt_rounds {
            let felt = self.felt(&first)?;
            self.bar.suspend(|| eprintln!("promoted in {:.1} s: {:?}", felt.seconds, felt.promotion));
            record.felt.push(felt);
            turns_done(&self.bar, 1);
        }
        Ok(())
    }

    fn rounds(&mut self, servers: &mut Servers<'_>, record: &mut PostgresRecord) -> Result<()> {
        // The pool comes first, while memory is not fragmented.
        if servers.beside && record.rounds > 0 && servers.data.contains_key(&PostgresSetup::Pool) {
            self.running(servers, PostgresSetup::Pool, record)?;
        }
        for round in 0..record.rounds {
            for setup in order_of_round(&self.arguments.setups, record.seed, round) {
                let running = self.running(servers, setup.server(), record)?;
                let turn = self.turn(round, setup, running)?;
                self.bar.suspend(|| eprintln!("round {}: {setup:?} {:.0} a second", round + 1, turn.per_second));
                record.turns.push(turn);
                turns_done(&self.bar, 1);
            }
        }
        Ok(())
    }

    fn observe(&mut self, servers: &mut Servers<'_>, record: &mut PostgresRecord) -> Result<()> {
        for pair in 0..self.arguments.observed_pairs {
            let running = self.running(servers, PostgresSetup::Hugepilot, record)?;
            if pair == 0 {
                record.observing_cpu_share = Some(self.observing_cpu_share(running)?);
            }
            record.observed.push(self.observed(pair, running)?);
            turns_done(&self.bar, 1);
        }
        Ok(())
    }

    /// A setup's server, which is started unless it is running.
    fn running<'s, 'a>(
        &mut self,
        servers: &'s mut Servers<'a>,
        setup: PostgresSetup,
        record: &mut PostgresRecord,
    ) -> Result<&'s Running<'a>> {
        if !servers.running.contains_key(&setup) {
            if !servers.beside {
                servers.end_all()?;
            }
            let started = self.start(setup, servers.data[&setup], record)?;
            servers.running.insert(setup, started);
        }
        Ok(&servers.running[&setup])
    }

    /// Starts a server and, if the setup says so, has hugepilot promote it.
    fn start<'a>(&mut self, setup: PostgresSetup, data: &'a Data, record: &mut PostgresRecord) -> Result<Running<'a>> {
        self.bar.set_message(format!("starting the server: {setup:?}"));
        let server = self.serve(setup, data)?;
        self.bar.set_message(format!("connecting: {setup:?}"));
        let is_warm = self.arguments.connections == Connections::Warm;
        let clients = is_warm.then(|| PgbenchClients::warm(&server, &self.arguments.load(), &self.stop)).transpose()?;
        if setup != PostgresSetup::Hugepilot {
            return Ok(Running { server, clients, attached: None });
        }
        // Nothing is promoted for an idle server.
        let mut load = None;
        match &clients {
            Some(clients) => clients.go_on()?,
            None => {
                load = Some(server.load(&Load { seconds: PATIENCE.as_secs() as u32 + 60, ..self.arguments.load() })?)
            }
        }
        self.stop.sleep_until(Instant::now() + BEGUN)?;
        self.bar.set_message("asking for a forecast");
        let mut told = self.tool.run_on("explain", server.pid(), &["--children"], &self.stop)?;
        let forecast = told.output["expected_gain_percent"].take();
        let available = || machine_memory().map(|memory| memory.available.0 as i64);
        let (before, asked) = (available()?, Instant::now());
        let mut attached = self.tool.attach_family(server.pid(), self.arguments.fast)?;
        let (seconds, huge_bytes) = self.wait_until_huge(server.pid(), &mut attached, asked)?;
        let taken_bytes = before - available()?;
        load.iter_mut().for_each(end);
        clients.as_ref().map_or(Ok(()), PgbenchClients::pause)?;
        record.attached.push(Attached { forecast, seconds, huge_bytes, taken_bytes });
        Ok(Running { server, clients, attached: Some(attached) })
    }

    /// A server whose memory is laid out as under the setup's settings.
    fn serve<'a>(&mut self, setup: PostgresSetup, data: &'a Data) -> Result<PostgresServer<'a>> {
        match setup {
            PostgresSetup::Always | PostgresSetup::Hugepilot => {
                let wanted = if setup == PostgresSetup::Always { "always" } else { "advise" };
                let before = self.settings.change("shmem_enabled", wanted)?;
                let started = data.serve(setup.huge_pages(), &self.stop);
                self.settings.change("shmem_enabled", &before)?;
                started
            }
            PostgresSetup::Pool => {
                let memory = Bytes(self.arguments.buffers().0);
                FilledPool::for_program(&self.settings, Bytes(HUGE_PAGE), memory)?.fill(&mut self.settings)?;
                data.serve(setup.huge_pages(), &self.stop)
            }
            PostgresSetup::Default | PostgresSetup::DefaultAgain => data.serve(setup.huge_pages(), &self.stop),
        }
    }

    /// Waits until nothing more becomes huge: the seconds until nine tenths were, and the total.
    fn wait_until_huge(&self, pid: u32, attached: &mut ToolProcess, asked: Instant) -> Result<(f64, u64)> {
        self.bar.set_message("waiting until the buffers are on huge pages");
        let mut seen: Vec<(Duration, u64)> = Vec::new();
        loop {
            attached.check()?;
            let (huge, now) = (huge_memory(pid)?.0, asked.elapsed());
            if seen.last().is_none_or(|&(_, before)| huge > before + huge / 100) {
                seen.push((now, huge));
            }
            let last = seen.last().map_or(now, |(at, _)| *at);
            if now - last > SETTLED || now > PATIENCE {
                let reached = seen.iter().find(|(_, bytes)| *bytes * 10 >= huge * 9);
                return Ok((reached.map_or(now, |(at, _)| *at).as_secs_f64(), huge));
            }
            self.stop.sleep_until(Instant::now() + POLL)?;
        }
    }

    fn turn(&self, round: u32, setup: PostgresSetup, running: &Running<'_>) -> Result<PostgresTurn> {
        self.bar.set_message(format!("round {}: {setup:?}", round + 1));
        let Running { server, clients, .. } = running;
        let load = self.arguments.load();
        let begun = Instant::now();
        let ends = begun + Duration::from_secs(load.seconds.into());
        let cpu_before = server.cpu_time()?;
        // Page tables near the end of the turn, and CPU time per second, in microseconds.
        let near_the_end = || {
            self.stop.sleep_until(ends - BEFORE_END)?;
            let cpu = Nanos(server.cpu_time()?.0 - cpu_before.0);
            Ok::<(u64, f64), anyhow::Error>((
                server.page_tables()?.0,
                1e6 * cpu.seconds() / begun.elapsed().as_secs_f64(),
            ))
        };
        let ((page_tables_bytes, cpu), per_second) = match clients {
            None => {
                let pgbench = server.load(&load)?;
                (near_the_end()?, told(pgbench)?)
            }
            Some(clients) => {
                clients.go_on()?;
                let seen = near_the_end()?;
                self.stop.sleep_until(ends)?;
                clients.pause()?;
                (seen, clients.between(begun, ends)?)
            }
        };
        Ok(PostgresTurn { round, setup, per_second, page_tables_bytes, cpu_us: cpu / per_second.max(1.0) })
    }

    /// hugepilot's share of one processor while it observes a server under load. It is not stopped before, because it would save up CPU time.
    fn observing_cpu_share(&self, running: &Running<'_>) -> Result<f64> {
        let (tool, clients) = running.attached.as_ref().zip(running.clients.as_ref()).context("nobody is observed")?;
        self.bar.set_message("what observing takes");
        clients.go_on()?;
        self.stop.sleep_until(Instant::now() + OBSERVED)?;
        let (before, began) = (tool.cpu_time()?, Instant::now());
        self.stop.sleep_until(began + OBSERVED)?;
        let share = (tool.cpu_time()? - before).as_secs_f64() / began.elapsed().as_secs_f64();
        clients.pause()?;
        Ok(share)
    }

    /// A turn with hugepilot at work and one with hugepilot stopped, in an order that changes from pair to pair.
    fn observed(&self, pair: u32, running: &Running<'_>) -> Result<Observed> {
        let tool = running.attached.as_ref().context("hugepilot is not attached")?;
        let mut seen = Observed { observed_per_second: 0.0, alone_per_second: 0.0 };
        for at_work in [pair.is_multiple_of(2), !pair.is_multiple_of(2)] {
            tool.signal(if at_work { Signal::CONT } else { Signal::STOP })?;
            let per_second = self.turn(pair, PostgresSetup::Hugepilot, running)?.per_second;
            if at_work {
                seen.observed_per_second = per_second;
            } else {
                seen.alone_per_second = per_second;
            }
        }
        tool.signal(Signal::CONT)?;
        Ok(seen)
    }

    /// A new server under constant load is left alone twice, and then promoted.
    fn felt(&mut self, data: &Data) -> Result<Felt> {
        self.bar.set_message("what clients notice");
        let server = self.serve(PostgresSetup::Hugepilot, data)?;
        let load = Load { seconds: 4, ..self.arguments.load() };
        let rate = told(server.load(&load)?)? * SHARE;
        let seconds = (2 * ALONE + PROMOTION).as_secs() as u32;
        let mut pgbench = server.load(&Load { seconds, rate: Some(rate), ..load })?;
        self.stop.sleep_until(Instant::now() + Duration::from_secs(2))?;
        let first = since_epoch();
        self.stop.sleep_until(Instant::now() + ALONE)?;
        let second = since_epoch();
        self.stop.sleep_until(Instant::now() + ALONE)?;
        let (began, asked) = (since_epoch(), Instant::now());
        let mut attached = self.tool.attach_family(server.pid(), self.arguments.fast)?;
        let (seconds, _) = self.wait_until_huge(server.pid(), &mut attached, asked)?;
        attached.end()?;
        end(&mut pgbench);
        let log = read_log(server.directory())?;
        server.stop()?;
        let seen = |from, to| -> Result<LoadSeen> {
            log.between(from, to, WINDOW).with_context(|| format!("pgbench logged nothing from {from} to {to}"))
        };
        // Not later than the end of the load.
        let ended = began + seconds.clamp(2.0, PROMOTION.as_secs_f64() - 4.0);
        Ok(Felt {
            alone: seen(first, second)?,
            alone_again: seen(second, began)?,
            promotion: seen(began, ended)?,
            seconds,
        })
    }
}

/// pgbench's output after its end.
fn told(pgbench: Child) -> Result<f64> {
    let output = pgbench.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    transactions_per_second(&String::from_utf8_lossy(&output.stdout)).with_context(|| said.trim().to_owned())
}

/// Ends pgbench early; its output is not used.
fn end(pgbench: &mut Child) {
    // Fails only if it has already ended.
    let _ = pgbench.kill();
    let _ = pgbench.wait();
}

/// Reads and removes the log files of pgbench's threads.
fn read_log(directory: &Path) -> Result<Log> {
    let mut log = Log::default();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"felt.")) {
            log.add(&std::fs::read_to_string(&path)?);
            std::fs::remove_file(&path)?;
        }
    }
    Ok(log)
}

fn since_epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        postgres: PostgresArguments,
    }

    fn parse(line: &str) -> Result<PostgresArguments, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.postgres)
    }

    #[test]
    fn a_quick_run_is_small() {
        let quick = parse("postgres --quick --script connect --clients 4").unwrap();
        assert_eq!(quick.buffers(), Bytes(1 << 29));
        let record = quick.empty_record(crate::machine::tests::machine());
        assert_eq!((record.rounds, record.clients, record.script), (2, 4, Script::Connect));
        assert_eq!(parse("postgres").unwrap().setups.len(), 4);
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["postgres --clients 0", "postgres --setups default,mine", "postgres --seconds 1"] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
