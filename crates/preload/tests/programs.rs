//! Runs C programs (`tests/c`), which use memory in the ways that programs do, with the library. Each fails as soon as
//! something differs from its behaviour without the library; so each is run without it, too. Missing prerequisites are
//! reported.
//!
//! Tests that need the machine's pool change it, and restore it; they need root, and hold the lock shared by all live tests.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use hugepilot_os::file_cache::drop_clean;
use hugepilot_os::huge_file::read_huge;
use hugepilot_os::placement::{CountsFile, Tally};
use rustix::fs::{FlockOperation, flock};

const MIB: u64 = 1 << 20;

/// Where cargo puts the library for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("it runs");
    test.parent().expect("it is in a directory").join("libhugepilot_preload.so")
}

/// A program by its source's name, built once. None if there is no compiler, which is reported.
fn program(source: &str, flags: &[&str], folder: &Path) -> Option<PathBuf> {
    let program = folder.join(source);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source).with_extension("c");
    let mut command = Command::new("cc");
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    match command.arg("-o").arg(&program).arg(source).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: cc is not installed");
            None
        }
        built => {
            let built = built.expect("it starts");
            assert!(built.status.success(), "{}", text(&built));
            Some(program)
        }
    }
}

fn memory() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<(PathBuf, tempfile::TempDir)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("there is room");
        program("memory", &[], folder.path()).map(|program| (program, folder))
    });
    built.as_ref().map(|(program, _)| program.as_path())
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program with the library, and the library's counters.
struct With {
    command: Command,
    counts: CountsFile,
}

impl With {
    fn new(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let counts = CountsFile::create().expect("there is room");
        let mut command = Command::new(program);
        command.args(arguments).env("LD_PRELOAD", library()).env("HUGEPILOT_COUNTS", counts.path());
        command.envs(settings.iter().copied());
        Self { command, counts }
    }

    /// Its output, if it succeeds.
    fn run(self) -> (String, Tally) {
        let (said, counts) = self.finish();
        (said, counts.tally())
    }

    fn finish(mut self) -> (String, CountsFile) {
        let ran = self.command.output().expect("it starts");
        assert!(ran.status.success(), "{:?}: {:?}\n{}", self.command, ran.status, text(&ran));
        assert!(text(&ran).contains("fine"), "{}", text(&ran));
        (text(&ran), self.counts)
    }
}

fn runs_without(program: &Path, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output().expect("it starts");
    assert!(ran.status.success(), "{arguments:?} without the library: {:?}\n{}", ran.status, text(&ran));
    text(&ran)
}

const THP: [(&str, &str); 2] = [("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_MMAP", "1")];
const POOL: [(&str, &str); 2] = [("HUGEPILOT_PAGES", "2M"), ("HUGEPILOT_MMAP", "1")];

/// The number after a word such as `resident=`.
fn told(said: &str, word: &str) -> i64 {
    let word = said.split_ascii_whitespace().find_map(|found| found.strip_prefix(word)?.strip_prefix('='));
    word.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number in: {said}"))
}

/// Held while live tests run, of this crate or another, so those of two checkouts do not interfere.
fn machine_lock() -> File {
    // Not in TMPDIR: whoever runs tests with another one changes the same machine.
    let file = File::create("/tmp/hugepilot-live-tests.lock").expect("a file for the lock");
    flock(&file, FlockOperation::LockExclusive).expect("the lock");
    file
}

/// A machine setting, restored on drop. Only one test at a time has any.
struct Setting {
    path: PathBuf,
    before: String,
    _alone: File,
}

impl Setting {
    fn new(path: PathBuf, value: &str) -> Option<Self> {
        let alone = machine_lock();
        let before = std::fs::read_to_string(&path).ok()?;
        // The selected value is in brackets.
        let before = before.split(['[', ']']).nth(1).unwrap_or(before.trim()).to_owned();
        let setting = Self { path, before, _alone: alone };
        setting.set(value).then_some(setting)
    }

    fn set(&self, value: &str) -> bool {
        std::fs::write(&self.path, value).is_ok()
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.set(&self.before);
    }
}

