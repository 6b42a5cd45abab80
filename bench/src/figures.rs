//! The figures that hugepilot must reach, each compared with one run.
//!
//! Owns: the list of figures, and what each compares. Never touches: measurements, or when a figure counts as met.

use heat::statistics::Interval;

use crate::comparison::{Metric, gain_noise, gain_ratio, noise_beside, ratio, slowest_tool, typical};
use crate::configuration::Configuration::{
    self, Always, Default, Explained, Hugepilot, HugepilotNoGrowth, Ideal, Jemalloc, Libhps, LibhpsTenth, Libhugetlbfs,
    Mimalloc, Mimalloc1G, Observed, Oracle, Own, Piloted, Run1G, Run2M, RunThp, Tracked, TunablesPool, TunablesPool1G,
    TunablesThp,
};
use crate::real_time;
use crate::record::Run;
use crate::verdict::{Bound, FigureVerdict, JudgedFigure};
use crate::workload::SearchWork;

/// A figure to reach.
struct Figure {
    /// Its description.
    text: &'static str,
    /// It applies to workloads whose names start with one of these.
    workloads: &'static [&'static str],
    claim: Claim,
}

#[derive(Clone, Copy, Debug)]
enum Claim {
    Ratio {
        metric: Metric,
        subject: Configuration,
        reference: Configuration,
        bound: Bound,
    },
    Gain {
        subject: Configuration,
        of: Configuration,
        at_least: f64,
    },
    ToolSeconds {
        subject: Configuration,
        at_most: f64,
    },
    /// The fastest way to start the program with hugepilot, relative to the fastest way without.
    BestPeer {
        at_least: f64,
    },
    /// Of the slowest turn that hugepilot started, with one stream of music.
    RealTime {
        at_most: f64,
    },
    /// The same with as many streams as default just cannot keep up with.
    LoadedRealTime {
        at_most: f64,
    },
    /// `hugepilot explain` puts no memory on huge pages.
    SaysNo,
}

const fn figure(workloads: &'static [&'static str], text: &'static str, claim: Claim) -> Figure {
    Figure { text, workloads, claim }
}

const fn speed(subject: Configuration, reference: Configuration, at_least: f64) -> Claim {
    Claim::Ratio { metric: Metric::Throughput, subject, reference, bound: Bound::AtLeast(at_least) }
}

const fn slowdown(subject: Configuration, at_most: f64) -> Claim {
    Claim::Ratio { metric: Metric::Throughput, subject, reference: Default, bound: Bound::AtMost(at_most) }
}

const fn growth(subject: Configuration, at_most: f64) -> Claim {
    Claim::Ratio { metric: Metric::OwnMemory, subject, reference: Default, bound: Bound::AtMost(at_most) }
}

const fn machine_growth(subject: Configuration, at_most: f64) -> Claim {
    Claim::Ratio { metric: Metric::MachineMemory, subject, reference: Default, bound: Bound::AtMost(at_most) }
}

const fn gain(subject: Configuration, of: Configuration, at_least: f64) -> Claim {
    Claim::Gain { subject, of, at_least }
}

const MEMCACHED: &[&str] = &["memcached"];
const SWEEP: &[&str] = &["sweep"];
const SKEWED: &[&str] = &["sweep skewed"];
const SCATTERED: &[&str] = &["sweep scattered"];
const THIRDS: &[&str] = &["sweep skewed", "sweep scattered"];
const FULL: &[&str] = &["sweep sequential", "sweep random"];
const BUDGET: &[&str] = &["pilot budget"];
/// A tenth of the songs, as they were searched before.
const TENTH: &[&str] = &["fingerprint"];
const MUSIC: &[&str] = &["music search"];
const SEARCHES: &[&str] = &["fingerprint", "music search"];
const SHORT_LIVED: &[&str] = &["local short-lived"];
const LOCAL: &[&str] = &["local"];
const ALL: &[&str] = &[""];

