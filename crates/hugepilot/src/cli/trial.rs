//! `hugepilot trial`: huge pages tried on a running program, alternating with and without, until the gain is known.
//!
//! Owns: switching the program's memory, reading what it has done, and what is left behind. Never touches: the order of windows, or when the answer
//! is known ([`trial`]).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use daemon::args::DaemonOptions;
use daemon::control::ControlClient;
use heat::units::{Address, Bytes, CpuShare, HUGE_PAGE, Nanos};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::process::{cpu_time, threads};
use kernel::target::{Process, Target};
use observe::Whose;
use observe::system_calls::SystemCalls;
use observe::walk_cycles::{Instructions, WalkCycles};
use pilot::act::{Outcome, RegionResult};
use pilot::decide::{GainPercent, Plan, Reason, Spent};
use pilot::engine::{Pilot, Round};
use pilot::forecast::{Estimator, Forecast, ForecastBasis, Gauged, Gauges};
use pilot::machine::{FoundOn, Machine, TrialMark, WrittenMark, require};
use pilot::past_trials::{PastTrials, TRIALS, TrialOutcome, TriedProgram, WIDEST_KEPT};
use trial::meter::{CommandMeter, ExporterMeter, Meter, NumberKind, RunningTotal, SystemCallsMeter};
use trial::{
    Arm, CountedCycles, Moved, ProcessorCounts, SpeedChange, TrialEnd, TrialError, TrialRules, TrialVerdict,
    UnderTrial, WorkReading, judge, remedy,
};

use super::args::{LeaveIn, NumberIs, TrialArgs};
use super::forecast::estimator;
use super::promote::expect;
use super::settings::settings;
use super::target::{self, Named};
use super::triable::{ensure_may_be_tried, ensure_splits};
use super::{piloted, terminal};
use crate::report::{Expected, PlanReport, SYSTEM_CALLS, TrialReport, json, text, trial_plot};

/// How often a program is observed before its trial: a machine that stands still for a moment would spoil a single one.
const OBSERVATIONS: usize = 3;
/// So few in a window differ by chance more than most programs gain.
const TOO_FEW_SYSTEM_CALLS: f64 = 30.0;
/// From one reading to the next while it is found out what a number is.
const BETWEEN: Nanos = Nanos(500_000_000);