/// The machine's pool with this many pages free and none in use, until dropped.
struct Pool {
    pages: Setting,
}

impl Pool {
    fn of(pages: u64, kib: u64) -> Option<Self> {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
        let pool = Setting::new(path.into(), &pages.to_string()).map(|pages| Self { pages });
        let pool = pool.filter(|pool| pool.read("free_hugepages") == pages && pool.read("nr_hugepages") == pages);
        if pool.is_none() {
            eprintln!("skipped: {pages} huge pages of {kib} KiB cannot be had, or are in use");
        }
        pool
    }

    fn set(&self, pages: u64) -> bool {
        self.pages.set(&pages.to_string())
    }

    fn read(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.pages.path.with_file_name(name)).unwrap_or_default();
        text.trim().parse().expect("the kernel says a number")
    }
}

fn megabytes(count: u64) -> String {
    (count * MIB).to_string()
}

#[test]
fn without_settings_it_does_nothing() {
    let Some(program) = memory() else { return };
    let (_, tally) = With::new(program, &["one", &megabytes(32)], &[("HUGEPILOT_MMAP", "1")]).run();
    assert_eq!(tally, Tally::default());
    let (_, tally) = With::new(program, &["one", &megabytes(32)], &[("HUGEPILOT_PAGES", "thp")]).run();
    assert_eq!(tally, Tally { processes: 1, ..Tally::default() });
}

#[test]
fn large_memory_is_aligned_and_advised() {
    let Some(program) = memory() else { return };
    for length in [2 * MIB, 32 * MIB, 64 * MIB + 5000] {
        runs_without(program, &["one", &length.to_string()]);
        let (said, tally) = With::new(program, &["one", &length.to_string()], &THP).run();
        assert!(told(&said, "aligned") == 1 && told(&said, "pooled") == 0, "{said}");
        let whole = Tally { mmap_eligible_calls: 1, mmap_eligible_bytes: length, mmap_thp_bytes: length, ..tally };
        assert_eq!(tally, whole);
    }
    let (_, counts) = With::new(program, &["one", &(32 * MIB).to_string()], &THP).finish();
    let lengths =
        counts.recorded().map(|ranges| ranges.iter().map(|range| range.end - range.start).collect::<Vec<_>>());
    assert_eq!(lengths, Some(vec![32 * MIB]), "so that what was touched of it can be told");
    let (_, tally) = With::new(program, &["one", &(2 * MIB - 4096).to_string()], &THP).run();
    assert_eq!(tally.mmap_eligible_bytes, 0, "too small");
    let (_, tally) = With::new(program, &["one", &(3 * MIB).to_string()], &THP).run();
    assert_eq!(tally.mmap_thp_bytes, 3 * MIB, "of odd size it is advised where it lies");
}

#[test]
fn whatever_programs_do_to_parts_goes_on_working() {
    let Some(program) = memory() else { return };
    let cases = ["parts", "parts-among-threads", "rights-among-threads", "fork", "fork-among-threads"];
    let more = ["fork-while-memory-changes", "fork-on-stack", "coroutine", "replace-in-vain"];
    for case in cases.into_iter().chain(more) {
        runs_without(program, &[case]);
        let (_, tally) = With::new(program, &[case], &THP).run();
        assert!(tally.mmap_thp_bytes > 0 && tally.mmap_hugetlb_bytes == 0, "{tally:?}");
    }
}

#[test]
fn under_a_limit_on_addresses_the_program_gets_what_it_asked_for() {
    let Some(program) = memory() else { return };
    runs_without(program, &["limited"]);
    let Some(_pool) = Pool::of(0, 2048) else { return };
    for settings in [THP, POOL] {
        let (_, tally) = With::new(program, &["limited"], &settings).run();
        let placed = tally.mmap_thp_bytes + tally.mmap_ordinary_bytes + tally.mmap_hugetlb_bytes;
        assert!(placed == tally.mmap_eligible_bytes && tally.address_space_limit_bytes > 0, "{tally:?}");
    }
}

