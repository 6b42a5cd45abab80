//! The configuration of `hugepilotd`: a flat TOML file whose keys are named like the flags of `attach`.
//!
//! Owns: the keys, their defaults, and the message about a wrong one. Never touches: processes; the census resolves a
//! rule's id or control group.

mod mistake;
mod reclaim;
mod rules;
mod section;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

pub use mistake::{ConfigError, Mistake};
pub use rules::parse_weight;

use crate::config::rules::{never_rule, parse_piloting_mode, rules};
use crate::config::section::Section;
use crate::metrics_server::MetricsPlace;
use ::reclaim::ReclaimOptions;
use heat::clearing::ClearPolicy;
use heat::units::{Bytes, CpuShare, Nanos, SizeOrShare, Slowdown, TimeError};
use observe::{ObserveOptions, TrackerChoice};
use pilot::decide::{Allowance, Fairness};
use pilot::scope::{Matcher, PilotMode, Rule, Scope};

/// The longest window of the daemon.
const LONGEST_WINDOW: Nanos = Nanos(60_000_000_000);
/// Without a configuration, programs with less memory are not observed.
const OBSERVED_FROM: Bytes = Bytes(64 << 20);
/// The limit on a configuration file: hundreds of rules.
const LONGEST: Bytes = Bytes(256 << 10);

/// What a daemon pilots, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The tracker.
    pub tracker: TrackerChoice,
    /// How to watch.
    pub watch: ObserveOptions,
    /// The CPU time that repeated observation may take.
    pub max_cpu: CpuShare,
    /// The budgets; a share of the machine's memory is not yet resolved to bytes.
    pub allowance: Allowance,
    /// How much promotion may slow a program down.
    pub max_slowdown: Slowdown,
    /// How a budget that is too small for all targets is divided.
    pub fairness: Fairness,
    /// Processes with less memory are left alone; None where the file does not say it.
    pub min_size: Option<Bytes>,
    /// Whether unused memory is given back.
    pub give_back: bool,
    /// Where metrics are served, on this machine only; None disables them.
    pub metrics: Option<MetricsPlace>,
    /// Whether agents set targets, so that without a `[[target]]` nothing else is observed.
    pub agents: bool,
    /// How memory is reclaimed; None disables it.
    pub reclaim: Option<ReclaimOptions>,
    /// Which processes are piloted.
    pub scope: Scope,
}

impl Default for Config {
    /// Safe on a production host. Pilots nothing.
    fn default() -> Self {
        Self {
            tracker: TrackerChoice::default(),
            watch: ObserveOptions { max_slowdown: Some(Slowdown::UNASKED), ..ObserveOptions::default() },
            max_cpu: CpuShare::default(),
            allowance: Allowance { max_huge: Some(SizeOrShare::ShareOfRam(0.5)), ..Allowance::default() },
            max_slowdown: Slowdown::UNASKED,
            fairness: Fairness::default(),
            min_size: None,
            give_back: true,
            metrics: None,
            agents: false,
            reclaim: None,
            scope: Scope::new(Vec::new(), Vec::new()),
        }
    }
}

impl Config {
    /// The default path of the configuration.
    pub const PATH: &str = "/etc/hugepilot/hugepilot.toml";

    /// A configuration with every key explained, none of them set.
    pub const COMMENTED: &str = include_str!("hugepilot.toml");

