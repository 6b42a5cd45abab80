//! Uses files on the disk that this was built on, if they are cached there; otherwise (a kernel before 6.5, a disk in memory) it
//! reports that nothing was tested.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A directory on the disk that contains this test; None if drop-behind cannot work.
fn folder() -> Option<TempDir> {
    let beside = std::env::current_exe().expect("our own path").parent().expect("a folder").to_owned();
    let folder = tempfile::tempdir_in(beside).expect("room");
    let path = file(&folder, "probe", 1);
    let probe = File::open(&path).unwrap();
    let works = cache_state(&probe, 0, 0).is_ok_and(|state| state.cached == MIB / BASE_PAGE);
    drop_clean(&probe, 0, 0).unwrap();
    let works = works && cached(&path) == 0;
    fs::remove_file(path).unwrap();
    if !works {
        eprintln!("skipped: this kernel or this file system does not tell what is in memory, or keeps it there");
    }
    works.then_some(folder)
}

/// A file of `mib` MiB that is on disk and in memory.
fn file(folder: &TempDir, name: &str, mib: u64) -> PathBuf {
    let path = folder.path().join(name);
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; (mib * MIB) as usize]).unwrap();
    file.sync_all().unwrap();
    path
}

fn cached(path: &Path) -> u64 {
    cache_state(&File::open(path).unwrap(), 0, 0).unwrap().cached * BASE_PAGE / MIB
}

fn read(path: &Path) {
    assert!(fs::read(path).unwrap().iter().all(|&byte| byte == 7));
}

fn open(folder: &TempDir, options: DropBehindOptions) -> DropBehind {
    let options = DropBehindOptions { paths: vec![folder.path().to_owned()], ..options };
    DropBehind::open(&Root::host(), options).unwrap()
}

/// Steps until a round is over; returns what was dropped.
fn round(behind: &mut DropBehind, mib: u64) -> u64 {
    let rounds = behind.counts.rounds;
    let mut dropped = 0;
    while behind.counts.rounds == rounds && dropped < mib * MIB / BASE_PAGE {
        dropped += behind.drop_up_to(Bytes(mib * MIB), &Stop::default());
    }
    dropped * BASE_PAGE / MIB
}

#[test]
fn clean_files_go_and_come_back_unchanged() {
    let Some(folder) = folder() else { return };
    let paths = [file(&folder, "one", 3), file(&folder, "two", 2)];
    let mut behind = open(&folder, DropBehindOptions::default());
    assert_eq!(round(&mut behind, 100), 5);
    assert_eq!(paths.each_ref().map(|path| cached(path)), [0, 0]);
    assert_eq!((behind.counts()["dropped_files"], behind.counts()["refused_files"]), (2, 0));
    paths.iter().for_each(|path| read(path));
}

#[test]
fn no_more_goes_than_is_wanted() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "large", 40);
    let mut behind = open(&folder, DropBehindOptions::default());
    assert_eq!(round(&mut behind, 10), 10);
    assert_eq!(cached(&path), 30);
}

#[test]
fn what_came_back_cools_down() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "hot", 2);
    let mut behind = open(&folder, DropBehindOptions::default());
    assert_eq!(round(&mut behind, 100), 2);
    read(&path);
    assert_eq!(round(&mut behind, 100), 0);
    assert_eq!((cached(&path), behind.counts.comebacks), (2, 1));
    // Once rewritten it counts as another file in this respect, but that does not shorten the cool-down.
    assert_eq!(round(&mut behind, 100), 0);
    assert_eq!(behind.counts.comebacks, 1, "it is told once");
}

#[test]
fn a_file_that_is_being_written_keeps_its_end() {
    let now = Instant::now();
    let to_drop = |len, written| length_to_drop(len, written, now + WRITTEN_LATELY);
    let lately = Some(now + Duration::from_nanos(1));
    assert_eq!([None, Some(now), lately].map(|written| to_drop(END + 5000, written)), [END + 5000, END + 5000, 4096]);
    assert_eq!(to_drop(100, lately), 0);
}

#[test]
fn it_is_seen_when_a_file_is_written() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "log", 1);
    // Long ago, because some kernels do not distinguish two times within one tick.
    File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut behind = open(&folder, DropBehindOptions::default());
    round(&mut behind, 100);
    let written = |behind: &DropBehind| behind.remembered.values().next().unwrap().written.is_some();
    assert!(!written(&behind));
    File::options().append(true).open(&path).unwrap().write_all(&[7]).unwrap();
    round(&mut behind, 100);
    assert!(written(&behind));
}

