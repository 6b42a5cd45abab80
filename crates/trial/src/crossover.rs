//! The order of a trial: switch, wait until the speed has settled, measure; pair after pair.
//!
//! Owns: that order, and the windows. Never touches: the program; an [`UnderTrial`] does.

use heat::statistics::median;
use heat::units::{Bytes, Nanos};
use serde::Serialize;

use crate::interval::{PairedDifferences, SpeedChange};
use crate::judge::is_known;
use crate::settle::has_settled;

/// From one reading to the next while the speed settles.
const SAMPLE: Nanos = Nanos(250_000_000);
/// How long the speed takes to settle at least: as many readings as [`has_settled`] compares.
const SHORTEST_SETTLING: Nanos = Nanos(4 * SAMPLE.0);
/// How long the speed may take to settle; then a window begins anyway.
const LONGEST_SETTLING: Nanos = Nanos(15_000_000_000);
/// Windows shorter than this depend on when a program happens to count its work.
const SHORTEST_WINDOW: Nanos = Nanos(3_000_000_000);
/// Longer ones would leave a trial of some minutes too few pairs.
const LONGEST_WINDOW: Nanos = Nanos(10_000_000_000);
/// Measured before memory is first switched: enough that no single one decides.
const OWN_WINDOWS: usize = 4;
/// Fewer bound no change ([`PairedDifferences::change`]).
const FEWEST_PAIRS: u64 = 4;
/// Less than this, as a share of the speed, is not worth a word.
const CLEARLY: f64 = 0.02;
/// A program that uses less of a CPU does not show what huge pages do for it.
const LEAST_CPU: f64 = 0.005;
/// How often a window in which too little was done is prolonged by its length before that ends the trial.
const MOST_PROLONGED: u32 = 3;

/// What the program's memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Base pages, as without hugepilot.
    Base,
    /// Huge pages, where they are expected to pay.
    Huge,
}

/// What a program has done and used so far; all but memory only grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkReading {
    /// When, from any point on.
    pub at: Nanos,
    /// Work, in any unit.
    pub work: f64,
    /// CPU time.
    pub cpu: Nanos,
    /// Resident memory at present.
    pub memory: Bytes,
    /// What the processor counted so far; None where it counts nothing, as in most virtual machines.
    pub processor: Option<ProcessorCounts>,
}

/// What the processor counted of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorCounts {
    /// Instructions.
    pub instructions: f64,
    /// Cycles; None where page walks are not counted.
    pub walks: Option<CountedCycles>,
}

/// Cycles of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CountedCycles {
    /// In which it ran.
    pub all: f64,
    /// In which a page walk was under way, at most.
    pub of_walks: f64,
}

/// A measured time in one arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrialWindow {
    /// What memory lay on.
    pub arm: Arm,
    /// When it began, from the trial's beginning on.
    pub began_ns: Nanos,
    /// How long it was.
    pub elapsed_ns: Nanos,
    /// CPU time that the program had.
    pub cpu_ns: Nanos,
    /// Work that the program did.
    pub work: f64,
    /// Its resident memory at the end.
    pub memory_bytes: Bytes,
    /// What the processor counted.
    pub processor: Option<ProcessorCounts>,
}

/// A program under trial.
pub trait UnderTrial {
    /// Moves its memory. Errors: it has ended, or a stop was requested.
    fn switch(&mut self, to: Arm) -> Result<(), TrialError>;

    /// What it has done. Errors: it has ended, or its work cannot be counted.
    fn read(&mut self) -> Result<WorkReading, TrialError>;

    /// Waits. Errors: a stop was requested.
    fn rest(&mut self, time: Nanos) -> Result<(), TrialError>;
}

