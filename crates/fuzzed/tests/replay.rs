//! Every kept input, given to its target again: what was found once stays found, on stable Rust.
//!
//! Owns: the folders `fuzz/seeds`, written by people, and `fuzz/corpus`, which cargo-fuzz has found. Never touches: anything outside `fuzz`.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use fuzzed::TARGETS;

/// So that nobody regrets to clone the repository.
const MOST_BYTES: u64 = 300 << 10;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = read.map(|entry| entry.expect("it can be listed").path()).collect();
    entries.sort();
    entries
}

/// The inputs of a target.
fn inputs(target: &str) -> Vec<PathBuf> {
    let folders = ["seeds", "corpus"].map(|kind| fuzz().join(kind).join(target));
    folders.iter().filter(|folder| folder.is_dir()).flat_map(|folder| entries(folder)).collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let stem = |path: &PathBuf| path.file_stem().expect("it has a name").to_string_lossy().into_owned();
    entries(&fuzz().join(folder)).iter().map(stem).collect()
}

fn target_names() -> BTreeSet<String> {
    TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect()
}

#[test]
fn every_kept_input_is_taken_by_its_target() {
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name} has no input: write one to fuzz/seeds/{name}/");
        for path in inputs {
            let bytes = fs::read(&path).expect("it can be read");
            if catch_unwind(|| target(&bytes)).is_err() {
                broken.push(path);
            }
        }
    }
    assert!(broken.is_empty(), "inputs that break their target (each panic is above): {broken:#?}");
}

#[test]
fn every_folder_of_inputs_belongs_to_a_target() {
    for kind in ["seeds", "corpus"] {
        let strays: Vec<String> = names(kind).difference(&target_names()).cloned().collect();
        assert!(strays.is_empty(), "fuzz/{kind} has folders of no target: {strays:?}");
    }
}

#[test]
fn every_target_has_its_program() {
    assert_eq!(names("fuzz_targets"), target_names());
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("it can be read");
    for name in target_names() {
        let program = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).expect("it can be read");
        assert_eq!(
            program,
            format!("#![no_main]\nlibfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::{name}(bytes));\n")
        );
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n")), "{name}");
    }
}

#[test]
fn inputs_stay_small() {
    let all = TARGETS.iter().flat_map(|(name, _)| inputs(name));
    let bytes: u64 = all.map(|path| fs::metadata(path).expect("it is there").len()).sum();
    assert!(bytes < MOST_BYTES, "{bytes} bytes of inputs: minimize them with `scripts/fuzz keep`");
}
