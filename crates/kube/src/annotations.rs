//! Annotations of pods and namespaces: `hugepilot.io/mode` and the limits.
//!
//! Owns: their names, their values, and what a wrong one means. Never touches: the cluster.
//!
//! What a pod says comes before what its namespace says, and that before the agent's defaults. A wrong value means that the pod is at most observed:
//! whoever mistypes a limit must not get a promotion without it.

use std::collections::BTreeMap;
use std::fmt;

use daemon::config::parse_weight;
use daemon::control::target_set::{GroupMode, GroupTarget, parse_own_limit};
use heat::units::Slowdown;

/// The label that says which arm of a trial a replica is in; `hugepilot fleet trial` reads it.
pub const ARM_LABEL: &str = "arm";
/// What all annotations begin with.
pub const PREFIX: &str = "hugepilot.io/";
/// Bytes of a value; each has fewer.
const LONGEST_VALUE: usize = 32;
/// Characters of a name or value that a message quotes.
const SHOWN: usize = 60;
/// How similar, from 0 to 1, a known name must be to be suggested for an unknown one.
const ALIKE: f64 = 0.8;
const KNOWN: [&str; 6] = ["mode", "max-growth", "max-huge", "max-slowdown", "trial", "weight"];

/// Annotations by name.
pub type Annotations = BTreeMap<String, String>;

/// What is to be done to a pod. Limits are as written; None where nobody gave one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the annotations")]
pub struct PodSettings {
    pub mode: GroupMode,
    pub weight: Option<String>,
    pub max_growth: Option<String>,
    pub max_huge: Option<String>,
    pub max_slowdown: Option<String>,
    pub trial: Option<TrialShare>,
}

/// The share of a workload's replicas that is promoted in a trial, in percent: 1 to 99.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialShare(u8);

/// What a trial across replicas does to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialArm {
    /// It is promoted.
    Promoted,
    /// It is only observed.
    Observed,
}

impl TrialArm {
    /// Its name as a label's value.
    pub fn word(self) -> &'static str {
        match self {
            TrialArm::Promoted => "promoted",
            TrialArm::Observed => "observed",
        }
    }
}

impl PodSettings {
    /// What may be done to the replica with this uid. In a trial the uid decides whether it is promoted or only observed.
    pub fn mode_of(&self, uid: &str) -> GroupMode {
        match self.arm_of(uid) {
            Some(TrialArm::Promoted) => GroupMode::Promote,
            Some(TrialArm::Observed) => GroupMode::Observe,
            None => self.mode,
        }
    }

    /// Its arm of a trial; None outside of one. What is off takes part in none.
    pub fn arm_of(&self, uid: &str) -> Option<TrialArm> {
        let share = self.trial.filter(|_| self.mode != GroupMode::Off)?;
        Some(if share.includes(uid) { TrialArm::Promoted } else { TrialArm::Observed })
    }

    /// A container with one of these names of its group, and these labels of its metrics.
    pub fn target(&self, cgroups: Vec<String>, mode: GroupMode, labels: BTreeMap<String, String>) -> GroupTarget {
        GroupTarget {
            cgroups,
            mode,
            weight: self.weight.clone(),
            max_growth: self.max_growth.clone(),
            max_huge: self.max_huge.clone(),
            max_slowdown: self.max_slowdown.clone(),
            labels,
        }
    }
}

impl TrialShare {
    /// Whether the replica with this uid is among them. The same uid always is, whichever agent asks.
    pub fn includes(self, uid: &str) -> bool {
        part_of(100, uid) < u64::from(self.0)
    }
}

/// A number from 0 to `whole - 1` that depends on the uid alone. `whole` has at most 32 bits.
pub fn part_of(whole: u64, uid: &str) -> u64 {
    // FNV-1a: stable across versions, which the standard library's hashes are not.
    let hash = uid
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The upper half mixes better than the lowest bits.
    (hash >> 32) * whole / (1 << 32)
}

/// An annotation that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongAnnotation {
    /// Its whole name.
    name: String,
    is_of_namespace: bool,
    problem: String,
}

impl WrongAnnotation {
    /// Whether the pod's namespace has it, and with it perhaps pods on every node.
    pub fn is_of_namespace(&self) -> bool {
        self.is_of_namespace
    }
}

impl fmt::Display for WrongAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_of_namespace { " of the namespace" } else { "" };
        write!(f, "{}{whose}: {}", self.name, self.problem)
    }
}