/// Ways to start a program with hugepilot.
const RUNS: &[Configuration] = &[RunThp, Run2M, Run1G];
/// Other ways to start it.
const PEERS: &[Configuration] =
    &[Always, Libhugetlbfs, TunablesThp, TunablesPool, TunablesPool1G, Jemalloc, Mimalloc, Mimalloc1G];

const FIGURES: &[Figure] = &[
    figure(MEMCACHED, "throughput >= 1.15 x default", speed(Hugepilot, Default, 1.15)),
    figure(MEMCACHED, "throughput >= 0.99 x ideal", speed(Hugepilot, Ideal, 0.99)),
    figure(MEMCACHED, "at least level with memcached -L", speed(Hugepilot, Own, 0.99)),
    figure(MEMCACHED, "RSS growth <= 0.5 %", growth(Hugepilot, 1.005)),
    figure(MEMCACHED, "done within 10 s", Claim::ToolSeconds { subject: Hugepilot, at_most: 10.0 }),
    figure(SWEEP, "throughput >= 0.99 x ideal within 10 s", speed(Hugepilot, Ideal, 0.99)),
    figure(SKEWED, "RSS growth <= 1 %", growth(Hugepilot, 1.01)),
    figure(SKEWED, "RSS growth <= 0.03 % with --max-growth 0", growth(HugepilotNoGrowth, 1.0003)),
    figure(FULL, "RSS growth <= 0.002 %", growth(Hugepilot, 1.00002)),
    figure(MEMCACHED, "libhps: throughput >= 1.00 x always", speed(Libhps, Always, 1.0)),
    figure(MEMCACHED, "libhps: RSS growth <= 1 %", growth(Libhps, 1.01)),
    figure(MEMCACHED, "libhps within a tenth: gain >= 0.5 x ideal's", gain(LibhpsTenth, Ideal, 0.5)),
    figure(SWEEP, "libhps: throughput >= 0.99 x ideal", speed(Libhps, Ideal, 0.99)),
    figure(SWEEP, "tracked: throughput >= 0.98 x default", speed(Tracked, Default, 0.98)),
    figure(THIRDS, "libhps: RSS growth <= 0.031 %", growth(Libhps, 1.00031)),
    figure(SCATTERED, "libhps: throughput >= 0.994 x always", speed(Libhps, Always, 0.994)),
    figure(&["memcached", "sweep"], "hugepilot: the machine's memory <= 1 % more", machine_growth(Hugepilot, 1.01)),
    figure(&["memcached", "sweep"], "libhps: the machine's memory <= 1 % more", machine_growth(Libhps, 1.01)),
    figure(BUDGET, "gain >= 0.95 x the oracle's", gain(Piloted, Oracle, 0.95)),
    figure(BUDGET, "gain >= 0.75 x that of all huge pages", gain(Piloted, Ideal, 0.75)),
    figure(SEARCHES, "run-thp: look-ups >= 1.2 x default", speed(RunThp, Default, 1.2)),
    figure(SEARCHES, "run-2m: look-ups >= 1.2 x default", speed(Run2M, Default, 1.2)),
    figure(SEARCHES, "run-1g: look-ups >= 1.2 x default", speed(Run1G, Default, 1.2)),
    figure(MUSIC, "run-1g: look-ups >= 1.45 x default", speed(Run1G, Default, 1.45)),
    figure(SEARCHES, "run-thp: look-ups >= 0.97 x ideal", speed(RunThp, Ideal, 0.97)),
    figure(SEARCHES, "run-2m: look-ups >= 0.97 x ideal", speed(Run2M, Ideal, 0.97)),
    figure(SEARCHES, "run-1g: look-ups >= 0.97 x ideal", speed(Run1G, Ideal, 0.97)),
    figure(SEARCHES, "at least level with the best peer", Claim::BestPeer { at_least: 0.99 }),
    figure(TENTH, "real-time factor < 0.4", Claim::RealTime { at_most: 0.4 }),
    figure(MUSIC, "real-time factor < 0.4, default's > 1", Claim::LoadedRealTime { at_most: 0.4 }),
    figure(SHORT_LIVED, "always: throughput <= 0.83 x default", slowdown(Always, 0.83)),
    figure(LOCAL, "explain says that it does not pay", Claim::SaysNo),
    figure(ALL, "observed: throughput >= 0.99 x default", speed(Observed, Default, 0.99)),
];