pub(super) fn trial(args: &TrialArgs) -> anyhow::Result<()> {
    require::acting(args.tracker)?;
    let Named { target, has_children } = target::find_one(&args.target)?;
    let (process, children) = (target.process(), has_children);
    let _elsewhere = observe::keep_away_from(process.pid);
    target.ensure_huge_pages_enabled()?;
    ensure_not_piloted(process, &args.daemon)?;
    terminal::ensure_read()?;
    let settings = settings(&args.watch(), &args.spend, &args.pace, CpuShare::default())?;
    let mut machine = Machine::new(observe::open(args.tracker)?, settings.max_slowdown);
    let mut pilot = Pilot::once(&mut machine, settings, Stop::on_signals(SecondSignal::Ends)?);
    if !args.placebo {
        ensure_may_be_tried(&mut pilot, process, children)?;
    }
    let work = work_of(args, &target, children, &pilot.stop)?;
    // Held until the end: one process is on one trial at a time.
    let mark = if args.placebo { None } else { Some(TrialMark::take(process)?) };
    let (earlier, mark) = match mark {
        Some(mark) => give_back_earlier(&mut pilot, process, mark)?,
        None => (Earlier::NONE, None),
    };
    let found = earlier.found;
    let (round, expected) =
        what_to_try(&mut pilot, process, children, args).with_context(|| earlier.what_was_done(process))?;
    if !args.placebo {
        ensure_splits(&mut pilot, process, &round)?;
    }
    let mut tried = Tried {
        pilot,
        process,
        round,
        children,
        work,
        processor: ProcessorCounters::start(process.pid, children),
        lies_on: Arm::Base,
        switched: None,
        moved: None,
        longest_stall: Nanos(0),
        placebo: args.placebo,
        began: Instant::now(),
        until: Some(Instant::now() + args.limit.duration()),
        is_half_done: false,
    };
    let rules = TrialRules {
        window: args.window,
        limit: args.limit,
        precision: args.precision,
        own_pages: !args.placebo && !earlier.gave_back,
        too_little_work: if args.rate.is_none() && args.query.is_none() { TOO_FEW_SYSTEM_CALLS } else { 0.0 },
        without_work: without_work(args),
    };
    say_how_long(&mut tried, &rules, args);
    let line = terminal::StatusLine::begin("Ctrl-C ends the trial and leaves memory as it was found");
    let progress = &mut |trial: &trial::Trial| line.show(&text::trial_under_way(trial, args.limit));
    let (trial, ended) = trial::run(&mut tried, &rules, &mut fastrand::Rng::new(), progress);
    drop(line);
    let moved = tried.moved;
    let verdict = match judge(&trial.by_cpu, args.precision, trial.elapsed) {
        TrialVerdict::Unknown { change: None, noise, .. } if !matches!(ended, TrialEnd::Failed(_)) => {
            let enough = remedy(&trial, &rules, moved.as_ref()).as_it_went;
            TrialVerdict::Unknown { change: None, noise, more_ns: Some(enough.saturating_sub(trial.elapsed)) }
        }
        verdict => verdict,
    };
    let intended = if args.placebo { Arm::Base } else { left_in(args.leave, &verdict, &ended, found) };
    // Whatever becomes of this, what was measured is reported.
    let leaving = tried.leave(intended);
    if let (Err(_), Some(mark)) = (&leaving, &mark) {
        mark.keep();
    }
    drop(mark);
    let report = TrialReport {
        pid: process.pid,
        name: &target.name,
        trial: &trial,
        verdict,
        is_over: !matches!(ended, TrialEnd::Failed(_)),
        switched: Bytes(tried.switched.unwrap_or(0) * HUGE_PAGE),
        to_switch: Bytes(tried.round.plan.promotions().count() as u64 * HUGE_PAGE),
        moved,
        rules: &rules,
        longest_stall: tried.longest_stall,
        counted: counted(args),
        left: tried.lies_on,
        found,
        placebo: args.placebo,
        expected: &expected,
    };
    terminal::print(&if args.json { json::trial(&report) } else { text::trial(&report) })?;
    leaving?;
    if report.is_over && !args.placebo && !args.forecast.no_calibration {
        keep_outcome(process, &expected, &trial);
    }
    if let Some(path) = &args.plot
        && let Some(svg) = trial_plot::draw(&report)?
    {
        picture::save(&svg, path)?;
    }
    match ended {
        TrialEnd::Known | TrialEnd::TimeIsUp => Ok(()),
        TrialEnd::Failed(error) => {
            Err(error).with_context(|| format!("the trial of process {} ended early", process.pid))
        }
    }
}

/// Errors: a daemon pilots the process, and would switch its memory meanwhile.
fn ensure_not_piloted(process: Process, daemon: &DaemonOptions) -> anyhow::Result<()> {
    let target = piloted::target_of(&ControlClient::at(&daemon.socket), process).ok().flatten();
    if target.is_some_and(|target| piloted::acts_on(&target)) {
        let pid = process.pid;
        bail!(
            "hugepilotd pilots process {pid} and would switch its memory, too; `hugepilot pause {pid}` first, and `hugepilot resume {pid}` afterwards"
        );
    }
    Ok(())
}