/// Why a trial cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A signal.
    #[error("stopped by a signal")]
    Stopped,
    /// The program.
    #[error("the program has ended")]
    Exited,
    /// It hardly ran.
    #[error(
        "the program used {0:.1} % of a CPU in a window: it does too little to show what huge pages do for it; put load on it, \
         or give longer windows (--window)"
    )]
    Idle(f64),
    /// It ran, and too little was counted.
    #[error("too little work was counted in a window of {0}: {1}")]
    NoWork(Nanos, &'static str),
    /// The limit passed while memory was switched.
    #[error("time is up")]
    TimeIsUp,
    /// Anything else.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// How a trial goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialRules {
    /// How long a window is; None for as long as it takes to switch, so that half of the time is measured.
    pub window: Option<Nanos>,
    /// The trial ends after the pair during which this has passed; whoever switches memory may end it then, too ([`TrialError::TimeIsUp`]).
    pub limit: Nanos,
    /// How far the ends of the interval may lie from the middle, as a share of the speed; None to end once the answer is known.
    pub precision: Option<f64>,
    /// Whether memory lies on base pages that were never huge, so that these are measured first.
    pub own_pages: bool,
    /// A window with no more work than this tells nothing.
    pub too_little_work: f64,
    /// What to say of such windows.
    pub without_work: &'static str,
}

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// Windows before memory was first switched, on the program's own base pages; none where those had been huge already.
    pub own: Vec<TrialWindow>,
    /// Every later window, in order; two of them are a pair.
    pub windows: Vec<TrialWindow>,
    /// Work for each second of CPU time.
    pub by_cpu: PairedDifferences,
    /// Work for each second.
    pub by_clock: PairedDifferences,
    /// The change after each pair by which it is bounded, and once more when time is up, with the time.
    pub course: Vec<(Nanos, SpeedChange)>,
    /// How long it took so far.
    pub elapsed: Nanos,
}

/// Why a trial ended.
#[derive(Debug)]
pub enum TrialEnd {
    /// The answer is known.
    Known,
    /// Time is up.
    TimeIsUp,
    /// It could not go on.
    Failed(TrialError),
}

impl TrialWindow {
    /// Work for each second of CPU time.
    pub fn per_cpu_second(&self) -> f64 {
        self.work / self.cpu_ns.seconds()
    }

    /// Work for each second.
    pub fn per_second(&self) -> f64 {
        self.work / self.elapsed_ns.seconds()
    }
}

impl ProcessorCounts {
    /// What was counted since an earlier reading.
    fn since(self, before: Self) -> Self {
        let since = |(now, then): (CountedCycles, CountedCycles)| CountedCycles {
            all: now.all - then.all,
            of_walks: now.of_walks - then.of_walks,
        };
        Self { instructions: self.instructions - before.instructions, walks: self.walks.zip(before.walks).map(since) }
    }
}

impl TrialRules {
    /// The least time that a pair takes if moving all memory to huge pages and back takes this.
    pub fn shortest_pair(&self, moving: Nanos) -> Nanos {
        let between_windows = Nanos(moving.0 / 2 + SHORTEST_SETTLING.0);
        let window = self.window.unwrap_or_else(|| usual_window(between_windows));
        Nanos(2 * (between_windows.0 + window.0))
    }

    /// The least time in which such a trial can have an answer: its windows before the first switch, and the pairs without which nothing is bounded.
    pub fn shortest(&self, moving: Nanos) -> Nanos {
        let own_windows = OWN_WINDOWS as u64 * self.window.unwrap_or(SHORTEST_WINDOW).0;
        let before = if self.own_pages { SHORTEST_SETTLING.0 + own_windows } else { 0 };
        Nanos(before + FEWEST_PAIRS * self.shortest_pair(moving).0)
    }
}

impl Trial {
    /// The share of cycles in which a page walk was under way on this; None where that was not counted.
    pub fn walk_share(&self, arm: Arm) -> Option<f64> {
        let of = |window: &TrialWindow| window.processor.and_then(|counted| counted.walks);
        let sum = |(walks, cycles), each: CountedCycles| (walks + each.of_walks, cycles + each.all);
        let (walks, cycles) = self.of(arm).filter_map(of).fold((0.0, 0.0), sum);
        (cycles > 0.0).then(|| walks / cycles)
    }

    /// Instructions for each second of CPU time on huge pages, over those on base pages, less 1; None where they were not counted.
    pub fn instructions_change(&self) -> Option<f64> {
        let rate = |arm| {
            let of =
                |window: &TrialWindow| window.processor.map(|counted| counted.instructions / window.cpu_ns.seconds());
            median(&self.of(arm).filter_map(of).collect::<Vec<_>>()).filter(|&rate| rate > 0.0)
        };
        Some(rate(Arm::Huge)? / rate(Arm::Base)? - 1.0)
    }

