//! The outcome of a trial: one sentence, then what it rests on.

use heat::units::{Bytes, Nanos, Slowdown};
use pilot::words::printable;
use trial::{Arm, Moved, Remedy, SpeedChange, Trial, TrialVerdict, is_known, remedy, time_until};

use super::joined;
use super::plan::gain;
use crate::report::{SYSTEM_CALLS, TrialReport};

/// The outcome.
pub fn trial(report: &TrialReport) -> String {
    let mut lines = vec![verdict(report)];
    lines.push(format!(
        "counted: {} for each second of its CPU time{}",
        printable(report.counted, 200),
        by_clock(report.trial)
    ));
    if report.counted == SYSTEM_CALLS {
        lines.push(
            "that tells how fast a server answers, not how fast a program computes (--rate counts what you name)"
                .to_owned(),
        );
    }
    let both = report.trial.by_cpu.change().zip(report.trial.by_clock.change());
    lines.extend(both.and_then(|(by_cpu, by_clock)| disagreement(&by_cpu, &by_clock)));
    lines.extend(gain_over_own_pages(report.trial));
    lines.extend(counted_by_the_processor(report.trial));
    let windows = match report.trial.by_cpu.pairs() {
        0 => "no pair of windows".to_owned(),
        count => format!("{} of windows of {}", pairs(count), usual_window(report.trial)),
    };
    let switched = if report.placebo {
        "a placebo: nothing was switched".to_owned()
    } else if report.switched == Bytes(0) {
        "ended before all was on huge pages once".to_owned()
    } else {
        format!("{} switched between base and huge pages, longest stall {}", report.switched, report.longest_stall)
    };
    lines.push(format!("{windows}, in {}; {switched}", report.trial.elapsed));
    lines.extend(
        (!report.placebo).then(|| format!("forecast: {}{}", gain(report.expected.forecast), missed_by(report))),
    );
    lines.extend((!report.placebo).then(|| left(report)));
    joined(lines)
}

/// Where the gain lies, if not in the forecast.
fn missed_by(report: &TrialReport) -> &'static str {
    let Some((change, forecast)) = report.trial.by_cpu.change().zip(report.expected.forecast.gain()) else { return "" };
    match (100.0 * change.low > forecast.high, 100.0 * change.high < forecast.low) {
        (true, _) => "; more came",
        (_, true) => "; less came",
        _ => "",
    }
}

/// Why less work was done by the clock though each piece took less CPU time, or the other way round.
fn disagreement(by_cpu: &SpeedChange, by_clock: &SpeedChange) -> Option<String> {
    let direction = if by_cpu.low > 0.0 && by_clock.high < 0.0 {
        "less"
    } else if by_cpu.high < 0.0 && by_clock.low > 0.0 {
        "more"
    } else {
        return None;
    };
    Some(format!(
        "each piece of work took {direction} CPU time, yet {direction} was done by the clock: something else limits it, such as its clients"
    ))
}

/// What huge pages gain over the program's own base pages, where pairs understate it.
fn gain_over_own_pages(trial: &Trial) -> Option<String> {
    let change = trial.over_own_pages(Arm::Huge).filter(|_| trial.own_pages_were_slower())?;
    Some(format!(
        "over its own base pages, measured before the first switch, it {}: the base pages since had been huge and still lie next to each other, and many \
         TLBs join such pages. A load that changed, or a program that was still warming up, would do the same",
        changed(&change)
    ))
}

/// What the processor says beside it, where it counts.
fn counted_by_the_processor(trial: &Trial) -> Option<String> {
    let instructions = trial
        .instructions_change()
        .map(|change| format!("{:+.1} % instructions for each second of CPU time on huge pages", 100.0 * change));
    let walks = trial.walk_share(Arm::Base).zip(trial.walk_share(Arm::Huge)).map(|(base, huge)| {
        format!(
            "page walks under way in {:.1} % of its cycles on base pages, {:.1} % on huge pages",
            100.0 * base,
            100.0 * huge
        )
    });
    let both: Vec<String> = walks.into_iter().chain(instructions).collect();
    (!both.is_empty()).then(|| format!("the processor counted: {}", both.join("; ")))
}

