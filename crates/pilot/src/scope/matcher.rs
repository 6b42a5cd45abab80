//! Whether a process is selected.
//!
//! Owns: matchers, and which of a process's files each of their conditions reads. Never touches: when a process is judged.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use glob::MatchOptions;
use kernel::cgroup::{self, CONTAINER_ID};
use kernel::process::{self, ProcessStatus, Stat};
use kernel::target::Process;
use kernel::{KernelError, Root, accounts};

/// Bytes of a name that the kernel keeps (`TASK_COMM_LEN` without the terminating zero).
const NAME: usize = 15;

/// Selects the processes that meet every condition given; without conditions, none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matcher {
    /// One process.
    pub pid: Option<Pid>,
    /// The process's name, as `ps -o comm` shows it.
    pub name: Option<Pattern>,
    /// Its executable file.
    pub exe: Option<PathPattern>,
    /// The control group that it is in, or one above it: its path as in `/proc/PID/cgroup`, or its directory.
    pub cgroup: Option<String>,
    /// The systemd service or scope that it runs in; `.service` may be left out.
    pub unit: Option<Pattern>,
    /// The container that it runs in.
    pub container: Option<ContainerId>,
    /// The user who runs it.
    pub user: Option<UserChoice>,
}

/// A user; a number where it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserChoice {
    /// The name, until the first census finds its number.
    Name(String),
    /// The number.
    Id(u32),
}

/// One process, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pid {
    /// The process that has the id at the first census.
    Number(u32),
    /// This process, and no later one with the same id.
    Process(Process),
}

/// A user's name that has no number here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no user '{name}' in /etc/passwd: give the user's number (`getent passwd {name}` finds it)")]
pub struct UnknownUser {
    /// As it was written.
    pub name: String,
}

/// A text, or a glob such as `postgres*`. In paths `*` stays within one directory, and `**` also matches below it.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    glob: glob::Pattern,
}

/// A [`Pattern`] of whole paths: a file's name alone would match nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct PathPattern(Pattern);

/// The id of a container, or at least its first 6 digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerId(String);

/// What matchers ask about a process; a file is read when first needed.
pub(super) struct Facts<'a> {
    root: &'a Root,
    process: Process,
    name: &'a str,
    exe: OnceCell<Option<PathBuf>>,
    groups: OnceCell<BTreeSet<String>>,
    user: OnceCell<Option<u32>>,
}

impl Matcher {
    /// This process only.
    pub fn process(process: Process) -> Self {
        Self { pid: Some(Pid::Process(process)), ..Self::default() }
    }

    /// Whether it has no conditions.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Resolves, once and for all, which process has the id, which control group the directory is, and which number the user has.
    pub(super) fn bind(&mut self, root: &Root) {
        if let Some(Pid::Number(pid)) = self.pid {
            self.pid = Process::of(root, pid).map(Pid::Process).or(self.pid);
        }
        if let Some(group) = &mut self.cgroup {
            match cgroup::name(root, group) {
                Ok(name) => *group = name,
                Err(error) => tracing::warn!("control group {group} is taken by that name: {error}"),
            }
        }
        if let Some(user) = &mut self.user {
            user.bind(root).unwrap_or_else(|error| tracing::warn!("no process is found by user: {error}"));
        }
    }

    /// Whether every condition is met. Conditions that read nothing come first.
    pub(super) fn matches(&self, facts: &Facts<'_>) -> bool {
        let given = |pid: Pid| pid == Pid::Process(facts.process);
        let named = |name: &Pattern| name.matches_name(facts.name);
        let runs =
            |exe: &PathPattern| facts.exe().is_some_and(|path| path.to_str().is_some_and(|path| exe.0.is_match(path)));
        let below = |group: &String| facts.groups().iter().any(|own| cgroup::is_within(own, group));
        let serves = |unit: &Pattern| facts.groups().iter().any(|own| cgroup::units(own).any(|own| unit.is_unit(own)));
        let inside =
            |id: &ContainerId| facts.groups().iter().any(|own| cgroup::containers(own).any(|own| id.matches(own)));
        !self.is_empty()
            && self.pid.is_none_or(given)
            && self.name.as_ref().is_none_or(named)
            && self.exe.as_ref().is_none_or(runs)
            && self.cgroup.as_ref().is_none_or(below)
            && self.unit.as_ref().is_none_or(serves)
            && self.container.as_ref().is_none_or(inside)
            && self.user.as_ref().is_none_or(|user| facts.user().is_some_and(|uid| *user == UserChoice::Id(uid)))
    }
}

