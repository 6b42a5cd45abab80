//! The programs under a pilot: processes selected by rules, found anew every second.
//!
//! Owns: rules, and when a process is judged by them. Never touches: whether a process can be piloted, and how.
//!
//! A census may meet thousands of processes, so it reads little: the list of them and, for each, up to three files when it is new and ever less often
//! afterwards. A selected process costs one file each time, so that its end is noticed.

mod assigned;
mod matcher;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use assigned::{Assignment, Assignments};
pub use matcher::{ContainerId, Matcher, PathPattern, Pattern, Pid, UnknownUser, UserChoice};

use crate::scope::matcher::Facts;
use kernel::Root;
use kernel::process::Stat;
use kernel::target::Process;
use serde::{Deserialize, Serialize};

/// A new process is judged again after this time, since fork comes before exec; then after twice as long, and so on.
const SOONEST: Duration = Duration::from_secs(1);
/// The longest time between judgements, apart from a spread that keeps processes from all being judged at once.
const LATEST: Duration = Duration::from_secs(24);

/// A rule that puts some processes under the pilot.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which processes.
    pub matcher: Matcher,
    /// Also their descendants, present and future. A descendant once selected stays so after its ancestors have ended.
    pub children: bool,
    /// Their weight against others when memory on huge pages is divided by weight; above 0.
    pub weight: f64,
    /// What is done to them.
    pub mode: PilotMode,
}

/// What is done to a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PilotMode {
    /// It is observed, and what it would gain is forecast.
    Observe,
    /// What pays is promoted.
    #[default]
    Promote,
    /// It is a virtual machine: guest memory that is populated is promoted, for its heat is not known.
    Guest,
}

/// A process under the pilot.
#[derive(Clone, Debug, PartialEq)]
pub struct Enrolled {
    /// Which one.
    pub process: Process,
    /// Its weight against others.
    pub weight: f64,
    /// What is done to it.
    pub mode: PilotMode,
    /// What was assigned to its control group.
    pub assigned: Option<Arc<Assignment>>,
}

/// The programs under a pilot.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    rules: Vec<Rule>,
    never: Vec<Matcher>,
    /// What control groups were assigned; it comes before the rules.
    assigned: Assignments,
    /// The pilot's own process.
    itself: u32,
    /// Whether ids and control groups have been looked up.
    bound: bool,
    known: BTreeMap<u32, Known>,
}

/// What is known of one process. Rules are identified by index.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    process: Process,
    parent: u32,
    /// It has ended or has no memory of its own, it is the pilot itself, or it is never to be selected.
    barred: bool,
    /// Rules that match it.
    matched: BTreeSet<usize>,
    /// Rules that selected an ancestor with its descendants.
    inherited: BTreeSet<usize>,
    /// Its control groups; None where they were not read, because nothing was assigned.
    groups: Option<BTreeSet<String>>,
    assigned: Option<Arc<Assignment>>,
    judged_again: Instant,
    interval: Duration,
}

impl Scope {
    /// The first rule that matches a process, or selects it as a descendant, counts; processes that `never` matches are not selected.
    pub fn new(rules: Vec<Rule>, never: Vec<Matcher>) -> Self {
        let (assigned, known) = (Assignments::default(), BTreeMap::new());
        Self { rules, never, assigned, itself: std::process::id(), bound: false, known }
    }

    /// One process, with its descendants if wanted.
    pub fn process(process: Process, children: bool) -> Self {
        Self::new(
            vec![Rule { matcher: Matcher::process(process), children, weight: 1.0, mode: PilotMode::Promote }],
            Vec::new(),
        )
    }

    /// The rules that select.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The processes never to be selected.
    pub fn never(&self) -> &[Matcher] {
        &self.never
    }

    /// Assigns control groups what is done to their processes, in place of what was assigned before.
    pub fn assign(&mut self, assigned: Assignments, now: Instant) {
        self.assigned = assigned;
        for known in self.known.values_mut() {
            match &known.groups {
                Some(groups) => known.assigned = self.assigned.of(groups).cloned(),
                None => known.judged_again = now,
            }
        }
    }

