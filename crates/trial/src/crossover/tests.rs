//! Trials of simulated programs on a simulated machine.

use super::*;
use crate::judge::{TrialVerdict, judge};

/// A program whose work is known, on a machine that varies.
struct Simulated {
    now: Nanos,
    arm: Arm,
    /// What huge pages gain.
    gain: f64,
    /// What the program's own base pages lose against those that had been huge.
    own_pages_lose: f64,
    /// How much speeds vary from one second to the next.
    noise: f64,
    /// The machine's speed wanders by so much a second.
    drift: f64,
    speed: f64,
    random: fastrand::Rng,
    work: f64,
    /// Cycles in which it walked.
    walked: f64,
    cpu: Nanos,
    switches: usize,
    switching: Nanos,
    ends_at: Nanos,
}

impl Simulated {
    fn new(seed: u64, gain: f64, noise: f64, drift: f64) -> Self {
        Self {
            now: Nanos(0),
            arm: Arm::Base,
            gain,
            own_pages_lose: 0.0,
            noise,
            drift,
            speed: 1.0,
            random: fastrand::Rng::with_seed(seed),
            work: 0.0,
            walked: 0.0,
            cpu: Nanos(0),
            switches: 0,
            switching: Nanos(4_000_000_000),
            ends_at: Nanos(u64::MAX),
        }
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    fn pass(&mut self, time: Nanos) {
        let seconds = time.seconds();
        self.speed *= (self.normal() * self.drift * seconds.sqrt()).exp();
        let noise = (self.normal() * self.noise / seconds.sqrt()).exp();
        let gained = match self.arm {
            Arm::Huge => 1.0 + self.gain,
            Arm::Base if self.switches == 0 => 1.0 - self.own_pages_lose,
            Arm::Base => 1.0,
        };
        self.work += 1e5 * self.speed * noise * gained * seconds;
        self.walked += if self.arm == Arm::Base { 3e8 * seconds } else { 0.0 };
        self.cpu += time;
        self.now += time;
    }
}

impl UnderTrial for Simulated {
    fn switch(&mut self, to: Arm) -> Result<(), TrialError> {
        assert_ne!(to, self.arm, "it is there already");
        self.pass(self.switching);
        self.arm = to;
        self.switches += 1;
        Ok(())
    }

    fn read(&mut self) -> Result<WorkReading, TrialError> {
        if self.now >= self.ends_at {
            return Err(TrialError::Exited);
        }
        let memory = Bytes(if self.arm == Arm::Huge { 1010 } else { 1000 });
        // A tenth of the cycles walk on base pages.
        let cycles = 3e9 * self.cpu.seconds();
        let walks = Some(CountedCycles { all: cycles, of_walks: self.walked });
        let processor = Some(ProcessorCounts { instructions: self.work, walks });
        Ok(WorkReading { at: self.now, work: self.work, cpu: self.cpu, memory, processor })
    }