/// The figures that apply to a run.
pub fn verdicts(run: &Run) -> Vec<JudgedFigure> {
    let about = |figure: &&Figure| figure.workloads.iter().any(|prefix| run.workload.starts_with(prefix));
    let judged = |figure: &Figure| {
        let (verdict, numbers) = judge(figure.claim, run);
        JudgedFigure { text: figure.text.to_owned(), numbers, verdict }
    };
    FIGURES.iter().filter(about).map(judged).collect()
}

fn judge(claim: Claim, run: &Run) -> (FigureVerdict, String) {
    match claim {
        Claim::Gain { subject, of, at_least } => {
            match judged(gain_ratio(run, subject, of), gain_noise(run, of), Bound::AtLeast(at_least)) {
                (FigureVerdict::NotMeasured, _) if [subject, of].iter().all(|&each| has_enough_rounds(run, each)) => {
                    (FigureVerdict::NoGain, String::new())
                }
                judged => judged,
            }
        }
        Claim::ToolSeconds { subject, at_most } => {
            judge_worst(slowest_tool(run, subject).map(|seconds| (seconds <= at_most, format!("{seconds:.2} s"))))
        }
        Claim::Ratio { metric, subject, reference, bound } => judge_ratio(run, metric, subject, reference, bound),
        Claim::BestPeer { at_least } => judge_best_peer(run, at_least),
        Claim::RealTime { at_most } => {
            judge_worst(slowest_search(run).map(|slowest| (slowest < at_most, format!("{slowest:.5}"))))
        }
        Claim::LoadedRealTime { at_most } => {
            let loaded = slowest_search(run).zip(real_time::streams(run));
            let judged = |(slowest, streams): (f64, f64)| {
                (slowest * streams < at_most, format!("{:.3} at {streams} streams", slowest * streams))
            };
            judge_worst(loaded.map(judged))
        }
        Claim::SaysNo => judge_explanation(run),
    }
}

/// The real-time factor of the slowest turn that hugepilot started.
fn slowest_search(run: &Run) -> Option<f64> {
    let searches = RUNS.iter().flat_map(|&each| run.turns_of(each)).filter_map(|turn| turn.search.as_ref());
    searches.map(SearchWork::real_time_factor).reduce(f64::max)
}

/// Of the worst that was seen: whether it is good enough, and the number.
fn judge_worst(worst: Option<(bool, String)>) -> (FigureVerdict, String) {
    match worst {
        Some((true, number)) => (FigureVerdict::Met, format!("at most {number}")),
        Some((false, number)) => (FigureVerdict::NotMet, format!("up to {number}")),
        None => (FigureVerdict::NotMeasured, String::new()),
    }
}

/// Compares the fastest of each side, because an operator would choose that.
fn judge_best_peer(run: &Run, at_least: f64) -> (FigureVerdict, String) {
    let (Some(subject), Some(peer)) = (fastest(run, RUNS), fastest(run, PEERS)) else {
        return (FigureVerdict::NotMeasured, String::new());
    };
    let (verdict, numbers) = judge_ratio(run, Metric::Throughput, subject, peer, Bound::AtLeast(at_least));
    (verdict, format!("{subject} of {peer}: {numbers}"))
}

