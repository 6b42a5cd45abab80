//! Resizes a pool step by step.
//!
//! Owns: `nr_hugepages`, `nr_overcommit_hugepages`, and making room for them (Documentation/admin-guide/mm/hugetlbpage.rst,
//! sysctl/vm.rst). Never touches: how large a pool should be.
//!
//! The kernel allocates pages one by one, compacting memory for each, so one write may take minutes and yield less than requested without
//! an error. A step therefore requests few pages, counts them afterwards, and is abandoned if it does not return.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use heat::units::{Bytes, Nanos};
use hugepilot_os::stop::Stop;
use kernel::hugetlb::{self, NodePool, Pool};
use kernel::{KernelError, Root};
use serde::Serialize;

use crate::{Change, Obstacles, PoolError, is_giant};

/// Memory requested by the first step.
const FIRST_STEP: Bytes = Bytes(64 << 20);
/// Maximum memory per step, unless a page is larger.
const LARGEST_STEP: Bytes = Bytes(1 << 30);
/// A shorter step doubles the next one; a step more than four times as long halves it.
const SHORT_STEP: Duration = Duration::from_millis(100);
/// How long to wait for a running step once it should end: what the kernel completes in that time counts.
const GRACE: Duration = Duration::from_millis(500);
/// The longest time between two checks whether to keep waiting.
const POLL: Duration = Duration::from_millis(20);

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Whether clean page cache may be dropped to free memory.
    pub make_room: bool,
    /// How long to try.
    pub time_limit: Duration,
}

/// Why resizing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The pool has the wanted size.
    Done,
    /// No more pages are available, even after compaction.
    NoMore,
    /// The time limit was reached.
    TimeUp,
    /// A stop was requested.
    Stopped,
}

/// The result of one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Resized {
    /// The change that was attempted.
    pub change: Change,
    /// Pages that there are now, without surplus pages; on the change's node, if it has one.
    pub pages: u64,
    /// The whole pool before.
    pub before: Pool,
    /// The whole pool afterwards.
    pub after: Pool,
    /// Why resizing ended.
    pub ended: Ended,
    /// Why the overcommit could not be adjusted to these pages; `None` if it was, or did not have to be.
    pub overcommit_refused: Option<String>,
    /// What prevents the rest; `None` if nothing does.
    pub obstacles: Option<Obstacles>,
    /// How often memory was compacted.
    pub compactions: u32,
    /// How often clean page cache was dropped.
    pub cache_drops: u32,
    /// The duration of the longest step.
    pub longest_step: Nanos,
    /// The duration of the whole change.
    pub elapsed: Nanos,
}

/// Makes a change, and reports the number of pages after each step. If it ends early, the pages obtained so far stay.
///
/// Errors: the kernel refuses (EACCES, EPERM: not root; EINVAL: not at run time, or not on demand).
pub fn resize(
    root: &Root,
    change: &Change,
    effort: &Effort,
    stop: &Stop,
    progress: impl FnMut(u64),
) -> Result<Resized, PoolError> {
    let begun = Instant::now();
    let deadline = begun + effort.time_limit;
    let before = hugetlb::pool(root, change.page_size)?;
    if change.to <= change.from {
        // The final number of pages is certain, so a refusal can come before anything is changed.
        set_overcommit(root, change, change.to)?;
    }
    let mut kernel =
        Kernel { root, change, make_room: effort.make_room, deadline, stop, compactions: 0, cache_drops: 0 };
    let (ended, longest) = walk(&mut kernel, change, deadline, stop, progress)?;
    let (compactions, cache_drops) = (kernel.compactions, kernel.cache_drops);
    let pages = pages(root, change)?;
    let overcommit_refused = set_overcommit(root, change, pages).err().map(|refused| refused.to_string());
    let is_short = (ended == Ended::NoMore || ended == Ended::TimeUp) && pages < change.to;
    let obstacles = is_short.then(|| Obstacles::read(root, change, pages, ended, effort.make_room)).transpose()?;
    Ok(Resized {
        change: *change,
        pages,
        before,
        after: hugetlb::pool(root, change.page_size)?,
        ended,
        overcommit_refused,
        obstacles,
        compactions,
        cache_drops,
        longest_step: Nanos::from_duration(longest),
        elapsed: Nanos::from_duration(begun.elapsed()),
    })
}