    /// How much more work the program did for each second of CPU time in the windows of pairs on this than on its own base pages before. The latter
    /// count as one window: a machine's speed drifts, and they were measured within a minute. None of fewer than four windows on each.
    pub fn over_own_pages(&self, arm: Arm) -> Option<SpeedChange> {
        let own: Vec<f64> = self.own.iter().map(TrialWindow::per_cpu_second).collect();
        let own_speed = median(&own).filter(|&speed| own.len() >= OWN_WINDOWS && speed > 0.0)?;
        let mut pairs = PairedDifferences::default();
        let speeds = self.of(arm).map(TrialWindow::per_cpu_second).filter(|&speed| speed > 0.0);
        speeds.for_each(|speed| pairs.add(speed, own_speed));
        pairs.change_from_one().filter(|_| pairs.pairs() >= OWN_WINDOWS)
    }

    /// Whether base pages that had been huge were clearly faster than the program's own: they still lie next to each other, and some processors join
    /// such pages in their TLB (AMD since Zen). Pairs of windows then understate what huge pages gain. A load that grew does the same.
    pub fn own_pages_were_slower(&self) -> bool {
        self.over_own_pages(Arm::Base).is_some_and(|change| change.low > CLEARLY)
    }

    fn of(&self, arm: Arm) -> impl Iterator<Item = &TrialWindow> {
        self.windows.iter().filter(move |window| window.arm == arm)
    }

    /// Memory growth on huge pages, as a share; None without a pair.
    pub fn growth(&self) -> Option<f64> {
        let pairs = self.windows.chunks_exact(2);
        let of = |pair: &[TrialWindow], arm| {
            pair.iter().find(|window| window.arm == arm).map(|window| window.memory_bytes.0 as f64)
        };
        let growth = |pair: &[TrialWindow]| Some(of(pair, Arm::Huge)? / of(pair, Arm::Base)?.max(1.0) - 1.0);
        median(&pairs.filter_map(growth).collect::<Vec<_>>())
    }
}

/// How long windows are where switching takes so long, so that half of the time is measured.
fn usual_window(switching: Nanos) -> Nanos {
    switching.clamp(SHORTEST_WINDOW, LONGEST_WINDOW)
}

/// Runs a trial until it ends; `progress` sees it after each window. What was measured counts, however it ends.
pub fn run(
    subject: &mut dyn UnderTrial,
    rules: &TrialRules,
    random: &mut fastrand::Rng,
    progress: &mut dyn FnMut(&Trial),
) -> (Trial, TrialEnd) {
    let mut trial = Trial::default();
    let ended = go_on(subject, rules, random, progress, &mut trial);
    let ended = match ended {
        Ok(ended) => ended,
        Err(TrialError::TimeIsUp) => TrialEnd::TimeIsUp,
        Err(error) => TrialEnd::Failed(error),
    };
    if let TrialEnd::TimeIsUp = ended {
        trial.end_as_planned(rules.limit);
    }
    (trial, ended)
}

fn go_on(
    subject: &mut dyn UnderTrial,
    rules: &TrialRules,
    random: &mut fastrand::Rng,
    progress: &mut dyn FnMut(&Trial),
    trial: &mut Trial,
) -> Result<TrialEnd, TrialError> {
    let began = subject.read()?.at;
    let mut lies_on = Arm::Base;
    if rules.own_pages {
        measure_own_pages(subject, rules, began, progress, trial)?;
    }
    loop {
        // No pair holds a window on the program's own pages beside those of others on pages that had been huge.
        let lies_on_own_pages = rules.own_pages && trial.windows.is_empty();
        let base_is_first = !lies_on_own_pages && random.bool();
        let order = if base_is_first { [Arm::Base, Arm::Huge] } else { [Arm::Huge, Arm::Base] };
        let length = rules.window.unwrap_or_else(|| usual_window(trial.mean_time_between_windows()));
        let mut pair = Vec::new();
        for arm in order {
            if arm != lies_on {
                subject.switch(arm)?;
                lies_on = arm;
            }
            settle(subject)?;
            let window = measure(subject, arm, length, rules, began)?;
            pair.push(window);
            trial.elapsed = window.began_ns + window.elapsed_ns;
            progress(trial);
        }
        trial.add(&pair);
        progress(trial);
        match trial.course.last() {
            Some((_, change)) if is_known(change, rules.precision) => return Ok(TrialEnd::Known),
            _ if trial.elapsed >= rules.limit => return Ok(TrialEnd::TimeIsUp),
            _ => {}
        }
    }
}

