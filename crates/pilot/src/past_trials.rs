//! What trials on this machine showed: the gain that came beside the one that was expected.
//!
//! Owns: the file of outcomes, and how they correct an estimate. Never touches: how a trial goes, or what the estimate is made of.
//!
//! A trial of the same program says most: its interval and the range of the estimate are combined, each with the weight of its precision. Trials of
//! at least three other programs say whether this machine gains more or less than the model has it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use heat::statistics::median;
use hugepilot_os::run_directory::replace_file;
use kernel::Root;
use kernel::process::program;
use kernel::target::Process;
use serde::{Deserialize, Serialize};

use crate::decide::GainPercent;
use crate::programs::ProcessPlace;

/// Where outcomes are kept, across restarts of the machine.
pub const TRIALS: &str = "/var/lib/hugepilot/trials.json";
/// The oldest outcome makes room.
const MOST_KEPT: usize = 64;
/// What is read of the file. With usual paths, 64 outcomes take a tenth of it; the longest path takes 4 KiB.
const LONGEST_FILE: u64 = 512 << 10;
/// Outcomes known less closely than this to either side, in percent of speed, are not kept.
pub const WIDEST_KEPT: f64 = 15.0;
/// Below this, the ratio of what came to what was expected says nothing.
const LEAST_EXPECTED: f64 = 1.0;
/// Other programs correct an estimate from this many on.
const FEWEST_OTHERS: usize = 3;
/// No ratio counts for more; the trial may have counted something else than the program's work.
const LARGEST_RATIO: f64 = 4.0;
/// Ends of a range of an estimate, in standard deviations: nine of ten lie inside.
const OF_A_RANGE: f64 = 1.645;
/// Ends of a trial's interval, in standard deviations.
const OF_AN_INTERVAL: f64 = 1.96;
/// A program's load is not the same from day to day: the share of its gain by which another day's differs.
const DAY_TO_DAY: f64 = 0.1;

/// A program that was on trial, so that it is known again.
///
/// A command line would tell more, but reading it reads the process's memory, and a user may have mapped there what never answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TriedProgram {
    /// What a service runs, across restarts.
    Service {
        /// The systemd service.
        service: String,
        /// The file of the program.
        executable: PathBuf,
    },
    /// Any other process, until it ends.
    Process {
        /// The boot that it belongs to (`/proc/sys/kernel/random/boot_id`).
        boot: String,
        /// Its identity.
        process: Process,
        /// The file of the program, if that was known.
        #[serde(default)]
        executable: Option<PathBuf>,
    },
}

/// What a trial showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialOutcome {
    /// The program.
    pub program: TriedProgram,
    /// What the model expected, without any correction.
    pub expected: GainPercent,
    /// What came: the interval of the trial.
    pub gained: GainPercent,
}

/// The outcomes of trials on this machine, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PastTrials(Vec<TrialOutcome>);

/// The outcomes in a file, read again when it has changed.
#[derive(Debug, Default)]
pub struct TrialsFile {
    /// Its inode, and when that was last changed.
    version: Option<(u64, i64, i64)>,
    trials: PastTrials,
}

/// The file of outcomes could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the outcome of the trial in {path}: {cause}; forecasts stay as they were", path = path.display())]
pub struct NotKept {
    path: PathBuf,
    cause: io::Error,
}

/// What an estimate rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EstimatedFrom {
    /// Page walks and their cost alone.
    #[default]
    Model,
    /// The same, corrected by what trials of other programs showed.
    OtherTrials,
    /// The same, corrected by a trial of the same program.
    ItsTrial,
}

/// How past trials correct the estimates of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Correction {
    /// Not at all.
    #[default]
    None,
    /// Other programs gained this many times what was expected.
    OtherTrials(f64),
    /// The same program was on trial.
    ItsTrial {
        /// What was expected of it then.
        expected: GainPercent,
        /// What it gained.
        gained: GainPercent,
    },
}

