//! One way of reclaiming memory, measured once at one size.
//!
//! Owns: the order of a turn's steps, and its results. Never touches: what the numbers mean.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use heat::units::{BASE_PAGE, Bytes, Nanos};
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::balloon::reports_free_memory;
use kernel::process::Stat;
use reclaim::Store;
use reclaim::policy::Stock;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::children::{FillChild, Obtained, ResidentHeapChild, WritersChild, obtain, on_disk};
use super::kernel_work::KernelWork;
use super::supply::{Supply, SupplyBlocks};
use super::way::Way;
use crate::sample::cpu_time;
use crate::tool::{Tool, ToolProcess};
use crate::workload::{OwnProcess, Progress, Running, leave_alone};

/// The size of the resident process's heap, and of its file.
const RESIDENT: Bytes = Bytes(256 << 20);
/// The size of the rings of files: large enough that no file is overwritten within a turn, unless the disk is very fast.
const RINGS: Bytes = Bytes(16 << 30);
/// Threads that remove files: on a file system mounted with `discard` each removal waits for the disk.
const REMOVERS: usize = 64;
/// Until writers are throttled to the disk's speed; at first they may dirty memory freely.
pub(super) const SETTLE: Duration = Duration::from_secs(3);
/// From the time when everything is on disk until huge pages are requested.
const CALM: Duration = Duration::from_secs(1);
/// The figure: huge pages available within that time.
pub(super) const OBTAIN: Duration = Duration::from_secs(5);

/// Everything that turns need.
pub(super) struct Stage<'a> {
    /// Threads that write files.
    pub writers: u32,
    /// The length of the measured window.
    pub window: Duration,
    /// The seed of all random numbers.
    pub seed: u64,
    pub tool: Option<&'a Tool>,
    pub stop: &'a Stop,
    /// Where files are written.
    pub directory: &'a Path,
}

/// The results of one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    pub round: u32,
    pub size: Bytes,
    #[serde(rename = "aging")]
    pub way: Way,
    /// hugepilot's arguments.
    #[serde(default)]
    pub words: Vec<String>,
    /// The time until the page cache was full.
    pub fill_seconds: f64,
    /// Bytes a second that the writers wrote, for each second.
    pub written_per_second: Vec<f64>,
    /// The kernel's work in the window.
    pub kernel: KernelWork,
    /// The same from the start of filling the page cache until the end of the window.
    pub kernel_in_all: KernelWork,
    /// What the resident process experienced in the window.
    pub resident: Resident,
    /// Pages that hugepilot made the kernel drop in the same time, without the last two seconds; None if it does not run.
    #[serde(rename = "aged_pages")]
    pub reclaimed_pages: Option<u64>,
    /// CPU time of hugepilot in the window.
    #[serde(rename = "aging_seconds")]
    pub reclaim_seconds: f64,
    /// Memory after the writers had stopped.
    pub supply: Supply,
    /// The part of it that was available on huge pages.
    pub obtained: Obtained,
    /// Mapped file pages that were reclaimed while huge pages were requested; they are not part of the supply.
    #[serde(default)]
    pub mapped_lost: Bytes,
    /// What shared blocks of 2 MiB with the supply before huge pages were requested; None in runs before 2026-11-26.
    #[serde(default)]
    pub blocks: Option<SupplyBlocks>,
}

/// The resident process in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Resident {
    pub requests_per_second: f64,
    /// From the longest request of each tenth of a second: the median and the 99th percentile.
    pub usual_wait: Nanos,
    pub long_wait: Nanos,
    /// Pages of its file that had to be read from disk again.
    pub major_faults: u64,
}

/// What was observed between two times.
struct Window {
    began: Instant,
    ended: Instant,
    kernel: KernelWork,
    major_faults: u64,
    reclaim_seconds: f64,
}

impl Turn {
    /// Bytes a second over the window.
    pub fn throughput(&self) -> f64 {
        self.written_per_second.iter().sum::<f64>() / self.written_per_second.len().max(1) as f64
    }

