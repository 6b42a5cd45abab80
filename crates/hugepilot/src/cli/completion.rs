//! What shells offer while a command is typed: running programs with memory enough for huge pages to matter.
//!
//! Owns: the choice of programs. Never touches: how shells ask; clap_complete does.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use clap_complete::engine::CompletionCandidate;
use heat::units::Bytes;
use kernel::process::{self, ProcessStatus};
use kernel::{Root, cgroup};

/// As `hugepilot scan`: the TLB nearly covers less.
const WORTH_IT: Bytes = Bytes(64 << 20);
/// More would not help to choose.
const MOST: usize = 20;

/// Process ids, those with most memory first.
pub fn pids() -> Vec<CompletionCandidate> {
    let offered = chosen(running()).into_iter().enumerate();
    offered.map(|(place, status)| candidate(place, status.tgid.to_string(), described(&status))).collect()
}

/// Names of programs, those with most memory first.
pub fn names() -> Vec<CompletionCandidate> {
    by(|status| vec![status.name.clone()])
}

/// The programs' files.
pub fn executables() -> Vec<CompletionCandidate> {
    by(|status| {
        let file = process::program(&Root::host(), status.tgid).ok();
        file.and_then(|path| path.to_str().map(str::to_owned)).into_iter().collect()
    })
}

/// The systemd units that they belong to.
pub fn units() -> Vec<CompletionCandidate> {
    by(|status| named_by_groups(status, |group| cgroup::units(group).next_back()))
}

/// The containers that they run in.
pub fn containers() -> Vec<CompletionCandidate> {
    by(|status| named_by_groups(status, |group| cgroup::containers(group).last()))
}

/// What names running programs, each name once, those with most memory first.
fn by(names: impl Fn(&ProcessStatus) -> Vec<String>) -> Vec<CompletionCandidate> {
    let named = named(chosen(running()), names).into_iter().enumerate();
    named.map(|(place, (name, status))| candidate(place, name, described(&status))).collect()
}

fn named(chosen: Vec<ProcessStatus>, names: impl Fn(&ProcessStatus) -> Vec<String>) -> Vec<(String, ProcessStatus)> {
    let mut seen = BTreeSet::new();
    let all = chosen
        .into_iter()
        .flat_map(|status| names(&status).into_iter().map(|name| (name, status.clone())).collect::<Vec<_>>());
    all.filter(|(name, _)| is_word(name) && seen.insert(name.clone())).collect()
}

fn named_by_groups(status: &ProcessStatus, name: impl Fn(&str) -> Option<&str>) -> Vec<String> {
    let groups = cgroup::groups(&Root::host(), status.tgid).unwrap_or_default();
    groups.iter().filter_map(|group| name(group)).map(str::to_owned).collect()
}

/// A name that a shell could take for more than a word is not offered.
fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "._@+-/:".contains(c))
}

fn running() -> Vec<ProcessStatus> {
    let root = Root::host();
    let pids = root.numbered_entries("proc").unwrap_or_default();
    pids.into_iter().filter_map(|pid| ProcessStatus::read(&root, pid).ok()).collect()
}

/// Those that are worth it.
fn chosen(mut running: Vec<ProcessStatus>) -> Vec<ProcessStatus> {
    running.retain(|status| own_memory(status) >= WORTH_IT && is_word(&status.name));
    running.sort_by_key(|status| Reverse(own_memory(status)));
    running.truncate(MOST);
    running
}

fn own_memory(status: &ProcessStatus) -> Bytes {
    status.rss_anon + status.rss_shmem
}

fn described(status: &ProcessStatus) -> String {
    format!("{}, {}", status.name, own_memory(status))
}

fn candidate(place: usize, value: String, help: String) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(help.into())).display_order(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str, tgid: u32, mebibytes: u64) -> ProcessStatus {
        ProcessStatus { name: name.to_owned(), tgid, rss_anon: Bytes(mebibytes << 20), ..ProcessStatus::default() }
    }

    #[test]
    fn large_programs_are_offered_the_largest_first() {
        let running =
            vec![status("sh", 1, 3), status("java", 2, 500), status("memcached", 3, 3000), status("redis", 4, 64)];
        let offered: Vec<_> = chosen(running).iter().map(described).collect();
        assert_eq!(offered, ["memcached, 2.93 GiB", "java, 500 MiB", "redis, 64 MiB"]);
        assert_eq!(chosen((0..100).map(|pid| status("a", pid, 100)).collect()).len(), MOST);
    }

    #[test]
    fn each_name_is_offered_once_for_its_largest_program() {
        let running = vec![status("postgres", 1, 100), status("java", 2, 500), status("postgres", 3, 900)];
        let unit = |status: &ProcessStatus| vec![format!("{}.service", status.name), "a b.scope".to_owned()];
        let offered: Vec<_> =
            named(chosen(running), unit).into_iter().map(|(name, status)| (name, status.tgid)).collect();
        assert_eq!(offered, [("postgres.service".to_owned(), 3), ("java.service".to_owned(), 2)]);
    }

    #[test]
    fn a_name_that_a_shell_would_take_for_more_is_not_offered() {
        for name in ["a b", "$(id)", "*", "a\u{b}b", "a;b"] {
            assert_eq!(chosen(vec![status(name, 1, 100)]), [], "{name}");
        }
    }
}