    /// Reads a configuration file.
    ///
    /// Errors: the file cannot be read, is longer than 256 KiB, is empty, as while it is being replaced, or has a mistake; the error says in which line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        if text.trim().is_empty() {
            return Err(ConfigError::Empty { path: path.to_owned() });
        }
        Self::parse(&text).map_err(|mistake| ConfigError::Wrong { path: path.to_owned(), mistake })
    }

    /// Reads a configuration file to begin with. Where it gives nothing to do, is empty, or is absent at the default path, all programs are observed.
    ///
    /// Errors: as [`Config::read`] otherwise.
    pub fn read_or_observe(path: &Path) -> Result<Self, ConfigError> {
        match Self::read(path) {
            Err(ConfigError::Empty { .. }) => Ok(Self::default().observing_all()),
            Err(ConfigError::Read { reason, .. })
                if path == Path::new(Self::PATH) && reason.kind() == io::ErrorKind::NotFound =>
            {
                Ok(Self::default().observing_all())
            }
            read => read.map(Self::with_something_to_do),
        }
    }

    /// Reads a configuration that is to take the place of another one.
    ///
    /// Errors: as [`Config::read`].
    pub fn read_anew(path: &Path) -> Result<Self, ConfigError> {
        Self::read(path).map(Self::with_something_to_do)
    }

    fn with_something_to_do(self) -> Self {
        if self.gives_something_to_do() { self } else { self.observing_all() }
    }

    /// Observes every program of 64 MiB and more, and promotes nothing.
    fn observing_all(self) -> Self {
        let matcher = Matcher { name: Some("*".parse().expect("a pattern")), ..Matcher::default() };
        let rule = Rule { matcher, children: false, weight: 1.0, mode: PilotMode::Observe };
        let scope = Scope::new(vec![rule], self.scope.never().to_vec());
        Self { min_size: self.min_size.or(Some(OBSERVED_FROM)), scope, ..self }
    }

    /// Whether it promotes nothing and reclaims nothing.
    pub fn only_observes(&self) -> bool {
        self.reclaim.is_none() && !self.agents && self.scope.rules().iter().all(|rule| rule.mode == PilotMode::Observe)
    }

    /// Whether it names a program, leaves that to agents, or says how to reclaim memory.
    pub fn gives_something_to_do(&self) -> bool {
        !self.scope.rules().is_empty() || self.agents || self.reclaim.is_some()
    }

    /// Parses the text of a configuration.
    ///
    /// Errors: the text is not TOML, has an unknown key or a bad value, or has a rule that names no process, or none that no earlier rule names.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let mut file = Section::of_file(text)?;
        let mut config = Self::default();
        let mode = file.value("mode", parse_piloting_mode)?.unwrap_or_default();
        config.set_watching(&mut file)?;
        config.set_spending(&mut file)?;
        config.metrics = file.value("metrics", MetricsPlace::from_str)?;
        let metrics = &mut config.metrics;
        file.value("metrics-mode", |text| match metrics {
            Some(MetricsPlace::Socket { mode, .. }) => parse_mode(text).map(|given| *mode = given),
            _ => Err("needs a Unix socket: write metrics = \"/run/hugepilot/metrics.sock\", too".to_owned()),
        })?;
        set(&mut config.agents, file.flag("agents")?);
        config.reclaim = file.table("reclaim")?.map(reclaim::options).transpose()?;
        let (targets, never) = (file.sections("target")?, file.sections("never")?);
        file.finish()?;
        let rules = rules(targets, mode)?;
        let never = never.into_iter().map(never_rule).collect::<Result<_, _>>()?;
        Ok(Self { scope: Scope::new(rules, never), ..config })
    }

    fn set_watching(&mut self, file: &mut Section<'_>) -> Result<(), Mistake> {
        set(&mut self.tracker, file.value("tracker", TrackerChoice::from_str)?);
        set(&mut self.watch.window, file.value("window", parse_window)?);
        set(&mut self.watch.clearing, file.flag("allow-stall")?.map(ClearPolicy::allowing_stalls));
        set(&mut self.max_cpu, file.value("max-cpu", CpuShare::from_str)?);
        self.min_size = file.value("min-size", Bytes::from_str)?;
        Ok(())
    }

    fn set_spending(&mut self, file: &mut Section<'_>) -> Result<(), Mistake> {
        set(&mut self.allowance.max_growth, file.value("max-growth", SizeOrShare::from_str)?);
        set(&mut self.allowance.max_huge, file.value("max-huge", SizeOrShare::from_str)?.map(Some));
        set(&mut self.allowance.include_shared, file.flag("include-shared")?);
        set(&mut self.allowance.include_interleaved, file.flag("include-interleaved")?);
        set(&mut self.max_slowdown, file.value("max-slowdown", Slowdown::from_str)?);
        self.watch.max_slowdown = Some(self.max_slowdown);
        set(&mut self.fairness, file.value("fairness", parse_fairness)?);
        set(&mut self.give_back, file.flag("give-back")?);
        Ok(())
    }
}

