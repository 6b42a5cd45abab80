//! A set of targets by control group, as an owner such as hugepilot-kube sends it with `set-targets`.
//!
//! Owns: its format and its bounds. Never touches: sockets, or who may send it.
//!
//! ```json
//! {"version":1,"command":"set-targets","owner":"kubernetes","targets":[{"cgroups":["/kubepods/pod1/2"],"mode":"promote","max_growth":"1%"}]}
//! ```
//!
//! The set takes the place of what the same owner sent before. Limits are written as in the daemon's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use heat::units::SizeOrShare;
use pilot::scope::{Assignment, PilotMode};
use serde::{Deserialize, Serialize};

use crate::config::parse_weight;

/// Targets of one owner.
pub const MOST_SET: usize = 2_048;
/// Names of one target's control group.
const MOST_NAMES: usize = 4;
/// Bytes of a control group's name, of an owner's name and a label's, and of a label's value.
const LONGEST_GROUP: usize = 1_024;
const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 256;
/// Labels of one target.
const MOST_LABELS: usize = 16;
/// Labels that the metrics of a target have a meaning for.
const TAKEN: [&str; 6] = ["pid", "name", "reason", "page_bytes", "le", "quantile"];

/// The targets of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSet {
    /// Who sets them.
    pub owner: String,
    /// All of them.
    pub targets: Vec<GroupTarget>,
}

/// The processes of a control group, and of the groups below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupTarget {
    /// The names that the group may have, as in `/proc/PID/cgroup`.
    pub cgroups: Vec<String>,
    /// What is done to them.
    pub mode: GroupMode,
    /// Their weight against others, such as `2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Memory growth: a share of each process, or a size for all together; as for every program if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_growth: Option<String>,
    /// Memory on huge pages, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_huge: Option<String>,
    /// How much promoting may slow them down; no more than every program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_slowdown: Option<String>,
    /// Labels of their metrics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What is done to the processes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupMode {
    /// They are left alone, whatever the daemon's configuration says.
    Off,
    /// They are observed, and what they would gain is forecast.
    #[default]
    Observe,
    /// What pays is promoted.
    Promote,
}

/// What is wrong with a set. Targets count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TargetSetError {
    #[error(
        "'{0}' is not a name of an owner: write up to {LONGEST_NAME} lower-case letters, digits and dashes, such as kubernetes"
    )]
    Owner(String),
    #[error("{0} targets are more than one owner may set: {MOST_SET} at most")]
    TooMany(usize),
    #[error("target {0} names {1} control groups: 1 to {MOST_NAMES} names of one group are expected")]
    Names(usize, usize),
    #[error(
        "'{1}' of target {0} is not a control group below the top: write its path as in /proc/PID/cgroup, up to {LONGEST_GROUP} bytes"
    )]
    Group(usize, String),
    #[error("target {0} names the control group {1}, which an earlier target of the set names")]
    Again(usize, String),
    #[error("{1} of target {0}: {2}")]
    Limit(usize, &'static str, String),
    #[error(
        "'{1}' of target {0} is not a label: a name has up to {LONGEST_NAME} letters, digits and underscores, begins with no digit and no __, and is \
         none of pid, name, reason, le, quantile; a value has up to {LONGEST_VALUE} bytes; there are {MOST_LABELS} at most"
    )]
    Label(usize, String),
}

impl TargetSet {
    /// What the set assigns. Errors: it breaks a bound, or a value cannot be read; the error says which.
    pub fn assignments(&self) -> Result<Vec<Assignment>, TargetSetError> {
        if !is_owner(&self.owner) {
            return Err(TargetSetError::Owner(shown(&self.owner)));
        }
        if self.targets.len() > MOST_SET {
            return Err(TargetSetError::TooMany(self.targets.len()));
        }
        let mut named = BTreeSet::new();
        for (index, group) in self
            .targets
            .iter()
            .enumerate()
            .flat_map(|(index, target)| target.cgroups.iter().map(move |group| (index, group)))
        {
            if !named.insert(group.trim_end_matches('/')) {
                return Err(TargetSetError::Again(index + 1, shown(group)));
            }
        }
        self.targets.iter().enumerate().map(|(index, target)| target.assignment(index + 1)).collect()
    }
}

impl GroupTarget {
    fn assignment(&self, number: usize) -> Result<Assignment, TargetSetError> {
        if !(1..=MOST_NAMES).contains(&self.cgroups.len()) {
            return Err(TargetSetError::Names(number, self.cgroups.len()));
        }
        if let Some(wrong) = self.cgroups.iter().find(|group| !is_group(group)) {
            return Err(TargetSetError::Group(number, shown(wrong)));
        }
        if let Some(wrong) = self.labels.iter().find(|(name, value)| !is_label(name, value)) {
            return Err(TargetSetError::Label(number, shown(wrong.0)));
        }
        if self.labels.len() > MOST_LABELS {
            return Err(TargetSetError::Label(number, self.labels.len().to_string()));
        }
        Ok(Assignment {
            cgroups: self.cgroups.clone(),
            mode: match self.mode {
                GroupMode::Off => None,
                GroupMode::Observe => Some(PilotMode::Observe),
                GroupMode::Promote => Some(PilotMode::Promote),
            },
            weight: read(number, "weight", &self.weight, parse_weight)?.unwrap_or(1.0),
            max_growth: read(number, "max_growth", &self.max_growth, parse_own_limit)?,
            max_huge: read(number, "max_huge", &self.max_huge, parse_own_limit)?,
            max_slowdown: read(number, "max_slowdown", &self.max_slowdown, str::parse)?,
            labels: self.labels.clone(),
        })
    }
}