    /// The standard deviation over the window's seconds, relative to their mean.
    pub fn variation(&self) -> f64 {
        let mean = self.throughput();
        let squares = self.written_per_second.iter().map(|second| (second - mean).powi(2)).sum::<f64>();
        (squares / self.written_per_second.len().max(1) as f64).sqrt() / mean.max(1.0)
    }

    /// The share of free memory and clean page cache that was available on huge pages in time.
    pub fn obtainable(&self) -> f64 {
        self.obtained_of_supply() / self.supply.all().0.max(1) as f64
    }

    /// The same for the part that programs may have.
    pub fn obtainable_within_reach(&self) -> f64 {
        self.obtained_of_supply() / self.supply.within_reach().0.max(1) as f64
    }

    /// Memory taken from mapped files is subtracted: it was neither free nor available without harm.
    fn obtained_of_supply(&self) -> f64 {
        Bytes(self.obtained.huge_bytes).saturating_sub(self.mapped_lost).0 as f64
    }

    /// Pages scanned per page reclaimed, whatever caused the reclaim.
    pub fn scanned_for_each(&self) -> f64 {
        let left = self.kernel_in_all.reclaimed + self.reclaimed_pages.unwrap_or(0);
        self.kernel_in_all.scanned as f64 / left.max(1) as f64
    }
}

/// The disk space needed.
pub(super) fn room_on_disk(writers: u32) -> Bytes {
    on_disk(RINGS, writers) + RESIDENT
}

/// The files of a turn, removed on drop.
struct Files(TempDir);

impl Drop for Files {
    /// The directory's own drop tries again whatever cannot be removed here.
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(self.0.path().join("written")) else { return };
        let directories = Mutex::new(entries.flatten());
        let next = || directories.lock().ok()?.next();
        std::thread::scope(|scope| {
            for _ in 0..REMOVERS {
                scope.spawn(|| {
                    while let Some(directory) = next() {
                        let _ = fs::remove_dir_all(directory.path());
                    }
                });
            }
        });
    }
}

/// Fills the page cache, starts the writers, measures a window, and requests huge pages.
pub(super) fn measure_turn(stage: &Stage<'_>, size: Bytes, round: u32, way: Way) -> Result<Turn> {
    let files = Files(tempfile::tempdir_in(stage.directory)?);
    let directory = files.0.path();
    begin_anew()?;
    let start = |words| OwnProcess::start_on(None, words, stage.stop);
    let seed = stage.seed + u64::from(round);
    let mut resident = start(ResidentHeapChild::words(RESIDENT, &directory.join("mapped"), seed))?;
    let before = KernelWork::so_far()?;
    let left = Stock { total: size, host_takes_free: reports_free_memory(&Root::host())?, ..Stock::default() };
    let words = way.words(&left);
    let mut pilot = words.as_ref().zip(stage.tool).map(|(words, tool)| tool.reclaim(words, directory)).transpose()?;
    let filling = Instant::now();
    drop(start(FillChild::words(&directory.join("read"), size, seed))?);
    let fill_seconds = filling.elapsed().as_secs_f64();
    let mut writers = start(WritersChild::words(&directory.join("written"), stage.writers, RINGS, seed))?;
    leave_alone(&mut [&mut writers, &mut resident], Instant::now() + SETTLE, stage.stop)?;
    let window = watch(stage, &mut writers, &mut resident, pilot.as_mut())?;
    let kernel_in_all = KernelWork::so_far()?.since(&before);
    let reclaimed_pages = pilot.as_ref().map(|pilot| reclaimed_pages(pilot.pid())).transpose()?;
    let written_per_second = second_by_second(writers.progress(), window.began, window.ended);
    drop(writers);
    let Asked { supply, obtained, mapped_lost, blocks } = ask_for_huge_pages(&mut resident, stage.stop)?;
    pilot.map_or(Ok(()), ToolProcess::end)?;
    Ok(Turn {
        round,
        size,
        way,
        words: words.unwrap_or_default(),
        fill_seconds,
        written_per_second,
        kernel: window.kernel,
        kernel_in_all,
        resident: resident_in(resident.progress(), &window),
        reclaimed_pages,
        reclaim_seconds: window.reclaim_seconds,
        supply,
        obtained,
        mapped_lost,
        blocks: Some(blocks),
    })
}