/// What the program does, counted as the user asked. Errors: it cannot be counted.
fn work_of(args: &TrialArgs, target: &Target, children: bool, stop: &Stop) -> anyhow::Result<RunningTotal> {
    let mut meter: Box<dyn Meter> = match (&args.rate, &args.prometheus, &args.query) {
        (Some(command), ..) => Box::new(CommandMeter(command.clone())),
        (None, Some(url), Some(query)) => Box::new(ExporterMeter { url: url.clone(), query: query.clone() }),
        _ => {
            let whose = if children { Whose::AndTheirChildren } else { Whose::Theirs };
            let calls = SystemCalls::begin([target.pid()].into_iter(), whose)?;
            return Ok(RunningTotal::new(Box::new(SystemCallsMeter(calls)), NumberKind::Total));
        }
    };
    let kind = match args.number {
        NumberIs::Total => NumberKind::Total,
        NumberIs::Rate => NumberKind::Rate,
        NumberIs::Auto => {
            let finding = terminal::spinner("finding out whether the number is a running total or a rate".to_owned());
            let rest = || stop.sleep_until(Instant::now() + BETWEEN.duration()).map_err(anyhow::Error::from);
            let kind = NumberKind::find_out(meter.as_mut(), rest)?;
            drop(finding);
            let word = if kind == NumberKind::Total { "running total" } else { "rate a second" };
            terminal::note(&format!("the number is taken for a {word} (--number says what it is)"));
            kind
        }
    };
    Ok(RunningTotal::new(meter, kind))
}

/// What was there before the trial.
struct Earlier {
    /// What memory was found on.
    found: Arm,
    /// Whether something was given back, so that it can be tried.
    gave_back: bool,
}

impl Earlier {
    const NONE: Self = Self { found: Arm::Base, gave_back: false };

    /// For who learns that there is nothing to try.
    fn what_was_done(&self, process: Process) -> String {
        match self.gave_back {
            false => format!("nothing was changed in process {}", process.pid),
            true => {
                format!("what was promoted earlier is given back; `hugepilot promote {}` promotes anew", process.pid)
            }
        }
    }
}

/// Gives back what was promoted earlier, so that it can be tried, after it was written down.
fn give_back_earlier(
    pilot: &mut Pilot<'_>,
    process: Process,
    mark: TrialMark,
) -> anyhow::Result<(Earlier, Option<WrittenMark>)> {
    let earlier = pilot.plan_to_give_back(process, false)?;
    let regions: Vec<Address> = earlier.plan.give_backs().map(|decision| decision.start).collect();
    let as_it_lies = if regions.is_empty() { FoundOn::BasePages } else { FoundOn::HugePages };
    let (found, was_killed) = (mark.of_killed().unwrap_or(as_it_lies), mark.of_killed().is_some());
    let mark = mark.write(process, found)?;
    if !regions.is_empty() {
        let of_killed = if was_killed { " (a trial was killed)" } else { "" };
        terminal::note(&format!(
            "{} regions were promoted earlier{of_killed}; they are to be given back, and tried",
            regions.len()
        ));
        let stop = pilot.stop.clone();
        let results = pilot.give_back(process, &regions, &stop, &mut |_| ());
        if !results.is_empty() && !results.iter().any(RegionResult::is_done) {
            bail!(
                "the kernel does not split these huge pages again, as where several processes map the same memory, so the memory of process {} cannot \
                 be tried by turns; nothing was changed. Compare what the program does before and after a restart, which leaves it on base pages",
                process.pid
            );
        }
    }
    let found = match found {
        FoundOn::BasePages => Arm::Base,
        FoundOn::HugePages => Arm::Huge,
    };
    Ok((Earlier { found, gave_back: !regions.is_empty() }, Some(mark)))
}

/// Observes what would be promoted, and what that should gain. Errors: nothing would, unless it is for a placebo; the reasons are printed.
fn what_to_try(
    pilot: &mut Pilot<'_>,
    process: Process,
    children: bool,
    args: &TrialArgs,
) -> anyhow::Result<(Round, Expected)> {
    let observing = terminal::spinner(format!("observing process {}", process.pid));
    let (round, gauged) = middle_of_several(pilot, process, children)?;
    drop(observing);
    let estimator = estimator(process, round.family.footprint, &args.forecast);
    let Round { plan, heat, family, growth_limit, .. } = &round;
    let gauged = gauged.with_smaller_pages(&Root::host(), heat, plan);
    let forecast = Forecast::of(plan, heat, family, gauged, &estimator);
    if args.placebo || plan.promotions().next().is_some() {
        let by_model = Forecast::of(plan, heat, family, gauged, &Estimator::of_model(estimator.cost));
        let basis = ForecastBasis::of(plan, heat, family, gauged, &estimator.cost);
        return Ok((round, Expected { forecast, by_model, basis }));
    }
    let clearing = heat.clearing;
    let (family, growth_limit) = (*family, *growth_limit);
    let report =
        PlanReport { plan, family, growth_limit, clearing, forecast, basis: None, doubt: None, expectation: None };
    eprint!("{}", text::plan_of_nothing_done(&report));
    let pid = process.pid;
    let next_step = match grows_by(plan) {
        Bytes(0) => format!("`hugepilot explain {pid}` says more"),
        grows_by => {
            let mebibytes = grows_by.0.div_ceil(1 << 20);
            format!("`--max-growth {mebibytes}M` would try what only the limit on growth keeps on base pages")
        }
    };
    bail!("nothing to try: none of the memory of process {pid} would be promoted, for the reasons above; {next_step}")
}