/// Errors: as [`Config::read`], but for mistakes.
fn text_of(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |reason| ConfigError::Read { path: path.to_owned(), reason };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(LONGEST.0 + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LONGEST.0 {
        return Err(ConfigError::TooLong { path: path.to_owned(), limit: LONGEST });
    }
    Ok(text)
}

/// Sets `place` if a value is given.
fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

fn parse_fairness(text: &str) -> Result<Fairness, String> {
    match text {
        "benefit" => Ok(Fairness::Benefit),
        "share" => Ok(Fairness::Share),
        _ => Err(format!("'{text}' is not a way of sharing: write benefit or share")),
    }
}

/// The daemon observes one process repeatedly, with others in between, and must report every few minutes that it is
/// alive.
fn parse_window(text: &str) -> Result<Nanos, TimeError> {
    Nanos::parse_within(text, ObserveOptions::SHORTEST_WINDOW..=LONGEST_WINDOW, "from 100ms to 1m")
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("'{text}' is not a file mode: write \"0600\", \"0660\" or \"0666\""))
}

#[cfg(test)]
mod tests {
    use heat::TrackerKind;
    use heat::units::Nanos;
    use proptest::prelude::*;

    use pilot::engine::Rules;
    use pilot::scope::{Pid, UserChoice};

    use super::rules::LONGEST_NAME;
    use super::*;