/// Lets the pool grow to the change's maximum on demand, once it has this many pages.
fn set_overcommit(root: &Root, change: &Change, pages: u64) -> Result<(), PoolError> {
    let page_size = change.page_size;
    let Some(overcommit) = change.overcommit(pages) else { return Ok(()) };
    if hugetlb::pool(root, page_size)?.overcommit == overcommit {
        return Ok(());
    }
    let path = root.path(&format!("{}/nr_overcommit_hugepages", Pool::directory(page_size)));
    write(path.clone(), overcommit).map_err(|cause| match cause.raw_os_error() {
        Some(libc::EINVAL) if is_giant(page_size) => PoolError::NotOnDemand { page_size },
        _ => PoolError::write(path, overcommit, page_size, cause),
    })
}

/// Persistent pages in the pool or on the change's node.
fn pages(root: &Root, change: &Change) -> Result<u64, KernelError> {
    let Some(node) = change.node else { return Ok(hugetlb::pool(root, change.page_size)?.persistent()) };
    let pools = hugetlb::node_pools(root)?;
    let own = pools.iter().find(|pool| pool.node == node && pool.page_size == change.page_size);
    Ok(own.map_or(0, NodePool::persistent))
}

fn write(path: PathBuf, value: impl ToString) -> std::io::Result<()> {
    std::fs::write(path, value.to_string())
}

/// The operations that steps need; tests substitute the kernel.
trait Machine {
    /// Requests this many pages, and returns how many there are; `None` if it was abandoned.
    fn ask(&mut self, pages: u64) -> Result<Option<u64>, PoolError>;
    /// Frees and compacts memory.
    fn make_room(&mut self) -> Result<(), PoolError>;
}

/// Steps until the pool has the wanted size or no step helps; also returns the duration of the longest step.
fn walk(
    machine: &mut impl Machine,
    change: &Change,
    deadline: Instant,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<(Ended, Duration), PoolError> {
    let in_pages = |size: Bytes| (size.0 / change.page_size.0).max(1);
    let (mut pages, mut step, mut longest) = (change.from, in_pages(FIRST_STEP), Duration::ZERO);
    let mut room_was_made = false;
    loop {
        if pages == change.to {
            return Ok((Ended::Done, longest));
        } else if stop.requested() {
            return Ok((Ended::Stopped, longest));
        } else if Instant::now() >= deadline {
            return Ok((Ended::TimeUp, longest));
        }
        let grows = change.to > pages;
        let target =
            if grows { change.to.min(pages.saturating_add(step)) } else { change.to.max(pages.saturating_sub(step)) };
        let begun = Instant::now();
        let now = machine.ask(target)?;
        let took = begun.elapsed();
        longest = longest.max(took);
        let Some(now) = now else { continue };
        let moved = if grows { now > pages } else { now < pages };
        pages = now;
        progress(pages);
        if now == target {
            room_was_made = false;
            step = next_step(step, took).clamp(1, in_pages(LARGEST_STEP));
        } else if !moved && (room_was_made || !grows) {
            // A signal ends a step early; the next round checks for a stop request.
            if !stop.requested() {
                return Ok((Ended::NoMore, longest));
            }
        } else if grows {
            machine.make_room()?;
            room_was_made = true;
        }
    }
}

fn next_step(pages: u64, took: Duration) -> u64 {
    match took {
        took if took < SHORT_STEP => pages.saturating_mul(2),
        took if took > 4 * SHORT_STEP => pages / 2,
        _ => pages,
    }
}

/// The running machine, or a tree of files in its place.
struct Kernel<'a> {
    root: &'a Root,
    change: &'a Change,
    make_room: bool,
    deadline: Instant,
    stop: &'a Stop,
    compactions: u32,
    cache_drops: u32,
}

impl Machine for Kernel<'_> {
    fn ask(&mut self, pages: u64) -> Result<Option<u64>, PoolError> {
        let Change { page_size, node, .. } = *self.change;
        let directory = node.map_or_else(|| Pool::directory(page_size), |node| NodePool::directory(node, page_size));
        match self.write(&format!("{directory}/nr_hugepages"), pages)? {
            true => Ok(Some(self::pages(self.root, self.change)?)),
            false => Ok(None),
        }
    }

    fn make_room(&mut self) -> Result<(), PoolError> {
        // Drop the page cache first: compaction would otherwise have to move it, and needs free pages for that.
        if self.make_room && self.write_if_there("proc/sys/vm/drop_caches")? {
            self.cache_drops += 1;
        }
        let node = self.change.node.map(|node| format!("sys/devices/system/node/node{node}/compact"));
        if self.write_if_there(node.as_deref().unwrap_or("proc/sys/vm/compact_memory"))? {
            self.compactions += 1;
        }
        Ok(())
    }
}