    fn rest(&mut self, time: Nanos) -> Result<(), TrialError> {
        self.pass(time);
        Ok(())
    }
}

const SECOND: u64 = 1_000_000_000;
const MINUTE: Nanos = Nanos(60 * SECOND);
const RULES: TrialRules = TrialRules {
    window: None,
    limit: Nanos(10 * MINUTE.0),
    precision: None,
    own_pages: false,
    too_little_work: 0.0,
    without_work: "-",
};

fn verdict_of(mut subject: Simulated, rules: &TrialRules, seed: u64) -> (TrialVerdict, Trial) {
    let (trial, _) = run(&mut subject, rules, &mut fastrand::Rng::with_seed(seed), &mut |_| ());
    (judge(&trial.by_cpu, rules.precision, trial.elapsed), trial)
}

#[test]
fn the_least_time_counts_what_settles_and_what_comes_before() {
    let seconds = |rules: &TrialRules| [rules.shortest_pair(Nanos(6 * SECOND)), rules.shortest(Nanos(6 * SECOND))];
    let rules = TrialRules { window: Some(Nanos(2 * SECOND)), ..RULES };
    assert_eq!(seconds(&rules), [Nanos(12 * SECOND), Nanos(48 * SECOND)]);
    assert_eq!(seconds(&TrialRules { own_pages: true, ..rules })[1], Nanos((1 + 8 + 48) * SECOND));
    assert_eq!(seconds(&RULES)[0], Nanos(16 * SECOND), "windows as long as what lies between them");
}

#[test]
fn a_program_against_itself_seldom_differs() {
    for (noise, drift) in [(0.02, 0.0), (0.1, 0.02), (0.4, 0.05)] {
        let claims = (0..200).filter(|&seed| {
            let (verdict, _) = verdict_of(Simulated::new(seed, 0.0, noise, drift), &RULES, seed + 1000);
            matches!(verdict, TrialVerdict::Gain { .. } | TrialVerdict::Loss { .. })
        });
        let claims = claims.count();
        assert!(claims <= 10, "{claims} of 200 claim a difference; noise {noise}, drift {drift}");
    }
}

#[test]
fn windows_are_as_long_as_it_takes_to_switch() {
    let seconds_of = |switching: u64, window| {
        let subject = Simulated { switching: Nanos(1_000_000_000 * switching), ..Simulated::new(1, 0.0, 0.1, 0.0) };
        let (_, trial) = verdict_of(subject, &TrialRules { window, ..RULES }, 2);
        let mut seconds = trial.windows.iter().map(|window| window.elapsed_ns.seconds());
        (seconds.next().expect("a window"), seconds.next_back().expect("another"))
    };
    let (first, last) = seconds_of(8, None);
    // Each time it settles, too; in half of all pairs nothing is switched between two of them.
    assert!(first == 3.0 && (6.0..8.5).contains(&last), "{first} s, then {last} s");
    assert_eq!((seconds_of(1, None).1, seconds_of(60, None).1), (3.0, 10.0), "within bounds");
    assert_eq!(seconds_of(12, Some(Nanos(500_000_000))), (0.5, 0.5), "as asked for");
}

#[test]
fn a_gain_of_20_percent_is_found_within_5_minutes() {
    let rules = TrialRules { limit: Nanos(5 * MINUTE.0), ..RULES };
    let found = (0..200).filter(|&seed| {
        let (verdict, trial) = verdict_of(Simulated::new(seed, 0.2, 0.1, 0.02), &rules, seed + 1000);
        let in_time = trial.elapsed < Nanos(rules.limit.0 + MINUTE.0);
        in_time && matches!(verdict, TrialVerdict::Gain { change } if change.low < 0.25 && change.high > 0.15)
    });
    let found = found.count();
    assert!(found >= 190, "{found} of 200");
}

#[test]
fn what_the_processor_counts_stands_beside_the_answer() {
    let (_, trial) = verdict_of(Simulated::new(1, 0.2, 0.01, 0.0), &RULES, 2);
    let share = |arm| trial.walk_share(arm).unwrap();
    assert!(
        (share(Arm::Base) - 0.1).abs() < 1e-9 && share(Arm::Huge) == 0.0,
        "{} {}",
        share(Arm::Base),
        share(Arm::Huge)
    );
    assert!((trial.instructions_change().unwrap() - 0.2).abs() < 0.05);
    let uncounted = Trial {
        windows: trial.windows.iter().map(|window| TrialWindow { processor: None, ..*window }).collect(),
        ..trial
    };
    assert_eq!((uncounted.walk_share(Arm::Base), uncounted.instructions_change()), (None, None));
}

#[test]
fn a_trial_ends_at_its_precision_or_its_limit() {
    let precise = TrialRules { precision: Some(0.01), ..RULES };
    let (verdict, trial) = verdict_of(Simulated::new(1, 0.2, 0.01, 0.0), &precise, 2);
    let TrialVerdict::Gain { change } = verdict else { panic!("{verdict:?}") };
    assert!((change.high - change.low) / 2.0 <= 0.01 && trial.elapsed < RULES.limit, "{change:?}");
    let (verdict, trial) = verdict_of(Simulated::new(1, 0.01, 0.5, 0.0), &RULES, 2);
    assert!(matches!(verdict, TrialVerdict::Unknown { more_ns: Some(_), .. }), "{verdict:?}");
    assert!(trial.elapsed >= RULES.limit && trial.elapsed < Nanos(RULES.limit.0 + MINUTE.0), "{}", trial.elapsed);
    assert!((trial.growth().unwrap() - 0.01).abs() < 1e-9);
}

#[test]
fn own_pages_are_measured_before_the_first_switch_and_in_no_pair() {
    let rules = TrialRules { own_pages: true, ..RULES };
    for seed in 0..20 {
        let subject = Simulated { own_pages_lose: 0.25, ..Simulated::new(seed, 0.2, 0.01, 0.0) };
        let (verdict, trial) = verdict_of(subject, &rules, seed + 1000);
        let TrialVerdict::Gain { change } = verdict else { panic!("{verdict:?}") };
        assert!((change.estimate - 0.2).abs() < 0.03, "{change:?}");
        assert_eq!(trial.own.len(), 4);
        let [split, huge] = [Arm::Base, Arm::Huge].map(|arm| trial.over_own_pages(arm).unwrap());
        assert!((split.estimate - 1.0 / 3.0).abs() < 0.05 && split.low > 0.2, "{split:?}");
        assert!((huge.estimate - 0.6).abs() < 0.05, "{huge:?}");
        assert!(trial.own_pages_were_slower());
    }
    let (_, trial) = verdict_of(Simulated::new(1, 0.2, 0.01, 0.0), &RULES, 2);
    assert!(trial.own.is_empty() && trial.over_own_pages(Arm::Base).is_none() && !trial.own_pages_were_slower());
}

#[test]
fn own_pages_seldom_seem_slower_where_they_are_not() {
    let rules = TrialRules { own_pages: true, ..RULES };
    let claims = (0..200).filter(|&seed| {
        let (_, trial) = verdict_of(Simulated::new(seed, 0.1, 0.1, 0.0), &rules, seed + 1000);
        trial.over_own_pages(Arm::Base).is_some_and(|change| change.low > 0.0)
    });
    let claims = claims.count();
    assert!(claims <= 10, "{claims} of 200");
}

#[test]
fn pairs_share_a_switch_where_they_can() {
    let mut subject = Simulated::new(3, 0.0, 0.3, 0.0);
    let (trial, _) = run(&mut subject, &RULES, &mut fastrand::Rng::with_seed(4), &mut |_| ());
    let changes = trial.windows.windows(2).filter(|pair| pair[0].arm != pair[1].arm).count();
    let first = usize::from(trial.windows[0].arm != Arm::Base);
    assert_eq!(subject.switches, changes + first);
    assert!(trial.windows.chunks(2).all(|pair| pair[0].arm != pair[1].arm), "a pair has both arms");
    let begins_huge = trial.windows.chunks(2).filter(|pair| pair[0].arm == Arm::Huge).count();
    assert!((1..trial.windows.len() / 2).contains(&begins_huge), "either comes first at times");
}

#[test]
fn what_was_measured_until_a_program_ended_counts() {
    let mut subject = Simulated { ends_at: Nanos(30_000_000_000), ..Simulated::new(5, 0.2, 0.01, 0.0) };
    let (trial, ended) = run(&mut subject, &RULES, &mut fastrand::Rng::with_seed(6), &mut |_| ());
    assert!(matches!(ended, TrialEnd::Failed(TrialError::Exited)), "{ended:?}");
    assert!(!trial.windows.is_empty() && trial.windows.len() % 2 == 0);
}

#[test]
fn an_idle_program_tells_nothing() {
    struct Idle(Simulated);
    impl UnderTrial for Idle {
        fn switch(&mut self, to: Arm) -> Result<(), TrialError> {
            self.0.switch(to)
        }
        fn read(&mut self) -> Result<WorkReading, TrialError> {
            self.0.read().map(|reading| WorkReading { cpu: Nanos(0), ..reading })
        }
        fn rest(&mut self, time: Nanos) -> Result<(), TrialError> {
            self.0.rest(time)
        }
    }
    let (_, ended) =
        run(&mut Idle(Simulated::new(7, 0.2, 0.1, 0.0)), &RULES, &mut fastrand::Rng::with_seed(8), &mut |_| ());
    assert!(matches!(ended, TrialEnd::Failed(TrialError::Idle(_))), "{ended:?}");
}

/// A program under trial of which one thing is otherwise.
struct But<F: FnMut(&mut Simulated, Arm) -> Result<(), TrialError>> {
    program: Simulated,
    /// Does nothing until then.
    stuck: std::ops::Range<Nanos>,
    switch: F,
}

impl<F: FnMut(&mut Simulated, Arm) -> Result<(), TrialError>> UnderTrial for But<F> {
    fn switch(&mut self, to: Arm) -> Result<(), TrialError> {
        (self.switch)(&mut self.program, to)
    }

