//! Failures around a daemon: it continues, reports them, and harms no program.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kernel::Root;
use kernel::process::ProcessStatus;

use super::{Daemon, MIB, OFTEN, named, slowly, target, wait_until_huge};
use crate::support::{Cgroup, Ended, Program, daemon_binary, list, number, wait_for, wait_until};

crate::trials!(
    killed_in_the_middle_it_leaves_everything_well,
    killed_and_started_anew_it_keeps_its_limits,
    programs_that_end_are_forgotten,
    a_program_that_execs_is_piloted_anew,
    many_short_lived_programs,
    hundreds_of_small_programs_beside_a_large_one,
    whoever_gets_the_id_of_a_target_is_left_alone,
    a_full_control_group,
    a_full_disk,
    a_run_directory_that_cannot_be_written,
    a_socket_that_cannot_be_made,
);

/// Machine settings that a daemon might change, and their values.
pub fn settings() -> BTreeMap<String, String> {
    let huge_pages = "/sys/kernel/mm/transparent_hugepage";
    let folders = [huge_pages.to_owned(), format!("{huge_pages}/khugepaged"), "/proc/sys/vm".to_owned()];
    let mut found = BTreeMap::new();
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder of settings")) {
        let path = entry.expect("an entry").path();
        // The folders also hold counters, which change by themselves, and write-only files.
        let counts = path.ends_with("full_scans") || path.ends_with("pages_collapsed");
        if let Some(text) = fs::read_to_string(&path).ok().filter(|_| !counts) {
            found.insert(path.display().to_string(), text);
        }
    }
    found
}

fn killed_in_the_middle_it_leaves_everything_well() {
    let before = settings();
    let mut program = Program::start("map=512M fill ready read=all");
    let daemon = Daemon::start("[[target]]\nname = 'hpt-nobody'\n");
    daemon.reload(&slowly(&target(&[&program])), "anew");
    wait_until_huge(&program, 2 * MIB);
    let folder = daemon.kill();
    let huge = program.huge_bytes();
    assert!((2 * MIB..500 * MIB).contains(&huge), "in the middle: {huge}");
    program.assert_unharmed();
    assert_eq!(settings(), before);
    let mut next = Daemon::start_in(folder, &target(&[&program]));
    wait_until_huge(&program, 500 * MIB);
    let promoted = || next.target(program.pid).map_or(0, |target| number(&target, "promoted_bytes"));
    wait_until("it goes on where the last was killed", || promoted() == program.huge_bytes());
    assert!(next.end().success());
    let given_back = number(&next.ask(&format!("give-back {} --json", program.pid)).json(), "huge_after_bytes");
    assert_eq!((given_back, program.huge_bytes()), (0, 0), "also what the first promoted");
    assert_eq!(settings(), before);
    program.assert_unharmed();
}

fn killed_and_started_anew_it_keeps_its_limits() {
    let mut programs = [(); 2].map(|()| Program::start("map=64M fill ready read=all"));
    let rules = format!("max-huge = '64M'\n{}", target(&[&programs[0], &programs[1]]));
    let daemon = Daemon::start(&rules);
    let huge = |programs: &[Program]| programs.iter().map(Program::huge_bytes).sum::<u64>();
    wait_until("all that may be huge", || huge(&programs) >= 62 * MIB);
    let next = Daemon::start_in(daemon.kill(), &rules);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let now = huge(&programs);
        assert!(now <= 64 * MIB, "{now} bytes on huge pages");
        std::thread::sleep(Duration::from_millis(20));
    }
    let promoted = |pid| next.target(pid).map_or(0, |target| number(&target, "promoted_bytes"));
    let own = || programs.iter().map(|program| promoted(program.pid)).sum::<u64>();
    wait_until("they are its own", || own() == huge(&programs) && own() >= 48 * MIB);
    drop(next);
    programs.iter_mut().for_each(Program::assert_unharmed);
}

fn programs_that_end_are_forgotten() {
    let one = Program::start("map=64M fill ready read=all");
    let mut other = Program::start("map=64M fill ready read=all");
    let daemon = Daemon::start(&target(&[&one, &other]));
    wait_until("both are targets", || list(&daemon.status(), "targets").len() == 2);
    wait_until_huge(&one, 2 * MIB);
    drop(one);
    wait_until("one is left", || list(&daemon.status(), "targets").len() == 1);
    wait_until_huge(&other, 60 * MIB);
    wait_until("what was done still counts", || number(&daemon.status()["counts"], "promoted") >= 31);
    other.assert_unharmed();
}

fn a_program_that_execs_is_piloted_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let steps = format!("map=64M fill ready read-until={} exec map=96M fill read=all", go.display());
    let mut program = Program::start(&steps);
    let daemon = Daemon::start(&target(&[&program]));
    wait_until_huge(&program, 60 * MIB);
    fs::write(go, "").expect("a file");
    wait_until_huge(&program, 92 * MIB);
    let promoted = || daemon.target(program.pid).map_or(0, |target| number(&target, "promoted_bytes"));
    wait_until("nothing of the old program is counted", || (92 * MIB..=96 * MIB).contains(&promoted()));
    program.assert_unharmed();
}

/// Starts this many programs of one name.
fn burst(folder: &std::path::Path, name: &str, steps: &str, count: usize) -> Vec<Ended> {
    let start = || -> Child { named(folder, name, steps).stdout(Stdio::null()).spawn().expect("a program starts") };
    (0..count).map(|_| Ended(start())).collect()
}