/// One line while it goes on.
pub fn trial_under_way(trial: &Trial, limit: Nanos) -> String {
    let so_far = match trial.by_cpu.change() {
        Some(change) => format!("{} so far", changed(&change)),
        None => "nothing is known before the fourth".to_owned(),
    };
    format!("{}: {so_far}; {} of {limit} at most", pairs(trial.by_cpu.pairs()), trial.elapsed)
}

fn verdict(report: &TrialReport) -> String {
    let who = format!("{} (process {})", printable(report.name, 60), report.pid);
    let memory = match report.trial.growth() {
        Some(growth) if growth > 0.00005 => format!(", for {:.2} % more memory", 100.0 * growth),
        _ => String::new(),
    };
    if report.placebo {
        return format!("{who}: {}", placebo_verdict(&report.verdict));
    }
    match report.verdict {
        TrialVerdict::Gain { change } => {
            format!("{who} {}{memory}: keep huge pages{}", changed(&change), missed(report, &change))
        }
        TrialVerdict::Loss { change } => {
            format!("{who} {}{memory}: leave it on base pages{}", changed(&change), missed(report, &change))
        }
        TrialVerdict::NoChange { change } => {
            let (range, missed) = (range(&change), missed(report, &change));
            match report.trial.own_pages_were_slower() {
                true => format!("{who}: no gain over base pages that had been huge ({range}){memory}{missed}"),
                false => format!("{who}: no gain ({range}){memory}: leave it on base pages{missed}"),
            }
        }
        TrialVerdict::Unknown { change: None, .. } if report.is_over => too_few_pairs(report, &who),
        TrialVerdict::Unknown { change, noise, more_ns } => {
            let noise = noise.map_or("too few pairs of windows".to_owned(), |noise| {
                format!("pairs of windows differ by {:.1} %", 100.0 * noise)
            });
            let so_far = change.map_or(String::new(), |change| format!(", so the gain may be {}", range(&change)));
            let more = match more_ns {
                _ if !report.is_over => String::new(),
                Some(more) => {
                    format!("; about {} more would do (--for {})", minutes(more), minutes(more + report.trial.elapsed))
                }
                None => format!(
                    "; a quieter machine, more load or longer windows (--window {}s) would tell",
                    longer_window(report.trial).seconds().ceil()
                ),
            };
            format!("{who}: cannot tell: {noise}{so_far}{more}")
        }
    }
}

/// So few pairs say nothing, however alike they are.
fn too_few_pairs(report: &TrialReport, who: &str) -> String {
    let count = report.trial.by_cpu.pairs();
    let why = match report.moved {
        Some(moved) if count == 0 => never_moved(report, &moved),
        _ => format!("there was time for {} of windows, and an answer takes four or more", pairs(count)),
    };
    let remedy = remedy(report.trial, report.rules, report.moved.as_ref());
    format!("{who}: cannot tell: {why}; {}", trial_next_step(&remedy, report.rules.limit))
}

/// Why there was no pair: memory was still being moved.
fn never_moved(report: &TrialReport, moved: &Moved) -> String {
    let waited = if moved.is_reduced { ", and more slowly than that while programs waited" } else { "" };
    format!(
        "promoting takes longer than the trial may at --max-slowdown {}{waited}: of {} {:.0} % were on huge pages when time was up, after {}",
        moved.max_slowdown,
        report.to_switch,
        100.0 * moved.share,
        moved.took
    )
}

/// What gives a trial enough pairs that may take so long.
pub fn trial_next_step(remedy: &Remedy, limit: Nanos) -> String {
    let Remedy { as_it_went, fast } = *remedy;
    let as_it_went = format!("give it `--for {}`", minutes(as_it_went));
    let Some(fast) = fast else { return as_it_went };
    let longer = if fast > limit { format!(" --for {}", minutes(fast)) } else { String::new() };
    format!("{as_it_went}, or let memory move faster: `--max-slowdown {}{longer}`", Slowdown::FAST)
}

