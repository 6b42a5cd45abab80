//! The machine's settings for huge pages: changed for a turn, always restored.
//!
//! Owns: files below `/sys/kernel/mm/transparent_hugepage`, the pools' sizes beside it, and the state directory with their original values. Settings
//! are restored on drop (so also after Ctrl-C and on panic); after a SIGKILL the next start restores them. Never touches: a setting that no
//! configuration names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// The directory of the settings; their names are relative to it.
pub const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";
const STATE: &str = "/run/hugepilot-bench";

/// The settings, and their values from before the harness changed them.
#[derive(Debug)]
pub struct SavedSettings {
    settings: PathBuf,
    state: PathBuf,
    as_found: BTreeMap<String, String>,
    /// Values that stay from turn to turn, instead of those found.
    kept: BTreeMap<String, String>,
    /// Held while this value lives: two harnesses would each restore the other's values.
    _lock: File,
}

impl SavedSettings {
    /// Takes the lock on this machine's settings, and first restores what a killed harness left changed.
    pub fn of_this_machine() -> Result<Self> {
        Self::open(Path::new(SETTINGS), Path::new(STATE))
    }

    fn open(settings: &Path, state: &Path) -> Result<Self> {
        fs::create_dir_all(state).with_context(|| format!("cannot create {}: run as root", state.display()))?;
        let lock = File::create(state.join("lock")).with_context(|| format!("cannot lock {}", state.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another hugepilot-bench or hugepilot-research is running here: wait for it, two would disturb each other's figures"
            );
        }
        let as_found = match fs::read_to_string(state.join("as-found.json")) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{}/as-found.json is damaged: read it, then remove it", state.display()))?,
            Err(_) => BTreeMap::new(),
        };
        let mut opened =
            Self { settings: settings.into(), state: state.into(), as_found, kept: BTreeMap::new(), _lock: lock };
        opened.restore()?;
        Ok(opened)
    }

    /// Restores the original values, then writes these.
    pub fn apply(&mut self, changes: &[(&str, &str)]) -> Result<()> {
        self.restore()?;
        changes.iter().try_for_each(|(name, value)| self.change(name, value).map(|_| ()))
    }

    /// Writes one more value, and returns the previous one.
    pub fn change(&mut self, name: &str, value: &str) -> Result<String> {
        let before = self.read(name)?;
        self.as_found.entry(name.to_owned()).or_insert_with(|| before.clone());
        // Written before the change: a kill between the two must not lose the old value.
        self.save()?;
        self.write(name, value)?;
        Ok(before)
    }

    /// Keeps a value as it is now from turn to turn, until everything is put back.
    pub fn keep(&mut self, name: &str) -> Result<()> {
        self.kept.insert(name.to_owned(), self.read(name)?);
        Ok(())
    }

    /// Whether a value is kept.
    pub fn keeps(&self, name: &str) -> bool {
        self.kept.contains_key(name)
    }

    /// Puts back what was found, except what is kept.
    pub fn restore(&mut self) -> Result<()> {
        if self.as_found.is_empty() {
            return Ok(());
        }
        // All of them before any error counts: one that cannot be put back must not keep the others.
        let between_turns = |name, found| self.kept.get(name).unwrap_or(found);
        let written: Vec<Result<()>> =
            self.as_found.iter().map(|(name, found)| self.write(name, between_turns(name, found))).collect();
        written.into_iter().collect::<Result<()>>()?;
        self.as_found.retain(|name, _| self.kept.contains_key(name));
        self.save()
    }

    /// Puts back everything.
    pub fn restore_all(&mut self) -> Result<()> {
        self.kept.clear();
        self.restore()
    }

    /// The value that was found, where it was changed, or else the one in force.
    pub fn found(&self, name: &str) -> Result<String> {
        self.as_found.get(name).cloned().map_or_else(|| self.read(name), Ok)
    }

    /// The current value; from a list of choices, the one in brackets.
    pub fn read(&self, name: &str) -> Result<String> {
        let path = self.settings.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(chosen(&text).to_owned())
    }

    /// Writes down what was found, for who comes after a kill.
    fn save(&self) -> Result<()> {
        let path = self.state.join("as-found.json");
        if self.as_found.is_empty() {
            return fs::remove_file(path).context("cannot remove the record of the old settings");
        }
        fs::write(&path, serde_json::to_string(&self.as_found)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.settings.join(name);
        fs::write(&path, value).with_context(|| format!("cannot write '{value}' to {}: run as root", path.display()))
    }
}

impl Drop for SavedSettings {
    fn drop(&mut self) {
        if let Err(error) = self.restore_all() {
            eprintln!("settings were not put back: {error:#}; the next start tries again");
        }
    }
}

