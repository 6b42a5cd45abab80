//! What an allocator or runtime does with huge pages as it is set, and which settings would change that.
//!
//! Owns: what their manuals say of huge pages, by version. Never touches: a process or a file.

use std::collections::BTreeSet;

use serde::Serialize;

use super::started_with::{SettingState, StartedWith, Unread};
use super::{ManagerVersion, MemoryManager};
use crate::program::{JEMALLOC_OPTIONS, MIMALLOC_OPTION, TUNABLE};

/// An allocator or runtime of a process, as it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Managed {
    /// Which.
    pub manager: MemoryManager,
    /// Its version; None if that is not known.
    pub version: Option<ManagerVersion>,
    /// What it does with memory that is not used, or with huge pages.
    pub habit: &'static str,
    /// The settings that change that.
    pub settings: Vec<ManagerSetting>,
}

/// A setting that has to do with huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManagerSetting {
    /// How it is set.
    pub setting: String,
    /// What it does.
    pub effect: SettingEffect,
    /// Whether the process was started with it.
    pub state: SettingState,
    /// Which versions know it, where the version is not known.
    pub requires: Option<&'static str>,
}

/// What a setting does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingEffect {
    /// It asks for huge pages.
    AsksForHugePages,
    /// It takes them from a pool.
    TakesFromPool,
    /// It keeps memory that is not used.
    KeepsUnused,
    /// It populates the heap at the start.
    PopulatesAtStart,
    /// It returns less.
    ReturnsLess,
    /// It keeps the memory from being on huge pages.
    RefusesHugePages,
}

impl SettingEffect {
    /// After "makes it".
    fn verb(self) -> &'static str {
        match self {
            Self::AsksForHugePages => "ask for huge pages",
            Self::TakesFromPool => "take huge pages from the pool",
            Self::KeepsUnused => "keep what is unused",
            Self::PopulatesAtStart => "populate its heap at the start",
            Self::ReturnsLess => "return less",
            Self::RefusesHugePages => "refuse huge pages",
        }
    }

    /// Whether it is told only where it is set: it is no advice.
    fn is_no_advice(self) -> bool {
        matches!(self, Self::TakesFromPool | Self::RefusesHugePages)
    }
}

impl Managed {
    /// What there is to say of one. `mentions`: the names of options in its file; None if that could not be read.
    ///
    /// None for glibc that was not told to use huge pages: then it does nothing by itself.
    pub(super) fn of(
        manager: MemoryManager,
        version: Option<ManagerVersion>,
        mentions: Option<&BTreeSet<&'static str>>,
        given: &StartedWith,
    ) -> Option<Self> {
        let known = version.as_ref();
        let mut settings = match manager {
            MemoryManager::Jemalloc => jemalloc(known, mentions, given),
            MemoryManager::Mimalloc => mimalloc(known, mentions, given),
            MemoryManager::Tcmalloc => tcmalloc(given),
            MemoryManager::Java => java(given),
            MemoryManager::Go => go(known, given),
            MemoryManager::Glibc => vec![glibc(known, given)?],
        };
        let is_set = |settings: &[ManagerSetting], effect| {
            settings.iter().any(|setting| setting.effect == effect && setting.state == SettingState::Set)
        };
        let has_pool = is_set(&settings, SettingEffect::TakesFromPool);
        settings.retain(|setting| match setting.effect {
            SettingEffect::AsksForHugePages => setting.state == SettingState::Set || !has_pool,
            effect => setting.state == SettingState::Set || !effect.is_no_advice(),
        });
        let keeps = is_set(&settings, SettingEffect::KeepsUnused);
        Some(Self { habit: habit(manager, known, keeps, has_pool), manager, version, settings })
    }

    /// What it does, and what its settings would change, each on a line of its own.
    pub fn told(&self) -> Vec<String> {
        let version = self.version.as_ref().map_or(", version unknown".to_owned(), |version| format!(" {version}"));
        let mut lines = vec![format!("{}{version}: {}", self.manager.name(), self.habit)];
        lines.extend(self.settings.iter().map(ManagerSetting::told));
        let is_set = |setting: &ManagerSetting| setting.state == SettingState::Set;
        if self.manager == MemoryManager::Jemalloc
            && self.settings.iter().all(|setting| setting.effect != SettingEffect::AsksForHugePages)
        {
            lines.push("this version has no setting that asks for huge pages; jemalloc 5.1 has".to_owned());
        } else if !self.settings.is_empty() && self.settings.iter().all(is_set) {
            lines.push("everything is set already; the mappings below say why memory is not huge".to_owned());
        }
        lines
    }
}