#[test]
fn what_seccomp_refuses_is_done_without() {
    let Some(program) = memory() else { return };
    for error in [libc::EPERM, libc::ENOSYS, libc::EACCES] {
        let error = error.to_string();
        runs_without(program, &["refused", &error]);
        for settings in [THP, POOL] {
            let (_, tally) = With::new(program, &["refused", &error], &settings).run();
            assert!(tally.refused_bytes >= 64 * MIB && tally.mmap_ordinary_bytes == 64 * MIB, "{tally:?}");
        }
    }
}

#[test]
fn no_thread_wastes_a_huge_page() {
    let Some(program) = memory() else { return };
    // If the mode is `always`, stacks may have huge pages, too.
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Some(_on_request) = Setting::new(enabled.into(), "madvise") else {
        return eprintln!("skipped: {enabled} cannot be changed");
    };
    let without = told(&runs_without(program, &["threads"]), "resident");
    let (said, tally) = With::new(program, &["threads"], &THP).run();
    let with = told(&said, "resident");
    // A huge page for each would be 128 MiB.
    assert!(with < without + 8 * MIB as i64, "{with} bytes, {without} without the library");
    assert_eq!(tally.thread_small_bytes, 128 * MIB);
    eprintln!("64 threads: {with} bytes resident, {without} without the library");
}

#[test]
fn an_empty_pool_leaves_huge_pages_on_request() {
    let Some(program) = memory() else { return };
    let Some(pool) = Pool::of(0, 2048) else { return };
    let (said, tally) = With::new(program, &["one", &megabytes(33)], &POOL).run();
    assert!(told(&said, "aligned") == 1 && told(&said, "pooled") == 0, "{said}");
    assert!(tally.pool_empty_bytes == 33 * MIB && tally.mmap_thp_bytes == 33 * MIB, "{tally:?}");
    // One page too few.
    assert!(pool.set(15));
    let (_, tally) = With::new(program, &["one", &megabytes(32)], &POOL).run();
    assert!(tally.pool_empty_bytes == 32 * MIB && tally.mmap_hugetlb_bytes == 0, "{tally:?}");
    assert_eq!(pool.read("free_hugepages"), 15, "nothing stays taken");
}

#[test]
fn the_pool_gives_whole_pages_and_the_rest_is_ordinary() {
    let Some(program) = memory() else { return };
    let Some(pool) = Pool::of(17, 2048) else { return };
    for (length, pooled) in [(32 * MIB, 32 * MIB), (33 * MIB + 5000, 32 * MIB), (35 * MIB, 34 * MIB)] {
        let (said, tally) = With::new(program, &["one", &length.to_string()], &POOL).run();
        assert!(told(&said, "aligned") == 1 && told(&said, "pooled") == 1, "{said}");
        assert_eq!(told(&said, "tail"), i64::from(length == pooled), "{said}");
        let placed = tally.mmap_hugetlb_bytes + tally.mmap_thp_bytes + tally.mmap_ordinary_bytes;
        assert!(tally.mmap_hugetlb_bytes == pooled && placed == length, "{tally:?}");
        assert_eq!(pool.read("free_hugepages"), 17);
    }
    let (said, tally) = With::new(program, &["one", &megabytes(31)], &POOL).run();
    assert!(told(&said, "pooled") == 0 && tally.pool_too_small_bytes == 31 * MIB, "{said} {tally:?}");
}

#[test]
fn pages_of_1_gib_are_taken_too() {
    let Some(program) = memory() else { return };
    let Some(_pool) = Pool::of(1, 1 << 20) else { return };
    let settings = [("HUGEPILOT_PAGES", "1G"), ("HUGEPILOT_MMAP", "1")];
    let (said, tally) = With::new(program, &["one", &(1025 * MIB).to_string()], &settings).run();
    assert!(told(&said, "pooled") == 1 && told(&said, "tail") == 0, "{said}");
    assert_eq!(tally.mmap_hugetlb_bytes, 1 << 30);
}

