//! One process of a workload, from warm memory to its end, with a turn for each configuration measured in it.
//!
//! Owns: the order of steps. Never touches: the order of turns.
//!
//! warm → settings → start and populate → settle → (act → wait → measure) → end. The load runs from the start, because a tracker sees nothing of an
//! idle program; the measurement is a window of it. Most processes are measured under one configuration, and every configuration waits equally long
//! after the time at which a tool would act, so that all windows are alike.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use heat::units::{Address, Bytes, GIANT_PAGE, HUGE_PAGE};
use hugepilot_os::stop::Stop;

use crate::configuration::{Act, Configuration};
use crate::pool::{self, FilledPool, PoolUse};
use crate::record::{ToolRun, Turn};
use crate::sample::{MemorySampler, ProgramMemory, cpu_time, exact_memory, huge_memory, huge_ranges, machine_memory};
use crate::settings::SavedSettings;
use crate::tool::{OwnDaemon, Tool, ToolProcess};
use crate::warm::WarmMemory;
use crate::workload::{Progress, Role, Running, SearchWork, Start, Work, Workload, leave_alone};
use crate::{ideal, launch};

/// Longest time between two polls of a measured program.
const POLL: Duration = Duration::from_millis(20);
/// The poll interval for khugepaged, which must be stopped soon after it reaches the limit.
const SHORT_POLL: Duration = Duration::from_millis(5);
/// If khugepaged takes longer, it has met an obstacle, and the program is measured as it is; a daemon has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// A program without progress for this long is not measured.
const LONGEST_STALL: Duration = Duration::from_secs(20);

/// How long the steps take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the start of the load to the act.
    pub settle: Duration,
    /// From the act to measuring; longer if the tool takes longer.
    pub wait: Duration,
    /// The length of the measurement; longer if it has fewer samples than wanted, or none at all.
    pub measure: Duration,
    /// The number of samples wanted before measuring ends.
    pub samples: usize,
    /// Measure from the act on, until so many operations are done.
    pub operations: Option<u64>,
}

/// Everything a turn needs.
pub struct Bench<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The machine's settings.
    pub settings: &'a mut SavedSettings,
    /// hugepilot, if a configuration needs it.
    pub tool: Option<&'a Tool>,
    /// How long the steps take.
    pub timing: Timing,
    /// The request to stop.
    pub stop: &'a Stop,
}

/// A machine that is ready for the program's start.
struct Prepared {
    warm_memory: WarmMemory,
    /// When its memory was warm.
    warm: Instant,
    pool: Option<PoolUse>,
}

/// A program under load.
struct Process {
    round: u32,
    began: Instant,
    /// When its memory was populated and its load was running.
    ready: Instant,
    /// The machine's available memory before all else.
    available_bytes: u64,
    prepared: Prepared,
    running: Box<dyn Running>,
}

/// What was observed in a turn besides the measurement.
struct Seen {
    act: Instant,
    acted: Option<ToolRun>,
    before: ProgramMemory,
    after: ProgramMemory,
}

struct Measured {
    window: Work,
    start: Instant,
    end: Instant,
    cpu: Duration,
    observed: Option<ToolRun>,
}

/// The result of the act.
enum Acted {
    Nothing,
    Done(ToolRun),
    /// A pilot that is still running.
    Piloting(ToolProcess),
}