/// A limit of one target's own: a size, or a share of resident memory. Errors: `text` is neither.
pub fn parse_own_limit(text: &str) -> Result<SizeOrShare, String> {
    match text.parse() {
        Ok(SizeOrShare::ShareOfRam(_)) => Err(format!(
            "'{text}' is a share of the machine's memory, which is not this target's: write a size such as 64M, or a share such as 1%"
        )),
        Ok(limit) => Ok(limit),
        Err(error) => Err(error.to_string()),
    }
}

fn read<T, E: Display>(
    number: usize,
    key: &'static str,
    given: &Option<String>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, TargetSetError> {
    let wrong = |error: E| TargetSetError::Limit(number, key, error.to_string());
    given.as_deref().map(|text| parse(text).map_err(wrong)).transpose()
}

fn is_owner(name: &str) -> bool {
    let right = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(right)
}

fn is_group(group: &str) -> bool {
    let is_below_top = group.starts_with('/') && group.bytes().any(|byte| byte != b'/');
    let climbs = group.split('/').any(|part| part == ".." || part == ".");
    is_below_top && !climbs && group.len() <= LONGEST_GROUP && !group.contains(char::is_control)
}

fn is_label(name: &str, value: &str) -> bool {
    let right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|first| !first.is_ascii_digit()) && !name.starts_with("__");
    let is_name = begins && name.len() <= LONGEST_NAME && name.bytes().all(right) && !TAKEN.contains(&name);
    is_name && value.len() <= LONGEST_VALUE && !value.contains(char::is_control)
}

/// What a message quotes.
fn shown(text: &str) -> String {
    text.chars().take(LONGEST_NAME).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use heat::units::{Bytes, Slowdown};

    use super::*;

    fn target(cgroup: &str) -> GroupTarget {
        GroupTarget { cgroups: vec![cgroup.to_owned()], ..GroupTarget::default() }
    }

    fn of(targets: Vec<GroupTarget>) -> TargetSet {
        TargetSet { owner: "kubernetes".to_owned(), targets }
    }

    fn labelled(name: &str, value: &str) -> GroupTarget {
        GroupTarget { labels: [(name.to_owned(), value.to_owned())].into(), ..target("/a") }
    }

    #[test]
    fn limits_are_written_as_in_the_configuration() {
        let given = |text: &str| Some(text.to_owned());
        let target = GroupTarget {
            mode: GroupMode::Promote,
            weight: given("2"),
            max_growth: given("64M"),
            max_huge: given("50%"),
            max_slowdown: given("0.5%"),
            ..labelled("pod", "web-0")
        };
        let expected = Assignment {
            cgroups: vec!["/a".to_owned()],
            mode: Some(PilotMode::Promote),
            weight: 2.0,
            max_growth: Some(SizeOrShare::Size(Bytes(64 << 20))),
            max_huge: Some(SizeOrShare::Share(0.5)),
            max_slowdown: Some(Slowdown(0.005)),
            labels: target.labels.clone(),
        };
        assert_eq!(of(vec![target]).assignments().unwrap(), [expected]);
        let off = GroupTarget { mode: GroupMode::Off, ..labelled("pod", "web-0") };
        assert_eq!(of(vec![off]).assignments().unwrap()[0].mode, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |key: &str| {
            let value = Some("5%ram".to_owned());
            let mut target = target("/a");
            match key {
                "weight" => target.weight = value,
                "max_growth" => target.max_growth = value,
                "max_huge" => target.max_huge = value,
                _ => target.max_slowdown = value,
            }
            target
        };
        let long = format!("/{}", "a".repeat(LONGEST_GROUP));
        for (targets, expected) in [
            (vec![GroupTarget::default()], "target 1 names 0 control groups"),
            (
                vec![GroupTarget { cgroups: vec!["/a".to_owned(); MOST_NAMES + 1], ..GroupTarget::default() }],
                "an earlier target",
            ),
            (vec![target("/a"), target("b")], "'b' of target 2 is not a control group"),
            (vec![target("/")], "'/' of target 1 is not a control group"),
            (vec![target("/a/../b")], "not a control group"),
            (vec![target("/a\n")], "'/a?' of target 1"),
            (vec![target(&long)], "not a control group"),
            (vec![target("/a"), target("/a/")], "target 2 names the control group /a/"),
            (vec![with("weight")], "weight of target 1: '5%ram' is not a weight"),
            (vec![with("max_growth")], "max_growth of target 1: '5%ram' is a share of the machine's"),
            (vec![with("max_huge")], "max_huge of target 1: "),
            (vec![with("max_slowdown")], "max_slowdown of target 1: "),
            (vec![labelled("pid", "1")], "'pid' of target 1 is not a label"),
            (vec![labelled("__a", "1")], "is not a label"),
            (vec![labelled("1a", "1")], "is not a label"),
            (vec![labelled("a-b", "1")], "is not a label"),
            (vec![labelled("a", "\n")], "is not a label"),
            (vec![labelled("a", &"v".repeat(LONGEST_VALUE + 1))], "is not a label"),
            (vec![target("/a"); MOST_SET + 1], "2049 targets are more"),
        ] {
            let why = of(targets).assignments().unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
        for owner in ["", "Kube", "a b", &"a".repeat(LONGEST_NAME + 1)] {
            let set = TargetSet { owner: owner.to_owned(), targets: Vec::new() };
            assert!(set.assignments().unwrap_err().to_string().contains("not a name of an owner"), "{owner}");
        }
        let labels = (0..=MOST_LABELS).map(|number| (format!("a{number}"), String::new())).collect();
        let many = GroupTarget { labels, ..target("/a") };
        assert!(of(vec![many]).assignments().unwrap_err().to_string().contains("16 at most"));
    }
}