#[test]
fn parts_of_memory_from_the_pool_are_like_any_others() {
    let Some(program) = memory() else { return };
    // Just enough for one at a time, and enough for all.
    for pages in [16, 100] {
        let Some(pool) = Pool::of(pages, 2048) else { return };
        for case in ["parts", "parts-among-threads"] {
            let (_, tally) = With::new(program, &[case], &POOL).run();
            assert!(tally.mmap_hugetlb_bytes >= 32 * MIB, "{case}: {tally:?}");
            assert!(tally.kept_bytes > 0 && tally.widened_bytes > 0, "{case}: {tally:?}");
        }
        assert_eq!(pool.read("free_hugepages"), pages);
    }
}

#[test]
fn a_mapping_that_is_refused_changes_nothing() {
    let Some(program) = memory() else { return };
    let Some(_pool) = Pool::of(16, 2048) else { return };
    let (said, _) = With::new(program, &["replace-in-vain"], &POOL).run();
    assert_eq!(told(&said, "pooled"), 1, "{said}");
}

#[test]
fn forked_children_need_nothing_of_an_empty_pool() {
    let Some(program) = memory() else { return };
    for case in ["fork", "fork-among-threads"] {
        let Some(pool) = Pool::of(16, 2048) else { return };
        let (said, tally) = With::new(program, &[case], &POOL).run();
        assert_eq!(told(&said, "pooled"), 1, "the parent keeps its pages: {said}");
        assert!(tally.fork_copied_bytes >= 96 * MIB && tally.fork_shared_bytes == 0, "{tally:?}");
        assert_eq!(pool.read("free_hugepages"), 16);
    }
}

#[test]
fn threads_may_give_rights_to_parts_of_the_same_huge_page() {
    let Some(program) = memory() else { return };
    let Some(_pool) = Pool::of(16, 2048) else { return };
    let (said, _) = With::new(program, &["rights-among-threads"], &POOL).run();
    assert_eq!(told(&said, "pooled"), 1, "{said}");
}

#[test]
fn a_fork_may_meet_memory_that_changes() {
    let Some(program) = memory() else { return };
    // One more mapping than it keeps.
    let Some(_pool) = Pool::of(48, 2048) else { return };
    let (said, tally) = With::new(program, &["fork-while-memory-changes"], &POOL).run();
    assert!(told(&said, "pooled") == 1 && tally.fork_copied_bytes >= 30 * 32 * MIB, "{said} {tally:?}");
}

#[test]
fn a_thread_may_fork_on_a_stack_from_the_pool() {
    let Some(program) = memory() else { return };
    // Some spare pages for the stack, which parent and child share.
    let Some(_pool) = Pool::of(56, 2048) else { return };
    let (said, tally) = With::new(program, &["fork-on-stack"], &POOL).run();
    assert_eq!(told(&said, "pooled"), 1, "{said}");
    // It forks on that stack three times, and once another thread does.
    assert_eq!((tally.fork_shared_bytes, tally.fork_copied_bytes), (3 * 64 * MIB, (4 * 32 + 64) * MIB));
}

#[test]
fn a_program_may_stand_on_memory_that_it_gives_up_in_parts() {
    let Some(program) = memory() else { return };
    let Some(_pool) = Pool::of(20, 2048) else { return };
    let (said, tally) = With::new(program, &["coroutine"], &POOL).run();
    assert!(told(&said, "pooled") == 1 && tally.kept_bytes > 0, "{said} {tally:?}");
}

#[test]
fn the_c_library_finds_its_streams_in_a_child() {
    let folder = tempfile::tempdir().expect("there is room");
    let Some(program) = program("streams", &["-fno-builtin"], folder.path()) else { return };
    runs_without(&program, &[]);
    // Some spare pages for its writes.
    let Some(_pool) = Pool::of(20, 2048) else { return };
    let (said, tally) = With::new(&program, &[], &POOL).run();
    assert!(told(&said, "pooled") == 1 && tally.fork_copied_bytes == 32 * MIB, "{said} {tally:?}");
}

