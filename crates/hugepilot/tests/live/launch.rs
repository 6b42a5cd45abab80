//! `run --pages`: a program is on huge pages from its first allocation, and the summary says how much of its memory was, and why not more.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kernel::{Root, mounts};
use serde_json::Value;

use crate::support::{Ran, Setting, as_user, binary, finish, list, number, program_command, public_copy, wait_until};

crate::trials!(
    a_heap_is_on_transparent_huge_pages_from_the_start,
    a_heap_is_on_a_pools_pages,
    all_threads_get_a_pools_pages,
    an_empty_pool_keeps_no_program_from_running,
    a_share_that_was_not_reached_has_a_status_of_its_own,
    the_programs_own_failure_comes_first,
    children_are_counted_too,
    a_program_that_shows_nothing_has_not_reached_its_share,
    a_group_that_may_touch_few_pages_ends_no_program,
    a_program_that_is_linked_statically_is_left_to_the_pilot,
    without_pages_nothing_is_said_of_them,
    what_a_program_maps_itself_is_placed_by_the_library,
    shared_memory_is_placed_where_huge_pages_fit_and_promoted,
    what_follows_filled_memory_is_huge_at_its_first_touch,
    code_is_on_huge_pages_of_its_file_or_copied,
    who_has_no_rights_gets_all_but_the_pilot,
    smaller_pages_are_given_where_they_are_on,
    a_program_that_switches_huge_pages_off_for_itself_is_named_as_why,
);

/// Memory that the allocator of a program under test hands out.
const SIZE: u64 = 128 << 20;
/// Advice from glibc splits the heap into mappings, of which some are smaller than 2 MiB.
const MOST: u64 = SIZE - (4 << 20);

/// A program that allocates, and waits to be observed.
const STEPS: &str = "malloc=128M be-scanned";

/// Runs one of our programs with these options until it ends; also returns the account of the request.
fn launch(options: &str, steps: &str) -> (Ran, Value) {
    let program = program_command(steps);
    launch_command(options, [program.get_program()].into_iter().chain(program.get_args()))
}

fn launch_command<'a>(options: &str, words: impl Iterator<Item = &'a OsStr>) -> (Ran, Value) {
    launch_by(Command::new(binary()), options, words)
}

fn launch_by<'a>(mut command: Command, options: &str, words: impl Iterator<Item = &'a OsStr>) -> (Ran, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("summary.json");
    command.args(["run", "--summary-json"]).arg(&file).args(options.split(' ')).arg("--").args(words);
    let ran = finish(&mut command);
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a summary")).expect("JSON");
    (ran, json["launch"].clone())
}

fn percent(launch: &Value) -> f64 {
    launch["huge_percent"].as_f64().unwrap_or_else(|| panic!("nothing was seen: {launch}"))
}

/// The bytes that the allocator put on huge pages, according to the summary.
fn by_the_allocator(launch: &Value) -> u64 {
    let is_its = |share: &&Value| share["mechanisms"][0]["name"] == "glibc.malloc.hugetlb";
    list(launch, "by").iter().filter(is_its).map(|share| number(share, "bytes")).sum()
}

fn a_heap_is_on_transparent_huge_pages_from_the_start() {
    let (ran, launch) = launch("--pages thp --heap --require 90", STEPS);
    assert!(ran.status.success(), "{ran:?}");
    assert!(percent(&launch) >= 90.0 && by_the_allocator(&launch) >= SIZE / 10 * 9, "{launch}");
    assert!(number(&launch["largest"], "could_be_huge_bytes") >= MOST && launch["met"] == true, "{launch}");
    assert_eq!((&launch["pages"], list(&launch, "obstacles").len()), (&Value::from("thp"), 0), "{launch}");
    assert!(ran.stderr.contains("hugepilot: GLIBC_TUNABLES=glibc.malloc.hugetlb=1"), "{ran:?}");
    assert!(ran.stderr.contains("that could be huge") && ran.stderr.contains("heap (glibc.malloc.hugetlb)"), "{ran:?}");
    assert!(ran.stderr.lines().all(|line| line.starts_with("hugepilot: ")), "{ran:?}");
}