    /// The same scope in place of an earlier one: ids that both name stay bound to the processes that had them then, and what was assigned to control
    /// groups stays so.
    pub fn in_place_of(mut self, earlier: &Scope) -> Self {
        self.assigned = earlier.assigned.clone();
        let matchers = earlier.rules.iter().map(|rule| &rule.matcher).chain(&earlier.never);
        let known: BTreeMap<u32, Process> = matchers
            .filter_map(|matcher| match matcher.pid? {
                Pid::Process(process) => Some((process.pid, process)),
                Pid::Number(_) => None,
            })
            .collect();
        for matcher in self.rules.iter_mut().map(|rule| &mut rule.matcher).chain(&mut self.never) {
            if let Some(Pid::Number(number)) = matcher.pid {
                matcher.pid = Some(known.get(&number).map_or(Pid::Number(number), |&process| Pid::Process(process)));
            }
        }
        self
    }

    /// Every living process that a rule selects, ascending by id.
    pub fn census(&mut self, root: &Root, now: Instant) -> Vec<Enrolled> {
        if !std::mem::replace(&mut self.bound, true) {
            let matchers = self.rules.iter_mut().map(|rule| &mut rule.matcher).chain(&mut self.never);
            matchers.for_each(|matcher| matcher.bind(root));
        }
        let present = self.candidates(root);
        self.known.retain(|pid, _| present.binary_search(pid).is_ok());
        present.into_iter().for_each(|pid| self.check(root, pid, now));
        self.hand_down();
        self.known.values().filter_map(|known| self.enrolled(known)).collect()
    }

    /// The ids of possible processes, ascending: where rules name all of them, no other process is read.
    fn candidates(&self, root: &Root) -> Vec<u32> {
        if let Some(named) = self.rules.iter().map(Rule::only).collect::<Option<BTreeSet<u32>>>()
            && self.assigned.is_empty()
        {
            return named.into_iter().collect();
        }
        root.numbered_entries("proc").unwrap_or_else(|error| {
            tracing::warn!("new processes cannot be found: {error}");
            self.known.keys().copied().collect()
        })
    }

    /// Reads what is due for one process.
    fn check(&mut self, root: &Root, pid: u32, now: Instant) {
        let settled = |known: &Known| known.judged_again > now && self.enrolled(known).is_none();
        if self.known.get(&pid).is_some_and(settled) {
            return;
        }
        let stat = match Stat::read(root, pid) {
            Ok(stat) => stat,
            Err(error) if error.is_gone() => {
                self.known.remove(&pid);
                return;
            }
            // For example for lack of file descriptors: the process lives on, and so do pauses of it.
            Err(_) => return,
        };
        let process = Process { pid, start_ticks: stat.start_ticks };
        let before = self.known.remove(&pid).filter(|known| known.process == process);
        let known = match before {
            Some(known) if known.judged_again > now && !stat.is_zombie() => known,
            before => self.judge(root, process, &stat, before, now),
        };
        self.known.insert(pid, known);
    }

    /// Applies every rule that may matter. The process keeps what it inherited before.
    fn judge(&self, root: &Root, process: Process, stat: &Stat, before: Option<Known>, now: Instant) -> Known {
        let interval = before.as_ref().map_or(SOONEST, |known| (known.interval * 2).min(LATEST));
        let spread = interval / 16 * (process.pid % 8);
        let facts = Facts::new(root, process, stat);
        let barred = stat.is_zombie()
            || stat.kernel_thread
            || process.pid == self.itself
            || self.never.iter().any(|never| never.matches(&facts));
        let mut matched = BTreeSet::new();
        for (place, rule) in self.rules.iter().enumerate() {
            // Later rules matter only to descendants.
            if (rule.children || (matched.is_empty() && !barred)) && rule.matcher.matches(&facts) {
                matched.insert(place);
            }
        }
        let groups = (!self.assigned.is_empty()).then(|| facts.groups().clone());
        Known {
            process,
            parent: stat.parent,
            barred,
            matched,
            inherited: before.map(|known| known.inherited).unwrap_or_default(),
            assigned: groups.as_ref().and_then(|groups| self.assigned.of(groups).cloned()),
            groups,
            judged_again: now + interval + spread,
            interval,
        }
    }