impl TrialOutcome {
    /// None if the trial told too little, or if it cannot be told which program it was of.
    pub fn of(program: Option<TriedProgram>, expected: GainPercent, gained: GainPercent) -> Option<Self> {
        let is_known = gained.half_width() <= WIDEST_KEPT && is_sound(&gained) && is_sound(&expected);
        let program = program.filter(|_| is_known)?;
        Some(Self { program, expected, gained })
    }

    /// What came as a multiple of what was expected.
    fn ratio(&self) -> Option<f64> {
        let ratio = log_speed(self.gained.likely) / log_speed(self.expected.likely);
        (self.expected.likely >= LEAST_EXPECTED).then(|| ratio.clamp(0.0, LARGEST_RATIO))
    }
}

impl TriedProgram {
    /// What a process runs. None if it has ended, or if that may not be read.
    pub fn of(root: &Root, process: Process) -> Option<Self> {
        match ProcessPlace::of(root, process.pid).lasting() {
            Some(service) => Some(Self::Service { service, executable: program(root, process.pid).ok()? }),
            None => {
                let boot = root.text("proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
                Some(Self::Process { boot, process, executable: program(root, process.pid).ok() })
            }
        }
    }

    /// Whether both are the same program: a process stays itself when its file is replaced.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Process { boot, process, .. }, Self::Process { boot: of_other, process: other, .. }) => {
                (boot, process) == (of_other, other)
            }
            _ => self == other,
        }
    }

    fn executable(&self) -> Option<&Path> {
        match self {
            Self::Service { executable, .. } => Some(executable),
            Self::Process { executable, .. } => executable.as_deref(),
        }
    }
}

impl PastTrials {
    /// The outcomes in a file; none if there is no file or it is damaged, which is logged.
    pub fn read(path: &Path) -> Self {
        let Ok(file) = File::open(path) else { return Self::default() };
        Self::parse(file).unwrap_or_else(|error| {
            tracing::warn!("{} is damaged ({error}); forecasts do without it", path.display());
            Self::default()
        })
    }

    /// The outcomes in such a file, without those that no trial can have had. Errors: it is not such a file.
    pub fn parse(file: impl Read) -> serde_json::Result<Self> {
        let Self(mut outcomes) = serde_json::from_reader(file.take(LONGEST_FILE))?;
        outcomes.retain(|outcome| is_sound(&outcome.expected) && is_sound(&outcome.gained));
        Ok(Self(outcomes))
    }

    /// Adds an outcome in place of an earlier one of the same program, and writes the file.
    ///
    /// Errors: the file cannot be written.
    pub fn keep(path: &Path, outcome: TrialOutcome) -> Result<(), NotKept> {
        let mut all = Self::read(path);
        all.add(outcome);
        let written = || {
            let directory = path.parent().unwrap_or(Path::new("/"));
            DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
            // What runs here is nobody else's business.
            replace_file(path, 0o600, &serde_json::to_vec_pretty(&all)?)
        };
        written().map_err(|cause| NotKept { path: path.to_owned(), cause })
    }