impl ManagerSetting {
    fn new(setting: impl Into<String>, effect: SettingEffect, state: SettingState) -> Self {
        Self { setting: setting.into(), effect, state, requires: None }
    }

    fn told(&self) -> String {
        let (setting, verb) = (&self.setting, self.effect.verb());
        let requires = self.requires.map_or(String::new(), |versions| format!(" ({versions})"));
        match self.state {
            SettingState::Set if self.effect == SettingEffect::RefusesHugePages => {
                format!("{setting} is set, which makes it {verb}: start it without")
            }
            SettingState::Set => format!("{setting} is set already, which makes it {verb}"),
            SettingState::NotSet => format!("{setting} makes it {verb}{requires}"),
            SettingState::Unknown => format!(
                "{setting} makes it {verb}{requires}; whether it is set is unknown: how the process was started cannot be read"
            ),
        }
    }
}

fn habit(manager: MemoryManager, version: Option<&ManagerVersion>, keeps: bool, has_pool: bool) -> &'static str {
    match manager {
        _ if keeps => "keeps unused memory",
        MemoryManager::Jemalloc => "gives unused pages back one by one, which splits huge pages",
        MemoryManager::Mimalloc => "gives unused memory back soon, which splits huge pages",
        MemoryManager::Tcmalloc => "gives unused spans back, which splits huge pages",
        MemoryManager::Java => "returns what its collector has emptied",
        MemoryManager::Go if version.is_some_and(|version| version.is_from(&[1, 21, 1])) => {
            "its scavenger returns unused pages in pieces, which splits huge pages; it leaves asking for them to the kernel's setting"
        }
        MemoryManager::Go => "its scavenger returns unused pages in pieces, which splits huge pages",
        MemoryManager::Glibc if has_pool => {
            "maps its heaps and large blocks from a pool (MAP_HUGETLB), while that has pages"
        }
        MemoryManager::Glibc => "asks for huge pages for its heaps and large blocks (madvise)",
    }
}

/// jemalloc(3); `thp` came with 5.1.0, `dirty_decay_ms` with 5.0.0 (its ChangeLog).
fn jemalloc(
    version: Option<&ManagerVersion>,
    mentions: Option<&BTreeSet<&'static str>>,
    given: &StartedWith,
) -> Vec<ManagerSetting> {
    // Which of them it reads is determined by its build.
    let is_read = |name: &&str| mentions.is_some_and(|mentions| mentions.contains(name));
    let read: Vec<&str> = JEMALLOC_OPTIONS.into_iter().filter(is_read).collect();
    let names = if read.is_empty() { JEMALLOC_OPTIONS.to_vec() } else { read };
    let setting = |word: &str, effect, since: &[u32], requires| {
        let states = names.iter().map(|name| given.state(name, |value| is_last_of_its_name(word, value)));
        let setting = ManagerSetting::new(format!("{word} in {}", names.join(" or ")), effect, any(states));
        match version {
            Some(version) => version.is_from(since).then_some(setting),
            None => Some(ManagerSetting { requires: Some(requires), ..setting }),
        }
    };
    let asks = setting("thp:always", SettingEffect::AsksForHugePages, &[5, 1], "from jemalloc 5.1 on");
    let keeps = setting("dirty_decay_ms:-1", SettingEffect::KeepsUnused, &[5], "from jemalloc 5.0 on");
    asks.into_iter().chain(keeps).collect()
}

/// Whether `thp:always` is the last of `thp:never,thp:always`.
fn is_last_of_its_name(word: &str, list: &str) -> bool {
    let name = |word: &str| word.split(':').next().map(str::to_owned);
    list.split(',').map(str::trim).rfind(|each| name(each) == name(word)) == Some(word)
}

