//! `hugepilot reclaim`: the test's own directories on this machine; DAMON's schemes in a virtual machine only.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hugepilot_os::file_cache::{cache_state, drop_clean};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::support::{Ended, PATIENCE, Ran, binary, hugepilot, list, number, send, shell, wait_for, wait_until};

crate::trials!(
    clean_files_leave_memory_and_dirty_ones_stay,
    what_a_process_maps_stays_at_a_cost_of_100,
    a_dry_run_leaves_everything_in_memory,
    it_ends_well_on_a_signal,
    there_is_one_on_a_machine,
    a_daemon_reclaims_as_its_configuration_says,
    uses_of_memory_are_told,
    without_a_mechanism_the_next_step_is_told,
    damons_schemes_free_cache_and_are_taken_away,
    what_a_killed_one_left_is_taken_away_by_the_next,
    a_busy_damon_is_left_alone,
    control_groups_give_back_what_a_busy_damon_may_not_take,
);

const THREADS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
const MIB: u64 = 1 << 20;
/// However much is free, drops all clean cache at once.
const HARD: &str = "--class unmapped-cache=1024G --mapped-page-cost 100 --when-free-below 100% --idle 0s";

/// A folder on the disk that this was built on; None, with a message, if the cache of its files cannot be measured or dropped.
fn folder() -> Option<TempDir> {
    let Ok(folder) = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")) else {
        eprintln!("skipped: there is no disk here");
        return None;
    };
    let path = file(folder.path(), "probe", 1);
    let probe = File::open(&path).expect("our own file");
    let told = cache_state(&probe, 0, 0).is_ok_and(|state| state.cached == MIB / 4096);
    let goes = drop_clean(&probe, 0, 0).is_ok() && told && cached(&path) == 0;
    fs::remove_file(path).expect("our own file");
    if !goes {
        eprintln!("skipped: cachestat is missing (Linux 6.5), or this disk keeps files in memory");
    }
    goes.then_some(folder)
}

fn contents(mib: u64) -> Vec<u8> {
    (0..mib * MIB).map(|at| (at * 31 / 7) as u8).collect()
}

/// A file that is both on disk and in the page cache.
fn file(folder: &Path, name: &str, mib: u64) -> PathBuf {
    let path = folder.join(name);
    let mut file = File::create(&path).expect("room");
    file.write_all(&contents(mib)).expect("room");
    file.sync_all().expect("a disk that takes it");
    path
}

/// Bytes of a file in the page cache.
fn cached(path: &Path) -> u64 {
    cache_state(&File::open(path).expect("it is there"), 0, 0).expect("cachestat").cached * 4096
}

fn reclaim(folder: &TempDir, words: &str) -> Ran {
    hugepilot(&format!("reclaim {HARD} --drop-behind {} {words}", folder.path().display()))
}

fn mechanism<'a>(json: &'a Value, name: &str) -> &'a Value {
    list(json, "mechanisms").iter().find(|each| each["name"] == name).unwrap_or_else(|| panic!("no {name} in {json}"))
}

fn class<'a>(json: &'a Value, name: &str) -> &'a Value {
    list(json, "classes").iter().find(|each| each["class"] == name).unwrap_or_else(|| panic!("no {name} in {json}"))
}