#[test]
fn what_libraries_do_at_a_fork_is_done_to_the_same_memory() {
    let folder = tempfile::tempdir().expect("there is room");
    let Some(handlers) = program("handlers", &["-shared", "-fPIC"], folder.path()) else { return };
    let handlers = handlers.to_str().expect("it was named here");
    let Some(program) = program("handled", &["-Wl,--no-as-needed", handlers], folder.path()) else { return };
    runs_without(&program, &[]);
    // No spare pages.
    let Some(_pool) = Pool::of(16, 2048) else { return };
    let (said, tally) = With::new(&program, &[], &POOL).run();
    assert!(told(&said, "pooled") == 1 && tally.fork_copied_bytes == 32 * MIB, "{said} {tally:?}");
}

/// Runs a program that asks for the pool to be emptied.
fn with_the_pool_emptied(with: &mut With, pool: &Pool) -> String {
    let mut child = with.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("it has one"));
    let mut said = String::new();
    output.read_line(&mut said).expect("it speaks");
    let emptied = pool.set(0);
    child.stdin.take().expect("it has one").write_all(b"\n").expect("it listens");
    assert!(child.wait().expect("it ends").success() && emptied, "{said}");
    said
}

#[test]
fn a_pool_that_shrinks_takes_nothing_from_whoever_has_it() {
    let Some(program) = memory() else { return };
    let Some(pool) = Pool::of(20, 2048) else { return };
    let said = with_the_pool_emptied(&mut With::new(program, &["shrunk"], &POOL), &pool);
    assert_eq!(told(&said, "pooled"), 1);
}

#[test]
fn children_may_write_to_mallocs_memory_from_the_pool() {
    let Some(program) = memory() else { return };
    let Some(pool) = Pool::of(64, 2048) else { return };
    let mut with = With::new(program, &["fork-heap"], &POOL);
    with.command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2");
    let said = with_the_pool_emptied(&mut with, &pool);
    if told(&said, "pooled") == 0 {
        return eprintln!("skipped: this C library takes nothing from the pool");
    }
    assert!(with.counts.tally().fork_copied_bytes >= 3 * 30 * MIB, "{:?}", with.counts.tally());
}

#[test]
fn what_devices_write_into_pages_that_they_hold_is_seen() {
    let folder = tempfile::tempdir().expect("there is room");
    let Some(program) = program("pinned", &[], folder.path()) else { return };
    for case in ["beside", "moved", "heap"] {
        if told(&runs_without(&program, &[case]), "permitted") == 0 {
            return eprintln!("skipped: io_uring is not permitted");
        }
        // Some spare pages: for a child the kernel copies at once what a device holds.
        let Some(pool) = Pool::of(64, 2048) else { return };
        let mut with = With::new(&program, &[case], &POOL);
        with.command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2");
        let (said, tally) = with.run();
        if case == "heap" && told(&said, "pooled") == 0 {
            return eprintln!("skipped: this C library takes nothing from the pool");
        }
        assert_eq!(told(&said, "pooled"), 1, "{case}: {said} {tally:?}");
        assert_eq!(tally.fork_copied_bytes > 0, case != "moved", "{case}: {tally:?}");
        assert_eq!(pool.read("free_hugepages"), 64);
    }
}

#[test]
fn shared_segments_come_from_the_pool_or_are_advised() {
    let folder = tempfile::tempdir().expect("there is room");
    let Some(program) = program("shm", &[], folder.path()) else { return };
    runs_without(&program, &[]);
    let size = 9 * MIB + 5000;
    for pages in ["thp", "2M"] {
        let Some(_pool) = Pool::of(0, 2048) else { return };
        let (said, tally) = With::new(&program, &[], &[("HUGEPILOT_PAGES", pages), ("HUGEPILOT_SHM", "1")]).run();
        assert!(told(&said, "aligned") == 1 && told(&said, "pooled") == 0, "{said}");
        assert!(tally.shm_eligible_bytes == 2 * size && tally.shm_thp_bytes == 2 * size, "{tally:?}");
        assert_eq!(tally.pool_empty_bytes > 0, pages == "2M", "{tally:?}");
    }
    let Some(pool) = Pool::of(5, 2048) else { return };
    let (said, tally) = With::new(&program, &[], &[("HUGEPILOT_PAGES", "2M"), ("HUGEPILOT_SHM", "1")]).run();
    assert!(told(&said, "aligned") == 1 && told(&said, "pooled") == 1, "{said}");
    assert!(tally.shm_eligible_bytes == 2 * size && tally.shm_hugetlb_bytes == 2 * size, "{tally:?}");
    assert_eq!(pool.read("free_hugepages"), 5);
}

