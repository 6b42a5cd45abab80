//! What a running process was started with: its environment and its arguments, as far as the kernel shows them.
//!
//! Owns: bounded reading of both, which anybody may have written. Never touches: what a variable or an argument means.

use std::io::Read;

use heat::units::Bytes;
use kernel::Root;
use serde::Serialize;

/// The most that is read of either: room for the longest that programs are usually started with.
const MOST: Bytes = Bytes(1 << 20);

/// Whether a setting holds. What cannot be read is unknown, not absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingState {
    /// It is set.
    Set,
    /// It is not, or to something else.
    NotSet,
    /// What the process was started with cannot be read as a whole.
    Unknown,
}

/// The environment and arguments of a process when it was started. What it has changed of them since is not known to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartedWith {
    pub(super) environment: Words,
    pub(super) arguments: Words,
}

/// Words that a zero byte ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    words: Vec<String>,
    /// Whether nothing is missing.
    is_whole: bool,
}

impl StartedWith {
    /// Of a process. What cannot be read is unknown.
    pub fn of(root: &Root, pid: u32) -> Self {
        let words = |name: &str| Words::read(root, &format!("proc/{pid}/{name}")).unwrap_or_default();
        Self { environment: words("environ"), arguments: words("cmdline") }
    }

    /// The value of a variable; `Err` if that is not known.
    pub(super) fn variable(&self, name: &str) -> Result<Option<&str>, Unread> {
        let mut values = self.environment.words.iter().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        match values.next() {
            Some(value) => Ok(Some(value)),
            None if self.environment.is_whole => Ok(None),
            None => Err(Unread),
        }
    }

    /// Whether a variable has a value of which `holds` is true.
    pub(super) fn state(&self, name: &str, holds: impl Fn(&str) -> bool) -> SettingState {
        match self.variable(name) {
            Ok(Some(value)) if holds(value) => SettingState::Set,
            Ok(_) => SettingState::NotSet,
            Err(Unread) => SettingState::Unknown,
        }
    }
}

/// Something could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread;

impl Words {
    fn read(root: &Root, name: &str) -> Option<Self> {
        let mut bytes = Vec::new();
        root.stream(name, MOST).ok()?.read_to_end(&mut bytes).ok()?;
        let is_whole = (bytes.len() as u64) < MOST.0;
        let words = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        Some(Self { words: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(), is_whole })
    }

    /// All of them; `Err` if some are missing.
    pub(super) fn all(&self) -> Result<&[String], Unread> {
        if self.is_whole { Ok(&self.words) } else { Err(Unread) }
    }

    #[cfg(test)]
    pub(super) fn of(words: &[&str]) -> Self {
        Self { words: words.iter().map(|&word| word.to_owned()).collect(), is_whole: true }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        let environment = tree.path().join("proc/7/environ");
        let rate = || StartedWith::of(&root, 7).state("RATE", |value| value == "0");
        assert_eq!(rate(), SettingState::Unknown, "there is no such file");
        fs::write(&environment, b"A=1\0RATE=0\0").unwrap();
        assert_eq!(rate(), SettingState::Set);
        fs::write(&environment, b"A=1\0RATE=10\0").unwrap();
        assert_eq!(rate(), SettingState::NotSet);
        fs::write(&environment, b"A=1\0RATES=0\0\xff\0").unwrap();
        assert_eq!(rate(), SettingState::NotSet);
        fs::write(&environment, [b"A=".as_slice(), &[b'x'; MOST.0 as usize], b"\0RATE=0\0"].concat()).unwrap();
        assert_eq!(rate(), SettingState::Unknown, "it is too long");
        assert_eq!(StartedWith::of(&root, 7).arguments.all(), Err(Unread));
    }
}