impl Bench<'_> {
    /// Runs one process, and measures these configurations in it one after the other.
    pub fn process(&mut self, round: u32, configurations: &[Configuration]) -> Result<Vec<Turn>> {
        let Some(&first) = configurations.first() else { return Ok(Vec::new()) };
        let began = Instant::now();
        let kept = self.leave_room(first)?;
        let machine = machine_memory()?;
        let prepared = self.prepare(first)?;
        let launcher = launch::words(first, self.tool, prepared.pool)?;
        let host = first.is_client().then(|| start_host(self.tool()?, self.stop)).transpose()?;
        let socket = host.as_ref().map(OwnDaemon::socket);
        let running = self.workload.start(self.start_of(first, socket.as_deref(), &launcher), self.stop)?;
        let ready = Instant::now();
        let sampler = MemorySampler::start(running.pid(), ready, machine.anon_huge.0, prepared.warm_memory.held());
        let available_bytes = machine.available.0 + kept;
        let mut process = Process { round, began, ready, available_bytes, prepared, running };
        self.leave_alone(&mut *process.running, ready + self.timing.settle)?;
        let alone = configurations.len() == 1;
        let mut turns = configurations
            .iter()
            .map(|&configuration| self.turn(configuration, &mut process, alone))
            .collect::<Result<Vec<Turn>>>()?;
        if let Some(last) = turns.last_mut() {
            last.memory_over_time = sampler.finish();
            last.throughput_over_time = process.running.progress().over_time(ready);
        }
        // Before the settings are restored, so that the program never runs under other settings than its own.
        drop(process);
        host.map_or(Ok(()), |host| host.process.end())?;
        self.settings.restore()?;
        Ok(turns)
    }

    /// One turn of a running program. If the configuration has the process for itself, it waits as long as if a tool had acted.
    fn turn(&mut self, configuration: Configuration, process: &mut Process, alone: bool) -> Result<Turn> {
        let before = process.memory()?;
        let (act, cpu_at_act) = (Instant::now(), cpu_time(process.running.pid())?);
        let acted = self.act(configuration, &*process.running).with_context(|| format!("acting as {configuration}"))?;
        if self.timing.operations.is_none() && (alone || !matches!(acted, Acted::Nothing)) {
            self.leave_alone(&mut *process.running, act + self.timing.wait)?;
        }
        process.prepared.warm_memory.stop_feeding();
        let measured = self.measure(configuration, &mut *process.running, (act, cpu_at_act))?;
        let seen = Seen { act, acted: acted.end()?, before, after: process.memory()? };
        let hottest_huge_share = self.hottest_huge_share(&*process.running)?;
        Ok(Turn { hottest_huge_share, ..process.told(configuration, seen, measured) })
    }

    /// A quarter more than the program takes: collapsing needs free memory beside it.
    fn needed_bytes(&self) -> u64 {
        self.workload.memory_bytes() / 4 * 5
    }

    /// Sees to it that the program has room beside the pages of 1 GiB that are kept; what of these is there for the program itself.
    fn leave_room(&mut self, configuration: Configuration) -> Result<u64> {
        if configuration.pool() == Some(Bytes(GIANT_PAGE)) {
            return pool::kept_bytes(self.settings);
        }
        pool::leave_room(self.settings, Bytes(self.needed_bytes()))?;
        Ok(0)
    }

    /// Warms memory, then writes the settings, the size of the pool among them.
    fn prepare(&mut self, configuration: Configuration) -> Result<Prepared> {
        let memory = Bytes(self.workload.memory_bytes());
        let pool = configuration.pool().map(|page| FilledPool::for_program(self.settings, page, memory)).transpose()?;
        // What the pool holds is nobody's to warm.
        let pooled = pool.as_ref().map_or(0, FilledPool::bytes);
        let warm_memory = WarmMemory::touch(self.needed_bytes().saturating_sub(pooled).max(HUGE_PAGE), self.stop)?;
        let warm = Instant::now();
        self.settings.apply(configuration.settings())?;
        let pool = pool.map(|pool| pool.fill(self.settings)).transpose()?;
        Ok(Prepared { warm_memory, warm, pool })
    }

    fn start_of<'s>(
        &self,
        configuration: Configuration,
        socket: Option<&'s Path>,
        launcher: &'s [OsString],
    ) -> Start<'s> {
        let role = match configuration {
            Configuration::Tracked => Role::KeepsAll,
            Configuration::LibhpsTenth => Role::ConvertsWithin(self.part(10)),
            _ => Role::Converts,
        };
        match socket {
            Some(socket) => Start::Client { socket, role },
            None if configuration == Configuration::LibhpsIdle => Start::IdleClient,
            None if configuration.uses_own_switch() => Start::OwnSwitch,
            None if !launcher.is_empty() => Start::Launched { by: launcher },
            None => Start::AsItIs,
        }
    }

    fn act(&mut self, configuration: Configuration, running: &dyn Running) -> Result<Acted> {
        let (pid, limit) = (running.pid(), self.quarter());
        let done = match configuration.act() {
            Act::Nothing | Act::Observe => return Ok(Acted::Nothing),
            Act::Pilot { one_in } => {
                return self.tool()?.attach(pid, true, Some(self.part(one_in))).map(Acted::Piloting);
            }
            Act::CollapseAll => ideal::collapse_all(pid, self.stop)?,
            Act::CollapseHottest => ideal::collapse(pid, ranked(running, limit)?, self.stop)?,
            Act::CollapseColdest => {
                let all = ranked(running, Bytes(self.workload.memory_bytes()))?;
                ideal::collapse(pid, all[(limit.0 / HUGE_PAGE) as usize..].to_vec(), self.stop)?
            }
            Act::Khugepaged(settings) => self.run_khugepaged(pid, settings, limit)?,
            Act::Explain => self.tool()?.explain(pid, self.stop)?,
            Act::Promote(arguments) => self.tool()?.run_on("promote", pid, arguments, self.stop)?,
        };
        Ok(Acted::Done(done))
    }

    fn hottest_huge_share(&self, running: &dyn Running) -> Result<Option<f64>> {
        let Some(hottest) = running.hottest_regions(self.quarter()) else { return Ok(None) };
        let huge = huge_ranges(running.pid())?;
        let is_huge = |region: &&Address| huge.iter().any(|range| range.contains(**region));
        Ok(Some(hottest.iter().filter(is_huge).count() as f64 / hottest.len().max(1) as f64))
    }

    fn quarter(&self) -> Bytes {
        self.part(4)
    }

    fn part(&self, one_in: u64) -> Bytes {
        Bytes(self.workload.memory_bytes() / one_in)
    }

    fn run_khugepaged(&mut self, pid: u32, settings: &[(&str, &str)], limit: Bytes) -> Result<ToolRun> {
        let started = Instant::now();
        self.settings.apply(settings)?;
        while huge_memory(pid)? < limit && started.elapsed() < PATIENCE {
            self.stop.sleep_until(Instant::now() + SHORT_POLL)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.settings.apply(&[("enabled", "never")])?;
        Ok(ToolRun { seconds, output: serde_json::json!({ "huge_bytes": huge_memory(pid)? }) })
    }

    fn tool(&self) -> Result<&Tool> {
        self.tool.context("this configuration needs hugepilot")
    }

    fn leave_alone(&self, running: &mut dyn Running, until: Instant) -> Result<()> {
        leave_alone(&mut [running], until, self.stop)
    }

    /// Measures in a window from now on, or from the act on if a number of operations is wanted.
    fn measure(
        &self,
        configuration: Configuration,
        running: &mut dyn Running,
        act: (Instant, Duration),
    ) -> Result<Measured> {
        let observer = match configuration.act() {
            Act::Observe => Some(self.tool()?.start_on("heat", running.pid(), &["--for", "10m"])?),
            _ => None,
        };
        let (start, cpu_before) = match self.timing.operations {
            None => (Instant::now(), cpu_time(running.pid())?),
            Some(_) => act,
        };
        let is_enough = |progress: &Progress| match self.timing.operations {
            None => start.elapsed() >= self.timing.measure && progress.count() >= self.timing.samples,
            Some(operations) => progress.window(start, Instant::now()).operations >= operations,
        };
        while !is_enough(running.progress()) {
            self.leave_alone(running, Instant::now() + POLL)?;
        }
        let stalled_until = Instant::now() + LONGEST_STALL;
        while running.progress().window(start, Instant::now()).operations == 0 && Instant::now() < stalled_until {
            self.leave_alone(running, Instant::now() + POLL)?;
        }
        let (end, cpu) = (Instant::now(), cpu_time(running.pid())?.saturating_sub(cpu_before));
        let observed = observer.map(ToolProcess::end_watching).transpose()?;
        let window = running.progress().window(start, end);
        ensure!(window.operations > 0, "nothing was measured in {:?}: measure longer with --seconds", end - start);
        window.search.as_ref().map_or(Ok(()), SearchWork::ensure_found)?;
        Ok(Measured { window, start, end, cpu, observed })
    }
}