fn smaller_pages_are_given_where_they_are_on() {
    let Some(_no_larger) = Setting::huge_pages_of("2048kB", "never") else {
        return eprintln!("skipped: this kernel has one setting for all sizes");
    };
    let run = |mode| {
        // By which glibc decides whether to ask.
        let _general = Setting::huge_pages("madvise");
        let _size = Setting::huge_pages_of("64kB", mode).expect("it has more than one size");
        // Without this limit the pilot would promote to 2 MiB.
        launch("--pages 64K --heap --require 90 --max-huge 0", STEPS)
    };
    let (ran, launch) = run("madvise");
    assert!(ran.status.success() && percent(&launch) >= 90.0, "{ran:?} {launch}");
    assert!(number(&launch["largest"], "smaller_bytes") >= SIZE / 10 * 9, "{launch}");
    assert!(ran.stderr.contains("on pages below 2 MiB"), "{ran:?}");
    let (ran, launch) = run("never");
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    assert_eq!(list(&launch, "rest"), ["switched_off"], "{launch}");
    assert!(
        ran.stderr.contains("echo madvise > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"),
        "{ran:?}"
    );
}

fn who_has_no_rights_gets_all_but_the_pilot() {
    let (folder, program) = (tempfile::tempdir().expect("a folder"), program_command(STEPS));
    let (hugepilot, summary) = (public_copy(&folder, binary()), folder.path().join("summary.json"));
    File::create(&summary).and_then(|file| file.set_permissions(Permissions::from_mode(0o666))).expect("a summary");
    let mut command = as_user(65_534);
    command.arg(hugepilot).args(["run", "--summary-json"]).arg(&summary);
    command.args(["--pages", "thp", "--heap", "--require", "90", "--"]);
    command.arg(public_copy(&folder, program.get_program())).args(program.get_args());
    let ran = finish(command.current_dir(&folder));
    assert!(ran.status.success(), "{ran:?}");
    assert!(ran.stderr.contains("not piloted") && ran.stderr.contains("CAP_SYS_ADMIN"), "{ran:?}");
    let json: Value = serde_json::from_str(&fs::read_to_string(&summary).expect("a summary")).expect("JSON");
    assert!(by_the_allocator(&json["launch"]) >= SIZE / 10 * 9, "{json}");
    assert_eq!(json["left_alone"], serde_json::json!(["it was not piloted"]), "{json}");
}

fn a_program_that_switches_huge_pages_off_for_itself_is_named_as_why() {
    let (ran, launch) = launch("--pages thp --heap", &format!("thp-disable {STEPS}"));
    let reasons: Vec<&str> = list(&launch, "rest").iter().filter_map(Value::as_str).collect();
    assert!(percent(&launch) < 10.0 && reasons.contains(&"switched_off_for_itself"), "{ran:?} {launch}");
    assert!(ran.stderr.contains("1 of its processes switched transparent huge pages off"), "{ran:?}");
}

fn a_heap_is_on_a_pools_pages() {
    // Somewhat more than the heap takes, because malloc maps large blocks separately.
    let Some(_pool) = pool_of(SIZE / (2 << 20) + 16) else { return };
    let at_first = available();
    let (ran, launch) = launch("--pages 2M --heap --require 90", STEPS);
    assert!(ran.status.success(), "{ran:?}");
    let reserved = number(&launch["largest"], "reserved_bytes");
    assert!(reserved >= SIZE / 10 * 9 && by_the_allocator(&launch) == reserved, "{launch}");
    assert!(number(&launch["largest"], "pool_left_pages") + SIZE / (2 << 20) / 10 * 9 <= at_first, "{launch}");
    assert!(ran.stderr.contains("the pool of 2M pages can give out"), "{ran:?}");
}

fn all_threads_get_a_pools_pages() {
    // Each of the 16 threads ends up with two pieces of four pages, and needs some more while taking one.
    let Some(_pool) = pool_of(SIZE / (2 << 20) + 200) else { return };
    let (ran, launch) = launch("--pages 2M --heap", "malloc-in-threads=128M be-scanned");
    assert!(ran.status.success() && percent(&launch) >= 90.0, "{ran:?} {launch}");
}

/// Enlarges the pool; None if the machine is too fragmented for it.
fn pool_of(pages: u64) -> Option<Setting> {
    let pool = Setting::reserved(pages);
    if available() < pages {
        eprintln!("only {} of {pages} pages could be reserved: this cannot be tried here", available());
        return None;
    }
    Some(pool)
}

