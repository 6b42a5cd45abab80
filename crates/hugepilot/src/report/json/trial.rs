//! The trial: its verdict, and every window.

use trial::{Arm, TrialWindow};

use super::{ReportKind, document};
use crate::report::TrialReport;

/// The outcome, each window listed.
pub fn trial(report: &TrialReport) -> String {
    let trial = report.trial;
    let window = |window: &TrialWindow| {
        object! {
            #[serde(flatten)]
            window: *window,
            work_per_cpu_second: window.per_cpu_second(),
            work_per_second: window.per_second(),
        }
    };
    document(
        ReportKind::Trial,
        &object! {
            pid: report.pid,
            name: report.name,
            placebo: report.placebo,
            counted: report.counted,
            #[serde(flatten)]
            verdict: report.verdict,
            by_clock: trial.by_clock.change(),
            split_pages_over_own: trial.over_own_pages(Arm::Base),
            huge_pages_over_own: trial.over_own_pages(Arm::Huge),
            growth: trial.growth(),
            pairs: trial.by_cpu.pairs(),
            seconds: trial.elapsed.seconds(),
            switched_bytes: report.switched,
            longest_stall_ns: report.longest_stall,
            found: report.found,
            left: report.left,
            is_over: report.is_over,
            expected_gain_percent: report.expected.forecast.gain(),
            expected_gain_from: report.expected.forecast.from(),
            expected_from: report.expected.basis,
            course: trial.course.iter().map(|(at, change)| object! { at_ns: *at, #[serde(flatten)] change: *change }).collect::<Vec<_>>(),
            own_windows: trial.own.iter().map(window).collect::<Vec<_>>(),
            windows: trial.windows.iter().map(window).collect::<Vec<_>>(),
        },
    )
}

#[cfg(test)]
mod tests {
    use crate::report::trial_samples::{trial_after_own_pages, trial_of, trial_report};

    #[test]
    fn a_trial_has_its_fields() {
        let (trial, verdict) = trial_of(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]);
        let document = trial_report(&trial, verdict, super::trial);
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(
            (&document["verdict"], &document["left"], &document["pairs"]),
            (&"gain".into(), &"huge".into(), &6.into())
        );
        assert_eq!(document["windows"].as_array().unwrap().len(), 12);
        let speed = |arm: &str| {
            let windows = document["windows"].as_array().unwrap();
            windows.iter().find(|window| window["arm"] == arm).unwrap()["work_per_cpu_second"].as_f64().unwrap()
        };
        assert_eq!((speed("base"), speed("huge")), (1000.0, 1200.0));
        assert!((document["change"]["estimate"].as_f64().unwrap() - 0.2).abs() < 0.01);
        assert!(document["split_pages_over_own"].is_null() && document["own_windows"].as_array().unwrap().is_empty());
        let (trial, verdict) = trial_after_own_pages(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18], 0.8);
        let after_own: serde_json::Value = serde_json::from_str(&trial_report(&trial, verdict, super::trial)).unwrap();
        assert!((after_own["split_pages_over_own"]["low"].as_f64().unwrap() - 0.25).abs() < 1e-9);
        assert!((after_own["huge_pages_over_own"]["estimate"].as_f64().unwrap() - 0.5).abs() < 0.01);
        assert_eq!(after_own["own_windows"].as_array().unwrap().len(), 6);
        assert_eq!(document["course"].as_array().unwrap().len(), 3);
    }
}