/// `madvise` from `always [madvise] never`; the whole text if it has no brackets.
fn chosen(text: &str) -> &str {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((value, _)) => value,
        None => text.trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Machine(tempfile::tempdir().unwrap());
            fs::create_dir(machine.0.path().join("khugepaged")).unwrap();
            machine.put("enabled", "always [madvise] never\n");
            machine.put("khugepaged/scan_sleep_millisecs", "10000\n");
            machine
        }

        fn put(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        fn get(&self, name: &str) -> String {
            fs::read_to_string(self.0.path().join(name)).unwrap()
        }

        fn settings(&self) -> Result<SavedSettings> {
            SavedSettings::open(self.0.path(), &self.0.path().join("state"))
        }
    }

    #[test]
    fn settings_are_put_back_on_drop_and_on_panic() {
        let machine = Machine::new();
        machine.settings().unwrap().apply(&[("enabled", "never")]).unwrap();
        assert_eq!(machine.get("enabled"), "madvise");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut settings = machine.settings().unwrap();
            settings.apply(&[("enabled", "always"), ("khugepaged/scan_sleep_millisecs", "0")]).unwrap();
            assert_eq!(machine.get("khugepaged/scan_sleep_millisecs"), "0");
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(machine.get("enabled"), "madvise");
        assert_eq!(machine.get("khugepaged/scan_sleep_millisecs"), "10000");
    }

    #[test]
    fn a_killed_harness_is_cleaned_up_after() {
        let machine = Machine::new();
        fs::create_dir(machine.0.path().join("state")).unwrap();
        machine.put("enabled", "[always] madvise never");
        machine.put("state/as-found.json", r#"{"enabled":"madvise"}"#);
        let settings = machine.settings().unwrap();
        assert_eq!(machine.get("enabled"), "madvise");
        assert!(!machine.0.path().join("state/as-found.json").exists());
        drop(settings);
    }

    #[test]
    fn what_cannot_be_put_back_keeps_nothing_else() {
        let machine = Machine::new();
        let mut settings = machine.settings().unwrap();
        settings.apply(&[("enabled", "never"), ("khugepaged/scan_sleep_millisecs", "0")]).unwrap();
        fs::remove_file(machine.0.path().join("enabled")).unwrap();
        fs::create_dir(machine.0.path().join("enabled")).unwrap();
        let error = settings.restore().unwrap_err();
        assert!(error.to_string().contains("/enabled"), "{error}");
        assert_eq!(machine.get("khugepaged/scan_sleep_millisecs"), "10000");
        fs::remove_dir(machine.0.path().join("enabled")).unwrap();
        drop(settings);
        assert_eq!(machine.get("enabled"), "madvise", "it is tried again");
    }

    #[test]
    fn each_turn_starts_from_what_was_found() {
        let machine = Machine::new();
        let mut settings = machine.settings().unwrap();
        settings.apply(&[("khugepaged/scan_sleep_millisecs", "0")]).unwrap();
        settings.apply(&[("enabled", "never")]).unwrap();
        assert_eq!(machine.get("khugepaged/scan_sleep_millisecs"), "10000");
        assert_eq!(settings.read("enabled").unwrap(), "never");
    }

    #[test]
    fn changes_add_up_and_are_put_back_together() {
        let machine = Machine::new();
        let mut settings = machine.settings().unwrap();
        assert_eq!(settings.change("enabled", "never").unwrap(), "madvise");
        settings.change("khugepaged/scan_sleep_millisecs", "0").unwrap();
        assert_eq!(settings.change("enabled", "always").unwrap(), "never");
        drop(settings);
        assert_eq!([machine.get("enabled"), machine.get("khugepaged/scan_sleep_millisecs")], ["madvise", "10000"]);
    }

    #[test]
    fn a_pool_is_a_setting_too() {
        let machine = Machine::new();
        let pool = tempfile::tempdir_in(machine.0.path().parent().unwrap()).unwrap();
        let name = format!("../{}/nr_hugepages", pool.path().file_name().unwrap().to_str().unwrap());
        machine.put(&name, "3\n");
        let mut settings = machine.settings().unwrap();
        settings.apply(&[(&name, "8")]).unwrap();
        assert_eq!(machine.get(&name), "8");
        drop(settings);
        assert_eq!(machine.get(&name), "3");
    }

    #[test]
    fn what_is_kept_outlasts_turns_and_is_put_back_in_the_end() {
        let machine = Machine::new();
        machine.put("pages", "3\n");
        let mut settings = machine.settings().unwrap();
        settings.change("pages", "8").unwrap();
        // The kernel had fewer.
        machine.put("pages", "7\n");
        settings.keep("pages").unwrap();
        settings.apply(&[("enabled", "never")]).unwrap();
        settings.restore().unwrap();
        assert_eq!([machine.get("enabled"), machine.get("pages")], ["madvise", "7"]);
        assert_eq!((settings.found("pages").unwrap(), settings.keeps("enabled")), ("3".to_owned(), false));
        assert!(machine.get("state/as-found.json").contains("pages"), "a kill now must not lose it");
        drop(settings);
        assert_eq!(machine.get("pages"), "3");
        assert!(!machine.0.path().join("state/as-found.json").exists());
    }

    #[test]
    fn a_second_harness_is_refused() {
        let machine = Machine::new();
        let _first = machine.settings().unwrap();
        assert!(machine.settings().unwrap_err().to_string().contains("another"));
    }

    #[test]
    fn a_missing_setting_is_named() {
        let machine = Machine::new();
        let error = machine.settings().unwrap().apply(&[("absent", "1")]).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
