//! Whether DAMON is in use, and whether by a hugepilot that has ended.
//!
//! Owns: this judgement, based on DAMON's own files and the note that hugepilot leaves. Never touches: any of them.
//!
//! DAMON does not record who set it up, so hugepilot writes a note that it did; a process that is killed leaves both behind.

use serde::{Deserialize, Serialize};

use crate::root::optional;
use crate::{KernelError, Root, process};

/// The directory in which DAMON's threads are set up (Documentation/admin-guide/mm/damon/usage.rst).
pub const DIRECTORY: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// The note that hugepilot set DAMON up.
pub const NOTE: &str = "run/hugepilot/damon.json";

/// The process that set DAMON up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks after boot; with the id it identifies the process for good.
    pub start_ticks: u64,
    /// What DAMON does for it.
    #[serde(default)]
    pub purpose: Purpose,
    /// DAMON's thread, once it runs.
    #[serde(default)]
    pub thread: Option<u32>,
}

/// What hugepilot sets DAMON up for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Observing only: one scheme that does nothing.
    #[default]
    Watch,
    /// Reclaiming memory.
    Reclaim,
}

impl Purpose {
    /// The actions of schemes set up for it.
    pub fn actions(self) -> &'static [&'static str] {
        match self {
            Purpose::Watch => &["stat"],
            Purpose::Reclaim => &["stat", "pageout", "lru_deprio", "lru_prio"],
        }
    }
}

/// DAMON threads set up by others, running or not; `None` on a kernel without DAMON. What a killed hugepilot left behind does not count.
///
/// Errors: DAMON's `nr_kdamonds` exists but cannot be read (only root may), or holds no number.
pub fn threads_of_others(root: &Root) -> Result<Option<u32>, KernelError> {
    let threads = optional(root.number(&format!("{DIRECTORY}/nr_kdamonds")))?;
    Ok(if leftover(root) == Some(Leftover::AsSetUp) { threads.map(|_| 0) } else { threads })
}

/// What a killed hugepilot left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// DAMON as hugepilot set it up, or only partly set up.
    AsSetUp,
    /// Only its note: others have set DAMON up since.
    Note,
}

/// What an ended hugepilot left behind; `None` if nothing, or if it is still running.
pub fn leftover(root: &Root) -> Option<Leftover> {
    // An unreadable note was being written; by then, at most a scheme that does nothing can have been set up.
    let unreadable = Note { pid: 0, start_ticks: 0, purpose: Purpose::Watch, thread: None };
    let note: Note = serde_json::from_str(&root.text(NOTE).ok()?).unwrap_or(unreadable);
    let lives = process::start_time(root, note.pid).is_ok_and(|start| start == note.start_ticks);
    match (lives, looks_like(&note, root)) {
        (true, _) => None,
        (false, true) => Some(Leftover::AsSetUp),
        (false, false) => Some(Leftover::Note),
    }
}

/// Whether the setup is that of the note's writer, complete or not: the same thread where it is known, otherwise one thread whose schemes do only
/// what hugepilot's do.
fn looks_like(note: &Note, root: &Root) -> bool {
    let threads: Result<u32, _> = root.number(&format!("{DIRECTORY}/nr_kdamonds"));
    if !threads.is_ok_and(|threads| threads <= 1) {
        return false;
    }
    if let (Some(noted), Ok(running)) = (note.thread, root.number::<u32>(&format!("{DIRECTORY}/0/pid"))) {
        return noted == running;
    }
    let schemes = format!("{DIRECTORY}/0/contexts/0/schemes");
    let numbers = root.numbered_entries(&schemes).unwrap_or_default();
    let action = |number: u32| root.text(&format!("{schemes}/{number}/action"));
    let is_ours = |number| action(number).map_or(true, |action| note.purpose.actions().contains(&action.trim()));
    numbers.into_iter().all(is_ours)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with this many threads set up, the first of which has this action, and with this note.
    fn machine(threads: &str, action: Option<&str>, note: Option<&str>) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let threads = (format!("{DIRECTORY}/nr_kdamonds"), Some(threads));
        let action = (format!("{DIRECTORY}/0/contexts/0/schemes/0/action"), action);
        for (name, text) in [threads, action, (NOTE.to_owned(), note)] {
            if let Some(text) = text {
                fs::create_dir_all(root.path(&name).parent().unwrap()).unwrap();
                fs::write(root.path(&name), text).unwrap();
            }
        }
        (tree, root)
    }

    const ENDED: &str = r#"{"pid":4194303,"start_ticks":1}"#;

    #[test]
    fn what_is_set_up_counts_whether_it_runs_or_not() {
        let of = |threads| threads_of_others(&machine(threads, None, None).1).unwrap();
        assert_eq!((of("0\n"), of("2\n")), (Some(0), Some(2)));
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(threads_of_others(&Root::at(tree.path())).unwrap(), None);
        assert!(threads_of_others(&machine("many", None, None).1).is_err());
    }

    #[test]
    fn what_a_killed_hugepilot_left_is_nobodys() {
        let (_tree, root) = machine("1\n", Some("stat\n"), Some(ENDED));
        assert_eq!((leftover(&root), threads_of_others(&root).unwrap()), (Some(Leftover::AsSetUp), Some(0)));
        let (_tree, root) = machine("1\n", Some("pageout\n"), Some(ENDED));
        assert_eq!((leftover(&root), threads_of_others(&root).unwrap()), (Some(Leftover::Note), Some(1)));
        let (_tree, root) = machine("1\n", None, Some("{\"pid\":"));
        assert_eq!(leftover(&root), Some(Leftover::AsSetUp), "killed while it wrote that");
        let (_tree, root) = machine("2\n", Some("stat\n"), Some(ENDED));
        assert_eq!((leftover(&root), threads_of_others(&root).unwrap()), (Some(Leftover::Note), Some(2)));
    }

    #[test]
    fn a_thread_that_was_noted_is_told_from_any_other() {
        let note = r#"{"pid":4194303,"start_ticks":1,"purpose":"reclaim","thread":70}"#;
        let of = |running: &str, action| {
            let (tree, root) = machine("1\n", Some(action), Some(note));
            fs::write(tree.path().join(DIRECTORY).join("0/pid"), running).unwrap();
            leftover(&root)
        };
        assert_eq!(of("70\n", "pageout\n"), Some(Leftover::AsSetUp));
        assert_eq!(of("71\n", "pageout\n"), Some(Leftover::Note), "someone else reclaims memory now");
        assert_eq!(of("-1\n", "pageout\n"), Some(Leftover::AsSetUp), "it was switched off meanwhile");
        assert_eq!(of("-1\n", "hugepage\n"), Some(Leftover::Note));
    }

    #[test]
    fn what_a_living_hugepilot_has_is_its_own() {
        let note = r#"{"pid":7,"start_ticks":22}"#;
        let (_tree, root) = machine("1\n", Some("stat\n"), Some(note));
        // Each field holds its own number (man 5 proc_pid_stat).
        let fields: Vec<String> = (4..=28).map(|field| field.to_string()).collect();
        fs::create_dir_all(root.path("proc/7")).unwrap();
        fs::write(root.path("proc/7/stat"), format!("7 (hugepilot) S {}\n", fields.join(" "))).unwrap();
        assert_eq!((leftover(&root), threads_of_others(&root).unwrap()), (None, Some(1)));
    }
}