fn fastest(run: &Run, configurations: &[Configuration]) -> Option<Configuration> {
    let speeds =
        configurations.iter().filter_map(|&each| Some((each, typical(run, each, |turn| Some(turn.throughput))?)));
    speeds.max_by(|left, right| left.1.total_cmp(&right.1)).map(|(configuration, _)| configuration)
}

/// Unknown is no answer: it must decline in every turn.
fn judge_explanation(run: &Run) -> (FigureVerdict, String) {
    let told: Vec<_> = run.turns_of(Explained).filter_map(|turn| turn.tool.as_ref()).map(|tool| &tool.output).collect();
    let says_no = |output: &&&serde_json::Value| {
        output["would_pay_bytes"].as_u64() == Some(0) && !output["expected_gain_percent"].is_null()
    };
    let no = told.iter().filter(says_no).count();
    match told.len() {
        0 => (FigureVerdict::NotMeasured, String::new()),
        all if all == no => (FigureVerdict::Met, format!("in each of {all} turns")),
        all => (FigureVerdict::NotMet, format!("in {no} of {all} turns")),
    }
}

/// Whether an interval over this many rounds has the required confidence; that takes 6.
fn has_enough_rounds(run: &Run, configuration: Configuration) -> bool {
    run.turns_of(configuration).count() >= 6
}

fn judge_ratio(
    run: &Run,
    metric: Metric,
    subject: Configuration,
    reference: Configuration,
    bound: Bound,
) -> (FigureVerdict, String) {
    judged(ratio(run, metric, subject, reference), noise_beside(run, metric, reference), bound)
}

fn judged(seen: Option<Interval>, noise: Option<Interval>, bound: Bound) -> (FigureVerdict, String) {
    let (Some(seen), Some(noise)) = (seen, noise) else {
        return (FigureVerdict::NotMeasured, String::new());
    };
    (FigureVerdict::of(&seen, &noise, bound), with_many_digits(&seen))
}