    /// The commented configuration with every key set: removes each `#` directly before a key.
    fn uncommented() -> String {
        let begins_key = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
        let lines = Config::COMMENTED.lines().map(|line| match line.strip_prefix('#') {
            Some(rest) if begins_key(rest) => rest,
            _ => line,
        });
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn error(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_the_commented_configuration_shows_are_the_defaults() {
        assert_eq!(Config::parse(Config::COMMENTED), Ok(Config::default()));
        let set = Config::parse(&uncommented()).unwrap();
        assert_eq!((set.scope.rules().len(), set.scope.never().len()), (6, 1));
        let metrics = Some("/run/hugepilot/metrics.sock".parse().unwrap());
        let reclaim = set.reclaim.clone();
        let min_size = Some(Rules::default().min_size);
        assert_eq!(
            set,
            Config { metrics, min_size, reclaim: reclaim.clone(), scope: set.scope.clone(), ..Config::default() }
        );
        let ReclaimOptions { policies, drop_behind } = reclaim.expect("it is shown");
        assert_eq!(policies, ::reclaim::policy::Preset::Balanced.policies());
        assert_eq!(drop_behind.paths, [Path::new("/var/backups")]);
    }

    #[test]
    fn every_key_is_explained() {
        let text = uncommented();
        for section in ["", "[[target]]\n", "[[never]]\n", "[reclaim]\n"] {
            let message = error(&format!("{section}qqq = 1\n"));
            let (_, known) = message.split_once("known here are ").unwrap_or_else(|| panic!("{message}"));
            for key in known.split(", ") {
                let shown = |line: &str| {
                    line.starts_with(&format!("{key} = ")) || line == format!("[[{key}]]") || line == format!("[{key}]")
                };
                assert!(text.lines().any(shown), "{key} is missing");
            }
        }
        let lines: Vec<&str> = text.lines().collect();
        let explained =
            |pair: &&[&str]| ["# ", "[["].iter().any(|begin| pair[0].starts_with(begin)) || pair[0].contains(" = ");
        let keys = lines.windows(2).filter(|pair| pair[1].contains(" = ") && !pair[1].starts_with('#'));
        keys.for_each(|pair| assert!(explained(&pair), "{}", pair[1]));
    }

    #[test]
    fn every_key_arrives() {
        let text = "tracker = 'idle-page'\nwindow = '2s'\nallow-stall = true\nmax-cpu = '0.5%'\nmax-growth = 0\n\
                    max-huge = '8G'\ninclude-shared = true\ninclude-interleaved = true\nmax-slowdown = '20%'\nfairness = 'share'\nmin-size = '1G'\n\
                    give-back = false\nmetrics = '[::1]:80'\nagents = true\n[[target]]\npid = 7\nname = 'a*'\nexe = '/b'\ncgroup = '/c'\n\
                    unit = 'u@*'\ncontainer = 'abcdef'\nuser = 104\nchildren = true\nweight = 2\nmode = 'observe'\n[[never]]\nname = 'd'\n";
        let matcher = Matcher {
            pid: Some(Pid::Number(7)),
            name: Some("a*".parse().unwrap()),
            exe: Some("/b".parse().unwrap()),
            cgroup: Some("/c".to_owned()),
            unit: Some("u@*".parse().unwrap()),
            container: Some("abcdef".parse().unwrap()),
            user: Some(UserChoice::Id(104)),
        };
        let never = Matcher { name: Some("d".parse().unwrap()), ..Matcher::default() };
        let expected = Config {
            tracker: TrackerChoice::Only(TrackerKind::IdlePage),
            watch: ObserveOptions {
                window: Nanos(2_000_000_000),
                clearing: ClearPolicy::AtOnce,
                max_slowdown: Some(Slowdown(0.2)),
                ..ObserveOptions::default()
            },
            max_cpu: CpuShare(0.005),
            allowance: Allowance {
                max_growth: SizeOrShare::Size(Bytes(0)),
                max_huge: Some(SizeOrShare::Size(Bytes(8 << 30))),
                include_shared: true,
                include_interleaved: true,
            },
            max_slowdown: Slowdown(0.2),
            fairness: Fairness::Share,
            min_size: Some(Bytes(1 << 30)),
            give_back: false,
            metrics: Some("[::1]:80".parse().unwrap()),
            agents: true,
            reclaim: None,
            scope: Scope::new(
                vec![Rule { matcher, children: true, weight: 2.0, mode: PilotMode::Observe }],
                vec![never],
            ),
        };
        assert_eq!(Config::parse(text), Ok(expected));
    }

    #[test]
    fn metrics_may_be_on_a_socket_with_a_mode() {
        let place = |text: &str| Config::parse(text).unwrap().metrics;
        let socket = |mode| Some(MetricsPlace::Socket { path: "/run/a.sock".into(), mode });
        assert_eq!(place("metrics = '/run/a.sock'"), socket(0o600));
        assert_eq!(place("metrics = '/run/a.sock'\nmetrics-mode = '0660'"), socket(0o660));
    }

    #[test]
    fn an_unknown_key_is_told_with_the_nearest_one() {
        assert_eq!(
            error("give-back = true\n\nmax-hugr = '1G'\n"),
            "unknown key 'max-hugr' in line 3; did you mean 'max-huge'?"
        );
        assert_eq!(error("max_growth = 0\n"), "unknown key 'max_growth' in line 1; did you mean 'max-growth'?");
        assert_eq!(error("[[targets]]\nname = 'a'\n"), "unknown key 'targets' in line 1; did you mean 'target'?");
        assert_eq!(error("[[target]]\nnmae = 'a'\n"), "unknown key 'nmae' in line 2; did you mean 'name'?");
        let far = "unknown key 'color' in line 2; known here are pid, name, exe, cgroup, unit, container, user";
        assert_eq!(error("[[never]]\ncolor = 1\n"), far);
    }

    #[test]
    fn a_wrong_value_is_told_with_its_key_line_and_the_form_expected() {
        for (text, expected) in [
            ("\nmax-huge = '50%rams'", "max-huge in line 2: '50%rams' is not a size: write a number with B, K"),
            ("max-huge = true", "max-huge in line 1: 'true' cannot stand here: write a text in quotes, or a number"),
            (
                "give-back = 'yes'",
                "give-back in line 1: ''yes'' cannot stand here: write true or false, without quotes",
            ),
            ("window = '5m'", "window in line 1: '5m' is out of range: write a time from 100ms to 1m"),
            ("max-cpu = 1", "max-cpu in line 1: '1' is not a share of a CPU: write 0.01% to 100%"),
            ("tracker = 'perf'", "tracker in line 1: 'perf' is not a tracker: write auto, page-walk"),
            ("fairness = 'fair'", "fairness in line 1: 'fair' is not a way of sharing: write benefit or share"),
            (
                "metrics = '0.0.0.0:9472'",
                "metrics in line 1: '0.0.0.0:9472' is not an address of this machine alone: write",
            ),
            ("metrics = '9472'", "metrics in line 1: '9472' is not an address"),
            (
                "metrics = '/run/a.sock'\nmetrics-mode = '0888'",
                "metrics-mode in line 2: '0888' is not a file mode: write",
            ),
            ("metrics-mode = '0660'", "metrics-mode in line 1: needs a Unix socket: write metrics = \"/run"),
            ("metrics = '[::1]:9472'\nmetrics-mode = '0660'", "metrics-mode in line 2: needs a Unix socket"),
            ("[[target]]\npid = 0", "pid in line 2: '0' is not a process id"),
            ("[[target]]\npid = 0x10", "pid in line 2: '0x10' is not a process id"),
            ("[[target]]\nname = 'a['", "name in line 2: 'a[' is not a pattern"),
            ("[[target]]\nname = ['a']", "name in line 2: '['a']' cannot stand here"),
            ("[[target]]\ncgroup = '/a/../b'", "cgroup in line 2: '/a/../b' is not a control group"),
            ("[[target]]\ncontainer = 'web'", "container in line 2: 'web' is not an id of a container"),
            ("[[target]]\nname = 'a'\nweight = 0", "weight in line 3: '0' is not a weight"),
            ("[[target]]\nname = 'a'\nweight = inf", "weight in line 3: 'inf' is not a weight"),
            (
                "[target]\nname = 'a'",
                "target in line 1: '[target]' cannot stand here: write rules that begin with a line [[target]]",
            ),
            (
                "\n[[never]]\n",
                "the [[never]] in line 2 does not say which process: write at least one of pid, name, exe",
            ),
            ("[[target]]\nchildren = true", "the [[target]] in line 1 does not say which process"),
            ("give-back = true\nmax-cpu = 1%", "line 2 is not TOML: "),
            ("give-back = true\ngive-back = true", "line 2 is not TOML: duplicate key"),
        ] {
            assert!(error(text).starts_with(expected), "{text}\n{}\n{expected}", error(text));
        }
        let rules = |count| "[[never]]\nname = 'a'\n".repeat(count);
        assert!(error(&rules(257)).contains("257 of them are more than 256; a name such as web-*"));
        assert!(Config::parse(&rules(256)).is_ok());
        let long = format!("[[target]]\nname = '{}'", "x".repeat(LONGEST.0 as usize));
        assert!(error(&long).len() < 200, "{}", error(&long));
    }

    #[test]
    fn a_rule_that_an_earlier_one_covers_is_refused() {
        let rule = "[[target]]\nname = 'a'\n";
        let again = "the [[target]] in line 4 names the same processes as that in line 1, which comes first";
        assert!(error(&format!("{rule}\n{rule}mode = 'observe'\n")).starts_with(again));
        assert!(error(&format!("{rule}children = true\n{rule}")).starts_with(again), "children are no more processes");
        for other in ["children = true\n", "user = 7\n"] {
            assert!(Config::parse(&format!("{rule}{rule}{other}")).is_ok(), "{other}");
        }
    }

    #[test]
    fn a_name_is_no_longer_than_the_longest_of_a_file() {
        let named = |key: &str, length| format!("[[target]]\n{key} = '{}'\n", "x".repeat(length));
        for key in ["name", "unit"] {
            assert!(Config::parse(&named(key, LONGEST_NAME)).is_ok());
            let error = error(&named(key, LONGEST_NAME + 1));
            assert!(error.starts_with(&format!("{key} in line 2: 256 bytes are no name")), "{error}");
        }
    }

    #[test]
    fn a_file_is_bounded_and_errors_carry_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hugepilot.toml");
        let error = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            Config::read(&path).unwrap_err().to_string()
        };
        assert!(error(&vec![b'\n'; LONGEST.0 as usize + 1]).contains("is longer than 256 KiB"));
        assert!(
            error(b"give-bakc = true\n")
                .ends_with("hugepilot.toml is wrong: unknown key 'give-bakc' in line 1; did you mean 'give-back'?")
        );
        assert!(error(b"# \xff\n").contains("UTF-8"));
        std::fs::write(&path, vec![b'\n'; LONGEST.0 as usize]).unwrap();
        assert!(Config::read_anew(&path).unwrap_err().to_string().contains("is empty"));
        assert!(Config::read_or_observe(&path).unwrap().only_observes(), "an empty one counts as none");
        std::fs::write(&path, "# max-huge = '8G'\n").unwrap();
        assert!(Config::read_anew(&path).unwrap().only_observes(), "as shipped");
        std::fs::write(&path, "[[never]]\nname = 'qemu-*'\n").unwrap();
        assert!(Config::read_anew(&path).unwrap().only_observes());
        assert!(Config::read_or_observe(&path).unwrap().only_observes(), "to begin with");
        std::fs::remove_file(&path).unwrap();
        let absent = Config::read(&path).unwrap_err().to_string();
        assert!(absent.contains("hugepilot.toml") && absent.contains("`hugepilot config` prints one"), "{absent}");
        assert!(Config::read_or_observe(&path).is_err(), "only the default file may be absent");
    }