/// Pages of 2 MiB that the pool can give out.
fn available() -> u64 {
    let read = |name: &str| -> u64 {
        let text = fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}")).expect("a pool");
        text.trim().parse().expect("a number")
    };
    // The two counters are not read at the same moment.
    read("free_hugepages").saturating_sub(read("resv_hugepages"))
}

fn an_empty_pool_keeps_no_program_from_running() {
    if available() > 0 {
        eprintln!("the pool has pages, which are not ours to take: this cannot be tried here");
        return;
    }
    let (ran, launch) = launch("--pages 2M --heap", "malloc=128M be-scanned exit=7");
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    let first = ran.stderr.lines().next().expect("a line");
    assert!(first.contains("the pool of 2M pages can give out none"), "{ran:?}");
    assert!(ran.stderr.contains("next step: hugepilot pool set 2M="), "{ran:?}");
    assert_eq!(number(&launch["largest"], "reserved_bytes"), 0, "{launch}");
    assert_eq!(list(&launch, "rest")[0], "pool_empty", "{launch}");
}

fn a_share_that_was_not_reached_has_a_status_of_its_own() {
    let _never = Setting::huge_pages("never");
    // Without this limit the pilot would promote anyway.
    let (ran, launch) = launch("--pages thp --heap --require 90 --max-huge 0", STEPS);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    assert!(by_the_allocator(&launch) == 0 && launch["met"] == false, "{launch}");
    assert!(ran.stderr.starts_with("hugepilot: transparent huge pages are switched off"), "{ran:?}");
    assert!(ran.stderr.contains("--require asks for 90 %"), "{ran:?}");
    assert_eq!(list(&launch, "rest"), ["switched_off"], "{launch}");
}

fn the_programs_own_failure_comes_first() {
    let _never = Setting::huge_pages("never");
    let (ran, launch) = launch("--pages thp --heap --require 90 --max-huge 0", "malloc=128M be-scanned exit=7");
    assert_eq!((ran.status.code(), &launch["met"]), (Some(7), &Value::from(false)), "{ran:?}");
}

fn children_are_counted_too() {
    let program = program_command(STEPS);
    let one = format!("{} program {STEPS}", program.get_program().to_str().expect("UTF-8"));
    let script = format!("{one} & {one} & wait");
    let words = ["sh", "-c", &script].map(OsStr::new);
    let (ran, launch) = launch_command("--pages thp --heap", words.into_iter());
    assert!(ran.status.success(), "{ran:?}");
    let largest = &launch["largest"];
    assert!(number(largest, "could_be_huge_bytes") >= 2 * MOST && number(largest, "processes") >= 2, "{launch}");
    assert!(percent(&launch) >= 90.0, "{launch}");
}

fn a_program_that_shows_nothing_has_not_reached_its_share() {
    let (ran, launch) = launch("--pages thp --require 50", "exit=0");
    assert_eq!((ran.status.code(), &launch["huge_percent"]), (Some(3), &Value::Null), "{ran:?} {launch}");
}

/// A control group of the hugetlb controller, removed when dropped.
struct PoolGroup {
    path: PathBuf,
    /// The file that enables the controller for child groups, if it was not enabled before.
    handed_down: Option<PathBuf>,
}

impl PoolGroup {
    /// None if cgroup v2 does not have that controller.
    fn new() -> Option<Self> {
        let mounts = mounts::read(&Root::host()).expect("a list of mounts");
        let top = PathBuf::from(&mounts.iter().find(|mount| mount.kind == "cgroup2")?.point);
        let switch = top.join("cgroup.subtree_control");
        let is_on = fs::read_to_string(&switch).ok()?.split_whitespace().any(|name| name == "hugetlb");
        fs::write(&switch, "+hugetlb").ok()?;
        let group = Self {
            path: top.join(format!("hugepilot-pool-{}", std::process::id())),
            handed_down: (!is_on).then_some(switch),
        };
        fs::create_dir(&group.path).ok()?;
        group.path.join("hugetlb.2MB.max").exists().then_some(group)
    }

    /// hugepilot in this control group.
    fn hugepilot(&self) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
        command.args(["-c", script]).arg(&self.path).arg(binary());
        command
    }
}