fn clean_files_leave_memory_and_dirty_ones_stay() {
    let Some(folder) = folder() else { return };
    fs::create_dir(folder.path().join("below")).expect("room");
    let clean = [file(folder.path(), "clean", 8), file(folder.path(), "below/clean", 3)];
    let dirty = file(folder.path(), "dirty", 1);
    let done = AtomicBool::new(false);
    let json = std::thread::scope(|scope| {
        // The file is dirty again as soon as the kernel has written it.
        scope.spawn(|| {
            let mut file = File::options().write(true).open(&dirty).expect("our own file");
            while !done.load(Ordering::Relaxed) {
                file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&contents(1))).expect("room");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let json = reclaim(&folder, "--for 3s --json").json();
        done.store(true, Ordering::Relaxed);
        json
    });
    let counts = &mechanism(&json, "drop-behind")["counts"];
    assert!(number(counts, "dropped_bytes") >= 11 * MIB, "{json}");
    assert!(number(counts, "dirty_left_bytes") > 0, "{json}");
    let cache = class(&json, "unmapped-cache");
    assert_eq!(
        (&cache["reason"], number(cache, "reclaimed_bytes") >= 11 * MIB),
        (&Value::from("reclaimed"), true),
        "{json}"
    );
    assert_eq!(clean.each_ref().map(|path| cached(path)), [0, 0]);
    for (path, mib) in clean.iter().zip([8, 3]) {
        assert!(fs::read(path).expect("it is there") == contents(mib), "{} has changed", path.display());
    }
    assert!(fs::read(&dirty).expect("it is there") == contents(1), "the dirty file has changed");
}

fn what_a_process_maps_stays_at_a_cost_of_100() {
    let Some(folder) = folder() else { return };
    let program = folder.path().join("sleep");
    fs::copy(fs::canonicalize("/bin/sleep").expect("a program"), &program).expect("room");
    let _synced = File::open(&program).and_then(|file| file.sync_all());
    let other = file(folder.path(), "other", 2);
    let _running = Ended(Command::new(&program).arg("600").spawn().expect("it starts"));
    fs::read(&program).expect("it is there");
    let before = cached(&program);
    let json = reclaim(&folder, "--for 2s --json").json();
    assert_eq!((cached(&program), cached(&other)), (before, 0), "{json}");
    assert!(number(&mechanism(&json, "drop-behind")["counts"], "mapped_left_files") > 0, "{json}");
    for name in ["code", "read-only-data", "mapped-files"] {
        let class = class(&json, name);
        assert_eq!(number(class, "applied_bytes"), 0, "{class}");
    }
}

fn a_dry_run_leaves_everything_in_memory() {
    let Some(folder) = folder() else { return };
    let path = file(folder.path(), "clean", 4);
    let ran = reclaim(&folder, "--dry-run");
    assert!(ran.status.success() && ran.stdout.ends_with("nothing was changed\n"), "{ran:?}");
    assert!(ran.stdout.contains("unmapped-cache") && ran.stdout.contains("is reclaimed"), "{ran:?}");
    assert_eq!(cached(&path), 4 * MIB);
}

/// Background reclaim, until it is ended.
fn start(folder: &TempDir) -> Ended {
    let mut command = Command::new(binary());
    command.arg("reclaim").args(HARD.split(' ')).arg("--drop-behind").arg(folder.path());
    Ended(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("hugepilot starts"))
}

fn it_ends_well_on_a_signal() {
    let Some(folder) = folder() else { return };
    let path = file(folder.path(), "clean", 4);
    let mut reclaimer = start(&folder);
    wait_until("the file has left memory", || cached(&path) == 0);
    for signal in [Signal::INT, Signal::INT] {
        send(reclaimer.0.id(), signal);
    }
    let status = reclaimer.0.wait().expect("it ends");
    let told = std::io::read_to_string(reclaimer.0.stdout.take().expect("piped")).expect("UTF-8");
    assert!(status.success() && told.contains(" freed\n") && told.contains("before"), "{status}: {told}");
    let json = hugepilot("reclaim --status --json").json();
    assert_eq!(
        (&json["running"], number(&json["reclaim"], "pid")),
        (&Value::from(false), u64::from(reclaimer.0.id())),
        "{json}"
    );
    let svg = folder.path().join("memory.svg");
    let ran = hugepilot(&format!("reclaim --status --plot {}", svg.display()));
    assert!(ran.status.success() && fs::read_to_string(svg).expect("a plot").contains("<polyline"), "{ran:?}");
}

fn there_is_one_on_a_machine() {
    let Some(folder) = folder() else { return };
    let path = file(folder.path(), "clean", 1);
    let reclaimer = start(&folder);
    wait_until("the file has left memory", || cached(&path) == 0);
    let pid = format!("(process {})", reclaimer.0.id());
    reclaim(&folder, "--for 1s").assert_fails_with(&["another hugepilot reclaims memory", &pid, "--status"]);
}

fn a_daemon_reclaims_as_its_configuration_says() {
    let Some(folder) = folder() else { return };
    let path = file(folder.path(), "clean", 4);
    let text = format!(
        "[reclaim]\nunmapped-cache = '1024G'\nmapped-page-cost = 100\nwhen-free-below = '100%'\nidle = '0s'\ndrop-behind = ['{}']\n",
        folder.path().display()
    );
    let mut daemon = Daemon::start(&text);
    wait_until("the file has left memory", || cached(&path) == 0);
    wait_until("the status tells of it", || {
        daemon.status()["reclaim"]["mechanisms"].as_array().is_some_and(|mechanisms| !mechanisms.is_empty())
    });
    assert!(daemon.ask("status").stdout.contains("\nreclaim      "), "{:?}", daemon.ask("status"));
    daemon.reload("[[target]]\nname = 'nobody'\n", "anew");
    wait_until("it has ended", || daemon.status()["reclaim"].is_null());
    assert!(daemon.end().success());
}

fn uses_of_memory_are_told() {
    let json = hugepilot("reclaim --status --json").json();
    let census = &json["census"];
    assert!(census.is_object(), "{json}");
    let held: u64 = list(census, "classes").iter().map(|class| number(class, "held_bytes")).sum();
    let parts = ["free", "unevictable", "hugetlb", "slab", "page_tables", "kernel"];
    let all: u64 = held + parts.iter().map(|part| number(census, &format!("{part}_bytes"))).sum::<u64>();
    let total = number(census, "total_bytes");
    // The total includes memory that the kernel does not count, such as its own image, and sampling has errors.
    assert!((total * 9 / 10..total * 13 / 10).contains(&all), "{all} of {total}");
    assert!(number(class(census, "anonymous"), "held_bytes") > 0, "{census}");
    // Programs of the virtual machine are in an initramfs, which the kernel counts as shared memory.
    let program = if std::env::var_os("HUGEPILOT_VM").is_some() { "shared" } else { "code" };
    assert!(number(class(census, program), "held_bytes") > 0, "{census}");
    let text = hugepilot("reclaim --status");
    assert!(text.status.success() && text.stdout.contains("unmapped-cache") && text.stdout.contains("in huge pages"));
}

fn without_a_mechanism_the_next_step_is_told() {
    let has_groups =
        shell("ls /sys/fs/cgroup/*/memory.reclaim /sys/fs/cgroup/unified/*/memory.reclaim | grep .").status.success();
    let damon_is_free = fs::read_to_string(THREADS).is_ok_and(|threads| threads.trim() == "0");
    if has_groups || damon_is_free {
        return eprintln!("skipped: this machine has a mechanism");
    }
    hugepilot("reclaim").assert_fails_with(&[
        "nothing reclaims memory here",
        "damon: ",
        "memory-reclaim: ",
        "--drop-behind /var/backups",
    ]);
}

/// Whether DAMON may be set up here; else says why the test is skipped.
fn may_use_damon() -> bool {
    let is_free = std::env::var_os("HUGEPILOT_VM").is_some() && Path::new(THREADS).exists();
    if !is_free {
        eprintln!("skipped: only for the virtual machine (make vm-test), with DAMON");
    }
    is_free
}

fn threads() -> String {
    fs::read_to_string(THREADS).expect("DAMON").trim().to_owned()
}

/// Reclaims all file pages, however much is free: this kernel's DAMON cannot tell which are mapped.
const ALL_FILES: &str = "--mapped-page-cost 0 --class code=1024G --class read-only-data=1024G --class mapped-files=1024G \
                         --class unmapped-cache=1024G --when-free-below 100%";

/// An open disk of 128 MiB, because its cache is dropped at the last close; None if the virtual machine has no module for one.
fn disk() -> Option<(PathBuf, File)> {
    let script = "set -e; [ -e /dev/loop0 ] || insmod /lib/modules/loop.ko; [ -e /tmp/disk ] || { \
                  dd if=/dev/urandom of=/tmp/disk bs=1M count=128 2> /dev/null; losetup /dev/loop0 /tmp/disk; }";
    let ran = shell(script);
    if !ran.status.success() {
        eprintln!("skipped: no loop device can be had here: {}", ran.stderr);
        return None;
    }
    let path = PathBuf::from("/dev/loop0");
    let open = File::open(&path).expect("the disk");
    Some((path, open))
}

fn damons_schemes_free_cache_and_are_taken_away() {
    if !may_use_damon() {
        return;
    }
    let Some((disk, _open)) = disk() else { return };
    let before = fs::read("/tmp/disk").expect("what is on it");
    assert!(fs::read(&disk).expect("the disk") == before);
    assert!(cached(&disk) >= 120 * MIB, "{} MiB are in memory", cached(&disk) >> 20);
    let mut command = Command::new(binary());
    command.arg("reclaim").args(ALL_FILES.split_whitespace()).arg("--json");
    let mut reclaimer = Ended(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("hugepilot starts"));
    wait_for("half of the disk has left memory", 5 * PATIENCE, || cached(&disk) < 64 * MIB);
    send(reclaimer.0.id(), Signal::INT);
    assert!(reclaimer.0.wait().expect("it ends").success());
    let told = std::io::read_to_string(reclaimer.0.stdout.take().expect("piped")).expect("UTF-8");
    let json: Value = serde_json::from_str(&told).expect("JSON");
    let damon = mechanism(&json, "damon");
    assert!(damon["refused"].is_null() && number(&damon["counts"], "applied_bytes") > 32 * MIB, "{json}");
    assert!(number(&damon["counts"], "tried_bytes") >= number(&damon["counts"], "applied_bytes"), "{json}");
    assert_eq!((threads().as_str(), Path::new("/run/hugepilot/damon.json").exists()), ("0", false));
    assert!(fs::read(&disk).expect("the disk") == before, "data was lost");
}

fn what_a_killed_one_left_is_taken_away_by_the_next() {
    if !may_use_damon() {
        return;
    }
    let mut command = Command::new(binary());
    command.arg("reclaim").args(ALL_FILES.split_whitespace());
    let mut reclaimer = Ended(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hugepilot starts"));
    let state = "/sys/kernel/mm/damon/admin/kdamonds/0/state";
    wait_until("DAMON is on", || fs::read_to_string(state).is_ok_and(|state| state.trim() == "on"));
    let noted = || fs::read_to_string("/run/hugepilot/damon.json").is_ok_and(|note| !note.contains("null"));
    wait_until("its thread is noted", noted);
    send(reclaimer.0.id(), Signal::KILL);
    reclaimer.0.wait().expect("it ends");
    wait_until("DAMON is switched off though", || fs::read_to_string(state).is_ok_and(|state| state.trim() == "off"));
    assert_eq!(threads(), "1", "nobody was there to take it away");
    let json = hugepilot(&format!("reclaim {ALL_FILES} --for 1s --json")).json();
    assert!(mechanism(&json, "damon")["refused"].is_null(), "{json}");
    assert_eq!(threads(), "0");
}

fn a_busy_damon_is_left_alone() {
    if !may_use_damon() {
        return;
    }
    fs::write(THREADS, "1").expect("DAMON can be set up");
    let ran = hugepilot(&format!("reclaim {ALL_FILES} --for 1s"));
    ran.assert_fails_with(&["nothing reclaims memory here", "DAMON is in use by someone else", "left alone"]);
    let json = hugepilot(&format!("reclaim {ALL_FILES} --for 1s --json --drop-behind /tmp")).json();
    assert!(mechanism(&json, "damon")["refused"].as_str().is_some_and(|why| why.contains("in use")), "{json}");
    assert_eq!(threads(), "1");
    fs::write(THREADS, "0").expect("DAMON can be put back");
}

fn control_groups_give_back_what_a_busy_damon_may_not_take() {
    if !may_use_damon() {
        return;
    }
    let Some((disk, _open)) = disk() else { return };
    let before = fs::read("/tmp/disk").expect("what is on it");
    // A page is charged to the group of the process that reads it first.
    let reader = "set -e; mount -t cgroup2 groups /sys/fs/cgroup; echo +memory > /sys/fs/cgroup/cgroup.subtree_control; \
                  mkdir /sys/fs/cgroup/reader; echo 3 > /proc/sys/vm/drop_caches; \
                  echo $$ > /sys/fs/cgroup/reader/cgroup.procs; cat /dev/loop0 > /dev/null";
    let ran = shell(reader);
    assert!(ran.status.success(), "{}", ran.stderr);
    assert!(cached(&disk) >= 120 * MIB, "{} MiB are in memory", cached(&disk) >> 20);
    fs::write(THREADS, "1").expect("DAMON can be set up");
    let json = hugepilot(&format!("reclaim {ALL_FILES} --for 5s --json")).json();
    let reclaim = mechanism(&json, "memory-reclaim");
    assert!(reclaim["refused"].is_null() && number(&reclaim["counts"], "calls") > 0, "{json}");
    assert!(mechanism(&json, "damon")["refused"].as_str().is_some_and(|why| why.contains("in use")), "{json}");
    assert!(number(class(&json, "unmapped-cache"), "reclaimed_bytes") > 64 * MIB, "{json}");
    assert!(cached(&disk) < 16 * MIB, "{} MiB are in memory still", cached(&disk) >> 20);
    assert!(fs::read(&disk).expect("the disk") == before, "data was lost");
    fs::write(THREADS, "0").expect("DAMON can be put back");
    assert!(shell("rmdir /sys/fs/cgroup/reader && umount /sys/fs/cgroup").status.success());
}