/// Ours among an object's annotations.
pub fn ours(all: Option<&Annotations>) -> Annotations {
    let is_ours = |(name, _): &(&String, &String)| name.starts_with(PREFIX);
    let short = |(name, value): (&String, &String)| (cut(name, 2 * SHOWN), cut(value, 2 * SHOWN));
    all.into_iter().flatten().filter(is_ours).map(short).collect()
}

/// What a pod's annotations and its namespace's mean.
pub fn settings(
    default: &PodSettings,
    namespace: &Annotations,
    pod: &Annotations,
) -> (PodSettings, Vec<WrongAnnotation>) {
    let (mut settings, mut wrong) = (default.clone(), Vec::new());
    let of_namespace = namespace.iter().filter(|(name, _)| !pod.contains_key(*name)).map(|each| (each, true));
    for ((name, value), is_of_namespace) in pod.iter().map(|each| (each, false)).chain(of_namespace) {
        if let Err(problem) = set(&mut settings, name.strip_prefix(PREFIX).unwrap_or(name), value) {
            wrong.push(WrongAnnotation { name: cut(name, SHOWN), is_of_namespace, problem: cut(&problem, 4 * SHOWN) });
        }
    }
    if !wrong.is_empty() {
        settings.mode = settings.mode.min(GroupMode::Observe);
        // A trial promotes some of the replicas whatever the mode.
        settings.trial = None;
    }
    (settings, wrong)
}

fn set(settings: &mut PodSettings, name: &str, value: &str) -> Result<(), String> {
    if value.len() > LONGEST_VALUE {
        return Err("the value is too long".to_owned());
    }
    let text = || Some(value.to_owned());
    match name {
        "mode" => {
            // Nobody knows whether what is wrong was meant to be the default.
            settings.mode = GroupMode::Observe;
            settings.mode = parse_pod_mode(value)?;
        }
        "weight" => parse_weight(value).map(|_| settings.weight = text())?,
        "max-growth" => parse_own_limit(value).map(|_| settings.max_growth = text())?,
        "max-huge" => parse_own_limit(value).map(|_| settings.max_huge = text())?,
        "max-slowdown" => value.parse::<Slowdown>().map(|_| settings.max_slowdown = text())?,
        "trial" => settings.trial = Some(parse_share(value)?),
        unknown => return Err(not_known(unknown)),
    }
    Ok(())
}

fn not_known(name: &str) -> String {
    let alike = |known: &&&str| strsim::jaro_winkler(name, known);
    let nearest = KNOWN.iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
    match nearest.filter(|known| alike(known) >= ALIKE) {
        Some(known) => format!("there is no such annotation; did you mean {PREFIX}{known}?"),
        None => format!("there is no such annotation; known are {}", KNOWN.join(", ")),
    }
}

fn parse_share(text: &str) -> Result<TrialShare, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    match percent {
        Some(percent @ 1..=99) => Ok(TrialShare(percent)),
        _ => Err(format!("'{text}' is not a share of replicas: write 1% to 99%, such as 50%")),
    }
}