    /// Passes rules that select descendants from each process to its children and further down.
    fn hand_down(&mut self) {
        let heritable = |known: &Known| -> BTreeSet<usize> {
            known.matched.union(&known.inherited).copied().filter(|&rule| self.rules[rule].children).collect()
        };
        let mut givers: Vec<u32> =
            self.known.iter().filter(|(_, known)| !heritable(known).is_empty()).map(|(pid, _)| *pid).collect();
        if givers.is_empty() {
            return;
        }
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.known.iter().for_each(|(&pid, known)| children.entry(known.parent).or_default().push(pid));
        while let Some(giver) = givers.pop() {
            let (given, born) = (heritable(&self.known[&giver]), self.known[&giver].process.start_ticks);
            for child in children.get(&giver).into_iter().flatten() {
                let known = self.known.get_mut(child).expect("children are known");
                let had = known.inherited.len();
                // An older process has lost its parent, whose id another process now has.
                if known.process.start_ticks >= born {
                    known.inherited.extend(&given);
                }
                if known.inherited.len() > had {
                    givers.push(*child);
                }
            }
        }
    }

    fn enrolled(&self, known: &Known) -> Option<Enrolled> {
        let process = known.process;
        if known.barred {
            return None;
        }
        if let Some(assigned) = &known.assigned {
            let (weight, mode) = (assigned.weight, assigned.mode?);
            return Some(Enrolled { process, weight, mode, assigned: Some(Arc::clone(assigned)) });
        }
        let rule = known.matched.first().into_iter().chain(known.inherited.first()).min()?;
        let Rule { weight, mode, .. } = self.rules[*rule];
        Some(Enrolled { process, weight, mode, assigned: None })
    }
}