impl Kernel<'_> {
    /// Triggers something in the kernel; `false` if it does not support that, or the wait was abandoned.
    fn write_if_there(&self, name: &str) -> Result<bool, PoolError> {
        Ok(self.root.exists(name)? && self.write(name, 1)?)
    }

    /// Writes a number; `false` if the wait was abandoned.
    fn write(&self, name: &str, value: u64) -> Result<bool, PoolError> {
        let path = self.root.path(name);
        let written = path.clone();
        match within(self.deadline, GRACE, self.stop, move || write(written, value)) {
            Some(Ok(())) => Ok(true),
            Some(Err(cause)) => Err(PoolError::write(path, value, self.change.page_size, cause)),
            None => Ok(false),
        }
    }
}

/// Runs work on a thread and waits for it; `None` if it is still running when the grace period after a stop request or the deadline has
/// passed. The work then ends with this process: the kernel stops compacting and allocating pages for a killed process.
fn within<T: Send + 'static>(
    deadline: Instant,
    grace: Duration,
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = channel();
    let worker = thread::spawn(move || {
        // The receiver may have given up.
        let _ = sender.send(work());
    });
    let mut given_up: Option<Instant> = None;
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(done) => return Some(done),
            Err(RecvTimeoutError::Timeout) if given_up.is_some_and(|since| since.elapsed() >= grace) => return None,
            Err(RecvTimeoutError::Timeout) if stop.requested() || Instant::now() >= deadline => {
                given_up = given_up.or_else(|| Some(Instant::now()));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Ok(()) => return None,
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn change(from: u64, to: u64) -> Change {
        Change { page_size: Bytes(2 << 20), node: None, from, to, most: None }
    }

    /// Has this many pages, can provide this many more at once, and finds this many each time it makes room.
    struct Fake {
        pages: u64,
        at_hand: u64,
        found: Vec<u64>,
        largest_step: u64,
    }

    impl Machine for Fake {
        fn ask(&mut self, pages: u64) -> Result<Option<u64>, PoolError> {
            self.largest_step = self.largest_step.max(pages.abs_diff(self.pages));
            let more = pages.saturating_sub(self.pages).min(self.at_hand);
            self.at_hand -= more;
            self.pages = self.pages.min(pages) + more;
            Ok(Some(self.pages))
        }

        fn make_room(&mut self) -> Result<(), PoolError> {
            self.at_hand += self.found.pop().unwrap_or(0);
            Ok(())
        }
    }

    fn walk_with(fake: &mut Fake, to: u64, stop: &Stop) -> Ended {
        walk(fake, &change(fake.pages, to), Instant::now() + LONG, stop, |_| ()).unwrap().0
    }

    #[test]
    fn nothing_is_asked_for_after_a_stop_or_when_time_is_up() {
        let fake = || Fake { pages: 5, at_hand: 100, found: Vec::new(), largest_step: 0 };
        let stop = Stop::default();
        stop.request();
        let mut stopped = fake();
        assert_eq!((walk_with(&mut stopped, 50, &stop), stopped.pages), (Ended::Stopped, 5));
        let mut late = fake();
        let ended = walk(&mut late, &change(5, 50), Instant::now(), &Stop::default(), |_| ()).unwrap().0;
        assert_eq!((ended, late.pages), (Ended::TimeUp, 5));
        assert_eq!(walk_with(&mut fake(), 5, &stop), Ended::Done, "nothing was left to do");
    }

    #[test]
    fn a_stop_ends_it_between_two_steps() {
        let stop = Stop::default();
        let mut fake = Fake { pages: 0, at_hand: u64::MAX, found: Vec::new(), largest_step: 0 };
        let mut steps = 0;
        let walked = walk(&mut fake, &change(0, 1 << 30), Instant::now() + LONG, &stop, |_| {
            steps += 1;
            if steps == 3 {
                stop.request();
            }
        });
        assert_eq!((walked.unwrap().0, steps), (Ended::Stopped, 3));
    }

    #[test]
    fn who_does_not_return_is_not_waited_for() {
        let stop = Stop::default();
        stop.request();
        let (hold, held) = channel::<()>();
        assert_eq!(within(Instant::now() + LONG, Duration::ZERO, &stop, move || held.recv()), None);
        let (hold_too, held) = channel::<()>();
        assert_eq!(within(Instant::now(), Duration::ZERO, &Stop::default(), move || held.recv()), None);
        drop((hold, hold_too));
        assert_eq!(within(Instant::now() + LONG, Duration::ZERO, &Stop::default(), || 7), Some(7));
        assert_eq!(within(Instant::now(), LONG, &Stop::default(), || 7), Some(7), "what is done soon is counted");
    }

    /// A machine with a pool of ten pages of 2 MiB.
    fn tree() -> (tempfile::TempDir, Root, PathBuf) {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join(Pool::directory(Bytes(2 << 20)));
        fs::create_dir_all(&directory).unwrap();
        for (name, count) in
            [("nr_hugepages", 10), ("free_hugepages", 4), ("resv_hugepages", 0), ("surplus_hugepages", 0)]
        {
            fs::write(directory.join(name), count.to_string()).unwrap();
        }
        fs::write(directory.join("nr_overcommit_hugepages"), "5").unwrap();
        let root = Root::at(tree.path());
        (tree, root, directory)
    }

    #[test]
    fn a_tree_is_resized_and_its_overcommit_follows() {
        let (_tree, root, _) = tree();
        let effort = Effort { make_room: true, time_limit: LONG };
        let mut told = Vec::new();
        let change = Change { most: Some(320), ..change(10, 300) };
        let resized = resize(&root, &change, &effort, &Stop::default(), |pages| told.push(pages)).unwrap();
        assert_eq!(
            (resized.pages, resized.ended, resized.before.total, resized.after.total),
            (300, Ended::Done, 10, 300)
        );
        assert_eq!((resized.after.overcommit, resized.compactions, resized.obstacles), (20, 0, None));
        assert!(told.is_sorted() && told.len() > 2 && told.last() == Some(&300), "{told:?}");
        let absent = Change { page_size: Bytes(1 << 30), ..change };
        assert!(resize(&root, &absent, &effort, &Stop::default(), |_| ()).is_err());
    }

    #[test]
    fn an_overcommit_that_is_refused_hides_no_pages_and_is_refused_first_where_it_can_be() {
        let (_tree, root, directory) = tree();
        // Readable but not writable, even for root.
        let read_only = directory.join("nr_overcommit_hugepages");
        fs::remove_file(&read_only).unwrap();
        std::os::unix::fs::symlink("/proc/sys/kernel/cap_last_cap", &read_only).unwrap();
        let effort = Effort { make_room: false, time_limit: LONG };
        let resize = |from, to, most| {
            let change = Change { most: Some(most), ..change(from, to) };
            resize(&root, &change, &effort, &Stop::default(), |_| ())
        };
        let grown = resize(10, 300, 1000).unwrap();
        assert_eq!((grown.pages, grown.ended), (300, Ended::Done));
        assert!(grown.overcommit_refused.is_some_and(|told| told.contains("nr_overcommit_hugepages")));
        assert!(resize(300, 200, 200).is_err());
        assert_eq!(hugetlb::pool(&root, Bytes(2 << 20)).unwrap().total, 300, "nothing was changed");
    }

    proptest! {
        #[test]
        fn all_that_can_be_had_is_taken_in_bounded_steps(
            from in 0..5000u64, to in 0..5000u64, at_hand in 0..5000u64, found in prop::collection::vec(1..500u64, 0..5)
        ) {
            let most = from + at_hand + found.iter().sum::<u64>();
            let mut fake = Fake { pages: from, at_hand, found, largest_step: 0 };
            let ended = walk_with(&mut fake, to, &Stop::default());
            prop_assert_eq!(fake.pages, to.min(most).max(to.min(from)));
            prop_assert_eq!(ended, if fake.pages == to { Ended::Done } else { Ended::NoMore });
            prop_assert!(fake.largest_step <= LARGEST_STEP.0 >> 21);
        }
    }
}
