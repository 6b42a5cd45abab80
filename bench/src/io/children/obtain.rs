//! Requests huge pages, as a program does that starts now, and reports how many it got and how long each took.

use std::ffi::OsString;
use std::process::Stdio;
use std::slice::ChunksMut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use heat::units::{Bytes, HUGE_PAGE, Nanos};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::page_scan;
use hugepilot_os::stop::Stop;
use serde::{Deserialize, Serialize};

use super::super::supply::SupplyBlocks;
use super::common::use_up_first;
use crate::process::BoundChild;
use crate::sample::huge_memory;
use crate::workload::{Histogram, print_line, words};

/// Regions requested between two checks of how many are on a huge page.
const REGIONS_PER_CHECK: usize = 16;
/// The pause after requests that brought none; there are enough addresses.
const PAUSE: Duration = Duration::from_millis(10);
const ADDRESSES: u64 = 4;
/// Between two checks of whether the child has ended.
const POLL: Duration = Duration::from_millis(20);

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ObtainChild {
    /// Memory to ask for at most.
    #[arg(long)]
    most: Bytes,
    /// How long it may take.
    #[arg(long)]
    seconds: f64,
}

/// The huge pages obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Obtained {
    /// Memory on huge pages.
    pub huge_bytes: u64,
    /// Memory requested, with or without success, until time was up or there was enough.
    pub asked_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// The median time for one region of 2 MiB.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// What shared blocks of 2 MiB with the memory that was left; None in runs before 2026-11-26.
    #[serde(default)]
    pub blocks_left: Option<SupplyBlocks>,
}

/// Starts the child, waits for its end and reads its report.
pub fn obtain(most: Bytes, time: Duration, stop: &Stop) -> Result<Obtained> {
    let words = words("workload-obtain", &[("most", &most.0), ("seconds", &time.as_secs_f64())]);
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend(words.into_iter().map(OsString::from));
    let mut program = BoundChild::start(&command, None, Stdio::piped())?;
    let status = loop {
        if let Some(status) = program.child.try_wait()? {
            break status;
        }
        stop.sleep_until(Instant::now() + POLL)?;
    };
    ensure!(status.success(), "the program that asks for huge pages ended by itself ({status})");
    let told = program.child.stdout.take().context("it has no output")?;
    serde_json::from_reader(told).context("the program that asked for huge pages told nothing")
}

impl ObtainChild {
    /// Runs the child: a thread on each processor requests a few regions at a time.
    pub fn run(&self) -> Result<()> {
        use_up_first()?;
        let mut mapping = AlignedMemory::anonymous((ADDRESSES * self.most.0).next_multiple_of(HUGE_PAGE) as usize)?;
        mapping.advise(0, mapping.len(), OwnAdvice::HugePage).context("MADV_HUGEPAGE is refused here")?;
        let begun = Instant::now();
        let ends = begun + Duration::from_secs_f64(self.seconds);
        let batches = Mutex::new(mapping.bytes_mut().chunks_mut(REGIONS_PER_CHECK * HUGE_PAGE as usize));
        let left = AtomicI64::new((self.most.0 / HUGE_PAGE) as i64);
        let threads = std::thread::available_parallelism()?.get();
        let asked: Vec<Asked> = std::thread::scope(|scope| {
            let askers: Vec<_> = (0..threads).map(|_| scope.spawn(|| ask(&batches, &left, ends))).collect();
            askers.into_iter().map(|asker| asker.join().expect("it does not panic")).collect::<Result<_>>()
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut times = Histogram::default();
        asked.iter().for_each(|asked| times.merge(&asked.times));
        let time = |share| Nanos(times.percentile(share).unwrap_or(0));
        print_line(&Obtained {
            huge_bytes: huge_memory(std::process::id())?.0,
            asked_bytes: asked.iter().map(|asked| asked.regions).sum::<u64>() * HUGE_PAGE,
            seconds,
            p50: time(0.5),
            p99: time(0.99),
            blocks_left: Some(SupplyBlocks::now()?),
        })
    }
}

/// What a thread has requested.
#[derive(Default)]
struct Asked {
    regions: u64,
    times: Histogram,
}

/// Requests memory until nothing is `left` to request, or time is up.
fn ask(batches: &Mutex<ChunksMut<'_, u8>>, left: &AtomicI64, ends: Instant) -> Result<Asked> {
    let mut asked = Asked::default();
    while left.load(Ordering::Relaxed) > 0
        && let Some(batch) = batches.lock().ok().and_then(|mut batches| batches.next())
    {
        for region in batch.chunks_mut(HUGE_PAGE as usize) {
            let begun = Instant::now();
            if begun >= ends {
                return Ok(asked);
            }
            region[0] = 1;
            asked.times.add(begun.elapsed().as_nanos() as u64, 1);
            asked.regions += 1;
        }
        // A region without a huge page takes a single base page, so failed requests take hardly any memory.
        let huge = huge_pages_in(batch)?;
        left.fetch_sub(huge as i64, Ordering::Relaxed);
        if huge == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(asked)
}

fn huge_pages_in(memory: &[u8]) -> Result<u64> {
    let (start, mut huge) = (memory.as_ptr() as u64, 0);
    let each = |run: page_scan::PageRun| huge += run.end - run.start;
    page_scan::scan(std::process::id(), start, start + memory.len() as u64, page_scan::category::HUGE, each)
        .context("cannot ask for this program's huge pages (needs Linux 6.7)")?;
    Ok(huge / HUGE_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_can_be_read() {
        let told = Obtained { huge_bytes: 4 << 20, p99: Nanos(7), ..Obtained::default() };
        assert_eq!(serde_json::from_str::<Obtained>(&serde_json::to_string(&told).unwrap()).unwrap(), told);
    }

    /// Requests regions in this memory when `wanted` are available on huge pages.
    fn asked(mapping: &mut AlignedMemory, wanted: i64, ends: Instant) -> u64 {
        let batches = Mutex::new(mapping.bytes_mut().chunks_mut(REGIONS_PER_CHECK * HUGE_PAGE as usize));
        ask(&batches, &AtomicI64::new(wanted), ends).unwrap().regions
    }

    #[test]
    fn asking_ends_with_enough_or_with_the_time() {
        let batch = REGIONS_PER_CHECK * HUGE_PAGE as usize;
        let mut mapping = AlignedMemory::anonymous(3 * batch).unwrap();
        mapping.advise(0, 3 * batch, OwnAdvice::NoHugePage).unwrap();
        let long = Instant::now() + Duration::from_secs(3600);
        assert_eq!(asked(&mut mapping, 0, long), 0);
        assert_eq!(asked(&mut mapping, 1, Instant::now()), 0);
        assert_eq!(asked(&mut mapping, 1, long), 3 * REGIONS_PER_CHECK as u64, "it asks on in vain");
    }
}
