//! `hugepilot cache`: files that programs map, in the page cache on huge pages.

use anyhow::{Context, bail};
use heat::units::Bytes;
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::memory::Meminfo;
use kernel::{Root, cgroup};
use launch::cached_file::{CacheError, FileToCache, files_at};

use super::args::CacheArgs;
use super::terminal;
use crate::report::{CacheOutcome, CacheReport, json, text};

pub(super) fn cache(args: &CacheArgs) -> anyhow::Result<()> {
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut found = Vec::new();
    for path in &args.paths {
        found.extend(files_at(path)?);
    }
    if found.is_empty() {
        bail!("there is no file of at least 2 MiB, the size of a huge page, in the directories named");
    }
    if !args.drop {
        ensure_room(found.iter().map(|file| file.bytes).sum())?;
    }
    terminal::ensure_read()?;
    let act = |file: FileToCache| if args.drop { drop_file(&file) } else { read(&file, &stop) };
    let files: Vec<_> =
        found.iter().map(|found| (found.path.as_path(), FileToCache::open(&found.path).and_then(act))).collect();
    let report = CacheReport { files: &files };
    terminal::print(&if args.json { json::cache(&report) } else { text::cache(&report) })?;
    ensure_done(&report, &stop)
}

/// What does not fit in memory would drive other files out of the page cache, and then itself.
fn ensure_room(wanted: Bytes) -> anyhow::Result<()> {
    let root = Root::host();
    let available = Meminfo::read(&root).context("cannot tell how much memory is available")?.available;
    if wanted > available {
        bail!("the files have {wanted}, and only {available} of memory are available; name fewer files");
    }
    // The page cache counts in the group of who reads; without a limit that can be read there is none.
    let room = cgroup::memory_room(&root, std::process::id()).ok().flatten();
    if let Some(room) = room.filter(|room| wanted > room.left()) {
        bail!(
            "the files have {wanted}, and the control group {} may take only {} more; name fewer files, raise memory.max, or run it outside",
            room.cgroup,
            room.left()
        );
    }
    Ok(())
}

fn read(file: &FileToCache, stop: &Stop) -> Result<CacheOutcome, CacheError> {
    let progress = terminal::memory_progress(file.whole().0);
    file.read(stop, |done| progress.set_position(done.0)).map(CacheOutcome::Read)
}

fn drop_file(file: &FileToCache) -> Result<CacheOutcome, CacheError> {
    file.forget().map(|stays| CacheOutcome::Dropped { stays })
}

fn ensure_done(report: &CacheReport<'_>, stop: &Stop) -> anyhow::Result<()> {
    if stop.requested() {
        bail!("stopped by a signal; what was reached stays, run the command again to go on");
    }
    let failed = report.failed();
    if failed > 0 {
        bail!("{failed} of {} files were left as they are; the report says why", report.files.len());
    }
    if report.nothing_is_huge() {
        bail!("no huge page was obtained; the report says why");
    }
    Ok(())
}