/// What would be promoted if it might grow so much.
fn grows_by(plan: &Plan) -> Bytes {
    let kept = plan.decisions.iter().filter(|decision| decision.reason == Reason::GrowthLimit);
    kept.map(|decision| decision.growth).sum()
}

/// Says what a pair of windows takes, and whether there is time for enough of them.
fn say_how_long(tried: &mut Tried<'_>, rules: &TrialRules, args: &TrialArgs) {
    if tried.placebo || args.json {
        return;
    }
    let Some(expectation) = expect(&tried.round, &mut tried.pilot) else { return };
    let (pair, fewest) = (rules.shortest_pair(expectation.elapsed), rules.shortest(expectation.elapsed));
    terminal::note(&format!(
        "each pair of windows moves {} to huge pages and back, in about {pair}, longer on a busy machine; the answer takes four pairs or more, about \
         {fewest}",
        Bytes(expectation.regions * HUGE_PAGE)
    ));
    if fewest > args.limit {
        let max_slowdown = expectation.max_slowdown;
        let moved = Moved { share: 1.0, took: expectation.elapsed, busy: Nanos(0), max_slowdown, is_reduced: false };
        let next_step = text::trial_next_step(&remedy(&trial::Trial::default(), rules, Some(&moved)), args.limit);
        terminal::note(&format!("that may be too much for {}: try less (--max-huge), {next_step}", args.limit));
    }
}

/// Observes several times, and takes the round in the middle by what its plan saves: others hide page walks, and a few reads overstate them. Rounds
/// that tell whether walks are scattered count before those that do not.
fn middle_of_several(pilot: &mut Pilot<'_>, process: Process, children: bool) -> anyhow::Result<(Round, Gauged)> {
    let mut rounds = Vec::new();
    for _ in 0..OBSERVATIONS {
        let mut gauges = Gauges::start(process.pid);
        let round = pilot.scan(process, children, &Spent::default())?;
        rounds.push((round, gauges.read()));
    }
    let tells = |(round, _): &(Round, Gauged)| round.plan.walks.scattered.is_some();
    if rounds.iter().any(tells) {
        rounds.retain(tells);
    }
    let saves = |(round, _): &(Round, Gauged)| round.plan.walks_saved_per_second();
    rounds.sort_by(|one, other| saves(one).total_cmp(&saves(other)));
    Ok(rounds.swap_remove(rounds.len() / 2))
}

/// Keeps what came beside what was expected; a forecast does without it where that fails.
fn keep_outcome(process: Process, expected: &Expected, trial: &trial::Trial) {
    if expected.basis.is_soon_gone() {
        return terminal::note(
            "forecasts stay as they were: memory that is soon gone, as the program maps much new, tells nothing of what page walks cost",
        );
    }
    if trial.own_pages_were_slower() {
        // Forecasts are about a program's own pages, of which its pairs tell too little.
        return;
    }
    let Some((expected, change)) = expected.by_model.gain().zip(trial.by_cpu.change()) else { return };
    let SpeedChange { estimate, low, high } = change;
    let [likely, low, high] = [estimate, low, high].map(|share| 100.0 * share);
    let gained = GainPercent { low, likely, high };
    let precision = gained.half_width();
    if precision > WIDEST_KEPT {
        return terminal::note(&format!(
            "forecasts stay as they were: a gain that is known to within {precision:.1} % does not correct them; {WIDEST_KEPT} % would"
        ));
    }
    let program = TriedProgram::of(&Root::host(), process);
    if let Some(outcome) = TrialOutcome::of(program, expected, gained)
        && let Err(error) = PastTrials::keep(Path::new(TRIALS), outcome)
    {
        terminal::note(&error.to_string());
    }
}