/// Its readme. Options had other names before 2.1: what a file does not mention, it does not know.
fn mimalloc(
    version: Option<&ManagerVersion>,
    mentions: Option<&BTreeSet<&'static str>>,
    given: &StartedWith,
) -> Vec<ManagerSetting> {
    let is_new = match (mentions, version) {
        (Some(mentions), _) => Some(mentions.contains(MIMALLOC_OPTION)),
        (None, Some(version)) => Some(version.is_from(&[2, 1])),
        (None, None) => None,
    };
    let is_on = |value: &str| {
        let value = value.to_ascii_uppercase();
        ["", "1", "2", "TRUE", "YES", "ON"].contains(&value.as_str())
    };
    let asks = |name: &str, value| {
        ManagerSetting::new(format!("{name}={value}"), SettingEffect::AsksForHugePages, given.state(name, is_on))
    };
    let keeps = |name: &str, value: &str| {
        ManagerSetting::new(
            format!("{name}={value}"),
            SettingEffect::KeepsUnused,
            given.state(name, |given| given == value),
        )
    };
    let old = || vec![asks("MIMALLOC_LARGE_OS_PAGES", "1"), keeps("MIMALLOC_ALLOW_DECOMMIT", "0")];
    let new = || vec![asks("MIMALLOC_ALLOW_LARGE_OS_PAGES", "2"), keeps("MIMALLOC_PURGE_DELAY", "-1")];
    match is_new {
        Some(true) => new(),
        Some(false) => old(),
        None => {
            let of_old = old().into_iter().map(|each| ManagerSetting { requires: Some("mimalloc 2.0"), ..each });
            let of_new = new().into_iter().map(|each| ManagerSetting { requires: Some("later mimalloc"), ..each });
            of_old.chain(of_new).collect()
        }
    }
}

/// docs/tcmalloc.html of gperftools.
fn tcmalloc(given: &StartedWith) -> Vec<ManagerSetting> {
    let is_nothing = |value: &str| value.trim().parse() == Ok(0.0);
    let state = given.state("TCMALLOC_RELEASE_RATE", is_nothing);
    vec![ManagerSetting::new("TCMALLOC_RELEASE_RATE=0", SettingEffect::KeepsUnused, state)]
}

/// java(1). The last word about a flag holds; the environment's are before and behind the others.
fn java(given: &StartedWith) -> Vec<ManagerSetting> {
    let flag = |name: &str, effect| {
        let (on, off) = (format!("-XX:+{name}"), format!("-XX:-{name}"));
        let says = |word: &str| if word == on { Some(true) } else { (word == off).then_some(false) };
        let of_variable = |variable: &str| {
            let value = given.variable(variable)?;
            Ok::<_, Unread>(value.and_then(|value| value.split_ascii_whitespace().rev().find_map(says)))
        };
        let of_arguments = || {
            let last = java_options(given.arguments.all()?).rev().find_map(|word| match word.strip_prefix('@') {
                // A file of options (java(1), "java Command-Line Argument Files").
                Some(_) => Some(Err(Unread)),
                None => says(word).map(Ok),
            });
            last.transpose()
        };
        let told = [
            of_variable("_JAVA_OPTIONS"),
            of_arguments(),
            of_variable("JDK_JAVA_OPTIONS"),
            of_variable("JAVA_TOOL_OPTIONS"),
        ];
        // What comes before the first that is known could say otherwise.
        let state = match told.into_iter().find(|told| *told != Ok(None)) {
            Some(Ok(Some(true))) => SettingState::Set,
            Some(Err(Unread)) => SettingState::Unknown,
            Some(Ok(_)) | None => SettingState::NotSet,
        };
        ManagerSetting::new(on, effect, state)
    };
    vec![
        flag("UseTransparentHugePages", SettingEffect::AsksForHugePages),
        flag("UseLargePages", SettingEffect::TakesFromPool),
        flag("AlwaysPreTouch", SettingEffect::PopulatesAtStart),
    ]
}

/// Options of the JVM that have a value in the word after them.
const JAVA_WITH_VALUE: [&str; 14] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--limit-modules",
    "--add-reads",
    "--add-exports",
    "--add-opens",
    "--patch-module",
    "--enable-native-access",
    "--source",
];