/// The memory available and its blocks, the part that was obtained on huge pages, and what mapped files lost to that.
struct Asked {
    supply: Supply,
    obtained: Obtained,
    mapped_lost: Bytes,
    blocks: SupplyBlocks,
}

fn ask_for_huge_pages(resident: &mut OwnProcess, stop: &Stop) -> Result<Asked> {
    // Otherwise dirty memory would become clean while huge pages are requested, and more would count than was there.
    rustix::fs::sync();
    leave_alone(&mut [resident], Instant::now() + CALM, stop)?;
    let (blocks, supply) = (SupplyBlocks::now()?, Supply::now()?);
    let obtained = obtain(supply.all(), OBTAIN, stop)?;
    let mapped_lost = supply.mapped.saturating_sub(Supply::now()?.mapped);
    Ok(Asked { supply, obtained, mapped_lost, blocks })
}

/// The number that `hugepilot reclaim` reports every two seconds: pages that it made the kernel drop.
fn reclaimed_pages(pid: u32) -> Result<u64> {
    let state = Store::read()?.filter(|state| state.pid == pid);
    Ok(state.context("hugepilot reclaim keeps no state in /run/hugepilot")?.reclaimed().0 / BASE_PAGE)
}

/// Each turn begins with an empty page cache and contiguous free memory.
pub(super) fn begin_anew() -> Result<()> {
    rustix::fs::sync();
    for (name, value) in [("drop_caches", "3"), ("compact_memory", "1")] {
        let path = format!("/proc/sys/vm/{name}");
        fs::write(&path, value).with_context(|| format!("cannot write to {path}: run as root"))?;
    }
    Ok(())
}

fn watch(
    stage: &Stage<'_>,
    writers: &mut OwnProcess,
    resident: &mut OwnProcess,
    mut pilot: Option<&mut ToolProcess>,
) -> Result<Window> {
    let cpu =
        |pilot: &Option<&mut ToolProcess>| pilot.as_ref().map_or(Ok(Duration::ZERO), |pilot| cpu_time(pilot.pid()));
    let major_faults = |pid| Ok::<u64, anyhow::Error>(Stat::read(&Root::host(), pid)?.major_faults);
    let (kernel, faults, cpu_before) = (KernelWork::so_far()?, major_faults(resident.pid())?, cpu(&pilot)?);
    let began = Instant::now();
    leave_alone(&mut [writers, &mut *resident], began + stage.window, stage.stop)?;
    let ended = Instant::now();
    pilot.as_mut().map_or(Ok(()), |pilot| pilot.check())?;
    Ok(Window {
        began,
        ended,
        kernel: KernelWork::so_far()?.since(&kernel),
        major_faults: major_faults(resident.pid())? - faults,
        reclaim_seconds: (cpu(&pilot)?.saturating_sub(cpu_before)).as_secs_f64(),
    })
}

fn second_by_second(progress: &Progress, began: Instant, ended: Instant) -> Vec<f64> {
    let seconds = (ended - began).as_secs();
    let second = |number: u64| began + Duration::from_secs(number);
    (0..seconds).map(|number| progress.window(second(number), second(number + 1)).throughput()).collect()
}

