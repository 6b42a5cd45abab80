//! Converts what happened into time: a closed model of how fast files are written and read.
//!
//! Owns: all its constants, and its one law. Never touches: lists; it gets numbers only.
//!
//! **The law.** With a thousand writers one of them can always run, so the busiest of three resources determines throughput: the disk, the
//! processors, or the lists' lock, which has only one holder at a time (the bottleneck law of operational analysis: Denning and Buzen, "The
//! Operational Analysis of Queueing Network Models", Computing Surveys 10(3), 1978). It is an upper bound: it ignores which programs wait for which,
//! and that many reclaim at once.
//!
//! **The machine** is the paper's as far as it is known: four processors of 1.6 GHz, a RAID 5 of six disks. Values that the paper does not state are
//! marked as assumptions.

use heat::units::{BASE_PAGE, Bytes};

use super::account::Account;

/// From the paper.
const PROCESSORS: f64 = 4.0;
/// From the paper.
const SPINDLES: f64 = 6.0;
/// From memory to the processor, in the front-side-bus Xeons of 2004. An assumption.
const CACHE_MISS_NS: f64 = 150.0;
/// To scan a page: its own descriptor, and its neighbour's links.
const MISSES_PER_SCAN: f64 = 2.0;
/// To find one page-table entry from a page: the mapping structure, and the entry.
const MISSES_PER_MAPPING: f64 = 2.0;
/// Eight entries share a cache line if they are read in order.
const MISSES_PER_WALKED: f64 = 1.0 / 8.0;
/// To unlink a page from a list or link it into one, with the lock held.
const MISSES_PER_HELD: f64 = 1.0;
/// The system call, copying, and the file system's work for 4 KiB: 400 MB/s per processor. An assumption.
const MOVE_NS: f64 = 10_000.0;
/// Seek and half a rotation of a disk at 10,000 rpm. An assumption.
const SEEK_NS: f64 = 8_000_000.0;
/// Pages read or written per seek: `/proc/sys/vm/page-cluster` is 3 by default.
const PAGES_PER_SEEK: f64 = 8.0;
/// A small write to a RAID 5 reads and writes both data and parity.
const RAID_WRITES: f64 = 4.0;

/// The seconds that this takes: as long as the busiest of the three is busy.
fn busy_seconds(account: &Account, disk: Bytes) -> f64 {
    let scan = &account.scan;
    let misses = |count: u64, each: f64| count as f64 * each * CACHE_MISS_NS / 1e9;
    let lock = misses(scan.held, MISSES_PER_HELD);
    let scanning = misses(scan.scanned, MISSES_PER_SCAN)
        + misses(scan.mappings, MISSES_PER_MAPPING)
        + misses(scan.walked, MISSES_PER_WALKED);
    let each_processor = (account.moved as f64 * MOVE_NS / 1e9 + scanning + lock) / PROCESSORS;
    let seeks = |pages: u64, operations: f64| pages as f64 / PAGES_PER_SEEK * operations * SEEK_NS / SPINDLES / 1e9;
    let streamed = (account.moved * BASE_PAGE) as f64 / disk.0 as f64;
    let disk = streamed
        + seeks(account.all_refaults() + account.first_reads, 1.0)
        + seeks(account.swapped_out + account.written_early, RAID_WRITES);
    disk.max(each_processor).max(lock)
}

/// Bytes of files written and read per second.
pub fn throughput(account: &Account, disk: Bytes) -> f64 {
    let seconds = busy_seconds(account, disk);
    if seconds > 0.0 { (account.moved * BASE_PAGE) as f64 / seconds } else { 0.0 }
}

/// How long moving this many pages in one go holds the lock.
pub fn hold_seconds(pages: u64) -> f64 {
    pages as f64 * MISSES_PER_HELD * CACHE_MISS_NS / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::policy::Scan;

    const DISK: Bytes = Bytes(100 << 20);

    /// One second of such a disk: 25,600 pages.
    fn second() -> Account {
        Account { moved: 25_600, ..Account::default() }
    }

    fn share_of_the_disk(account: &Account) -> f64 {
        throughput(account, DISK) / DISK.0 as f64
    }

    #[test]
    fn writing_alone_is_as_fast_as_the_disk() {
        assert!((share_of_the_disk(&second()) - 1.0).abs() < 1e-12);
        assert_eq!(throughput(&Account::default(), DISK), 0.0);
    }

    #[test]
    fn what_comes_back_takes_the_disk_from_the_writers() {
        // 6,000 pages are 750 seeks of 8 ms on six disks: one second.
        let account = Account { refaults: [1000, 2000, 3000, 0, 0], ..second() };
        assert!((share_of_the_disk(&account) - 0.5).abs() < 1e-12);
        // 1,500 pages written one by one take as long.
        let account = Account { swapped_out: 1000, written_early: 500, ..second() };
        assert!((share_of_the_disk(&account) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn scanning_counts_once_it_is_busier_than_the_disk() {
        let scanned = |scanned| Account { scan: Scan { scanned, ..Scan::default() }, ..second() };
        assert!((share_of_the_disk(&scanned(25_600)) - 1.0).abs() < 1e-12, "once for each page is nothing");
        // 0.256 s for moving, and the rest of the 8 s of four processors for scanning at 300 ns: two seconds.
        let much = ((8.0 - 0.256) / 300e-9) as u64;
        assert!((share_of_the_disk(&scanned(much)) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn the_lock_is_one_for_all_processors() {
        // 150 ns each.
        let held = Account { scan: Scan { held: 13_333_333, ..Scan::default() }, ..second() };
        assert!((share_of_the_disk(&held) - 0.5).abs() < 1e-6);
        assert!((hold_seconds(32) - 4.8e-6).abs() < 1e-12);
    }
}