/// For small differences.
pub fn with_many_digits(Interval { estimate, low, high, .. }: &Interval) -> String {
    format!("{estimate:.5} [{low:.5}, {high:.5}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;
    use crate::configuration::Configuration::DefaultAgain;
    use crate::record::ToolRun;

    const FLAT: &[f64] = &[100.0, 100.1, 99.9, 100.0, 100.1, 99.9, 100.0, 100.0];

    fn verdict_of(run: &Run, text: &str) -> FigureVerdict {
        verdicts(run).into_iter().find(|figure| figure.text == text).unwrap().verdict
    }

    fn memcached(hugepilot: f64, again: &[f64]) -> Run {
        let faster: Vec<f64> = FLAT.iter().map(|value| value * hugepilot).collect();
        run_of("memcached", &[(Default, FLAT, 1000), (DefaultAgain, again, 1000), (Hugepilot, &faster, 1004)])
    }

    #[test]
    fn the_whole_interval_must_meet_the_figure() {
        let text = "throughput >= 1.15 x default";
        assert_eq!(verdict_of(&memcached(1.20, FLAT), text), FigureVerdict::Met);
        assert_eq!(verdict_of(&memcached(1.10, FLAT), text), FigureVerdict::NotMet);
        let mut scattered = memcached(1.15, FLAT);
        scattered.turns.iter_mut().filter(|turn| turn.configuration == Hugepilot).for_each(|turn| {
            turn.throughput *= 1.0 + 0.01 * (f64::from(turn.round) - 3.5);
        });
        assert_eq!(verdict_of(&scattered, text), FigureVerdict::Open);
    }

    #[test]
    fn noise_beyond_the_margin_is_not_resolvable() {
        let noisy: Vec<f64> = (0..8).map(|round| if round % 2 == 0 { 70.0 } else { 140.0 }).collect();
        let text = "throughput >= 1.15 x default";
        assert!(matches!(
            verdict_of(&memcached(1.20, &noisy), text),
            FigureVerdict::NotResolvable(reach) if reach > 0.15
        ));
        assert_eq!(verdict_of(&memcached(3.0, &noisy), text), FigureVerdict::Met, "far beyond the noise");
    }

    #[test]
    fn who_was_measured_twice_tells_its_own_noise() {
        use crate::configuration::Configuration::AlwaysAgain;
        let noisy: Vec<f64> = (0..8).map(|round| if round % 2 == 0 { 70.0 } else { 140.0 }).collect();
        let level: Vec<f64> = FLAT.iter().map(|value| value * 1.05).collect();
        let once = [(Default, FLAT, 1), (DefaultAgain, &noisy[..], 1), (Always, FLAT, 3), (Libhps, &level[..], 1)];
        let twice = [&once[..], &[(AlwaysAgain, FLAT, 3)]].concat();
        let verdict =
            |turns: &[_]| verdict_of(&run_of("sweep scattered", turns), "libhps: throughput >= 0.994 x always");
        assert!(matches!(verdict(&once), FigureVerdict::NotResolvable(_)));
        assert_eq!(verdict(&twice), FigureVerdict::Met);
    }

    #[test]
    fn gains_are_held_against_gains() {
        let verdict = |piloted: f64, again: f64| {
            let scaled = |factor: f64| FLAT.iter().map(|value| value * factor).collect::<Vec<f64>>();
            let (again, piloted, oracle) = (scaled(again), scaled(piloted), scaled(1.2));
            let run = run_of(
                "pilot budget",
                &[(Default, FLAT, 1), (DefaultAgain, &again, 1), (Piloted, &piloted, 1), (Oracle, &oracle, 1)],
            );
            verdict_of(&run, "gain >= 0.95 x the oracle's")
        };
        assert_eq!(verdict(1.199, 1.0), FigureVerdict::Met);
        assert_eq!(verdict(1.15, 1.0), FigureVerdict::NotMet, "0.96 x the oracle's throughput, and 0.75 x its gain");
        assert_eq!(verdict(0.9, 1.0), FigureVerdict::NotMet, "a loss is no gain");
        assert!(matches!(verdict(1.199, 1.02), FigureVerdict::NotResolvable(_)));
        assert_eq!(verdict(1.199, 1.5), FigureVerdict::NoGain, "the oracle's is less than the default's");
    }

    #[test]
    fn growth_has_an_upper_bound() {
        assert_eq!(verdict_of(&memcached(1.2, FLAT), "RSS growth <= 0.5 %"), FigureVerdict::Met);
        let mut grown = memcached(1.2, FLAT);
        grown
            .turns
            .iter_mut()
            .filter(|turn| turn.configuration == Hugepilot)
            .for_each(|turn| turn.after.own_bytes = 1900);
        assert_eq!(verdict_of(&grown, "RSS growth <= 0.5 %"), FigureVerdict::NotMet);
    }

    #[test]
    fn the_fastest_start_is_held_against_the_fastest_peer() {
        let scaled = |factor: f64| FLAT.iter().map(|value| value * factor).collect::<Vec<f64>>();
        let (thp, pool, peer, slow) = (scaled(1.3), scaled(1.5), scaled(1.4), scaled(1.1));
        let run = run_of(
            "fingerprint 1 thread",
            &[
                (Default, FLAT, 1),
                (DefaultAgain, FLAT, 1),
                (RunThp, &thp, 1),
                (Run2M, &pool, 1),
                (TunablesPool, &peer, 1),
                (Jemalloc, &slow, 1),
            ],
        );
        let text = "at least level with the best peer";
        assert_eq!(verdict_of(&run, text), FigureVerdict::Met);
        let numbers = verdicts(&run).into_iter().find(|figure| figure.text == text).unwrap().numbers;
        assert!(numbers.starts_with("run-2m of tunables-pool: 1.07"), "{numbers}");
        assert_eq!(verdict_of(&run, "run-1g: look-ups >= 1.2 x default"), FigureVerdict::NotMeasured);
        assert_eq!(verdict_of(&run, "run-2m: look-ups >= 1.2 x default"), FigureVerdict::Met);
    }

    #[test]
    fn searches_must_keep_up_with_music() {
        let text = "real-time factor < 0.4";
        let mut run = run_of("fingerprint 1 thread", &[(RunThp, &FLAT[..2], 1)]);
        assert_eq!(verdict_of(&run, text), FigureVerdict::NotMeasured);
        let search = SearchWork { queries: 1, look_up_ns: 1_000_000_000, ..SearchWork::default() };
        run.turns.iter_mut().for_each(|turn| turn.search = Some(search));
        assert_eq!(verdict_of(&run, text), FigureVerdict::Met);
        run.turns[1].search = Some(SearchWork { look_up_ns: 4_000_000_000, ..search });
        assert_eq!(verdict_of(&run, text), FigureVerdict::NotMet);
    }

    #[test]
    fn searches_must_keep_up_with_more_music_than_default_can() {
        let text = "real-time factor < 0.4, default's > 1";
        let mut run = run_of("music search 1 thread", &[(Default, &FLAT[..2], 1), (Run1G, &FLAT[..2], 1)]);
        assert_eq!(verdict_of(&run, text), FigureVerdict::NotMeasured);
        let mut verdict_with = |run_1g_ns| {
            for turn in &mut run.turns {
                let look_up_ns = if turn.configuration == Default { 78_000_000 } else { run_1g_ns };
                turn.search = Some(SearchWork { queries: 1, look_up_ns, ..SearchWork::default() });
            }
            verdict_of(&run, text)
        };
        assert_eq!(verdict_with(39_000_000), FigureVerdict::NotMet);
        assert_eq!(verdict_with(30_000_000), FigureVerdict::Met);
    }

    #[test]
    fn an_explanation_must_say_no_each_time() {
        let text = "explain says that it does not pay";
        let mut run = run_of("local small", &[(Explained, &FLAT[..2], 1)]);
        assert_eq!(verdict_of(&run, text), FigureVerdict::NotMeasured);
        let told = |bytes: u64, gain: serde_json::Value| {
            let output = serde_json::json!({ "would_pay_bytes": bytes, "expected_gain_percent": gain });
            Some(ToolRun { seconds: 1.0, output })
        };
        run.turns.iter_mut().for_each(|turn| turn.tool = told(0, serde_json::json!({ "likely": 0.0 })));
        assert_eq!(verdict_of(&run, text), FigureVerdict::Met);
        run.turns[1].tool = told(0, serde_json::Value::Null);
        assert_eq!(verdict_of(&run, text), FigureVerdict::NotMet, "it knows nothing");
        run.turns[1].tool = told(2 << 20, serde_json::json!({ "likely": 0.1 }));
        assert_eq!(verdict_of(&run, text), FigureVerdict::NotMet);
    }

    #[test]
    fn few_rounds_and_missing_configurations_are_said() {
        let three = run_of(
            "memcached",
            &[(Default, &FLAT[..3], 1), (DefaultAgain, &FLAT[..3], 1), (Hugepilot, &[200.0; 3], 1)],
        );
        assert_eq!(verdict_of(&three, "throughput >= 1.15 x default"), FigureVerdict::NotMeasured);
        assert_eq!(verdict_of(&memcached(1.2, FLAT), "throughput >= 0.99 x ideal"), FigureVerdict::NotMeasured);
    }

    #[test]
    fn each_workload_has_its_own_figures() {
        let texts = |name| verdicts(&run_of(name, &[])).len();
        assert_eq!(
            (texts("memcached"), texts("sweep skewed"), texts("sweep random"), texts("chase dependent")),
            (11, 9, 7, 1)
        );
        assert_eq!((texts("fingerprint 2 threads"), texts("local small")), (9, 2));
        assert_eq!((texts("music search 2 threads"), texts("local short-lived")), (10, 3));
    }
}
