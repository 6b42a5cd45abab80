//! The program as it is called: what it keeps is told again.
//!
//! Owns: runs that are small enough for a test. Never touches: figures; it asserts what happened.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hugepilot_bench::kept::{ResultKind, ResultsBinary, read_text};

fn research(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hugepilot-research")).args(arguments).output().unwrap()
}

fn kept() -> Vec<PathBuf> {
    let inside =
        |directory: &Path| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let directories = inside(concat!(env!("CARGO_MANIFEST_DIR"), "/../runs").as_ref());
    let files = directories.iter().flat_map(|directory| inside(directory));
    files.filter(|file| file.extension().is_some_and(|extension| extension == "zst")).collect()
}

#[test]
fn every_kept_simulation_is_told_again_and_others_are_sent_to_who_tells_them() {
    let mut told = Vec::new();
    for file in kept() {
        let kind =
            ResultKind::of(&read_text(&file).unwrap()).unwrap_or_else(|| panic!("{} is of no kind", file.display()));
        let ours = kind.teller() == Some(ResultsBinary::Research);
        if !ours && kind != ResultKind::Felt {
            continue;
        }
        let output = research(&["report", file.to_str().unwrap()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success() && !output.stdout.is_empty(), ours, "{}: {error}", file.display());
        assert!(ours || error.contains("hugepilot-bench report"), "{error}");
        told.push(kind);
    }
    assert!(
        [ResultKind::Lists, ResultKind::Transpose, ResultKind::Sort, ResultKind::Felt]
            .iter()
            .all(|kind| told.contains(kind)),
        "{told:?}"
    );
}

#[test]
fn a_report_is_the_same_when_it_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let lists = ["lists", "--memory=256M", "--trace=writers", "--policies=mixed,split", "--intervals=1", "--page=256K"];
    let transpose = ["transpose", "--dimensions=11,13", "--choices=1"];
    let candidates = ["transpose", "--candidates=plain,every-fourth+manual", "--dimensions=11,13", "--choices=1"];
    for arguments in [&lists[..], &transpose[..], &candidates[..]] {
        let [json, plot] = ["json", "svg"].map(|kind| directory.path().join(arguments[0]).with_extension(kind));
        let output = research(&[arguments, &[&format!("--json={}", json.display())]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let again = research(&["report", json.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
        assert_eq!(again.stdout, output.stdout, "{}", String::from_utf8_lossy(&again.stderr));
        assert!(fs::read_to_string(&plot).unwrap().contains("<svg"));
    }
}

#[test]
fn sorts_by_turns_are_told_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("sort.json");
    let sort = ["sort", "--sizes=64K", "--algorithms=heap", "--rounds=2", &format!("--json={}", json.display())];
    let output = research(&sort);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("another hugepilot-bench") {
        eprintln!("not tested: {error}");
        return;
    }
    assert!(output.status.success(), "{error}");
    let kept = fs::read_to_string(&json).unwrap();
    for turns in [r#""pages":"ordinary","#, r#""pages":"large","#, r#""pages":"ordinary-again","#] {
        assert_eq!(kept.matches(turns).count(), 2, "{kept}");
    }
    assert_eq!(kept.matches(r#""shape":"bottom-up""#).count(), 6, "{kept}");
    for again in [["report", json.to_str().unwrap()].as_slice(), &["sort", "--from", json.to_str().unwrap()]] {
        let again = research(again);
        assert_eq!(again.stdout, output.stdout, "{}", String::from_utf8_lossy(&again.stderr));
    }
}