fn measure_own_pages(
    subject: &mut dyn UnderTrial,
    rules: &TrialRules,
    began: Nanos,
    progress: &mut dyn FnMut(&Trial),
    trial: &mut Trial,
) -> Result<(), TrialError> {
    settle(subject)?;
    for _ in 0..OWN_WINDOWS {
        let window = measure(subject, Arm::Base, rules.window.unwrap_or(SHORTEST_WINDOW), rules, began)?;
        trial.elapsed = window.began_ns + window.elapsed_ns;
        trial.own.push(window);
        progress(trial);
    }
    Ok(())
}

impl Trial {
    /// What it took to switch and to settle before a window of a pair so far.
    fn mean_time_between_windows(&self) -> Nanos {
        let first = self.own.last().map_or(Nanos(0), |window| window.began_ns + window.elapsed_ns);
        let measured = self.windows.iter().map(|window| window.elapsed_ns).sum();
        let between = self.elapsed.saturating_sub(first).saturating_sub(measured);
        Nanos(between.0 / (self.windows.len() as u64).max(1))
    }

    fn end_as_planned(&mut self, limit: Nanos) {
        self.elapsed = self.elapsed.max(limit);
        self.by_cpu.end_as_planned();
        self.by_clock.end_as_planned();
        self.course.extend(self.by_cpu.change().map(|change| (self.elapsed, change)));
    }

    fn add(&mut self, pair: &[TrialWindow]) {
        let of = |arm: Arm| pair.iter().find(|window| window.arm == arm).expect("a pair has both arms");
        let (base, huge) = (of(Arm::Base), of(Arm::Huge));
        self.by_cpu.add(huge.per_cpu_second(), base.per_cpu_second());
        self.by_clock.add(huge.per_second(), base.per_second());
        self.windows.extend(pair);
        self.course.extend(self.by_cpu.change().map(|change| (self.elapsed, change)));
    }
}

/// Waits until the speed has settled.
fn settle(subject: &mut dyn UnderTrial) -> Result<(), TrialError> {
    let (mut speeds, mut last) = (Vec::new(), subject.read()?);
    let until = last.at + LONGEST_SETTLING;
    while last.at < until && !has_settled(&speeds) {
        subject.rest(SAMPLE)?;
        let now = subject.read()?;
        let cpu = now.cpu.saturating_sub(last.cpu).seconds();
        speeds.push(if cpu > 0.0 { (now.work - last.work) / cpu } else { 0.0 });
        last = now;
    }
    Ok(())
}

fn measure(
    subject: &mut dyn UnderTrial,
    arm: Arm,
    length: Nanos,
    rules: &TrialRules,
    began: Nanos,
) -> Result<TrialWindow, TrialError> {
    let before = subject.read()?;
    let mut prolonged = 0;
    loop {
        subject.rest(length)?;
        let after = subject.read()?;
        let window = TrialWindow {
            arm,
            began_ns: before.at.saturating_sub(began),
            elapsed_ns: after.at.saturating_sub(before.at),
            cpu_ns: after.cpu.saturating_sub(before.cpu),
            work: after.work - before.work,
            memory_bytes: after.memory,
            processor: after.processor.zip(before.processor).map(|(after, before)| after.since(before)),
        };
        match failure(&window, rules) {
            None => return Ok(window),
            Some(_) if prolonged < MOST_PROLONGED => prolonged += 1,
            Some(error) => return Err(error),
        }
    }
}

/// Why the window tells nothing.
fn failure(window: &TrialWindow, rules: &TrialRules) -> Option<TrialError> {
    let cpus = window.cpu_ns.seconds() / window.elapsed_ns.seconds().max(f64::MIN_POSITIVE);
    if cpus < LEAST_CPU {
        Some(TrialError::Idle(100.0 * cpus))
    } else {
        (window.work <= rules.too_little_work).then_some(TrialError::NoWork(window.elapsed_ns, rules.without_work))
    }
}

#[cfg(test)]
mod tests;