    fn add(&mut self, outcome: TrialOutcome) {
        self.0.retain(|other| !other.program.is_same(&outcome.program));
        self.0.push(outcome);
        let excess = self.0.len().saturating_sub(MOST_KEPT);
        self.0.drain(..excess);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One for each program: however often one is started anew, it says the same about this machine. Those whose file is unknown count as one.
    fn ratios_by_program(&self) -> Vec<f64> {
        let mut ratios: BTreeMap<Option<&Path>, Vec<f64>> = BTreeMap::new();
        for outcome in &self.0 {
            ratios.entry(outcome.program.executable()).or_default().extend(outcome.ratio());
        }
        ratios.values().filter_map(|of_program| median(of_program)).collect()
    }

    /// How they correct the estimates of a program.
    pub fn correction(&self, program: Option<&TriedProgram>) -> Correction {
        let is_own = |outcome: &&TrialOutcome| program.is_some_and(|program| outcome.program.is_same(program));
        if let Some(own) = self.0.iter().find(is_own) {
            return Correction::ItsTrial { expected: own.expected, gained: own.gained };
        }
        let ratios: Vec<f64> = self.ratios_by_program();
        let Some(typical) = median(&ratios).filter(|_| ratios.len() >= FEWEST_OTHERS) else { return Correction::None };
        // Few of them say little: as if three more had shown that the model is right.
        let count = ratios.len() as f64;
        Correction::OtherTrials(1.0 + (typical - 1.0) * count / (count + FEWEST_OTHERS as f64))
    }
}

impl TrialsFile {
    /// What stands in it now, as [`PastTrials::read`].
    pub fn read(&mut self, path: &Path) -> &PastTrials {
        let version = fs::metadata(path).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
        if version != self.version {
            *self = Self { version, trials: PastTrials::read(path) };
        }
        &self.trials
    }
}

impl Correction {
    /// The estimate, corrected. Where nothing is expected there is nothing to correct.
    pub fn apply(self, model: GainPercent) -> (GainPercent, EstimatedFrom) {
        match self {
            _ if model.high <= 0.0 => (model, EstimatedFrom::Model),
            Correction::None => (model, EstimatedFrom::Model),
            Correction::OtherTrials(ratio) => (scaled(model, ratio), EstimatedFrom::OtherTrials),
            Correction::ItsTrial { expected, gained } => (combined(model, expected, gained), EstimatedFrom::ItsTrial),
        }
    }
}

/// Gains are ratios of speeds, so their logarithms add up.
fn log_speed(percent: f64) -> f64 {
    (percent / 100.0).ln_1p()
}

fn percent(log_speed: f64) -> f64 {
    100.0 * log_speed.exp_m1()
}

fn scaled(model: GainPercent, ratio: f64) -> GainPercent {
    let scale = |end: f64| percent(ratio * log_speed(end));
    GainPercent { low: scale(model.low), likely: scale(model.likely), high: scale(model.high) }
}

/// The model's estimate of today with what its trial showed; if more or less is expected today than then, the trial counts for as much more or less.
fn combined(model: GainPercent, expected: GainPercent, gained: GainPercent) -> GainPercent {
    let since_then = match expected.likely >= LEAST_EXPECTED {
        true => (log_speed(model.likely) / log_speed(expected.likely)).min(LARGEST_RATIO),
        false => 1.0,
    };
    let width = |range: GainPercent, ends: f64| (log_speed(range.high) - log_speed(range.low)) / (2.0 * ends);
    let shown = since_then * log_speed(gained.likely);
    let trial_deviation = (since_then * width(gained, OF_AN_INTERVAL)).hypot(DAY_TO_DAY * shown);
    let model_deviation = width(model, OF_A_RANGE);
    let [trial_weight, model_weight] = [trial_deviation, model_deviation].map(|deviation| deviation.max(1e-4).powi(-2));
    let likely = (trial_weight * shown + model_weight * log_speed(model.likely)) / (trial_weight + model_weight);
    let half = OF_A_RANGE / (trial_weight + model_weight).sqrt();
    let [low, likely, high] = [likely - half, likely, likely + half].map(|end| percent(end).max(0.0));
    GainPercent { low, likely, high }
}

fn is_sound(range: &GainPercent) -> bool {
    let GainPercent { low, likely, high } = range;
    -99.0 < *low && low <= likely && likely <= high && *high < 1e4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(low: f64, likely: f64, high: f64) -> GainPercent {
        GainPercent { low, likely, high }
    }

    fn service(name: &str) -> TriedProgram {
        TriedProgram::Service { service: format!("{name}.service"), executable: format!("/usr/bin/{name}").into() }
    }

    fn outcome(name: &str, expected: f64, gained: f64) -> TrialOutcome {
        let expected = range(0.5 * expected, expected, 2.0 * expected);
        let gained = range(gained - 2.0, gained, gained + 2.0);
        TrialOutcome::of(Some(service(name)), expected, gained).expect("known closely")
    }

    fn past(outcomes: impl IntoIterator<Item = TrialOutcome>) -> PastTrials {
        let mut past = PastTrials::default();
        outcomes.into_iter().for_each(|outcome| past.add(outcome));
        past
    }

    const MODEL: GainPercent = GainPercent { low: 5.0, likely: 10.0, high: 20.0 };

    #[test]
    fn without_trials_nothing_is_corrected() {
        let past = past([outcome("a", 10.0, 20.0), outcome("b", 10.0, 20.0)]);
        assert_eq!(past.correction(Some(&service("c"))), Correction::None, "two others say nothing");
        assert_eq!(Correction::None.apply(MODEL), (MODEL, EstimatedFrom::Model));
        assert_eq!(past.correction(None), Correction::None);
    }

    #[test]
    fn its_own_trial_says_most() {
        let past = past([outcome("a", 10.0, 20.0)]);
        let (corrected, from) = past.correction(Some(&service("a"))).apply(MODEL);
        assert_eq!(from, EstimatedFrom::ItsTrial);
        assert!((16.0..20.0).contains(&corrected.likely), "{corrected:?}");
        assert!(corrected.high - corrected.low < MODEL.high - MODEL.low, "{corrected:?}");
        // Of half of the page walks, half of the gain.
        let half = range(2.5, 5.0, 10.0);
        let (less, _) = past.correction(Some(&service("a"))).apply(half);
        assert!((8.0..10.0).contains(&less.likely), "{less:?}");
    }

    #[test]
    fn a_trial_without_a_gain_lowers_the_estimate_to_nothing() {
        let past = past([outcome("a", 10.0, -1.0)]);
        let (corrected, _) = past.correction(Some(&service("a"))).apply(MODEL);
        assert!(corrected.low == 0.0 && corrected.likely < 2.0, "{corrected:?}");
    }

    #[test]
    fn three_others_say_what_the_machine_is_like() {
        let past = past(["a", "b", "c"].map(|name| outcome(name, 10.0, 21.0)));
        let Correction::OtherTrials(ratio) = past.correction(Some(&service("d"))) else { panic!("no correction") };
        assert!((ratio - 1.5).abs() < 1e-9, "{ratio}: 2, with three that say 1");
        let (corrected, from) = past.correction(Some(&service("d"))).apply(MODEL);
        assert_eq!(from, EstimatedFrom::OtherTrials);
        assert!((15.0..15.5).contains(&corrected.likely) && corrected.low > 7.0, "{corrected:?}");
    }

    #[test]
    fn a_program_that_is_started_again_and_again_is_one_other() {
        let started = |pid| {
            let process = Process { pid, start_ticks: 1 };
            let executable = Some("/usr/bin/memcached".into());
            let program = TriedProgram::Process { boot: "one".to_owned(), process, executable };
            TrialOutcome { program, ..outcome("a", 10.0, 21.0) }
        };
        let past = past([started(1), started(2), started(3), outcome("b", 10.0, 21.0)]);
        assert_eq!(past.correction(Some(&service("d"))), Correction::None);
        let process = Process { pid: 2, start_ticks: 1 };
        let replaced = TriedProgram::Process { boot: "one".to_owned(), process, executable: None };
        assert!(matches!(past.correction(Some(&replaced)), Correction::ItsTrial { .. }), "its file was replaced");
    }

    #[test]
    fn where_nothing_pays_no_trial_says_otherwise() {
        let nothing = range(0.0, 0.0, 0.0);
        let past = past([outcome("a", 10.0, 20.0)]);
        assert_eq!(past.correction(Some(&service("a"))).apply(nothing), (nothing, EstimatedFrom::Model));
    }

    #[test]
    fn a_trial_that_told_little_is_not_kept() {
        let wide = range(-11.0, 9.0, 33.0);
        assert_eq!(TrialOutcome::of(Some(service("a")), MODEL, wide), None);
        assert_eq!(TrialOutcome::of(None, MODEL, MODEL), None);
        assert_eq!(TrialOutcome::of(Some(service("a")), MODEL, range(f64::NAN, 0.0, 0.0)), None);
    }

    #[test]
    fn outcomes_are_kept_newest_last_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hugepilot/trials.json");
        assert_eq!(PastTrials::read(&path), PastTrials::default());
        for number in 0..MOST_KEPT + 2 {
            PastTrials::keep(&path, outcome(&number.to_string(), 10.0, 20.0)).unwrap();
        }
        PastTrials::keep(&path, outcome("7", 10.0, 30.0)).unwrap();
        let PastTrials(kept) = PastTrials::read(&path);
        assert_eq!(kept.len(), MOST_KEPT);
        assert_eq!((&kept[0].program, kept[MOST_KEPT - 1].gained.likely), (&service("2"), 30.0));
        assert_eq!(kept.iter().filter(|outcome| outcome.program == service("7")).count(), 1);
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trials.json");
        let mut file = TrialsFile::default();
        assert!(file.read(&path).is_empty());
        PastTrials::keep(&path, outcome("a", 10.0, 20.0)).unwrap();
        assert!(!file.read(&path).is_empty());
        std::fs::remove_file(&path).unwrap();
        assert!(file.read(&path).is_empty());
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trials.json");
        for text in ["", "{}", "[{\"program\":1}]", "[null]"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(PastTrials::read(&path), PastTrials::default(), "{text}");
        }
        let unsound = TrialOutcome { gained: range(3.0, 2.0, 1.0), ..outcome("a", 10.0, 20.0) };
        std::fs::write(&path, serde_json::to_vec(&[unsound]).unwrap()).unwrap();
        assert_eq!(PastTrials::read(&path), PastTrials::default());
    }

