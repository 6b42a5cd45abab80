//! Tells the program which commit it was built from, so that raw results can carry it.

use std::process::Command;

fn main() {
    // Whatever of these changes, the commit or what is not yet in it may be another.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| std::path::Path::new(log).exists());
    for path in ["src", "../crates"].into_iter().chain(log.as_deref()) {
        println!("cargo::rerun-if-changed={path}");
    }
    // Without git, as from an archive, nobody knows.
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    let is_whole = git(&["diff", "--quiet", "HEAD", "--", "..", ":!../bench/runs", ":!../docs"]).is_some();
    let commit = head.map_or("unknown".to_owned(), |head| if is_whole { head } else { head + " with changes" });
    println!("cargo::rustc-env=HUGEPILOT_COMMIT={commit}");
}

/// What git says; None where it fails, or is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).output().ok().filter(|ran| ran.status.success())?;
    Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}