impl UserChoice {
    /// Finds the number of a name.
    ///
    /// Errors: there is no such user, or `/etc/passwd` cannot be read.
    pub fn bind(&mut self, root: &Root) -> Result<(), UnknownUser> {
        if let UserChoice::Name(name) = self {
            let found = accounts::user(root, name).ok().flatten();
            *self = UserChoice::Id(found.ok_or_else(|| UnknownUser { name: name.clone() })?.uid);
        }
        Ok(())
    }
}

impl FromStr for UserChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = !text.is_empty() && !text.contains([':', '/', '*']) && !text.contains(char::is_whitespace);
        match text.parse() {
            Ok(uid) => Ok(UserChoice::Id(uid)),
            Err(_) if plain => Ok(UserChoice::Name(text.to_owned())),
            Err(_) => Err(format!("'{text}' is not a user: write a name, such as postgres, or a number")),
        }
    }
}

impl Pattern {
    fn is_match(&self, text: &str) -> bool {
        self.glob.matches_with(text, MatchOptions { require_literal_separator: true, ..MatchOptions::new() })
    }

    /// The kernel truncates names, so a full name given here is truncated as well.
    fn matches_name(&self, name: &str) -> bool {
        let cut = self.text.as_bytes().get(..NAME).unwrap_or(self.text.as_bytes());
        cut == name.as_bytes() || self.is_match(name)
    }

    /// A unit's name may be given without its kind.
    fn is_unit(&self, unit: &str) -> bool {
        let is = |name: &str| self.text == name || self.is_match(name);
        is(unit) || unit.strip_suffix(".service").is_some_and(is)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let glob = glob::Pattern::new(text).map_err(|error| format!("'{text}' is not a pattern: {}", error.msg))?;
        match text {
            "" => Err("'' is not a pattern: write a name, or one with * in it".to_owned()),
            _ => Ok(Self { text: text.to_owned(), glob }),
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Every path begins with a slash, and only these may stand for one.
        if !text.starts_with('/') && !text.starts_with("**") && !text.starts_with('[') {
            return Err(format!(
                "'{text}' matches no path: write all of it, as `readlink /proc/PID/exe` shows it, or **/NAME for a file in any folder"
            ));
        }
        text.parse().map(Self)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ContainerId {
    fn matches(&self, id: &str) -> bool {
        id.get(..self.0.len()).is_some_and(|start| start.eq_ignore_ascii_case(&self.0))
    }
}

impl FromStr for ContainerId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let right = (6..=CONTAINER_ID).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        right.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!(
                "'{text}' is not an id of a container: write 6 to {CONTAINER_ID} hexadecimal digits, as `docker ps` shows"
            )
        })
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for UserChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserChoice::Name(name) => f.write_str(name),
            UserChoice::Id(uid) => uid.fmt(f),
        }
    }
}

impl<'a> Facts<'a> {
    pub(super) fn new(root: &'a Root, process: Process, stat: &'a Stat) -> Self {
        let (exe, groups, user) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { root, process, name: &stat.name, exe, groups, user }
    }

    fn exe(&self) -> Option<&PathBuf> {
        self.exe.get_or_init(|| known(process::program(self.root, self.process.pid))).as_ref()
    }

    pub(super) fn groups(&self) -> &BTreeSet<String> {
        self.groups.get_or_init(|| known(cgroup::groups(self.root, self.process.pid)).unwrap_or_default())
    }

    fn user(&self) -> Option<u32> {
        let read = || known(ProcessStatus::read(self.root, self.process.pid)).map(|status| status.uid);
        *self.user.get_or_init(read)
    }
}