/// Of a trial in which nothing was switched.
fn placebo_verdict(verdict: &TrialVerdict) -> String {
    match verdict {
        TrialVerdict::Gain { change } | TrialVerdict::Loss { change } => {
            format!("a placebo {}, though nothing was switched: one in twenty does", changed(change))
        }
        TrialVerdict::NoChange { change } => format!("a placebo shows no difference, as it should ({})", range(change)),
        TrialVerdict::Unknown { change, .. } => {
            change.map_or("a placebo cannot tell: there was time for too few pairs".to_owned(), |change| {
                let outside = range(&change);
                format!("a placebo shows no difference, as it should; a trial of this length tells only gains outside {outside}")
            })
        }
    }
}

/// That the gain is not known as closely as it was to be.
fn missed(report: &TrialReport, change: &SpeedChange) -> String {
    match report.rules.precision {
        Some(precision) if !is_known(change, Some(precision)) => {
            let trial = report.trial;
            let more = match time_until(&trial.by_cpu, |change| is_known(change, Some(precision)), trial.elapsed) {
                Some(more) => format!("--for {}", minutes(trial.elapsed + more)),
                None => format!("longer windows (--window {}s)", longer_window(trial).seconds().ceil()),
            };
            format!(
                " (known to within ±{:.1} %, not ±{:.1} %; {more} would tell)",
                100.0 * change.half_width(),
                100.0 * precision
            )
        }
        _ => String::new(),
    }
}

fn usual_window(trial: &Trial) -> Nanos {
    let lengths: Vec<f64> = trial.windows.iter().map(|window| window.elapsed_ns.0 as f64).collect();
    Nanos(heat::statistics::median(&lengths).unwrap_or_default() as u64)
}

/// In windows four times as long, pairs differ half as much.
fn longer_window(trial: &Trial) -> Nanos {
    Nanos((4 * usual_window(trial).0).min(3_600_000_000_000))
}

fn by_clock(trial: &Trial) -> String {
    trial.by_clock.change().map_or(String::new(), |change| format!("; by the clock it {}", changed(&change)))
}

fn left(report: &TrialReport) -> String {
    let found = if report.left == report.found { ", as it was found" } else { "" };
    match report.left {
        Arm::Huge => format!("left on huge pages{found}; `hugepilot give-back {}` undoes it", report.pid),
        Arm::Base => format!("left on base pages{found}"),
    }
}

/// `gains 18.2 % (15.1 to 21.4)`, `loses 3.6 % (1.2 to 6.0)`, or, where it may be neither, `changes by -3.6 % (-15.0 to +7.8 %)`.
fn changed(change: &SpeedChange) -> String {
    let [low, likely, high] = [change.low, change.estimate, change.high].map(|share| 100.0 * share);
    match (low > 0.0, high < 0.0) {
        (true, _) => format!("gains {likely:.1} % ({low:.1} to {high:.1})"),
        (_, true) => format!("loses {:.1} % ({:.1} to {:.1})", -likely, -high, -low),
        _ => format!("changes by {likely:+.1} % ({})", range(change)),
    }
}

/// `-0.8 to +0.9 %`
fn range(change: &SpeedChange) -> String {
    format!("{:+.1} to {:+.1} %", 100.0 * change.low, 100.0 * change.high)
}

fn pairs(count: usize) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}

/// Whole minutes, as `--for` takes them.
fn minutes(time: Nanos) -> String {
    format!("{}m", (time.seconds() / 60.0).ceil().max(1.0))
}

#[cfg(test)]
mod tests {
    use heat::units::{Bytes, Nanos, Slowdown};
    use trial::{Moved, Trial, TrialRules};

    use crate::report::TrialReport;
    use crate::report::trial_samples::{trial_after_own_pages, trial_report};

    fn said(ratios: &[f64]) -> String {
        let (trial, verdict) = crate::report::trial_samples::trial_of(ratios);
        trial_report(&trial, verdict, super::trial)
    }

    #[test]
    fn a_clock_that_disagrees_is_told() {
        let change = |low: f64, high: f64| trial::SpeedChange { estimate: (low + high) / 2.0, low, high };
        let (gain, loss, neither) = (change(0.027, 0.066), change(-0.043, -0.015), change(-0.01, 0.01));
        let told = |by_cpu, by_clock| super::disagreement(&by_cpu, &by_clock);
        assert!(told(gain, loss).is_some_and(|line| line.contains("less CPU time, yet less was done")));
        assert!(told(loss, gain).is_some_and(|line| line.contains("more CPU time, yet more was done")));
        assert_eq!([told(gain, neither), told(neither, loss), told(gain, gain), told(loss, loss)], [const { None }; 4]);
    }

