//! Targets that owners assign by control group: an agent that knows which container is whose, for example.
//!
//! Owns: what was assigned, and which assignment a process falls under. Never touches: sockets, processes, or what an owner knows of its containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use heat::units::{SizeOrShare, Slowdown};

use crate::scope::PilotMode;

/// What was assigned to the processes of control groups, and of the groups below them.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The names that the group may have, as in `/proc/PID/cgroup`: a container's differs by how its engine drives control groups.
    pub cgroups: Vec<String>,
    /// What is done to them; None leaves them alone.
    pub mode: Option<PilotMode>,
    /// Their weight against others when memory on huge pages is divided by weight; above 0.
    pub weight: f64,
    /// Memory growth: a share of each process's resident memory, or a size for all of them together. None: what holds for every program.
    pub max_growth: Option<SizeOrShare>,
    /// Memory on huge pages, likewise.
    pub max_huge: Option<SizeOrShare>,
    /// How much promoting may slow them down, where that is less than for every program.
    pub max_slowdown: Option<Slowdown>,
    /// What their metrics are labelled with, besides or instead of the process's id.
    pub labels: BTreeMap<String, String>,
}

/// All assignments, by control group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignments(BTreeMap<String, Arc<Assignment>>);

impl Assignments {
    /// Of several assignments for one group, the first counts.
    pub fn new(all: impl IntoIterator<Item = Arc<Assignment>>) -> Self {
        let mut by_group = BTreeMap::new();
        for assignment in all {
            for group in &assignment.cgroups {
                by_group.entry(trimmed(group).to_owned()).or_insert_with(|| Arc::clone(&assignment));
            }
        }
        Self(by_group)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The assignment of a process in these groups: that of the innermost group which has one.
    pub fn of<'a>(&self, groups: impl IntoIterator<Item = &'a String>) -> Option<&Arc<Assignment>> {
        let parents = |group: &&'a str| Some(group.rsplit_once('/')?.0);
        groups.into_iter().find_map(|group| {
            std::iter::successors(Some(trimmed(group)), |group| parents(group)).find_map(|group| self.0.get(group))
        })
    }
}

/// Without slashes at its end; empty for the top.
fn trimmed(group: &str) -> &str {
    group.trim_end_matches('/')
}

#[cfg(test)]
impl Assignment {
    /// An assignment that promotes these groups.
    pub(crate) fn sample(cgroups: &[&str]) -> Self {
        Self {
            cgroups: cgroups.iter().map(|&group| group.to_owned()).collect(),
            mode: Some(PilotMode::Promote),
            weight: 1.0,
            max_growth: None,
            max_huge: None,
            max_slowdown: None,
            labels: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_group_counts_and_of_two_for_one_the_first() {
        let (pod, container) =
            (Assignment::sample(&["/pods/a", "/pods.slice/a.slice/"]), Assignment::sample(&["/pods/a/1"]));
        let again = Assignment { weight: 9.0, ..Assignment::sample(&["/pods/a"]) };
        let assigned = Assignments::new([pod, container, again].map(Arc::new));
        let of = |group: &str| Some(assigned.of([&group.to_owned()])?.cgroups[0].as_str());
        assert_eq!([of("/pods/a"), of("/pods/a/2/x"), of("/pods.slice/a.slice")], [Some("/pods/a"); 3]);
        assert_eq!([of("/pods/a/1"), of("/pods/a/1/nested")], [Some("/pods/a/1"); 2]);
        assert_eq!([of("/pods/ab"), of("/pods"), of("/"), of("")], [None; 4]);
        assert_eq!(assigned.of([&"/pods/a".to_owned()]).unwrap().weight, 1.0);
        assert_eq!(assigned.of([&"/x".to_owned(), &"/pods/a/1".to_owned()]).unwrap().cgroups, ["/pods/a/1"]);
    }
}