/// A process whose file cannot be read meets no condition on it; an ended process is not reported.
fn known<T>(read: Result<T, KernelError>) -> Option<T> {
    read.inspect_err(|error| {
        if !error.is_gone() {
            tracing::debug!("{error}");
        }
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: Process = Process { pid: 7, start_ticks: 70 };

    /// A process with all facts known: nothing is read.
    fn matches(matcher: &Matcher) -> bool {
        let id = "0123456789abcdef".repeat(4);
        let groups = [
            "/x".to_owned(),
            format!("/system.slice/docker-{id}.scope"),
            "/system.slice/system-postgresql.slice/postgresql@15-main.service".to_owned(),
        ];
        let facts = Facts {
            root: &Root::at("/nowhere"),
            process: PROCESS,
            name: "postgres",
            exe: OnceCell::from(Some(PathBuf::from("/usr/lib/postgresql/15/bin/postgres"))),
            groups: OnceCell::from(BTreeSet::from(groups)),
            user: OnceCell::from(Some(104)),
        };
        matcher.matches(&facts)
    }

    fn pattern(text: &str) -> Option<Pattern> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_process_is_told_from_the_next_one_with_its_id() {
        let later = Process { start_ticks: 71, ..PROCESS };
        assert!(matches(&Matcher::process(PROCESS)) && !matches(&Matcher::process(later)));
        assert!(!matches(&Matcher { pid: Some(Pid::Number(7)), ..Matcher::default() }), "nobody has been looked up");
    }

    #[test]
    fn names_and_paths_are_matched_whole_or_by_glob() {
        let name = |text| matches(&Matcher { name: pattern(text), ..Matcher::default() });
        assert_eq!(["postgres", "post*", "*gres", "p[op]stgres"].map(name), [true; 4]);
        assert_eq!(["post", "gres", "Postgres", "postgres*?"].map(name), [false; 4]);
        let exe = |text: &str| matches(&Matcher { exe: Some(text.parse().unwrap()), ..Matcher::default() });
        assert_eq!(["/usr/lib/postgresql/*/bin/postgres", "/usr/**/postgres", "**/postgres"].map(exe), [true; 3]);
        assert_eq!(["/usr/*/postgres", "/usr/lib/postgresql"].map(exe), [false; 2]);
    }

    #[test]
    fn a_name_is_cut_as_the_kernel_cuts_it() {
        let matches = |text: &str, name| text.parse::<Pattern>().unwrap().matches_name(name);
        assert!(matches("elasticsearch-server", "elasticsearch-s"));
        assert!(!matches("elasticsearch-server", "elasticsearch"));
        assert!(matches("[kernel]", "[kernel]"), "not only as a glob");
    }

    #[test]
    fn groups_and_containers_are_matched_from_above() {
        let cgroup = |text: &str| matches(&Matcher { cgroup: Some(text.to_owned()), ..Matcher::default() });
        assert_eq!(["/x", "/system.slice", "/"].map(cgroup), [true; 3]);
        assert_eq!(["/system", "/x/y", "/y"].map(cgroup), [false; 3]);
        let container = |text: &str| matches(&Matcher { container: Some(text.parse().unwrap()), ..Matcher::default() });
        assert_eq!(["012345", "0123456789AB"].map(container), [true; 2]);
        assert_eq!(["12345678", "0123456789ac"].map(container), [false; 2]);
    }

    #[test]
    fn units_are_matched_by_name_with_or_without_their_kind() {
        let unit = |text: &str| matches(&Matcher { unit: pattern(text), ..Matcher::default() });
        assert_eq!(["postgresql@15-main.service", "postgresql@15-main", "postgresql@*"].map(unit), [true; 3]);
        assert_eq!(["postgresql", "system-postgresql.slice", "15-main"].map(unit), [false; 3]);
    }

    #[test]
    fn users_are_matched_by_number_and_found_by_name() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("etc")).unwrap();
        std::fs::write(tree.path().join("etc/passwd"), "postgres:x:104:110::/:\nother:x:7:7::/:\n").unwrap();
        let user = |text: &str| {
            let mut matcher = Matcher { user: Some(text.parse().unwrap()), ..Matcher::default() };
            matcher.bind(&Root::at(tree.path()));
            matches(&matcher)
        };
        assert_eq!(["104", "postgres"].map(user), [true; 2]);
        assert_eq!(["7", "other", "nobody"].map(user), [false; 3]);
        for wrong in ["", "a b", "alice:music", "*"] {
            assert!(wrong.parse::<UserChoice>().unwrap_err().contains("such as postgres"), "{wrong}");
        }
        let unknown = UserChoice::Name("bob".to_owned()).bind(&Root::at(tree.path())).unwrap_err();
        assert!(unknown.to_string().contains("`getent passwd bob`"));
    }

    #[test]
    fn all_conditions_must_be_met_and_none_meets_nobody() {
        assert!(!matches(&Matcher::default()));
        let both =
            |name, group: &str| Matcher { name: pattern(name), cgroup: Some(group.to_owned()), ..Matcher::default() };
        assert!(matches(&both("postgres", "/x")));
        assert!(!matches(&both("postgres", "/y")) && !matches(&both("redis", "/x")));
    }

    #[test]
    fn a_wrong_pattern_or_id_says_what_is_right() {
        assert!("a[".parse::<Pattern>().unwrap_err().starts_with("'a[' is not a pattern: "));
        assert!("".parse::<Pattern>().unwrap_err().contains("write a name"));
        for text in ["", "postgres", "*postgres", "./postgres"] {
            assert!(text.parse::<PathPattern>().unwrap_err().contains("**/NAME"), "{text}");
        }
        for text in ["", "12345", "web-1", &"0".repeat(65)] {
            assert!(text.parse::<ContainerId>().unwrap_err().contains("6 to 64 hexadecimal digits"), "{text}");
        }
    }
}