/// The options among the words of `java`: those behind its program are the program's.
fn java_options(words: &[String]) -> impl DoubleEndedIterator<Item = &str> {
    let mut is_value = false;
    let behind = words.iter().skip(1).take_while(|word| {
        let is_option = std::mem::take(&mut is_value) || word.starts_with(['-', '@']);
        is_value = JAVA_WITH_VALUE.contains(&word.as_str());
        let is_module = ["-m", "--module"].contains(&word.as_str()) || word.starts_with("--module=");
        is_option && !is_module
    });
    let count = behind.count();
    words.iter().skip(1).take(count).map(String::as_str)
}

/// go.dev/doc/gc-guide; `disablethp` came with 1.21.6 (pkg.go.dev/runtime).
fn go(version: Option<&ManagerVersion>, given: &StartedWith) -> Vec<ManagerSetting> {
    let is_higher = |value: &str| value == "off" || value.parse::<u32>().is_ok_and(|percent| percent > 100);
    let refuses = |value: &str| value.split(',').any(|word| word.trim() == "disablethp=1");
    let returns_less = |name, state| ManagerSetting::new(name, SettingEffect::ReturnsLess, state);
    let percent = returns_less("a higher GOGC", given.state("GOGC", is_higher));
    // Only a limit that there is can be raised.
    let limit = match given.variable("GOMEMLIMIT") {
        Ok(None | Some("" | "off")) => None,
        Ok(Some(_)) => Some(SettingState::NotSet),
        Err(Unread) => Some(SettingState::Unknown),
    };
    let limit = limit.map(|state| returns_less("a higher GOMEMLIMIT", state));
    let refused =
        ManagerSetting::new("GODEBUG=disablethp=1", SettingEffect::RefusesHugePages, given.state("GODEBUG", refuses));
    let knows = version.is_none_or(|version| version.is_from(&[1, 21, 6]));
    [Some(percent), limit, knows.then_some(refused)].into_iter().flatten().collect()
}

/// GNU libc manual, "Memory Allocation Tunables": 1 is madvise, 2 the default size of a pool, another number that size. None where it is not set,
/// or the version does not know it.
fn glibc(version: Option<&ManagerVersion>, given: &StartedWith) -> Option<ManagerSetting> {
    let tunables = given.variable("GLIBC_TUNABLES").ok().flatten()?;
    let value = tunables.split(':').filter_map(|word| word.strip_prefix(TUNABLE)?.strip_prefix('=')).next_back()?;
    let digits = value.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    let number = digits.unwrap_or_else(|| value.parse()).ok().filter(|&number| number > 0)?;
    let effect = if number == 1 { SettingEffect::AsksForHugePages } else { SettingEffect::TakesFromPool };
    let is_known = version.is_none_or(|version| version.is_from(&[2, 35]));
    is_known.then(|| ManagerSetting::new(format!("{TUNABLE}={number} in GLIBC_TUNABLES"), effect, SettingState::Set))
}

/// Whether one of these is set.
fn any(states: impl Iterator<Item = SettingState>) -> SettingState {
    states.fold(SettingState::NotSet, |any, state| match (any, state) {
        (SettingState::Set, _) | (_, SettingState::Set) => SettingState::Set,
        (SettingState::Unknown, _) | (_, SettingState::Unknown) => SettingState::Unknown,
        (SettingState::NotSet, SettingState::NotSet) => SettingState::NotSet,
    })
}

#[cfg(test)]
mod tests {
    use super::super::started_with::Words;
    use super::*;

    fn given(environment: &[&str], arguments: &[&str]) -> StartedWith {
        StartedWith { environment: Words::of(environment), arguments: Words::of(arguments) }
    }