impl Drop for PoolGroup {
    fn drop(&mut self) {
        wait_until("an empty control group", || !self.path.exists() || fs::remove_dir(&self.path).is_ok());
        if let Some(switch) = &self.handed_down {
            fs::write(switch, "-hugetlb").expect("the controller as it was");
        }
    }
}

fn a_group_that_may_touch_few_pages_ends_no_program() {
    let Some(group) = PoolGroup::new() else {
        return eprintln!("the hugetlb controller cannot be had in version 2 here: this cannot be tried");
    };
    let Some(_pool) = pool_of(SIZE / (2 << 20) + 16) else { return };
    fs::write(group.path.join("hugetlb.2MB.max"), "16M").expect("a limit");
    let program = program_command(STEPS);
    let words = || [program.get_program()].into_iter().chain(program.get_args());
    let (ran, launch) = launch_by(group.hugepilot(), "--pages 2M --heap", words());
    assert!(ran.status.success(), "what malloc touches beyond the limit would end it: {ran:?}");
    let name = group.path.file_name().expect("a name").to_str().expect("UTF-8");
    assert!(ran.stderr.contains(name) && ran.stderr.contains("SIGBUS"), "{ran:?}");
    assert!(percent(&launch) >= 90.0 && number(&launch["largest"], "reserved_bytes") <= 16 << 20, "{launch}");
}

fn a_program_that_is_linked_statically_is_left_to_the_pilot() {
    let words = ["busybox", "true"].map(OsStr::new);
    let is_static = Command::new("busybox").arg("true").env("LD_PRELOAD", "/no/such/library").output();
    if !is_static.is_ok_and(|output| output.stderr.is_empty()) {
        eprintln!("there is no static busybox here: this cannot be tried");
        return;
    }
    let (ran, launch) = launch_command("--pages thp", words.into_iter());
    assert!(
        ran.status.success() && ran.stderr.contains("left to the pilot: mmap: nothing can be preloaded"),
        "{ran:?}"
    );
    assert_eq!(list(&launch, "left_to_pilot").len(), 1, "{launch}");
}

fn without_pages_nothing_is_said_of_them() {
    let words = ["true"].map(OsStr::new);
    let (ran, launch) = launch_command("--fast", words.into_iter());
    assert!(ran.status.success() && launch.is_null() && !ran.stderr.contains("could be huge"), "{ran:?}");
}

fn what_a_program_maps_itself_is_placed_by_the_library() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(hugepilot), Some(mapper)) = (installed(folder.path()), compiled(folder.path())) else { return };
    let placed = |options: &str, mechanism: &str| {
        let (ran, launch) = launch_by(Command::new(&hugepilot), options, [mapper.as_os_str()].into_iter());
        assert!(ran.status.success(), "{ran:?}");
        assert!(percent(&launch) >= 90.0, "{launch}");
        assert!(launch["by"].to_string().contains(mechanism), "{launch}");
        number(&launch["largest"], "reserved_bytes")
    };
    assert_eq!(placed("--pages thp --mmap --require 90", "preload"), 0);
    let Some(_pool) = pool_of(SIZE / (2 << 20) + 16) else { return };
    assert!(placed("--pages 2M --mmap --require 90", "preload") >= SIZE);
}

fn shared_memory_is_placed_where_huge_pages_fit_and_promoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(hugepilot), Some(mapper)) = (installed(folder.path()), compiled(folder.path())) else { return };
    // Under this setting the kernel does not align shared memory.
    let _never = Setting::shared("never");
    let words = || [mapper.as_os_str(), OsStr::new("shared")].into_iter();
    let (ran, launch) = launch_by(Command::new(&hugepilot), "--shm --fast", words());
    assert!(ran.status.success(), "half of it came to be huge: {ran:?} {launch}");
    assert!(ran.stderr.contains("HUGEPILOT_SHM=1"), "{ran:?}");
}

fn what_follows_filled_memory_is_huge_at_its_first_touch() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(hugepilot), Some(mapper)) = (installed(folder.path()), compiled(folder.path())) else { return };
    let run = |how: &str| {
        let words = [mapper.as_os_str(), OsStr::new(how)].into_iter();
        let (ran, launch) = launch_by(Command::new(&hugepilot), "--growing", words);
        assert!(ran.status.success(), "{ran:?}");
        (number(&launch["largest"], "transparent_bytes"), ran.stderr)
    };
    let (huge, said) = run("growing");
    // The first and the ninth of sixteen pieces are on base pages.
    assert!(huge >= 14 * (16 << 20), "{huge}: {said}");
    assert!(said.contains("they saved up to 57,232 page faults"), "{said}");
    assert_eq!(run("sparse").0, 0, "it would have grown");
}

