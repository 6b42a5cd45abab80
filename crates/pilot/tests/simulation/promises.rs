//! What must hold after each step of the engine, whatever happened.
//!
//! Owns: these promises, checked against the truth on the simulated machine. Never touches: anything.
//!
//! Conditions on single calls are checked there: `record`, `forbidden`, `limit` and `in use` in [`crate::machine`].

use std::time::Duration;

use heat::units::{HUGE_PAGE, SizeOrShare};
use pilot::decide::{Demand, Fairness, divide};
use pilot::engine::shared_state::State;

use crate::machine::Simulated;
use crate::program::Program;
use crate::scenario::{Kind, Run};

/// After this time of stable demand shares are as promised.
const STABLE: Duration = Duration::from_secs(30);
/// A process that is left alone for a reason, or was found quiet, is due for a scan within a minute; then it waits for its turn.
const SCANNED_AGAIN: Duration = Duration::from_secs(180);
/// A new process is known within ten seconds, and an ended one is forgotten.
const CENSUS: Duration = Duration::from_secs(30);

/// Checks all of them.
pub fn check(run: &Run) {
    let machine = &mut *run.machine.borrow_mut();
    check_budget(run, machine);
    // Slow changes need not be checked every time.
    if run.steps.is_multiple_of(64) {
        let state = run.state.state();
        check_forgotten(run, machine, &state);
        check_bounded(machine, &state);
        check_scanned(run, machine);
    }
    if run.kind == Kind::Contended {
        check_fair(run, machine);
    }
}

/// CPU time stays within the quota, plus what may be saved up, plus the last scan.
fn check_budget(run: &Run, machine: &mut Simulated) {
    let elapsed = (machine.clock - run.began.0).as_secs_f64();
    let spent = machine.watching_cpu().seconds() - run.began.1.seconds();
    let share = run.largest_share;
    let saved = 300.0;
    // Living processes are checked however small the quota: two five-hundredths, and one scan of each that has lived meanwhile.
    let largest = machine.programs.values().map(|program| program.areas.len()).max().unwrap_or(0) as f64;
    let (alive, started) = run.began_with;
    let programs = alive + machine.started - started;
    let slack = 0.5 + 2e-5 * largest + programs as f64 * 3e-4;
    let allowed = 1.1 * ((share + 0.004) * elapsed + share * saved) + slack;
    if spent > allowed {
        machine.break_promise(format!(
            "budget: {spent:.3} s of CPU time in {elapsed:.1} s, of {allowed:.3}, at a share of {share} for {programs} programs"
        ));
    }
}

/// Nothing is kept about processes that have ended.
fn check_forgotten(run: &Run, machine: &mut Simulated, state: &State) {
    let is_old = machine.clock - run.began.0 > CENSUS;
    let ended = state.targets.iter().filter(|target| !machine.programs.contains_key(&target.process())).count();
    // Between two censuses some processes may end, in a crowd many.
    if is_old && ended > 2 + machine.programs.len() / 2 {
        machine.break_promise(format!("forgotten: {ended} of {} targets have ended", state.targets.len()));
    }
}

/// What the engine keeps does not grow with time.
fn check_bounded(machine: &mut Simulated, state: &State) {
    let decisions = state.targets.iter().map(|target| target.last_decisions.len()).max().unwrap_or(0);
    let is_bounded = decisions <= 16 && state.clients.len() <= 256;
    if !is_bounded {
        machine.break_promise(format!("bounded: {decisions} decisions of one, {} clients", state.clients.len()));
    }
}

/// No process waits forever.
fn check_scanned(run: &Run, machine: &mut Simulated) {
    // Clients may take half of the CPU time.
    let each = 1.2 + 0.03 / (run.settings.max_cpu.0 / 2.0);
    let bound = SCANNED_AGAIN + Duration::from_secs_f64(each * 2.0 * machine.programs.len() as f64);
    let clock = machine.clock;
    let is_short = machine.total.saturating_sub(machine.others) < machine.total / 4;
    if is_short || machine.contiguous < 200 || run.kind == Kind::Server {
        // Nothing is promoted, so nothing is scanned for that.
        machine.programs.values_mut().for_each(|program| program.observed = clock);
        return;
    }
    let is_due = |program: &&Program| {
        let untouchable = machine.untouchable.contains(&program.process);
        let was = program.observed.max(program.born);
        !untouchable && program.rss() >= 2 * run.rules.min_size.0 && clock.saturating_sub(was) > bound
    };
    if let Some(starved) = machine.programs.values().find(is_due).map(|program| (program.process, program.observed)) {
        machine.break_promise(format!("starved: {:?} was scanned at {:?}, of {bound:?}", starved.0, starved.1));
    }
}

/// Programs with equal and continuing demand have the share that they were promised.
fn check_fair(run: &Run, machine: &mut Simulated) {
    let Some(SizeOrShare::Size(all)) = run.settings.allowance.max_huge else { return };
    if machine.clock < STABLE || run.rules.fairness != Fairness::Share {
        return;
    }
    let claims: Vec<Demand> = machine.programs.values().map(claim).collect();
    let promised = divide(all.0 / HUGE_PAGE, &claims, Fairness::Share);
    let has = |program: &Program| program.held();
    let unfair = machine.programs.values().zip(promised).find(|(program, promised)| has(program) * 10 < promised * 8);
    if let Some((process, has, promised)) = unfair.map(|(program, promised)| (program.process, has(program), promised))
    {
        machine.break_promise(format!("fairness: {process:?} has {has} huge pages of the {promised} promised"));
    }
}

fn claim(program: &Program) -> Demand {
    Demand { weight: 1.0, held: Vec::new(), wanted: vec![1e5; program.areas.len()] }
}
