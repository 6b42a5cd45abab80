//! `run --pages .. --print` prints how it would be started, starts nothing, and needs no rights.

use std::process::{Command, Output};

/// Prints what a shell would be started with, as a user without any capability.
fn print(options: &[&str], environment: &[(&str, &str)]) -> (Output, String) {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all", "--", env!("CARGO_BIN_EXE_hugepilot"), "run"]);
    command
        .args(options)
        .args(["--", "sh", "-c", "echo \"started $GLIBC_TUNABLES\""])
        .env_remove("GLIBC_TUNABLES")
        .env_remove("LD_PRELOAD");
    let output = command.envs(environment.iter().copied()).output().expect("setpriv starts");
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    (output, text)
}

#[test]
fn a_shell_runs_what_is_printed_and_keeps_nothing_of_it() {
    let theirs = ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2");
    let (output, text) = print(&["--pages", "thp", "--heap", "--print"], &[theirs]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(
        !text.contains("\nstarted") && text.lines().any(|line| line == "# for a systemd unit, use --print=systemd"),
        "{text}"
    );
    let script = format!("{text}\necho \"then $GLIBC_TUNABLES\"");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &script]).env_remove("GLIBC_TUNABLES").output().expect("a shell");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(told.starts_with("started glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1:"), "{told}");
    assert!(told.ends_with("\nthen \n"), "the shell itself gets nothing of it: {told}");
}

#[test]
fn a_unit_takes_the_environment_over() {
    let (output, text) = print(&["--pages", "thp", "--heap", "--print=systemd"], &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(text.lines().any(|line| line.starts_with("Environment=GLIBC_TUNABLES=glibc.malloc.hugetlb=1:")), "{text}");
    assert!(text.contains("# ExecStart=/") && text.lines().all(|line| line.starts_with(['#', 'E'])), "{text}");
}

#[test]
fn what_is_not_there_is_an_error_with_its_next_step() {
    let (output, text) = print(&["--pages", "thp", "--text", "--print"], &[]);
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_hugepilot")).with_file_name("libhugepilot_preload.so");
    if beside.exists() {
        assert!(text.contains("    HUGEPILOT_TEXT=1 "), "{text}");
        return;
    }
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.code() == Some(1) && stderr.contains("libhugepilot_preload.so"), "{stderr}");
    assert!(stderr.contains("make install"), "{stderr}");
}