    fn read(&mut self) -> Result<WorkReading, TrialError> {
        self.program.read()
    }

    fn rest(&mut self, time: Nanos) -> Result<(), TrialError> {
        let work = self.program.work;
        self.program.rest(time)?;
        if self.stuck.contains(&self.program.now) {
            self.program.work = work;
        }
        Ok(())
    }
}

#[test]
fn when_time_is_up_the_interval_is_narrower_and_after_a_signal_it_is_not() {
    // So noisy that it is not known on the way.
    let ended_by = |how: fn() -> TrialError| {
        let switch = move |program: &mut Simulated, to| match program.switches {
            12 => Err(how()),
            _ => program.switch(to),
        };
        let mut subject = But { program: Simulated::new(1, 0.0, 0.3, 0.0), stuck: Nanos(0)..Nanos(0), switch };
        let (trial, _) = run(&mut subject, &RULES, &mut fastrand::Rng::with_seed(2), &mut |_| ());
        let (change, clock) = (trial.by_cpu.change().unwrap(), trial.by_clock.change().unwrap());
        assert_eq!(trial.course.last().unwrap().1, change);
        [change.half_width(), clock.half_width()]
    };
    let [up, stopped] = [ended_by(|| TrialError::TimeIsUp), ended_by(|| TrialError::Stopped)];
    assert!(up.iter().zip(stopped).all(|(up, stopped)| *up < 0.8 * stopped), "{up:?} {stopped:?}");
}

#[test]
fn a_limit_that_passes_while_memory_is_switched_ends_the_trial() {
    let program = Simulated::new(1, 0.2, 0.01, 0.0);
    let switch = |program: &mut Simulated, to| match program.switches {
        4 => Err(TrialError::TimeIsUp),
        _ => program.switch(to),
    };
    let mut subject = But { program, stuck: Nanos(0)..Nanos(0), switch };
    let (trial, ended) = run(&mut subject, &RULES, &mut fastrand::Rng::with_seed(2), &mut |_| ());
    assert!(matches!(ended, TrialEnd::TimeIsUp), "{ended:?}");
    assert!((1..4).contains(&trial.by_cpu.pairs()) && trial.elapsed == RULES.limit, "{trial:?}");
}

#[test]
fn a_window_in_which_nothing_was_done_is_prolonged_and_no_more_than_three_times() {
    let end_of = |stuck_s: u64| {
        let stuck = Nanos(30_000_000_000)..Nanos((30 + stuck_s) * 1_000_000_000);
        let mut subject =
            But { program: Simulated::new(1, 0.2, 0.01, 0.0), stuck, switch: |program, to| program.switch(to) };
        run(&mut subject, &RULES, &mut fastrand::Rng::with_seed(2), &mut |_| ()).1
    };
    assert!(matches!(end_of(7), TrialEnd::Known | TrialEnd::TimeIsUp), "{:?}", end_of(7));
    assert!(matches!(end_of(300), TrialEnd::Failed(TrialError::NoWork(..))), "{:?}", end_of(300));
}

#[test]
fn windows_in_which_too_little_is_done_are_prolonged_too() {
    let trial_with = |too_little_work| {
        let rules = TrialRules { too_little_work, ..RULES };
        run(&mut Simulated::new(1, 0.2, 0.01, 0.0), &rules, &mut fastrand::Rng::with_seed(2), &mut |_| ())
    };
    let (usual, ended) = trial_with(0.0);
    assert!(matches!(ended, TrialEnd::Known), "{ended:?}");
    let (work, elapsed) = (usual.windows[0].work, usual.windows[0].elapsed_ns);
    let (prolonged, ended) = trial_with(1.5 * work);
    assert!(matches!(ended, TrialEnd::Known), "{ended:?}");
    assert!(prolonged.windows.iter().all(|window| window.work > 1.5 * work && window.elapsed_ns > elapsed));
    assert!(matches!(trial_with(100.0 * work).1, TrialEnd::Failed(TrialError::NoWork(..))));
}
