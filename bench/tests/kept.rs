//! Raw results that are kept in the repository: each is told again, or it is said who tells it.
//!
//! Owns: which files there are. Never touches: what their reports say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugepilot_bench::kept::{ResultKind, ResultsBinary, read_text};

fn kept() -> Vec<PathBuf> {
    let inside =
        |directory: &Path| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let directories = inside(concat!(env!("CARGO_MANIFEST_DIR"), "/runs").as_ref());
    let files = directories.iter().flat_map(|directory| inside(directory));
    files.filter(|file| file.extension().is_some_and(|extension| extension == "zst")).collect()
}

#[test]
fn every_kept_file_is_told_again_or_sent_to_who_tells_it() {
    for file in kept() {
        let kind =
            ResultKind::of(&read_text(&file).unwrap()).unwrap_or_else(|| panic!("{} is of no kind", file.display()));
        let output = Command::new(env!("CARGO_BIN_EXE_hugepilot-bench")).arg("report").arg(&file).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        match kind.teller() {
            Some(ResultsBinary::Bench) => assert!(output.status.success() && !output.stdout.is_empty(), "{error}"),
            Some(ResultsBinary::Research) => assert!(error.contains("hugepilot-research report"), "{error}"),
            None => assert!(error.contains(".txt"), "{error}"),
        }
    }
}