fn left_in(asked: LeaveIn, verdict: &TrialVerdict, ended: &TrialEnd, found: Arm) -> Arm {
    match (asked, verdict) {
        _ if matches!(ended, TrialEnd::Failed(_)) => found,
        (LeaveIn::Promoted, _) => Arm::Huge,
        (LeaveIn::AsFound, _) => found,
        (LeaveIn::Better, TrialVerdict::Gain { .. }) => Arm::Huge,
        (LeaveIn::Better, TrialVerdict::Loss { .. } | TrialVerdict::NoChange { .. }) => Arm::Base,
        (LeaveIn::Better, TrialVerdict::Unknown { .. }) => found,
    }
}

/// What is counted, in words.
fn counted(args: &TrialArgs) -> &str {
    match (&args.rate, &args.query) {
        (Some(command), _) => command,
        (None, Some(query)) => query,
        (None, None) => SYSTEM_CALLS,
    }
}

fn without_work(args: &TrialArgs) -> &'static str {
    if args.prometheus.is_some() {
        "its number did not grow; a Prometheus server has a new one every 15 to 60 s: give longer windows (--window), or the exporter's own page"
    } else if args.rate.is_some() {
        "the number that the command prints did not grow; try again while the program works, or with longer windows (--window)"
    } else {
        "the program makes hardly any system calls; count its work by a command (--rate) or a metric (--prometheus)"
    }
}

/// The program under trial.
struct Tried<'a> {
    pilot: Pilot<'a>,
    process: Process,
    round: Round,
    children: bool,
    work: RunningTotal,
    processor: ProcessorCounters,
    lies_on: Arm,
    /// The fewest regions that any promotion put on huge pages.
    switched: Option<u64>,
    /// How the last promotion went.
    moved: Option<Moved>,
    /// While any of them was under way.
    longest_stall: Nanos,
    placebo: bool,
    began: Instant,
    /// Promoting goes on no longer; None while memory is left as it should be.
    until: Option<Instant>,
    /// Whether that ended a promotion, so that a part of the memory lies on each.
    is_half_done: bool,
}

/// What the processor counts of the program, and of children that it forks meanwhile.
struct ProcessorCounters {
    instructions: Option<Instructions>,
    walks: Option<WalkCycles>,
}

impl ProcessorCounters {
    /// Each thread takes a descriptor, and three more where walks are counted.
    const MOST_THREADS: usize = 100;

    fn start(pid: u32, with_children: bool) -> Self {
        let root = Root::host();
        let threads = threads(&root, pid).map_or(usize::MAX, |threads| threads.len());
        // CPU time is of children that there were before, too.
        if with_children || threads > Self::MOST_THREADS {
            return Self { instructions: None, walks: None };
        }
        Self { instructions: Instructions::start(&root, pid), walks: WalkCycles::start(&root, pid) }
    }

    fn read(&mut self) -> Option<ProcessorCounts> {
        let instructions = self.instructions.as_mut()?.counted()?;
        let walks = self.walks.as_mut().and_then(WalkCycles::counted);
        Some(ProcessorCounts { instructions, walks: walks.map(|[all, of_walks]| CountedCycles { all, of_walks }) })
    }
}