#[test]
fn what_was_used_lately_stays_and_what_is_mapped() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "young", 2);
    let idle = Duration::from_secs(3600);
    let mut behind = open(&folder, DropBehindOptions { idle, ..DropBehindOptions::default() });
    assert_eq!((round(&mut behind, 100), behind.counts()["young_left_files"]), (0, 1));
    let inode = fs::metadata(&path).unwrap().ino();
    let mut behind = open(&folder, DropBehindOptions { spare_mapped: true, ..DropBehindOptions::default() });
    let mut position = behind.begin_round();
    position.mapped.insert(inode);
    behind.at = Some(position);
    assert_eq!((round(&mut behind, 100), behind.counts()["mapped_left_files"]), (0, 1));
    assert_eq!(round(&mut behind, 100), 2, "nobody maps it any more");
}

#[test]
fn our_own_program_is_among_what_is_mapped() {
    let inode = fs::metadata("/proc/self/exe").unwrap().ino();
    assert!(mapped_files(&Root::host()).contains(&inode));
}

#[test]
fn dirty_pages_stay_and_their_neighbours_go() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "half", 4);
    let mut written = File::options().write(true).open(&path).unwrap();
    written.write_all(&vec![7; 4096]).unwrap();
    let state = || cache_state(&File::open(&path).unwrap(), 0, 0).unwrap();
    if state().dirty == 0 {
        return eprintln!("skipped: this file system writes at once");
    }
    let mut behind = open(&folder, DropBehindOptions::default());
    let dropped = round(&mut behind, 100);
    assert!((2..4).contains(&dropped), "{dropped} MiB went");
    assert!(state().cached > 0 && behind.counts()["dirty_left_bytes"] > 0);
    let now = Duration::ZERO;
    let mut behind = open(&folder, DropBehindOptions { write_behind: Some(now), ..DropBehindOptions::default() });
    round(&mut behind, 100);
    assert_eq!(behind.counts.written_back_files, 1);
    written.sync_all().unwrap();
    while cached(&path) > 0 {
        round(&mut behind, 100);
    }
    read(&path);
}

#[test]
fn a_step_ends_when_asked_to() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "one", 2);
    let stop = Stop::default();
    stop.request();
    assert_eq!(open(&folder, DropBehindOptions::default()).drop_up_to(Bytes(u64::MAX), &stop), 0);
    assert_eq!(cached(&path), 2);
}

#[test]
fn nothing_is_scanned_while_it_waits() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "one", 2);
    let mut behind = open(&folder, DropBehindOptions::default());
    behind.waits_until = Instant::now() + Duration::from_secs(3600);
    assert_eq!((behind.drop_up_to(Bytes(u64::MAX), &Stop::default()), cached(&path)), (0, 2));
    behind.waits_until = Instant::now();
    assert!(behind.drop_up_to(Bytes(u64::MAX), &Stop::default()) > 0);
    let begun = Instant::now();
    behind.waits_until = begun;
    assert_eq!(behind.drop_up_to(Bytes(u64::MAX), &Stop::default()), 0);
    assert!(behind.waits_until > begun, "it has scanned in vain");
}

#[test]
fn what_is_excepted_stays() {
    let Some(folder) = folder() else { return };
    let [kept, other] = ["kept", "other"].map(|name| file(&folder, name, 1));
    let mut behind = open(&folder, DropBehindOptions { except: vec![kept.clone()], ..DropBehindOptions::default() });
    assert_eq!((round(&mut behind, 100), cached(&kept), cached(&other)), (1, 1, 0));
}

#[test]
fn only_who_uses_what_was_there_keeps_a_file_young() {
    let before = Scan { size: 10_000, modified: (1, 0), cached: 3 };
    let uses = |size, modified, cached| Scan { size, modified: (modified, 0), cached }.shows_use_since(before);
    assert!(!uses(10_000, 1, 3));
    assert!(!uses(10_000, 1, 1), "the kernel took some");
    assert!(uses(10_000, 1, 4), "more of it was read");
    assert!(uses(10_000, 2, 3), "it was written anew");
    assert!(uses(9_000, 2, 3), "and shorter");
    assert!(!uses(20_000, 2, 6), "it only got longer");
    assert!(uses(20_000, 2, 7), "and was read, too");
}

#[test]
fn a_large_file_goes_though_most_of_it_never_was_in_memory() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "sparse", 1);
    File::options().write(true).open(&path).unwrap().set_len(4 * PART).unwrap();
    let mut behind = open(&folder, DropBehindOptions::default());
    assert_eq!((round(&mut behind, 100), cached(&path)), (1, 0));
}

/// An unlimited budget.
fn unbounded(stop: &Stop) -> Budget<'_> {
    let hour = Duration::from_secs(3600);
    Budget {
        pages: u64::MAX,
        ends: Instant::now() + hour,
        cpu_ends: thread_cpu_time() + Nanos::from_duration(hour),
        stop,
    }
}

