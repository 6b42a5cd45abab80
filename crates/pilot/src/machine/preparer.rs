//! The thread that touches pages to prepare them, either while no ordinary thread wants its processor or ahead of all of them.
//!
//! Owns: that thread, its scheduling priority, and one huge page while it is touched. Never touches: a target.
//!
//! Backing a page is the host's work, base page by base page, for milliseconds. A thread that wakes on the same processor must not wait for that, so
//! a thread that yields to every waking thread (`SCHED_IDLE`) does all of it. That alone is not enough: a thread that has just had the processor and
//! wakes again is not eligible for some nanoseconds (EEVDF, kernel/sched/fair.c), and the scheduler decides again only at the next tick, up to 4 ms
//! later, or when another thread wakes there. So the thread that waits for the page wakes on that processor again and again.
//!
//! Where a program of a hundred processes keeps all processors busy, an ordinary thread waits 10 ms for its turn (PostgreSQL). Fast promotion does
//! not wait.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{io, thread};

use heat::units::HUGE_PAGE;
use hugepilot_os::PidFd;
use hugepilot_os::advise::collapse_own;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::nodes::{NodePolicy, PinnedTo, current_cpu, nodes_of_pages};
use hugepilot_os::process::{Punctual, make_yield};
use kernel::nodes::Node;
use kernel::{Root, thp};
use rustix::process::Pid;
use rustix::thread::gettid;

/// The interval at which the waiting thread wakes.
const WAKES: Duration = Duration::from_micros(100);
/// If touching a page takes longer, no processor is idle, and the thread becomes an ordinary one.
const PATIENCE: Duration = Duration::from_millis(30);
/// A page to be touched at once comes before ordinary threads, as collapses do.
const PREPARING: u8 = 1;
/// Pages touched before the thread yields again: 2 GiB.
const ORDINARY: u32 = 1024;

/// When pages are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// While no ordinary thread wants the processor, unless that takes too long.
    WhileIdle,
    /// At once, before ordinary threads.
    AtOnce,
}

/// A huge page of our own.
#[derive(Debug)]
pub(super) struct Page {
    mapping: AlignedMemory,
    /// The node that it comes from, if given.
    node: Option<Node>,
}

/// A page to touch, its node, and the processor to use.
type Request = (Page, Option<Node>, u32);
/// The page, and the node that it comes from.
type Touched = (Page, io::Result<Option<Node>>);

/// A handle to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Preparer {
    requests: Sender<Request>,
    touched: Receiver<Touched>,
    thread: Pid,
    urgency: Urgency,
    patience: Duration,
    /// Pages until it yields again; 0 while it yields.
    ordinary: u32,
}

impl Page {
    /// Not backed until it is touched. Errors: no memory.
    pub(super) fn new() -> io::Result<Self> {
        let mut mapping = AlignedMemory::anonymous(HUGE_PAGE as usize)?;
        mapping.advise(0, HUGE_PAGE as usize, OwnAdvice::HugePage)?;
        Ok(Self { mapping, node: None })
    }

    /// Allocates its memory, from this node if one is given; returns its actual node then.
    fn touch(&mut self, node: Option<Node>) -> io::Result<Option<Node>> {
        if let Some(node) = node.filter(|_| node != self.node) {
            self.mapping.set_node_policy(NodePolicy::Prefer, &[node])?;
            self.node = Some(node);
        }
        self.mapping.bytes_mut()[0] = 1;
        if !thp::given_at_first_touch(&Root::host()) {
            collapse_own(self.mapping.address(), HUGE_PAGE)?;
        }
        let address = self.mapping.address();
        Ok(node.and_then(|_| nodes_of_pages(&PidFd::open(std::process::id()).ok()?, &[address]).ok()?[0]))
    }

    /// Frees the memory to the list of the processor that this runs on.
    pub(super) fn free(&mut self) -> io::Result<()> {
        self.mapping.advise(0, HUGE_PAGE as usize, OwnAdvice::DontNeed)
    }
}

impl Preparer {
    /// Starts the thread. Errors: the system has no more threads.
    pub(super) fn start(urgency: Urgency) -> io::Result<Self> {
        let (requests, asked) = mpsc::channel::<Request>();
        let (answer, touched) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let work = move || {
            // Without the privilege, it stays an ordinary thread.
            let _punctual = (urgency == Urgency::AtOnce).then(|| Punctual::begin(PREPARING));
            if urgency == Urgency::WhileIdle {
                let _ = make_yield(gettid(), true);
            }
            let _ = tell.send(gettid());
            for (mut page, node, cpu) in asked {
                let _kept = PinnedTo::cpu(cpu);
                let result = page.touch(node);
                if answer.send((page, result)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("prepare".to_owned()).spawn(work)?;
        let thread = told.recv().map_err(|_| ended())?;
        Ok(Self { requests, touched, thread, urgency, patience: PATIENCE, ordinary: 0 })
    }

    /// Has a page touched, as [`Page::touch`] says, and waits for it. The caller is pinned to the processor where that is done. The page comes back
    /// unless the thread has ended.
    pub(super) fn touch(&mut self, page: Page, node: Option<Node>) -> io::Result<Touched> {
        self.requests.send((page, node, current_cpu())).map_err(|_| ended())?;
        if self.urgency == Urgency::AtOnce {
            let _punctual = Punctual::begin(PREPARING);
            return self.touched.recv().map_err(|_| ended());
        }
        let started = Instant::now();
        let touched = loop {
            if self.ordinary == 0 && started.elapsed() >= self.patience {
                self.hurry();
            }
            match self.touched.recv_timeout(WAKES) {
                Ok(touched) => break touched,
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        if self.ordinary > 0 {
            self.ordinary -= 1;
            if self.ordinary == 0 {
                make_yield(self.thread, true)?;
            }
        }
        Ok(touched)
    }

    fn hurry(&mut self) {
        tracing::debug!("pages are prepared as ordinary work: no processor is idle");
        let _ = make_yield(self.thread, false);
        self.ordinary = ORDINARY;
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that prepares pages has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_touched_and_given_back() {
        for urgency in [Urgency::WhileIdle, Urgency::AtOnce] {
            let mut preparer = Preparer::start(urgency).unwrap();
            let (mut page, node) = preparer.touch(Page::new().unwrap(), None).unwrap();
            assert_eq!((node.unwrap(), page.mapping.bytes()[0]), (None, 1));
            page.free().unwrap();
            assert_eq!(page.mapping.bytes()[0], 0, "what was given back reads as zero");
        }
    }

    #[test]
    fn who_waits_in_vain_makes_it_an_ordinary_thread_for_a_while() {
        let mut preparer = Preparer::start(Urgency::WhileIdle).unwrap();
        preparer.patience = Duration::ZERO;
        let (page, _) = preparer.touch(Page::new().unwrap(), None).unwrap();
        assert_eq!(preparer.ordinary, ORDINARY - 1);
        preparer.patience = Duration::from_secs(60);
        preparer.ordinary = 1;
        let (page, _) = preparer.touch(page, None).unwrap();
        assert_eq!(preparer.ordinary, 0, "it yields again");
        preparer.touch(page, None).unwrap().1.unwrap();
        assert_eq!(preparer.ordinary, 0);
    }
}