    #[test]
    fn a_service_is_known_again_and_any_other_process_until_it_ends() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let process = |pid, group: &str| {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("cgroup"), format!("0::{group}\n")).unwrap();
            std::os::unix::fs::symlink("/usr/bin/a", directory.join("exe")).unwrap();
            TriedProgram::of(&root, Process { pid, start_ticks: pid.into() })
        };
        std::fs::create_dir_all(tree.path().join("proc/sys/kernel/random")).unwrap();
        std::fs::write(tree.path().join("proc/sys/kernel/random/boot_id"), "one\n").unwrap();
        let of_service = process(5, "/system.slice/a.service");
        assert_eq!((&of_service, process(6, "/system.slice/a.service")), (&Some(service("a")), of_service.clone()));
        assert_ne!(process(7, "/system.slice/b.service"), of_service);
        let by_hand = process(8, "/user.slice/user-0.slice/session-3.scope");
        assert_ne!(by_hand, process(9, "/user.slice/user-0.slice/session-3.scope"));
        assert!(matches!(by_hand, Some(TriedProgram::Process { .. })), "{by_hand:?}");
    }

    proptest! {
        #[test]
        fn a_correction_keeps_the_order_of_a_range(
            model in prop::collection::vec(0.0..300.0f64, 3),
            expected in prop::collection::vec(0.0..300.0f64, 3),
            gained in prop::collection::vec(-50.0..300.0f64, 3),
            ratio in 0.0..LARGEST_RATIO,
        ) {
            let [model, expected, gained] = [model, expected, gained].map(|mut ends| {
                ends.sort_by(f64::total_cmp);
                range(ends[0], ends[1], ends[2])
            });
            for correction in [Correction::OtherTrials(ratio), Correction::ItsTrial { expected, gained }] {
                let (GainPercent { low, likely, high }, _) = correction.apply(model);
                prop_assert!(0.0 <= low && low <= likely && likely <= high && high.is_finite(), "{low} {likely} {high}");
            }
        }
    }
}