fn code_is_on_huge_pages_of_its_file_or_copied() {
    // On a disk, even where /tmp is in memory.
    let test = std::env::current_exe().expect("it runs");
    let folder = tempfile::tempdir_in(test.parent().expect("a directory")).expect("a folder");
    let Some(hugepilot) = installed(folder.path()) else { return };
    let run = |how: &str, program: &Path| {
        let options = format!("--pages thp {how}");
        let (ran, launch) = launch_by(Command::new(&hugepilot), &options, [program.as_os_str()].into_iter());
        assert!(ran.status.success(), "{ran:?}");
        let [eligible, of_file, copied] = ["eligible_bytes", "of_file_bytes", "copied_bytes"];
        (ran.stderr, [eligible, of_file, copied].map(|field| number(&launch["text"], field)))
    };
    let linked = ["-Wl,-z,max-page-size=2097152", "-no-pie", "-pie"].map(|flag| code(folder.path(), flag));
    let [Some(aligned), Some(at_its_addresses), Some(plain)] = linked else {
        return eprintln!("there is no C compiler: this cannot be tried");
    };
    for program in [aligned, at_its_addresses] {
        let (said, [eligible, of_file, copied]) = run("--text", &program);
        assert!(eligible >= 4 << 20 && copied == 0, "{said}");
        assert!(said.contains("is on huge pages in the page cache") && !said.contains("--text=copy"), "{said}");
        if said.contains("no large folios") {
            eprintln!("not tested: this file system has no large folios");
        } else {
            assert!(of_file == eligible && said.contains("on huge pages of its files"), "{said}");
        }
    }
    let (said, [_, of_file, copied]) = run("--text", &plain);
    assert!((of_file, copied) == (0, 0) && said.contains("--text=copy"), "{said}");
    let (said, [eligible, of_file, copied]) = run("--text=copy", &plain);
    assert!(of_file == 0 && copied == eligible && eligible >= 4 << 20, "{said}");
    assert!(said.contains("copied to private ones") && said.contains("find no symbols"), "{said}");
}

/// A program with 6 MiB of code, linked with this flag; None without a compiler.
fn code(folder: &Path, flag: &str) -> Option<PathBuf> {
    let (source, program) = (folder.join("code.c"), folder.join(format!("code{flag}")));
    let code = r#"int main(void) { __asm__ volatile("jmp 1f\n.fill 6291456, 1, 0x90\n1:"); return 0; }"#;
    fs::write(&source, code).expect("there is room");
    let built = Command::new("cc").arg(&source).arg(flag).arg("-o").arg(&program).status();
    built.is_ok_and(|status| status.success()).then_some(program)
}

/// hugepilot and its library where `make install` puts them. None if only hugepilot itself was built.
fn installed(folder: &Path) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("it runs");
    let library = test.with_file_name("libhugepilot_preload.so");
    if !library.exists() {
        eprintln!("the preload library is not built (cargo test --workspace does it): this cannot be tried");
        return None;
    }
    let (program, place) = (folder.join("bin/hugepilot"), folder.join("lib/hugepilot"));
    fs::create_dir_all(folder.join("bin")).and_then(|()| fs::create_dir_all(&place)).expect("there is room");
    fs::copy(binary(), &program)
        .and_then(|_| fs::copy(&library, place.join("libhugepilot_preload.so")))
        .expect("there is room");
    Some(program)
}

/// The program of mapper.c. A machine that only runs tests has the binary already.
fn compiled(folder: &Path) -> Option<PathBuf> {
    if std::env::var_os("HUGEPILOT_VM").is_some() {
        return Some(std::env::current_exe().expect("it runs").with_file_name("mapper"));
    }
    let (source, program) = (folder.join("mapper.c"), folder.join("mapper"));
    fs::write(&source, include_str!("mapper.c")).expect("there is room");
    match Command::new("cc").arg(&source).arg("-o").arg(&program).status() {
        Ok(status) if status.success() => Some(program),
        _ => {
            eprintln!("there is no C compiler: this cannot be tried");
            None
        }
    }
}
