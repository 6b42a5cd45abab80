//! Whether DAMON is in use, and whether by a hugepilot that has ended.
//!
//! Owns: the one judgement of that, from DAMON's own files and the note that hugepilot leaves. Never touches: any of them.
//!
//! DAMON cannot tell who set it up, so hugepilot writes that it did to a file of its own; a process that is killed leaves both
//! behind.

use serde::{Deserialize, Serialize};

use super::root::optional;
use super::{KernelError, Root, process};

/// Where DAMON's threads are set up (Documentation/admin-guide/mm/damon/usage.rst).
pub const DIRECTORY: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// Where hugepilot writes that it set DAMON up.
pub const NOTE: &str = "run/hugepilot/damon.json";

/// The process that set DAMON up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks after boot; with the id it names the process for good.
    pub start_ticks: u64,
}

/// The threads of DAMON that someone else has set up, running or not; `None` on a kernel without DAMON. What a hugepilot left
/// behind that was killed is nobody's.
pub fn threads_of_others(root: &Root) -> Result<Option<u32>, KernelError> {
    let threads = optional(root.number(&format!("{DIRECTORY}/nr_kdamonds")))?;
    Ok(if leftover(root) == Some(Leftover::AsSetUp) { threads.map(|_| 0) } else { threads })
}

/// What a hugepilot that was killed has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// DAMON, as it was set up or not even that far.
    AsSetUp,
    /// Its note only: DAMON was set up by someone else since.
    Note,
}

/// What a hugepilot that has ended has left behind; `None` if nothing, or if it lives.
pub fn leftover(root: &Root) -> Option<Leftover> {
    let note = root.text(NOTE).ok()?;
    let lives = serde_json::from_str(&note)
        .is_ok_and(|note: Note| process::start_time(root, note.pid).is_ok_and(|start| start == note.start_ticks));
    match (lives, looks_like_ours(root)) {
        (true, _) => None,
        (false, true) => Some(Leftover::AsSetUp),
        (false, false) => Some(Leftover::Note),
    }
}

/// Whether all that is set up is one thread with one scheme that does nothing, or not even that yet, as hugepilot leaves it.
fn looks_like_ours(root: &Root) -> bool {
    let threads: Result<u32, _> = root.number(&format!("{DIRECTORY}/nr_kdamonds"));
    let action = root.text(&format!("{DIRECTORY}/0/contexts/0/schemes/0/action"));
    threads.is_ok_and(|threads| threads <= 1) && action.map_or(true, |action| action.trim() == "stat")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine where so many threads are set up, the first of which does this to memory, with this note.
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
        let (_tree, root) = machine("2\n", Some("stat\n"), Some(ENDED));
        assert_eq!((leftover(&root), threads_of_others(&root).unwrap()), (Some(Leftover::Note), Some(2)));
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
