//! Trials for tests: of one program, and of replicas.

use heat::WalkCost;
use heat::units::{Bytes, Nanos, Slowdown};
use pilot::decide::{GainPercent, SavedWork};
use pilot::forecast::{Forecast, ForecastBasis};
use pilot::past_trials::EstimatedFrom;
use trial::replicas::{Better, Replica, ReplicaTrial, Replicas};
use trial::{Arm, Moved, Trial, TrialError, TrialRules, TrialVerdict, TrialWindow, UnderTrial, WorkReading};

use super::{Expected, TrialReport};

const WINDOW: Nanos = Nanos(3_000_000_000);
const RULES: TrialRules = TrialRules {
    window: Some(WINDOW),
    limit: Nanos(600_000_000_000),
    precision: None,
    own_pages: false,
    too_little_work: 0.0,
    without_work: "",
};

/// A trial whose pairs have these ratios, and its verdict.
pub(super) fn trial_of(ratios: &[f64]) -> (Trial, TrialVerdict) {
    struct Given<'a> {
        speeds: std::iter::Copied<std::slice::Iter<'a, f64>>,
        at: Nanos,
        work: f64,
        huge: bool,
    }
    impl UnderTrial for Given<'_> {
        fn switch(&mut self, to: Arm) -> Result<(), TrialError> {
            self.huge = to == Arm::Huge;
            Ok(())
        }
        fn read(&mut self) -> Result<WorkReading, TrialError> {
            let memory = Bytes(if self.huge { 1001 } else { 1000 });
            Ok(WorkReading { at: self.at, work: self.work, cpu: self.at, memory, processor: None })
        }
        fn rest(&mut self, time: Nanos) -> Result<(), TrialError> {
            let is_window = time == WINDOW;
            let ratio = match (is_window, self.huge) {
                (true, true) => self.speeds.next().ok_or(TrialError::Exited)?,
                _ => 1.0,
            };
            self.work += 1000.0 * ratio * time.seconds();
            self.at += time;
            Ok(())
        }
    }
    let mut given = Given { speeds: ratios.iter().copied(), at: Nanos(0), work: 0.0, huge: false };
    // Never ends by itself.
    let rules = TrialRules { limit: Nanos(u64::MAX), precision: Some(0.0), ..RULES };
    let (trial, _) = trial::run(&mut given, &rules, &mut fastrand::Rng::with_seed(1), &mut |_| ());
    let verdict = trial::judge(&trial.by_cpu, None, trial.elapsed);
    (trial, verdict)
}

/// The same, after windows in which the program did so much of its work on base pages.
pub(super) fn trial_after_own_pages(ratios: &[f64], share: f64) -> (Trial, TrialVerdict) {
    let (trial, verdict) = trial_of(ratios);
    let on_base = trial.windows.iter().filter(|window| window.arm == Arm::Base);
    let own = on_base.map(|window| TrialWindow { work: share * window.work, ..*window }).collect();
    (Trial { own, ..trial }, verdict)
}

/// What a forecast rests on.
pub(super) fn forecast_basis() -> ForecastBasis {
    ForecastBasis {
        saved: SavedWork {
            walks_saved_per_second: 2e6,
            base_walks_per_second: Some(2.1e6),
            saved_share: Some(0.95),
            most_times_as_often: 1.1,
            certain_share: 0.9,
            scattered_share: Some(0.95),
            faults_saved_per_second: 0.0,
        },
        busy_cpus: Some(1.0),
        footprint_bytes: Bytes(1 << 30),
        waited_share: Some(0.01),
        cost: WalkCost::UNCALIBRATED,
        stays: None,
        saved_already: None,
    }
}

/// The report of a trial, told.
pub(super) fn trial_report(trial: &Trial, verdict: TrialVerdict, told: impl Fn(&TrialReport) -> String) -> String {
    let expected = Expected {
        forecast: Forecast::Gain(GainPercent { low: 12.0, likely: 15.0, high: 25.0 }, EstimatedFrom::Model),
        by_model: Forecast::Gain(GainPercent { low: 12.0, likely: 15.0, high: 25.0 }, EstimatedFrom::Model),
        basis: forecast_basis(),
    };
    let (took, busy) = (Nanos(400_000_000), Nanos(40_000_000));
    let moved = Moved { share: 1.0, took, busy, max_slowdown: Slowdown::ASKED_FOR, is_reduced: false };
    told(&TrialReport {
        pid: 4242,
        name: "memcached",
        trial,
        verdict,
        is_over: true,
        switched: Bytes(132 << 20),
        to_switch: Bytes(132 << 20),
        moved: Some(moved),
        rules: &RULES,
        longest_stall: Nanos(2_300_000),
        counted: "system calls",
        left: if matches!(verdict, TrialVerdict::Gain { .. }) { Arm::Huge } else { Arm::Base },
        found: Arm::Base,
        placebo: false,
        expected: &expected,
    })
}

/// So many replicas in each arm of a trial; the promoted ones take so many times the CPU time of the others for a request.
pub(super) fn replicas_on_trial(each: usize, times: f64) -> (ReplicaTrial, Replicas) {
    let trial = ReplicaTrial {
        namespace: "shop".to_owned(),
        workload: "web".to_owned(),
        metric: "cpu_per_request".to_owned(),
        better: Better::Lower,
        min_age: Nanos(600_000_000_000),
    };
    let replica = |at: usize| {
        let (arm, times) = if at.is_multiple_of(2) { (Arm::Huge, times) } else { (Arm::Base, 1.0) };
        Replica { pod: format!("web-{at}"), arm, young: false, value: Some(times * (2.0 + 0.02 * (at / 2) as f64)) }
    };
    (trial, Replicas((0..2 * each).map(replica).collect()))
}