    fn managed(
        manager: MemoryManager,
        version: &str,
        mentions: &[&'static str],
        given: &StartedWith,
    ) -> Option<Managed> {
        let mentions = mentions.iter().copied().collect();
        Managed::of(manager, ManagerVersion::at_start(version.as_bytes()), Some(&mentions), given)
    }

    fn told(manager: MemoryManager, version: &str, mentions: &[&'static str], given: &StartedWith) -> String {
        managed(manager, version, mentions, given).map_or(String::new(), |managed| managed.told().join("\n"))
    }

    #[test]
    fn what_is_set_already_is_no_advice() {
        let jemalloc =
            |environment: &[&str]| told(MemoryManager::Jemalloc, "5.3.0", &["MALLOC_CONF"], &given(environment, &[]));
        assert_eq!(
            jemalloc(&["JE_MALLOC_CONF=thp:always"]),
            "jemalloc 5.3.0: gives unused pages back one by one, which splits huge pages\n\
             thp:always in MALLOC_CONF makes it ask for huge pages\n\
             dirty_decay_ms:-1 in MALLOC_CONF makes it keep what is unused"
        );
        let asks = jemalloc(&["MALLOC_CONF=thp:never,thp:always"]);
        assert!(asks.contains("thp:always in MALLOC_CONF is set already"), "{asks}");
        assert!(asks.contains("MALLOC_CONF makes it keep what is unused"), "{asks}");
        assert!(jemalloc(&["MALLOC_CONF=thp:always,thp:never"]).contains("thp:always in MALLOC_CONF makes it"));
        let both = jemalloc(&["MALLOC_CONF=dirty_decay_ms:-1,thp:always"]);
        assert!(both.contains("5.3.0: keeps unused memory") && !both.contains("gives unused"), "{both}");
        assert!(both.ends_with("everything is set already; the mappings below say why memory is not huge"), "{both}");
        let unread = told(MemoryManager::Jemalloc, "5.3.0", &["MALLOC_CONF"], &StartedWith::default());
        assert_eq!(unread.matches("whether it is set is unknown").count(), 2, "{unread}");
    }

    #[test]
    fn advice_fits_the_version() {
        let nothing = given(&[], &[]);
        let old = told(MemoryManager::Jemalloc, "5.0.1", &["MALLOC_CONF"], &nothing);
        assert!(old.contains("no setting that asks for huge pages; jemalloc 5.1 has"), "{old}");
        assert!(!old.contains("thp:always") && old.contains("dirty_decay_ms"), "{old}");
        let unknown = told(MemoryManager::Jemalloc, "", &[], &nothing);
        assert!(unknown.starts_with("jemalloc, version unknown: "), "{unknown}");
        assert!(unknown.contains("MALLOC_CONF or JE_MALLOC_CONF or _RJEM_MALLOC_CONF makes it ask"), "{unknown}");
        assert!(unknown.contains("ask for huge pages (from jemalloc 5.1 on)"), "{unknown}");
        let old = told(MemoryManager::Mimalloc, "2.0", &[], &given(&["MIMALLOC_ALLOW_LARGE_OS_PAGES=2"], &[]));
        assert!(
            old.contains("MIMALLOC_LARGE_OS_PAGES=1 makes it ask") && old.contains("ALLOW_DECOMMIT=0 makes"),
            "{old}"
        );
        let new = told(MemoryManager::Mimalloc, "2.1", &[MIMALLOC_OPTION], &given(&["MIMALLOC_PURGE_DELAY=-1"], &[]));
        assert!(new.contains("MIMALLOC_ALLOW_LARGE_OS_PAGES=2 makes it ask"), "{new}");
        assert!(new.contains("MIMALLOC_PURGE_DELAY=-1 is set already"), "{new}");
        let unread = Managed::of(MemoryManager::Mimalloc, None, None, &nothing).unwrap();
        assert_eq!(unread.settings.iter().filter(|setting| setting.requires.is_some()).count(), 4);
    }

    #[test]
    fn the_last_word_about_a_flag_of_java_holds() {
        let thp = |environment: &[&str], arguments: &[&str]| {
            let managed = managed(MemoryManager::Java, "17.0", &[], &given(environment, arguments)).unwrap();
            managed.settings.into_iter().find(|setting| setting.effect == SettingEffect::AsksForHugePages)
        };
        let state = |environment: &[&str], arguments: &[&str]| thp(environment, arguments).unwrap().state;
        let (on, off) = ("-XX:+UseTransparentHugePages", "-XX:-UseTransparentHugePages");
        assert_eq!(state(&[], &["java", on, "-jar", "a"]), SettingState::Set);
        assert_eq!(state(&[], &["java", on, off]), SettingState::NotSet);
        assert_eq!(state(&[], &["java", "-cp", "a:b", on, "Main", off]), SettingState::Set);
        assert_eq!(
            state(&[], &["java", "-jar", on, "a.jar"]),
            SettingState::Set,
            "the first word without - is the jar"
        );
        for program in [["-jar", "a"].as_slice(), &["Main"], &["-m", "a/b"], &["--module=a/b"], &["-cp", "a", "Main"]] {
            let arguments = [&["java"], program, &[on]].concat();
            assert_eq!(state(&[], &arguments), SettingState::NotSet, "it is the program's: {arguments:?}");
        }
        assert_eq!(state(&[], &["java", on, "@options", "Main", on]), SettingState::Unknown, "the file may refuse");
        assert_eq!(state(&[], &["java", "@options", on, "Main", "@a"]), SettingState::Set);
        assert_eq!(state(&[&format!("JAVA_TOOL_OPTIONS=-Xmx1g {on}")], &["java"]), SettingState::Set);
        assert_eq!(state(&[&format!("JAVA_TOOL_OPTIONS={on}")], &["java", off]), SettingState::NotSet);
        assert_eq!(state(&[&format!("_JAVA_OPTIONS={on}")], &["java", off]), SettingState::Set);
        let unread = StartedWith { environment: Words::default(), arguments: Words::of(&["java", on]) };
        let unread = Managed::of(MemoryManager::Java, None, None, &unread).unwrap();
        assert_eq!(unread.settings.first().unwrap().state, SettingState::Unknown, "a variable may say otherwise");
        assert_eq!(thp(&[], &["java", "-XX:+UseLargePages"]), None, "the pool has its heap");
    }

    #[test]
    fn the_others_have_a_switch_each() {
        let of = |manager, version, environment: &[&str]| told(manager, version, &[], &given(environment, &[]));
        let tcmalloc = of(MemoryManager::Tcmalloc, "2.10", &["TCMALLOC_RELEASE_RATE=0.0"]);
        assert!(tcmalloc.starts_with("tcmalloc 2.10: keeps unused memory"), "{tcmalloc}");
        assert!(of(MemoryManager::Tcmalloc, "2.10", &["TCMALLOC_RELEASE_RATE=1"]).contains("RATE=0 makes it keep"));
        let go = of(MemoryManager::Go, "1.26.8", &["GODEBUG=a=1,disablethp=1"]);
        assert!(go.contains("leaves asking for them to the kernel"), "{go}");
        assert!(go.contains("disablethp=1 is set, which makes it refuse huge pages: start it without"), "{go}");
        assert!(
            !of(MemoryManager::Go, "1.20", &["GODEBUG=disablethp=1"]).contains("disablethp"),
            "it is unknown to it"
        );
        assert!(of(MemoryManager::Go, "1.26.8", &["GOGC=400"]).contains("everything is set already"));
        let limited = |limit: &str| of(MemoryManager::Go, "1.26.8", &["GOGC=off", limit]);
        assert!(limited("GOMEMLIMIT=4GiB").contains("a higher GOGC is set already, which makes it return less"));
        assert!(limited("GOMEMLIMIT=4GiB").ends_with("\na higher GOMEMLIMIT makes it return less"));
        assert!(!limited("GOMEMLIMIT=off").contains("GOMEMLIMIT"), "there is no limit to raise");
        let glibc = |value: &str| of(MemoryManager::Glibc, "2.36", &[&format!("GLIBC_TUNABLES=a=1:{TUNABLE}={value}")]);
        assert!(glibc("1").contains("large blocks (madvise)") && glibc("2097152").contains("(MAP_HUGETLB)"));
        assert!(glibc("1").contains("=1 in GLIBC_TUNABLES is set already, which makes it ask for huge pages"));
        assert!(
            glibc("0x2").contains("=2 in GLIBC_TUNABLES is set already, which makes it take huge pages from the pool")
        );
        assert_eq!((glibc("0"), glibc("x")), (String::new(), String::new()));
        assert_eq!(of(MemoryManager::Glibc, "2.34", &["GLIBC_TUNABLES=glibc.malloc.hugetlb=1"]), "");
        assert_eq!(of(MemoryManager::Glibc, "2.36", &[]), "");
    }
}