impl Process {
    fn memory(&self) -> Result<ProgramMemory> {
        exact_memory(self.running.pid(), &self.prepared.warm_memory.held())
    }

    /// A turn's numbers; those over its whole time are not known yet.
    fn told(&self, configuration: Configuration, seen: Seen, measured: Measured) -> Turn {
        let Measured { window, start, end, cpu, observed } = measured;
        let warm = self.prepared.warm;
        let since_ready = |time: Instant| time.duration_since(self.ready).as_secs_f64();
        let wall = end.duration_since(start).as_secs_f64();
        let latency = |share| window.latencies.as_ref().and_then(|latencies| latencies.percentile(share));
        Turn {
            round: self.round,
            configuration,
            seconds: self.began.elapsed().as_secs_f64(),
            warm_seconds: warm.duration_since(self.began).as_secs_f64(),
            start_seconds: self.ready.duration_since(warm).as_secs_f64(),
            act_seconds: since_ready(seen.act),
            window_start_seconds: since_ready(start),
            window_end_seconds: since_ready(end),
            throughput: window.throughput(),
            p50_ns: latency(0.50),
            p99_ns: latency(0.99),
            cpu_ns_per_operation: cpu.as_nanos() as f64 / (window.throughput() * wall),
            cpu_share: cpu.as_secs_f64() / wall,
            before: seen.before,
            after: seen.after,
            available_at_start_bytes: self.available_bytes,
            tool: seen.acted.or(observed),
            hottest_huge_share: None,
            search: window.search,
            pool: self.prepared.pool,
            throughput_over_time: Vec::new(),
            memory_over_time: Vec::new(),
        }
    }
}

/// Starts a daemon that serves clients and has no targets.
fn start_host(tool: &Tool, stop: &Stop) -> Result<OwnDaemon> {
    let mut host = tool.daemon_with("[[target]]\nname = 'nobody'\n")?;
    let until = Instant::now() + PATIENCE;
    // The socket exists before anybody listens on it.
    while UnixStream::connect(host.socket()).is_err() {
        stop.sleep_until(Instant::now() + SHORT_POLL)?;
        host.process.check()?;
        ensure!(Instant::now() < until, "hugepilotd did not listen within {} s", PATIENCE.as_secs());
    }
    Ok(host)
}

/// The regions that a program reads most, together as large as `memory`.
fn ranked(running: &dyn Running, memory: Bytes) -> Result<Vec<Address>> {
    running.hottest_regions(memory).context("this program does not know what it reads most")
}

impl Acted {
    /// Ends a tool that is still running, and returns what was done.
    fn end(self) -> Result<Option<ToolRun>> {
        match self {
            Acted::Nothing => Ok(None),
            Acted::Done(run) => Ok(Some(run)),
            Acted::Piloting(process) => process.interrupt().map(Some),
        }
    }
}