/// A file of maximum size, with pages in memory at these offsets.
fn huge_file(pages_at: &[u64]) -> File {
    let file = File::from(memfd_create("huge", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(i64::MAX as u64).unwrap();
    pages_at.iter().for_each(|&at| file.write_all_at(&[7], at).unwrap());
    file
}

#[test]
fn a_file_larger_than_any_disk_is_scanned_at_once() {
    let (file, stop) = (huge_file(&[0, 1 << 40, 1 << 62]), Stop::default());
    let (mut offset, begun) = (0, thread_cpu_time());
    drop_from(&file, &mut offset, i64::MAX as u64, &mut unbounded(&stop)).unwrap();
    assert_eq!(offset, 0, "it was seen to its end");
    assert!(thread_cpu_time().saturating_sub(begun) < Nanos(1_000_000_000));
}

#[test]
fn a_file_is_left_when_it_is_time_and_gone_on_with_where_it_was_left() {
    let Some(folder) = folder() else { return };
    let path = file(&folder, "large", 40);
    let (file, stop, mut offset) = (File::open(&path).unwrap(), Stop::default(), 0);
    let some = Budget { pages: 10 * MIB / BASE_PAGE, ..unbounded(&stop) };
    drop_from(&file, &mut offset, 40 * MIB, &mut { some }).unwrap();
    assert_eq!((offset, cached(&path)), (10 * MIB, 30));
    stop.request();
    let huge = huge_file(&[0]);
    assert_eq!(drop_from(&huge, &mut offset, i64::MAX as u64, &mut unbounded(&stop)).unwrap(), 0);
    assert_eq!(offset, 10 * MIB, "it is left at once");
    stop.withdraw();
    read(&path);
    drop_from(&file, &mut offset, 40 * MIB, &mut unbounded(&stop)).unwrap();
    assert_eq!((offset, cached(&path)), (0, 10), "the next time it begins anew");
}

#[test]
fn what_there_is_counts_once_however_often_it_is_scanned() {
    let Some(folder) = folder() else { return };
    file(&folder, "young", 2);
    let idle = Duration::from_secs(3600);
    let mut behind = open(&folder, DropBehindOptions { idle, ..DropBehindOptions::default() });
    for _ in 0..3 {
        behind.waits_until = Instant::now();
        round(&mut behind, 100);
    }
    let counts = behind.counts();
    assert_eq!(["rounds", "files", "young_left_files"].map(|name| counts[name]), [3, 1, 1]);
}

#[test]
fn what_is_not_there_any_more_is_told_and_met_when_it_is_back() {
    let Some(folder) = folder() else { return };
    let [below, away] = ["below", "away"].map(|name| folder.path().join(name));
    fs::create_dir(&below).unwrap();
    let options = DropBehindOptions { paths: vec![below.clone()], ..DropBehindOptions::default() };
    let mut behind = DropBehind::open(&Root::host(), options.clone()).unwrap();
    fs::rename(&below, &away).unwrap();
    assert_eq!((round(&mut behind, 100), behind.counts()["missing_paths"]), (0, 1));
    let error = DropBehind::open(&Root::host(), options).unwrap_err().to_string();
    assert!(error.contains("below") && error.contains("name a directory"), "{error}");
    fs::create_dir(&below).unwrap();
    file(&folder, "below/new", 1);
    behind.waits_until = Instant::now();
    assert_eq!((round(&mut behind, 100), behind.counts()["missing_paths"]), (1, 0));
}

#[test]
fn only_files_of_which_something_is_known_are_remembered() {
    let Some(folder) = folder() else { return };
    let [cold, hot] = ["cold", "hot"].map(|name| file(&folder, name, 1));
    drop_clean(&File::open(&cold).unwrap(), 0, 0).unwrap();
    let mut behind = open(&folder, DropBehindOptions::default());
    round(&mut behind, 100);
    let number = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).unwrap();
    assert_eq!(behind.remembered.keys().copied().collect::<Vec<_>>(), [number(&hot)], "it went");

    let (mut known, now) = (behind.remembered[&number(&hot)], Instant::now());
    behind.remember(number(&hot), known, now + LONGEST_COOL_DOWN);
    assert!(behind.remembered.is_empty(), "it went long ago");
    (0..2 * MOST_REMEMBERED as u64).for_each(|inode| behind.remember((0, inode), known, now));
    assert!(behind.remembered.len() <= MOST_REMEMBERED / 2 + 1);
    known.scan.cached = 1;
    (0..2 * MOST_REMEMBERED as u64).for_each(|inode| behind.remember((0, inode), known, now));
    assert_eq!(behind.remembered.len(), MOST_REMEMBERED);
}
