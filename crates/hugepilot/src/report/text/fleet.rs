//! What a trial across replicas has shown.

use heat::statistics::Interval;
use pilot::words::{count_of, printable};
use trial::Arm;
use trial::replicas::{Better, FEWEST};

use super::joined;
use crate::report::FleetTrialReport;

/// One sentence, then what it rests on.
pub fn fleet_trial(report: &FleetTrialReport) -> String {
    let number = |arm| report.replicas.values(arm).len() as u64;
    let (promoted, observed) = (number(Arm::Huge), number(Arm::Base));
    let young = report.replicas.0.iter().filter(|replica| replica.young).count() as u64;
    let without = report.replicas.0.len() as u64 - promoted - observed - young;
    let better = match report.trial.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    };
    let mut lines = vec![
        verdict(report),
        format!("compared: {} ({better})", printable(&report.trial.metric, 400)),
        format!("{} promoted, {observed} only observed", count_of(promoted, "replica")),
    ];
    if young > 0 {
        let few = count_of(young, "replica");
        lines.push(format!("{few} left out, on trial for less than {} (--min-age)", report.trial.min_age));
    }
    if without > 0 {
        lines.push(format!("{} more without a number", count_of(without, "replica")));
    }
    joined(lines)
}

fn verdict(report: &FleetTrialReport) -> String {
    let who = format!("{}/{}", printable(&report.trial.namespace, 60), printable(&report.trial.workload, 60));
    match report.gain() {
        Some(gain) if gain.low > 1.0 => format!("{who} gains {}: keep huge pages", changed(&gain)),
        Some(gain) if gain.high < 1.0 => {
            let loss = Interval { estimate: 2.0 - gain.estimate, low: 2.0 - gain.high, high: 2.0 - gain.low, ..gain };
            format!("{who} loses {} by huge pages: only observe it", changed(&loss))
        }
        Some(gain) => format!("{who}: cannot tell: the gain may be {}; more replicas would tell", changed(&gain)),
        None => format!(
            "{who}: cannot tell: each arm needs at least {FEWEST} replicas that have a number, and are old enough"
        ),
    }
}

fn changed(gain: &Interval) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:.1} % ({:.1} to {:.1})", percent(gain.estimate), percent(gain.low), percent(gain.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial_samples::replicas_on_trial;

    #[test]
    fn the_sentence_says_what_to_do() {
        let (trial, replicas) = replicas_on_trial(6, 0.8);
        let told = fleet_trial(&FleetTrialReport { trial: &trial, replicas: &replicas });
        assert!(told.starts_with("shop/web gains 25.0 % ("), "{told}");
        assert!(told.contains("6 replicas promoted, 6 only observed"), "{told}");
        let of = |number, times| {
            let (trial, replicas) = replicas_on_trial(number, times);
            fleet_trial(&FleetTrialReport { trial: &trial, replicas: &replicas })
        };
        assert!(of(6, 1.25).starts_with("shop/web loses 20.0 % ("), "{}", of(6, 1.25));
        assert!(of(6, 1.0).contains("cannot tell: the gain may be"), "{}", of(6, 1.0));
        assert!(of(3, 0.8).contains("at least 4 replicas"), "{}", of(3, 0.8));
    }
}