const ALIGNED: &[&str] = &["-fno-omit-frame-pointer", "-no-pie", "-Wl,-z,max-page-size=2097152"];

#[test]
fn text_is_copied_where_that_was_asked_for_and_unwinding_goes_on() {
    let folder = tempfile::tempdir().expect("there is room");
    let Some(program) = program("text", &["-fno-omit-frame-pointer"], folder.path()) else { return };
    runs_without(&program, &[]);
    let (said, tally) = With::new(&program, &[], &[("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_TEXT", "copy")]).run();
    assert!(tally.text_eligible_bytes >= 6 * MIB, "{tally:?}");
    assert_eq!(tally.text_of_file_bytes + tally.text_copied_bytes, tally.text_eligible_bytes, "{said}");
    assert_eq!(told(&said, "named"), i64::from(tally.text_copied_bytes == 0), "{said}");
}

#[test]
fn text_keeps_its_name_where_the_kernel_collapses_it() {
    // A file system in memory, which has huge pages.
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("skipped: no /dev/shm") };
    let Some(program) = program("text", ALIGNED, folder.path()) else { return };
    if Command::new(&program).output().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
        return eprintln!("skipped: no program may run in /dev/shm");
    }
    let (said, tally) = With::new(&program, &[], &[("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_TEXT", "1")]).run();
    assert!(tally.text_copied_bytes == 0 && told(&said, "named") == 1, "{said}");
    if tally.text_of_file_bytes == 0 {
        return eprintln!("skipped: this kernel collapses no text");
    }
    assert!(told(&said, "huge") >= 2048, "{said} {tally:?}");
}

#[test]
fn text_stays_its_files_where_the_page_cache_has_it_on_huge_pages() {
    // Beside this test's binary, which is on a disk even where /tmp is in memory.
    let own = std::env::current_exe().expect("our own path");
    let folder = tempfile::tempdir_in(own.parent().expect("it is in a directory")).expect("there is room");
    let Some(program) = program("text", ALIGNED, folder.path()) else { return };
    let file = File::open(&program).expect("just built");
    file.sync_all().expect("a disk");
    drop_clean(&file, 0, 0).expect("nobody maps it");
    let whole = file.metadata().expect("it is there").len() / (2 * MIB);
    let mut regions = (0..whole).map(|region| read_huge(&file, region * 2 * MIB));
    if !regions.all(|is_huge| is_huge.unwrap_or(false)) {
        return eprintln!("skipped: this file system has no large folios, or the kernel does not tell");
    }
    let (said, tally) = With::new(&program, &[], &[("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_TEXT", "copy")]).run();
    assert!(tally.text_eligible_bytes >= 4 * MIB && tally.text_copied_bytes == 0, "{tally:?}");
    assert!(tally.text_of_file_bytes == tally.text_eligible_bytes && told(&said, "named") == 1, "{said} {tally:?}");
    assert!(told(&said, "huge") >= 2048, "{said} {tally:?}");
}

#[test]
fn the_library_needs_nothing_but_the_c_library() {
    let Ok(said) = Command::new("ldd").arg(library()).output() else {
        return eprintln!("skipped: ldd is not installed");
    };
    let said = text(&said);
    for needed in said.lines().filter_map(|line| line.split_ascii_whitespace().next()) {
        let known = ["linux-vdso", "libgcc_s", "libc.so", "/lib64/ld-linux"];
        assert!(known.iter().any(|known| needed.starts_with(known)), "{said}");
    }
}