impl Rule {
    /// The only process that it can select, if there is just one.
    fn only(&self) -> Option<u32> {
        match self.matcher.pid? {
            _ if self.children => None,
            Pid::Number(pid) | Pid::Process(Process { pid, .. }) => Some(pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command};

    use tempfile::TempDir;

    use super::*;

    const ITSELF: u32 = 99;
    const NOBODY: [u32; 0] = [];

    /// A tree with processes: id, name, parent, and when each started.
    fn tree(processes: &[(u32, &str, u32, u64)]) -> (TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        fs::create_dir(root.path("proc")).unwrap();
        processes.iter().for_each(|&(pid, name, parent, start)| write(&root, pid, name, parent, start));
        (tree, root)
    }

    fn write(root: &Root, pid: u32, name: &str, parent: u32, start: u64) {
        write_stat(root, pid, &format!("({name}) S {parent} 1 1 0 -1 4194304"), start);
    }

    fn write_stat(root: &Root, pid: u32, begin: &str, start: u64) {
        fs::create_dir_all(root.path(&format!("proc/{pid}"))).unwrap();
        let line = format!("{pid} {begin} 0 0 0 0 7 3 0 0 20 0 1 0 {start} 0 0 0 1 1 1");
        fs::write(root.path(&format!("proc/{pid}/stat")), line).unwrap();
    }

    fn end(root: &Root, pid: u32) {
        fs::remove_dir_all(root.path(&format!("proc/{pid}"))).unwrap();
    }

    fn named(name: &str) -> Matcher {
        Matcher { name: Some(name.parse().unwrap()), ..Matcher::default() }
    }

    fn rule(name: &str, children: bool, weight: f64) -> Rule {
        Rule { matcher: named(name), children, weight, mode: PilotMode::Promote }
    }

    fn scope(rules: &[Rule], never: &[Matcher]) -> Scope {
        Scope { itself: ITSELF, ..Scope::new(rules.to_vec(), never.to_vec()) }
    }

    fn taken(enrolled: &[Enrolled]) -> Vec<(u32, f64)> {
        enrolled.iter().map(|enrolled| (enrolled.process.pid, enrolled.weight)).collect()
    }

    fn pids(enrolled: &[Enrolled]) -> Vec<u32> {
        enrolled.iter().map(|enrolled| enrolled.process.pid).collect()
    }

    #[test]
    fn the_first_rule_counts_also_for_descendants() {
        let processes =
            [(5, "db", 1, 1), (6, "db", 5, 2), (7, "web", 5, 2), (8, "web", 7, 3), (9, "web", 1, 1), (10, "sh", 6, 9)];
        let (_tree, root) = tree(&processes);
        let rules = [rule("db", true, 2.0), rule("web", false, 3.0)];
        let expected = [(5, 2.0), (6, 2.0), (7, 2.0), (8, 2.0), (9, 3.0), (10, 2.0)];
        assert_eq!(taken(&scope(&rules, &[]).census(&root, Instant::now())), expected);
        let turned = [rule("web", false, 3.0), rule("db", true, 2.0)];
        let expected = [(5, 2.0), (6, 2.0), (7, 3.0), (8, 3.0), (9, 3.0), (10, 2.0)];
        assert_eq!(taken(&scope(&turned, &[]).census(&root, Instant::now())), expected);
        assert_eq!(pids(&scope(&[], &[]).census(&root, Instant::now())), NOBODY, "no rule takes nobody");
    }

    #[test]
    fn those_that_cannot_or_must_not_be_piloted_are_left_out() {
        let (_tree, root) = tree(&[(5, "db", 1, 1), (6, "logger", 5, 2), (7, "db", 6, 3), (ITSELF, "db", 5, 4)]);
        write_stat(&root, 8, "(db) Z 5 1 1 0 -1 4194304", 5);
        write_stat(&root, 9, "(db) S 2 0 0 0 -1 69238880", 1);
        fs::create_dir(root.path("proc/10")).unwrap();
        let enrolled = scope(&[rule("db", true, 1.0)], &[named("log*")]).census(&root, Instant::now());
        assert_eq!(pids(&enrolled), [5, 7], "the child of one that is left out is not left out by that");
    }

    #[test]
    fn a_process_is_judged_again_soon_and_then_ever_more_rarely() {
        let (_tree, root) = tree(&[(8, "sh", 1, 1)]);
        let mut scope = scope(&[rule("db", false, 1.0)], &[]);
        let start = Instant::now();
        let mut census = |ms| pids(&scope.census(&root, start + Duration::from_millis(ms)));
        assert_eq!(census(0), NOBODY);
        write(&root, 8, "db", 1, 1);
        assert_eq!((census(999), census(1000)), (vec![], vec![8]), "exec after fork");
        write(&root, 8, "sh", 1, 1);
        assert_eq!((census(2999), census(3000)), (vec![8], vec![]));
        for second in 4..500 {
            census(second * 1000);
        }
        write(&root, 8, "db", 1, 1);
        let noticed = (500..).find(|second| !census(second * 1000).is_empty()).unwrap();
        assert!(noticed < 500 + 24, "{noticed}");
    }

    #[test]
    fn ends_are_noticed_at_once_and_a_later_process_with_the_id_is_judged_anew() {
        let (_tree, root) = tree(&[(5, "db", 1, 1), (6, "db", 1, 1), (7, "db", 1, 1)]);
        let mut scope = scope(&[rule("db", false, 1.0)], &[]);
        let now = Instant::now();
        assert_eq!(pids(&scope.census(&root, now)), [5, 6, 7]);
        end(&root, 5);
        write(&root, 6, "sh", 1, 2);
        write_stat(&root, 7, "(db) Z 1 1 1 0 -1 4194304", 1);
        assert_eq!(pids(&scope.census(&root, now)), NOBODY);
        write(&root, 5, "db", 1, 3);
        let enrolled = scope.census(&root, now);
        let process = Process { pid: 5, start_ticks: 3 };
        assert_eq!(enrolled, [Enrolled { process, weight: 1.0, mode: PilotMode::Promote, assigned: None }]);
    }

    #[test]
    fn a_descendant_stays_one_when_those_between_have_ended() {
        let (_tree, root) = tree(&[(5, "db", 1, 1), (6, "sh", 5, 2), (7, "worker", 6, 3)]);
        let mut scope = scope(&[rule("db", true, 1.0)], &[]);
        let now = Instant::now();
        assert_eq!(pids(&scope.census(&root, now)), [5, 6, 7]);
        end(&root, 6);
        write(&root, 7, "worker", 1, 3);
        write(&root, 8, "worker", 7, 4);
        assert_eq!(pids(&scope.census(&root, now + LATEST)), [5, 7, 8]);
    }

    #[test]
    fn whoever_gets_the_id_of_a_parent_that_ended_is_no_parent() {
        let (_tree, root) = tree(&[(8, "init", 1, 1), (6, "old", 8, 3)]);
        let mut scope = scope(&[rule("db", true, 1.0)], &[]);
        let now = Instant::now();
        assert_eq!(pids(&scope.census(&root, now)), NOBODY);
        write(&root, 8, "db", 1, 9);
        assert_eq!(pids(&scope.census(&root, now + SOONEST)), [8]);
    }

    #[test]
    fn of_one_process_nothing_but_that_one_is_read() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        write(&root, 5, "db", 1, 1);
        write(&root, 6, "db", 5, 1);
        let process = Process { pid: 5, start_ticks: 1 };
        let mut alone = Scope::process(process, false);
        assert_eq!(pids(&alone.census(&root, Instant::now())), [5]);
        assert_eq!(alone.known.keys().copied().collect::<Vec<_>>(), [5]);
        assert_eq!(pids(&Scope::process(process, true).census(&root, Instant::now())), [5, 6]);
        let later = Process { start_ticks: 2, ..process };
        assert_eq!(pids(&Scope::process(later, false).census(&root, Instant::now())), NOBODY);
    }

    #[test]
    fn an_id_means_the_process_that_had_it_at_the_first_census() {
        let (_tree, root) = tree(&[(5, "db", 1, 1)]);
        let of = |pid| {
            let matcher = Matcher { pid: Some(Pid::Number(pid)), ..Matcher::default() };
            scope(&[Rule { matcher, children: false, weight: 1.0, mode: PilotMode::Promote }], &[])
        };
        let (mut known, mut unknown) = (of(5), of(6));
        assert_eq!(
            (pids(&known.census(&root, Instant::now())), pids(&unknown.census(&root, Instant::now()))),
            (vec![5], vec![])
        );
        write(&root, 5, "db", 1, 2);
        write(&root, 6, "db", 1, 2);
        assert_eq!(
            (pids(&known.census(&root, Instant::now())), pids(&unknown.census(&root, Instant::now()))),
            (vec![], vec![])
        );
        assert_eq!(
            pids(&of(5).in_place_of(&known).census(&root, Instant::now())),
            NOBODY,
            "reading the rules anew does not change that"
        );
        assert_eq!(pids(&of(5).census(&root, Instant::now())), [5]);
    }

    #[test]
    fn files_are_read_for_the_rules_that_ask() {
        let (_tree, root) = tree(&[(5, "db", 1, 1), (6, "sh", 1, 1)]);
        fs::create_dir_all(root.path("proc/self")).unwrap();
        fs::write(root.path("proc/self/mountinfo"), "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw\n").unwrap();
        fs::write(root.path("proc/5/cgroup"), "0::/system.slice/db.service/worker\n").unwrap();
        std::os::unix::fs::symlink("/usr/bin/db", root.path("proc/5/exe")).unwrap();
        let taken = |matcher| {
            pids(
                &scope(&[Rule { matcher, children: false, weight: 1.0, mode: PilotMode::Promote }], &[])
                    .census(&root, Instant::now()),
            )
        };
        let directory = Some("/sys/fs/cgroup/system.slice/db.service".to_owned());
        assert_eq!(taken(Matcher { cgroup: directory, ..Matcher::default() }), [5]);
        assert_eq!(taken(Matcher { exe: Some("/usr/bin/*".parse().unwrap()), ..Matcher::default() }), [5]);
        assert_eq!(taken(named("sh")), [6]);
    }

    fn enter(root: &Root, pid: u32, group: &str) {
        fs::write(root.path(&format!("proc/{pid}/cgroup")), format!("4:memory:{group}\n0::/x\n")).unwrap();
    }

    #[test]
    fn what_is_assigned_to_a_group_comes_before_the_rules_and_counts_at_once() {
        let (_tree, root) = tree(&[(5, "db", 1, 1), (6, "db", 1, 1), (7, "db", 1, 1), (8, "logger", 1, 1)]);
        let groups = [(5, "/pods/a"), (6, "/pods/a/sub"), (7, "/pods/b"), (8, "/pods/a")];
        groups.into_iter().for_each(|(pid, group)| enter(&root, pid, group));
        let mut scope = scope(&[rule("db", false, 3.0)], &[named("logger")]);
        let now = Instant::now();
        assert_eq!(taken(&scope.census(&root, now)), [(5, 3.0), (6, 3.0), (7, 3.0)]);
        let assign = |assignments: [Assignment; 2]| Assignments::new(assignments.map(Arc::new));
        let off = |group| Assignment { mode: None, ..Assignment::sample(&[group]) };
        scope.assign(assign([Assignment::sample(&["/pods/a"]), off("/pods/b")]), now);
        let enrolled = scope.census(&root, now);
        assert_eq!(taken(&enrolled), [(5, 1.0), (6, 1.0)], "7 is off, and 8 is never piloted");
        assert!(enrolled.iter().all(|each| each.assigned.is_some()));
        // Nothing is read anew for it.
        [5, 6, 7].into_iter().for_each(|pid| enter(&root, pid, "/elsewhere"));
        scope.assign(assign([Assignment::sample(&["/pods/b"]), off("/pods/a/sub")]), now);
        assert_eq!(taken(&scope.census(&root, now)), [(5, 3.0), (7, 1.0)]);
        assert_eq!(taken(&scope.clone().in_place_of(&scope).census(&root, now)), [(5, 3.0), (7, 1.0)]);
    }

    #[test]
    fn without_any_rule_those_that_are_assigned_are_found() {
        let (_tree, root) = tree(&[(5, "db", 1, 1)]);
        enter(&root, 5, "/pods/a");
        let mut scope = scope(&[], &[]);
        assert_eq!(pids(&scope.census(&root, Instant::now())), NOBODY);
        scope.assign(Assignments::new([Arc::new(Assignment::sample(&["/pods/a"]))]), Instant::now());
        assert_eq!(pids(&scope.census(&root, Instant::now())), [5]);
    }

    #[test]
    fn children_of_this_process_are_found_and_missed_when_they_end() {
        let sleep = || Command::new("sleep").arg("60").spawn().unwrap();
        let (mut one, mut other) = (sleep(), sleep());
        let process = Process::of(&Root::host(), std::process::id()).unwrap();
        let mut scope = Scope::process(process, true);
        let mut found = |child: &Child| pids(&scope.census(&Root::host(), Instant::now())).contains(&child.id());
        let both = (found(&one), found(&other));
        one.kill().unwrap();
        let zombie = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !found(&one)
        });
        let left = found(&other);
        [&mut one, &mut other].iter_mut().for_each(|child| child.kill().and_then(|()| child.wait().map(drop)).unwrap());
        assert_eq!((both, zombie, left, found(&other)), ((true, true), true, true, false));
        assert!(
            !pids(&scope.census(&Root::host(), Instant::now())).contains(&std::process::id()),
            "not the pilot itself"
        );
    }
}