impl Tried<'_> {
    /// Leaves memory so, also after a signal; a second one ends the command at once. A program that has ended has none.
    fn leave(&mut self, arm: Arm) -> anyhow::Result<()> {
        if (self.lies_on != arm || self.is_half_done) && self.pilot.world.lives(self.process) {
            self.pilot.stop = Stop::default();
            self.until = None;
            self.switch(arm)
                .context("its memory could not be left as intended; `hugepilot give-back` undoes what was promoted")?;
        }
        Ok(())
    }

    fn promote(&mut self) -> Result<(), TrialError> {
        let failed = |error: observe::ObserveError| TrialError::Other(error.into());
        let round = self.pilot.plan_again(self.process, &self.round).map_err(failed)?;
        let (until, late, signals) = (self.until, Stop::default(), self.pilot.stop.clone());
        let began = Instant::now();
        self.pilot.stop = signals.or(&late);
        let acted = self.pilot.act(self.process, &round, &mut |_| {
            if until.is_some_and(|until| Instant::now() > until) {
                late.request();
            }
        });
        self.pilot.stop = signals;
        let outcome = acted.map_err(failed)?;
        self.note_moved(&outcome, began.elapsed());
        let longest = outcome.waited.map_or(outcome.longest, |waited| waited.longest);
        self.longest_stall = self.longest_stall.max(longest);
        self.pilot.stop.check().map_err(|_| TrialError::Stopped)?;
        if late.requested() && outcome.not_reached > 0 {
            self.is_half_done = true;
            return Err(TrialError::TimeIsUp);
        }
        if outcome.applied == 0 {
            let why = format!("none of {} regions could be promoted; `hugepilot promote` says why", outcome.tried);
            return Err(TrialError::Other(why.into()));
        }
        self.switched = Some(self.switched.map_or(outcome.applied, |least| least.min(outcome.applied)));
        Ok(())
    }

    fn note_moved(&mut self, outcome: &Outcome, took: Duration) {
        self.moved = (outcome.tried > 0).then(|| Moved {
            share: outcome.tried as f64 / (outcome.tried + outcome.not_reached) as f64,
            took: Nanos::from_duration(took),
            busy: outcome.busy + outcome.preparing,
            max_slowdown: self.pilot.max_slowdown(),
            is_reduced: self.pilot.is_pace_reduced(),
        });
    }

    fn give_back(&mut self) -> Result<(), TrialError> {
        let regions: Vec<Address> = self.round.plan.promotions().map(|decision| decision.start).collect();
        // What is half given back when a signal comes is given back when memory is left.
        let stop = self.pilot.stop.clone();
        let results = self.pilot.give_back(self.process, &regions, &stop, &mut |_| ());
        if !results.is_empty() && !results.iter().any(RegionResult::is_done) {
            let why = format!("none of {} huge pages could be split; `hugepilot give-back` says why", results.len());
            return Err(TrialError::Other(why.into()));
        }
        Ok(())
    }
}

impl UnderTrial for Tried<'_> {
    fn switch(&mut self, to: Arm) -> Result<(), TrialError> {
        // It may be half done when a signal comes.
        self.lies_on = Arm::Huge;
        if !self.placebo {
            match to {
                Arm::Huge => self.promote()?,
                Arm::Base => self.give_back()?,
            }
        }
        self.pilot.stop.check().map_err(|_| TrialError::Stopped)?;
        if !self.pilot.world.lives(self.process) {
            return Err(TrialError::Exited);
        }
        self.lies_on = to;
        Ok(())
    }

    fn read(&mut self) -> Result<WorkReading, TrialError> {
        let status = self.pilot.world.status(self.process).ok_or(TrialError::Exited)?;
        let at = Nanos::from_duration(self.began.elapsed());
        let work = self.work.read(at).map_err(|error| TrialError::Other(error.into()))?;
        let cpu = if self.children {
            self.pilot.world.family_usage(self.process).map(|usage| usage.cpu_time)
        } else {
            cpu_time(&Root::host(), self.process.pid)
        };
        let cpu =
            cpu.map_err(|error| if error.is_gone() { TrialError::Exited } else { TrialError::Other(error.into()) })?;
        Ok(WorkReading { at, work, cpu, memory: status.vm_rss, processor: self.processor.read() })
    }

    fn rest(&mut self, time: Nanos) -> Result<(), TrialError> {
        let (until, stop) = (self.pilot.world.now() + time.duration(), self.pilot.stop.clone());
        self.pilot.world.sleep_until(until, &stop).map_err(|_| TrialError::Stopped)
    }
}