fn resident_in(progress: &Progress, window: &Window) -> Resident {
    let intervals = progress.intervals(window.began, window.ended);
    let mut waits: Vec<u64> =
        intervals.iter().filter_map(|interval| Some(interval.work.longest_wait?.as_nanos() as u64)).collect();
    waits.sort_unstable();
    let at = |share: f64| {
        let place = ((waits.len() as f64 * share) as usize).min(waits.len().saturating_sub(1));
        Nanos(waits.get(place).copied().unwrap_or(0))
    };
    Resident {
        requests_per_second: progress.window(window.began, window.ended).throughput(),
        usual_wait: at(0.5),
        long_wait: at(0.99),
        major_faults: window.major_faults,
    }
}

/// Errors: the directory is in memory, or has too little space.
pub(super) fn ensure_is_disk_with(directory: &Path, needed: Bytes) -> Result<()> {
    let asked = rustix::fs::statfs(directory);
    let disk = asked.with_context(|| format!("cannot ask what file system {} is on", directory.display()))?;
    // Linux's linux/magic.h: tmpfs, ramfs, hugetlbfs.
    let is_memory = [0x0102_1994, 0x8584_58f6, 0x9584_58f6].contains(&(disk.f_type as u64 & 0xffff_ffff));
    let name = directory.display();
    ensure!(!is_memory, "--directory {name} is in memory, where no page cache can be written back: name one on a disk");
    let room = Bytes(disk.f_bavail * disk.f_bsize as u64);
    ensure!(room > needed, "--directory {name} has room for {room}, and the files take {needed}: choose another");
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn turn(written_per_second: &[f64]) -> Turn {
        Turn {
            round: 0,
            size: Bytes(8 << 30),
            way: Way::Default,
            words: Vec::new(),
            fill_seconds: 1.0,
            written_per_second: written_per_second.to_vec(),
            kernel: KernelWork::default(),
            kernel_in_all: KernelWork::default(),
            resident: Resident::default(),
            reclaimed_pages: None,
            reclaim_seconds: 0.0,
            supply: Supply {
                free: Bytes(1 << 30),
                clean_cache: Bytes(3 << 30),
                reserve: Bytes(2 << 30),
                ..Supply::default()
            },
            obtained: Obtained { huge_bytes: 1 << 30, ..Obtained::default() },
            mapped_lost: Bytes(0),
            blocks: None,
        }
    }

    #[test]
    fn a_turn_is_summed_up() {
        let mut turn = turn(&[1e8, 3e8]);
        assert_eq!((turn.throughput(), turn.variation()), (2e8, 0.5));
        assert_eq!((turn.obtainable(), turn.obtainable_within_reach()), (0.25, 0.5));
        turn.mapped_lost = Bytes(1 << 28);
        assert_eq!((turn.obtainable(), turn.obtainable_within_reach()), (0.1875, 0.375));
        (turn.kernel_in_all.scanned, turn.kernel_in_all.reclaimed, turn.reclaimed_pages) = (3000, 500, Some(1000));
        assert_eq!(turn.scanned_for_each(), 2.0);
    }

    #[test]
    fn what_another_process_has_reclaimed_does_not_count() {
        assert!(reclaimed_pages(u32::MAX).is_err());
    }

    #[test]
    fn a_directory_must_be_on_a_disk_and_have_room() {
        let error = |path: &str, needed| ensure_is_disk_with(Path::new(path), needed).unwrap_err().to_string();
        assert!(error("/dev/shm", Bytes(0)).contains("is in memory"), "{}", error("/dev/shm", Bytes(0)));
        let here = env!("CARGO_MANIFEST_DIR");
        assert!(error(here, Bytes(u64::MAX)).contains("choose another"), "{}", error(here, Bytes(u64::MAX)));
        ensure_is_disk_with(Path::new(here), Bytes(1)).unwrap();
    }

    #[test]
    fn rings_take_no_more_than_the_disk_should_hold() {
        assert!(room_on_disk(1024) <= Bytes(20 << 30), "{}", room_on_disk(1024));
    }

    #[test]
    fn files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files(tempfile::tempdir_in(folder.path()).unwrap());
        for writer in 0..100 {
            let directory = files.0.path().join("written").join(writer.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("0"), "0").unwrap();
        }
        drop(files);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