    #[test]
    fn without_a_target_everything_large_is_observed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hugepilot.toml");
        let begun = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Config::read_or_observe(&path).unwrap()
        };
        let observing = begun("min-size = '8M'\nmax-cpu = '2%'\n[[never]]\nname = 'qemu-*'\n");
        assert!(observing.only_observes() && observing.gives_something_to_do());
        assert_eq!((observing.min_size, observing.scope.never().len()), (Some(Bytes(8 << 20)), 1));
        assert_eq!(begun(Config::COMMENTED).min_size, Some(OBSERVED_FROM));
        assert!(!begun("[reclaim]\npreset = 'balanced'\n").only_observes());
        let target = begun("[[target]]\nname = 'a'\n");
        assert!(!target.only_observes() && target.min_size == Config::default().min_size);
    }

    #[test]
    fn a_mode_holds_for_all_rules_that_name_none() {
        let modes = |text: &str| -> Vec<PilotMode> {
            Config::parse(text).unwrap().scope.rules().iter().map(|rule| rule.mode).collect()
        };
        let rules = "[[target]]\nname = 'a'\n[[target]]\nname = 'b'\nmode = 'promote'\n";
        assert_eq!(modes(rules), [PilotMode::Promote, PilotMode::Promote]);
        assert_eq!(modes(&format!("mode = 'observe'\n{rules}")), [PilotMode::Observe, PilotMode::Promote]);
        let guest = "[[target]]\nname = 'qemu-*'\nguest = true\n";
        assert_eq!(modes(guest), [PilotMode::Guest]);
        assert_eq!(modes(&format!("mode = 'observe'\n{guest}")), [PilotMode::Observe], "nothing is promoted then");
        assert_eq!(modes("[[target]]\nname = 'a'\nguest = false\n"), [PilotMode::Promote]);
        assert_eq!(error("mode = 'watch'\n"), "mode in line 1: 'watch' is not a mode: write observe or promote");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "((max-huge|name|pid|metrics|.{0,4}) ?= ?('.{0,8}'|[0-9.]{1,5}|true|\\[.{0,4})\n|\\[\\[target\\]\\]\n|.{0,9}\n){0,6}"
        ) {
            let _ = Config::parse(&text);
        }

        #[test]
        fn a_mistake_is_found_in_its_line(before in 0..20usize, key in "[a-z]{1,3}_[a-z]{1,9}") {
            let text = format!("{}{key} = 1\n", "# ü\n".repeat(before));
            let mistake = Config::parse(&text).unwrap_err();
            let found = matches!(&mistake, Mistake::UnknownKey { key: named, line, .. } if *named == key && *line == before + 1);
            prop_assert!(found, "{mistake}");
        }
    }
}