    #[test]
    fn a_precision_that_was_missed_is_told() {
        let (trial, verdict) = crate::report::trial_samples::trial_of(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]);
        let told = |precision| {
            trial_report(&trial, verdict, |report| {
                let rules = TrialRules { precision: Some(precision), ..*report.rules };
                super::trial(&TrialReport { rules: &rules, ..*report })
            })
        };
        assert!(told(0.01).contains(", not ±1.0 %; --for 2m would tell"), "{}", told(0.01));
        assert!(!told(0.2).contains("would tell"), "{}", told(0.2));
    }

    #[test]
    fn a_trial_without_a_pair_says_why_and_what_would_help() {
        let (minute, trial) = (60_000_000_000, Trial { elapsed: Nanos(600_000_000_000), ..Trial::default() });
        let verdict = trial::judge(&trial.by_cpu, None, trial.elapsed);
        let told = |share, is_reduced, max_slowdown| {
            let moved = Moved { share, took: Nanos(10 * minute), busy: Nanos(0), max_slowdown, is_reduced };
            trial_report(&trial, verdict, |report| {
                super::trial(&TrialReport {
                    moved: Some(moved),
                    switched: Bytes(0),
                    to_switch: Bytes(8 << 30),
                    ..*report
                })
            })
        };
        let slow = told(0.25, false, Slowdown::ASKED_FOR);
        let expected = "cannot tell: promoting takes longer than the trial may at --max-slowdown 5%: of 8 GiB 25 % were on huge pages when \
                        time was up, after 600 s; give it `--for 322m`, or let memory move faster: `--max-slowdown 40% --for 42m`\n";
        assert!(slow.contains(expected), "{slow}");
        assert!(
            told(0.9, false, Slowdown(0.01)).contains("move faster: `--max-slowdown 40%`\n"),
            "in the ten minutes that it has"
        );
        assert!(told(0.25, true, Slowdown(0.01)).contains("1%, and more slowly than that while programs waited:"));
        assert!(!told(0.25, false, Slowdown::FAST).contains("move faster"), "it is as fast as can be");
    }

    #[test]
    fn a_placebo_has_a_verdict_of_its_own() {
        let told = |ratios: &[f64]| {
            let (trial, verdict) = crate::report::trial_samples::trial_of(ratios);
            trial_report(&trial, verdict, |report| super::trial(&TrialReport { placebo: true, ..*report }))
        };
        assert!(told(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]).contains("a placebo gains 20.0 %"));
        assert!(
            told(&[1.0, 1.001, 0.999, 1.0, 1.002, 0.998]).contains("a placebo shows no difference, as it should (-")
        );
        assert!(told(&[1.3, 0.8, 1.2, 0.9, 1.1, 1.0]).contains("tells only gains outside -"));
        assert!(told(&[1.3]).contains("a placebo cannot tell: there was time for too few pairs"));
    }

    #[test]
    fn own_pages_that_were_slower_are_told() {
        let told = |share| {
            let (trial, verdict) = trial_after_own_pages(&[1.0, 1.001, 0.999, 1.0, 1.002, 0.998], share);
            trial_report(&trial, verdict, super::trial)
        };
        assert!(told(0.8).contains("no gain over base pages that had been huge"), "{}", told(0.8));
        assert!(told(0.8).contains("before the first switch, it gains 25.0 % (24.5 to 25.5)"), "{}", told(0.8));
        for same in [0.99, 1.0, 1.2] {
            assert!(told(same).contains("leave it on base pages") && !told(same).contains("its own"), "{}", told(same));
        }
    }

    #[test]
    fn the_sentence_says_what_to_do() {
        insta::assert_snapshot!(
            [
                said(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]),
                said(&[0.8, 0.81, 0.79, 0.8, 0.82, 0.78]),
                said(&[1.0, 1.001, 0.999, 1.0, 1.002, 0.998]),
                said(&[1.3, 0.8, 1.2, 0.9, 1.1, 1.0]),
                said(&[1.3]),
            ]
            .join("\n")
        );
    }
}
