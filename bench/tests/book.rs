//! The book's commands of hugepilot-bench are ones.
//!
//! Owns: commands between backticks and in lines of code. Never touches: what they measure.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use hugepilot_bench::Arguments;

fn chapters() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut found, mut directories) =
        (vec![root.join("README.md"), root.join("CONTRIBUTING.md")], vec![root.join("docs")]);
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                Some(extension) if extension == "md" => found.push(path),
                _ if path.is_dir() => directories.push(path),
                _ => {}
            }
        }
    }
    found
}

/// Commands that are written out: those with quotes need a shell, and `..` leaves something out.
fn commands(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .filter(|line| line.starts_with("    "))
        .map(|line| line.trim().split("  ").next().unwrap_or_default());
    let quoted = text.split('`').skip(1).step_by(2);
    let all =
        code.map(str::to_owned).chain(quoted.map(|quoted| quoted.split_whitespace().collect::<Vec<_>>().join(" ")));
    all.filter(|command| {
        command.starts_with("hugepilot-bench ") && !command.contains(['"', '\'', '|', '$']) && !command.contains("..")
    })
    .collect()
}

#[test]
fn every_command_that_is_shown_is_understood() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in chapters() {
        for command in commands(&fs::read_to_string(&path).unwrap()) {
            // A command's name alone speaks of it.
            if command.split_whitespace().count() <= 2 {
                continue;
            }
            let answer = Arguments::try_parse_from(command.split_whitespace());
            wrong.extend(answer.err().map(|error| format!("{}: {command}: {}", path.display(), error.kind())));
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 30, "{checked}");
}