/// A mode. Errors: `text` is none.
pub fn parse_pod_mode(text: &str) -> Result<GroupMode, String> {
    match text {
        "off" => Ok(GroupMode::Off),
        "observe" => Ok(GroupMode::Observe),
        "promote" => Ok(GroupMode::Promote),
        _ => Err(format!("'{text}' is not a mode: write off, observe or promote")),
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn annotated<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Annotations {
        pairs.into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned())).collect()
    }

    fn read(namespace: &[(&str, &str)], pod: &[(&str, &str)]) -> (PodSettings, Vec<String>) {
        let both = [namespace, pod].map(|pairs| annotated(pairs.iter().copied()));
        let (settings, wrong) = settings(&PodSettings::default(), &both[0], &both[1]);
        (settings, wrong.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn about_as_many_replicas_are_promoted_as_was_asked_for() {
        let (settings, wrong) = read(&[], &[("trial", "30%")]);
        assert!(wrong.is_empty(), "{wrong:?}");
        let share = settings.trial.expect("a trial");
        let uid = |number: u32| format!("{number:08x}-1234-4321-8765-{:012x}", number.wrapping_mul(2_654_435_761));
        let promoted = (0..10_000).filter(|&number| share.includes(&uid(number))).count();
        assert!((2_800..3_200).contains(&promoted), "{promoted} of 10,000");
        assert_eq!(share.includes(&uid(7)), share.includes(&uid(7)));
        for text in ["0%", "100%", "50", "half", "-1%"] {
            let (settings, wrong) = read(&[], &[("mode", "promote"), ("trial", text)]);
            assert_eq!((settings.mode, settings.trial, wrong.len()), (GroupMode::Observe, None, 1), "{text}");
        }
    }

    #[test]
    fn a_pod_comes_before_its_namespace_and_that_before_the_default() {
        let (seen, wrong) =
            read(&[("mode", "promote"), ("max-growth", "5%")], &[("max-growth", "64M"), ("weight", "2")]);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(
            (seen.mode, seen.max_growth.as_deref(), seen.weight.as_deref()),
            (GroupMode::Promote, Some("64M"), Some("2"))
        );
        let default =
            PodSettings { mode: GroupMode::Promote, max_huge: Some("1G".to_owned()), ..PodSettings::default() };
        let (seen, _) = settings(&default, &annotated([("max-slowdown", "0.5%")]), &annotated([("mode", "off")]));
        let expected = PodSettings { mode: GroupMode::Off, max_slowdown: Some("0.5%".to_owned()), ..default };
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_wrong_means_observe_and_is_told() {
        for (name, value, told) in [
            ("mode", "on", "hugepilot.io/mode: 'on' is not a mode: write off, observe or promote"),
            ("mode", "Promote", "hugepilot.io/mode: 'Promote' is not a mode"),
            ("max-growth", "lots", "hugepilot.io/max-growth: "),
            ("max-growth", "1%ram", "hugepilot.io/max-growth: '1%ram' is a share of the machine's memory"),
            ("max-slowdown", "90%", "hugepilot.io/max-slowdown: '90%' is not a slowdown"),
            ("weight", "0", "hugepilot.io/weight: '0' is not a weight"),
            (
                "max-grwth",
                "1%",
                "hugepilot.io/max-grwth: there is no such annotation; did you mean hugepilot.io/max-growth?",
            ),
            ("enabled", "true", "known are mode, max-growth"),
            ("weight", "0000000000000000000000000000000000000001", "too long"),
        ] {
            let pairs: &[_] = if name == "mode" { &[(name, value)] } else { &[(name, value), ("mode", "promote")] };
            let (seen, wrong) = read(&[], pairs);
            assert_eq!((seen.mode, wrong.len()), (GroupMode::Observe, 1), "{name}={value}: {wrong:?}");
            assert!(wrong[0].contains(told), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_off_stays_off_whatever_else_is_wrong() {
        assert_eq!(read(&[], &[("mode", "off"), ("weight", "x")]).0.mode, GroupMode::Off);
        let (seen, wrong) = read(&[("mode", "offf"), ("weight", "x")], &[("weight", "3")]);
        assert_eq!((seen.mode, seen.weight.as_deref()), (GroupMode::Observe, Some("3")));
        assert_eq!(wrong, ["hugepilot.io/mode of the namespace: 'offf' is not a mode: write off, observe or promote"]);
        let promoting = PodSettings { mode: GroupMode::Promote, ..PodSettings::default() };
        assert_eq!(settings(&promoting, &Annotations::new(), &annotated([("mode", "?")])).0.mode, GroupMode::Observe);
        let off = PodSettings { mode: GroupMode::Off, ..PodSettings::default() };
        assert_eq!(settings(&off, &Annotations::new(), &annotated([("mode", "?")])).0.mode, GroupMode::Observe);
    }

    #[test]
    fn only_ours_are_kept_and_not_all_of_a_long_one() {
        let all = Annotations::from([("a/b".to_owned(), "c".to_owned()), (format!("{PREFIX}mode"), "x".repeat(9_999))]);
        let kept = ours(Some(&all));
        assert_eq!((kept.len(), kept[&format!("{PREFIX}mode")].len()), (1, 2 * SHOWN));
        assert!(ours(None).is_empty());
    }

    fn any_annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
        let name = "(mode|weight|max-growth|max-huge|max-slowdown|trial|.{0,5})";
        prop::collection::btree_map(name, "(off|promote|[0-9]{1,2}%|[0-9.]{1,4}[%MG]?|.{0,9})", 0..4)
    }

    proptest! {
        #[test]
        fn any_annotations_give_settings_that_the_daemon_takes(
            namespace in any_annotations(),
            pod in any_annotations(),
        ) {
            let of = |pairs: &BTreeMap<String, String>| annotated(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let (seen, wrong) = settings(&PodSettings::default(), &of(&namespace), &of(&pod));
            prop_assert!(wrong.is_empty() || seen.mode <= GroupMode::Observe && seen.trial.is_none());
            let target = crate::pod::tests::target_with(&seen);
            let set = daemon::control::target_set::TargetSet { owner: "a".to_owned(), targets: vec![target] };
            prop_assert!(set.assignments().is_ok());
        }
    }
}