fn many_short_lived_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start("min-size = '1M'\n[[target]]\nname = 'hpt-burst'\n");
    let mut main = Program::command(&mut named(folder.path(), "hpt-burst", "map=64M fill ready read=all"));
    for mut child in burst(folder.path(), "hpt-burst", "map=4M fill read=all,20ms", 200) {
        assert!(child.0.wait().expect("it ends").success(), "{}", daemon.said());
    }
    wait_until_huge(&main, 60 * MIB);
    wait_until("one is left", || list(&daemon.status(), "targets").len() == 1);
    main.assert_unharmed();
    assert!(daemon.end().success());
}

fn hundreds_of_small_programs_beside_a_large_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let rule = "[[target]]\nname = 'hpt-many'\n";
    let small = burst(folder.path(), "hpt-many", "map=2M fill sleep=300s", 500);
    let mut daemon = Daemon::start(rule);
    let mut large = Program::command(&mut named(folder.path(), "hpt-many", "map=64M fill ready read=all"));
    wait_until_huge(&large, 60 * MIB);
    wait_until("it is shown", || list(&daemon.status(), "targets").len() == 1);
    daemon.reload(&format!("{OFTEN}min-size = '1M'\n{rule}"), "anew");
    // On a slow machine this has taken more than a minute.
    wait_for("all are targets", Duration::from_secs(240), || list(&daemon.status(), "targets").len() == 501);
    daemon.wait_for_scans(50);
    let rss = ProcessStatus::read(&Root::host(), daemon.pid()).expect("it lives").vm_rss;
    assert!(rss.0 <= 36 * MIB, "{rss} resident");
    large.assert_unharmed();
    drop(small);
    assert!(daemon.end().success());
}

fn whoever_gets_the_id_of_a_target_is_left_alone() {
    let last = "/proc/sys/kernel/ns_last_pid";
    let first = Program::start("map=64M fill ready read=all");
    let (pid, daemon) = (first.pid, Daemon::start(&target(&[&first])));
    wait_until_huge(&first, 2 * MIB);
    drop(first);
    // Another process may start in between.
    let with_its_id = (0..100).find_map(|_| {
        fs::write(last, (pid - 1).to_string()).ok()?;
        Some(Program::start("map=64M fill ready read=all")).filter(|program| program.pid == pid)
    });
    let Some(mut second) = with_its_id else {
        return eprintln!("the next process id cannot be chosen here: only the unit tests of `scope` have it");
    };
    wait_until("it notices", || list(&daemon.status(), "targets").is_empty());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(list(&daemon.status(), "targets").is_empty());
    assert_eq!(second.huge_bytes(), 0);
    second.assert_unharmed();
}

fn a_full_control_group() {
    let Some(group) = Cgroup::new() else {
        return eprintln!("no group of the memory controller can be made here: not tested");
    };
    let mut full = Program::start(&format!("join-cgroup={} map=64M fill ready read=all", group.path.display()));
    group.limit_to(1 << 20);
    let mut other = Program::start("map=64M fill ready read=all");
    let daemon = Daemon::start(&target(&[&full, &other]));
    let held_back = || daemon.target(full.pid).is_some_and(|target| target["held_back"] == "near_memory_limit");
    wait_until("it is held back", held_back);
    wait_until_huge(&other, 60 * MIB);
    daemon.wait_for_scans(3);
    let status = daemon.status();
    assert_eq!(status["counts"]["refused"]["cgroup_full_or_pinned"].as_u64().unwrap_or(0), 0, "{status}");
    assert_eq!(full.huge_bytes(), 0);
    full.assert_unharmed();
    other.assert_unharmed();
}

/// A daemon for which `/run/hugepilot` is a separate file system, prepared by these commands; the socket is elsewhere.
fn with_run(commands: &str, program: &Program) -> Daemon {
    let script = format!(
        "mkdir -p /run/hugepilot && mount -t tmpfs -o size=64k none /run/hugepilot && cd /run/hugepilot && {commands} && \
         cd / && exec {} \"$@\"",
        daemon_binary().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    Daemon::of_command(&mut command, tempfile::tempdir().expect("a folder"), &target(&[program]))
}

/// Asserts that memory is promoted, and that the daemon reports the missing record.
fn assert_goes_on(mut daemon: Daemon, program: &mut Program, words: &[&str]) {
    wait_until_huge(program, 60 * MIB);
    assert!(daemon.ask("status").status.success(), "{}", daemon.said());
    let said = daemon.said();
    for word in words {
        assert!(said.contains(word), "'{word}' is missing: {said}");
    }
    assert!(daemon.end().success());
    program.assert_unharmed();
}

fn a_full_disk() {
    let mut program = Program::start("map=64M fill ready read=all");
    let daemon = with_run("(dd if=/dev/zero of=full 2> /dev/null || true)", &program);
    assert_goes_on(daemon, &mut program, &["cannot write the record of promotions", "No space left"]);
}

fn a_run_directory_that_cannot_be_written() {
    let mut program = Program::start("map=64M fill ready read=all");
    let daemon = with_run("mount -o remount,ro /run/hugepilot", &program);
    assert_goes_on(daemon, &mut program, &["cannot write the record of promotions", "Read-only"]);
}

fn a_socket_that_cannot_be_made() {
    let program = Program::start("map=16M fill ready await=/nonexistent");
    // Only the configuration is taken from the arguments, so that the socket has its default path.
    let script = format!(
        "mkdir -p /run/hugepilot && mount -t tmpfs -o ro none /run/hugepilot && exec {} \"$1\" \"$2\"",
        daemon_binary().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::of_command(&mut command, folder, &target(&[&program]));
    for words in ["cannot make sure that no other daemon runs", "cannot make the control socket /run/hugepilot"] {
        assert!(daemon.said().contains(words), "'{words}' is missing: {}", daemon.said());
    }
    assert!(daemon.end().success());
}
