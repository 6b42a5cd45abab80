//! Tracking: registering, waiting for a list, working through it, and reconnecting when the daemon returns.
//!
//! Owns: one process's tracking, by a thread of the library or by an application thread that waits. Never touches: C; see [`crate::c_api`].
//!
//! A signal only means "read": any process may send one, and it carries no more information than the list's sequence number, which is read
//! before each wait. So no list is ever missed, and a superfluous signal costs a read of 32 bytes.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hugepilot_os::advise::collapse_own;
use hugepilot_os::page_scan::any_huge_here;
use hugepilot_os::signals::{Disposition, disposition, take_only, wait_open_to};
use hugepilot_os::socket::send_all;
use signal_hook::SigId;

use crate::daemon::Registration;
use crate::error::TrackError;
use crate::fork;
use crate::growth::{missing_bytes, resident_bytes};
use crate::handler::{handle, is_ours};
use crate::judge::{Allowance, Application, Convert, Limits, REGION, Report, work_through};
use crate::list::List;
use crate::own::OwnWatch;
use crate::wire::{Notice, SOCKET, Track};

/// How long to wait before retrying a daemon that is gone.
const AGAIN: Duration = Duration::from_secs(1);
/// How long to wait before retrying a daemon whose lists cannot be read: each time it scans this process in vain, until it is updated.
const AFTER_UNREADABLE: Duration = Duration::from_secs(600);
/// One in so many resident bytes may be added by default.
const GROWTH_ONE_IN: u64 = 100;

/// How a process is to be tracked.
#[derive(Clone, Debug)]
pub struct TrackingSettings {
    /// What to request from the daemon.
    pub track: Track,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Without a daemon, track this process's own writes to the ranges of interest.
    pub own_writes: bool,
    /// Bytes that may be put on huge pages in place.
    pub most_huge_bytes: u64,
    /// Bytes that converting may add to this process: pages of its regions that had no memory yet. None: a hundredth of what is resident
    /// when the first list comes, as `hugepilot promote` has it.
    pub most_growth_bytes: Option<u64>,
}

impl Default for TrackingSettings {
    /// By the daemon at its usual place; huge pages without a limit, and a hundredth more memory.
    fn default() -> Self {
        Self {
            track: Track::default(),
            socket: PathBuf::from(SOCKET),
            own_writes: false,
            most_huge_bytes: u64::MAX,
            most_growth_bytes: None,
        }
    }
}

/// A process that is tracked, until this is dropped.
pub struct ProcessTracking {
    shared: Arc<Shared>,
    /// The library's own thread, if it has one.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by the waiting thread and the threads that send notices.
struct Shared {
    settings: TrackingSettings,
    huge: Allowance,
    /// Known from the first list on.
    growth: OnceLock<Allowance>,
    /// Used only by the waiting thread.
    source: Mutex<Source>,
    /// The connection for notices; each is sent once.
    speaker: Mutex<Option<UnixStream>>,
    /// Becomes readable when the signal arrives.
    rung: UnixStream,
    handler: SigId,
    /// Becomes readable when tracking ends.
    ended: UnixStream,
    end: UnixStream,
    resting: AtomicBool,
    /// Whether a thread waits, or works through a list.
    busy: AtomicBool,
    over: AtomicBool,
}

/// Held by the one thread that waits or works through a list.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The source of lists.
enum Source {
    Daemon(Registration),
    /// While there is no daemon: this process's own writes, if it tracks them.
    Alone {
        watch: Option<OwnWatch>,
        next_try: Instant,
    },
}

impl ProcessTracking {
    /// Starts tracking; [`ProcessTracking::wait`] fetches lists and works through them.
    ///
    /// Errors: a request cannot be met, or there is neither a daemon nor an alternative. If a daemon goes away later, the library waits for
    /// it.
    pub fn new(settings: TrackingSettings) -> Result<Self, TrackError> {
        Ok(Self { shared: Arc::new(Shared::new(settings)?), thread: Mutex::new(None) })
    }

    /// The same, but a thread of the library fetches lists and works through them, and alone receives the signal if the kernel supports
    /// that. Errors: the same, and `EAGAIN` no thread can be created.
    pub fn with_thread(settings: TrackingSettings, application: Arc<dyn Application>) -> Result<Self, TrackError> {
        let (tell, told) = std::sync::mpsc::channel();
        let work = move || {
            let signal = settings.track.signal;
            take_only(signal);
            let track =
                Track { thread: Some(rustix::thread::gettid().as_raw_nonzero().get() as u32), ..settings.track };
            let made = Shared::new(TrackingSettings { track, ..settings }).map(Arc::new);
            let shared = made.as_ref().ok().cloned();
            // The receiver waits until this arrives.
            let _ = tell.send(made);
            while let Some(shared) = &shared {
                match shared.next(None, &*application) {
                    Ok(_) => {}
                    Err(TrackError::Ended) => return,
                    // The first attempt has already reported the error, and nobody waits to be told of a later one.
                    Err(_) => _ = shared.pause(Instant::now() + AGAIN),
                }
            }
        };
        let thread = thread::Builder::new().name("hps".to_owned()).spawn(work);
        let thread = thread.map_err(|cause| TrackError::System { doing: "start a thread", cause })?;
        let shared = told.recv().expect("the thread answers before all else")?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Waits for a list and works through it on this thread. A limit of None waits indefinitely.
    ///
    /// Errors: `TimedOut`; `Ended` by another thread; `Busy` another thread waits already; the daemon's reason if it refuses; `Release` its
    /// lists cannot be read.
    pub fn wait(&self, limit: Option<Duration>, application: &dyn Application) -> Result<Report, TrackError> {
        self.shared.next(limit.map(|limit| Instant::now() + limit), application)
    }

    /// Enough was converted: stop observing until the page walks of this process have risen again; then a list comes.
    pub fn rest(&self) {
        self.shared.say(Notice::Rest);
    }

    /// Ends a rest.
    pub fn watch(&self) {
        self.shared.say(Notice::Watch);
    }

    /// Whether a thread of the library waits.
    pub fn has_thread(&self) -> bool {
        locked(&self.thread).is_some()
    }

    /// Whether it rests.
    pub fn is_resting(&self) -> bool {
        self.shared.resting.load(Ordering::Relaxed)
    }

    /// Ends tracking. If the library's thread is working through a list, that is finished first, unless that very thread calls this.
    pub fn end(&self) {
        // A waiting thread notices this now or later.
        self.shared.over.store(true, Ordering::Release);
        let _ = (&self.shared.end).write(&[1]);
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for ProcessTracking {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _no_fork = fork::hold_off();
        // The handler stays installed without effect, so a pending signal does not kill the process.
        signal_hook::low_level::unregister(self.handler);
    }
}

impl Shared {
    /// Registers. Errors: as [`ProcessTracking::new`].
    fn new(settings: TrackingSettings) -> Result<Self, TrackError> {
        settings.track.check()?;
        let signal = settings.track.signal;
        let system = |doing| move |cause: io::Error| TrackError::System { doing, cause };
        if disposition(signal).map_err(system("read a signal's handler"))? != Disposition::Default && !is_ours(signal) {
            return Err(TrackError::SignalTaken { signal });
        }
        let (rung, ring) = UnixStream::pair().map_err(system("make a pair of sockets"))?;
        let (ended, end) = UnixStream::pair().map_err(system("make a pair of sockets"))?;
        rung.set_nonblocking(true).map_err(system("set up a socket"))?;
        // Before the daemon knows the signal: without a handler it would kill the program.
        let handler = handle(signal, ring).map_err(system("handle a signal"))?;
        let shared = Self {
            huge: Allowance::of(settings.most_huge_bytes),
            growth: OnceLock::new(),
            source: Mutex::new(Source::Alone { watch: None, next_try: Instant::now() }),
            speaker: Mutex::new(None),
            settings,
            rung,
            handler,
            ended,
            end,
            resting: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            over: AtomicBool::new(false),
        };
        let source = shared.connect()?;
        *locked(&shared.source) = source;
        Ok(shared)
    }

    /// Waits for the next list and works through it. Errors: as [`ProcessTracking::wait`].
    fn next(&self, until: Option<Instant>, application: &dyn Application) -> Result<Report, TrackError> {
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(TrackError::Busy);
        }
        let _busy = Busy(&self.busy);
        let pages = self.wait(until)?;
        Ok(self.work_through(&pages, application))
    }

    /// The next list. Errors: as [`ProcessTracking::wait`].
    fn wait(&self, until: Option<Instant>) -> Result<List, TrackError> {
        let mut source = locked(&self.source);
        loop {
            if self.over.load(Ordering::Acquire) {
                return Err(TrackError::Ended);
            }
            if let Some(pages) = self.poll(&mut source)? {
                // A list that was already on its way when the rest began ends the rest on both sides.
                if self.resting.load(Ordering::Relaxed) {
                    self.say(Notice::Watch);
                }
                return Ok(pages);
            }
            // Who does not want to wait still learns that the daemon has gone, and registers with the next one.
            let is_late = until.is_some_and(|until| until <= Instant::now());
            self.pause_with(&mut source, until)?;
            if is_late {
                return Err(TrackError::TimedOut);
            }
        }
    }

    /// The list that is available now, without waiting.
    fn poll(&self, source: &mut Source) -> Result<Option<List>, TrackError> {
        match source {
            Source::Daemon(registration) => registration.take().or_else(|error| {
                let is_other = matches!(error, TrackError::Release { .. });
                self.lose(source, if is_other { AFTER_UNREADABLE } else { AGAIN });
                if is_other { Err(error) } else { Ok(None) }
            }),
            Source::Alone { next_try, .. } if *next_try <= Instant::now() => self.try_again(source).map(|()| None),
            Source::Alone { watch: Some(watch), .. } if !self.resting.load(Ordering::Relaxed) => watch.take(),
            Source::Alone { .. } => Ok(None),
        }
    }

    /// Registers, or starts what is possible without a daemon. Errors: as [`ProcessTracking::new`].
    fn connect(&self) -> Result<Source, TrackError> {
        match self.register() {
            Err(TrackError::NoDaemon { .. }) if self.settings.own_writes => {
                let watch = Some(OwnWatch::of(&self.settings.track)?);
                Ok(Source::Alone { watch, next_try: Instant::now() + AGAIN })
            }
            registered => registered,
        }
    }

    fn register(&self) -> Result<Source, TrackError> {
        let registration = Registration::open(&self.settings.socket, &self.settings.track)?;
        // Notices from other threads are sent after this.
        let mut speaker = locked(&self.speaker);
        *speaker = registration.speaker().ok();
        if self.resting.load(Ordering::Relaxed) {
            tell(&speaker, Notice::Rest);
        }
        Ok(Source::Daemon(registration))
    }

    /// Checks whether a daemon is back. Errors: there is one, but it refuses this process.
    fn try_again(&self, source: &mut Source) -> Result<(), TrackError> {
        let Source::Alone { watch, next_try } = source else { return Ok(()) };
        let found = if watch.is_some() { self.register() } else { self.connect() };
        match found {
            Ok(found) => *source = found,
            Err(error) => {
                *next_try = Instant::now() + AGAIN;
                let refuses = matches!(error, TrackError::Refused { .. } | TrackError::Release { .. });
                if watch.is_none() && refuses {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn lose(&self, source: &mut Source, wait: Duration) {
        *locked(&self.speaker) = None;
        *source = Source::Alone { watch: None, next_try: Instant::now() + wait };
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.settings.track.interval_ms.into())
    }

    fn say(&self, notice: Notice) {
        // Daemon and client must see two notices in the same order.
        let speaker = locked(&self.speaker);
        self.resting.store(notice == Notice::Rest, Ordering::Relaxed);
        tell(&speaker, notice);
    }

    /// Waits until something happens.
    fn pause_with(&self, source: &mut Source, until: Option<Instant>) -> Result<(), TrackError> {
        let own = match source {
            // The signal may not reach this process, such as without the right to send it.
            Source::Daemon(_) => Some(Instant::now() + self.interval().max(AGAIN)),
            Source::Alone { watch: Some(watch), next_try } if !self.resting.load(Ordering::Relaxed) => {
                Some(watch.next().min(*next_try))
            }
            Source::Alone { next_try, .. } => Some(*next_try),
        };
        let next = own.into_iter().chain(until).min();
        let limit = next.map(|next| next.saturating_duration_since(Instant::now()));
        let mut waits_for = vec![self.ended.as_fd(), self.rung.as_fd()];
        if let Source::Daemon(registration) = source {
            waits_for.push(registration.connection());
        }
        let happened = wait_open_to(self.settings.track.signal, &waits_for, limit);
        let happened = happened.map_err(|cause| TrackError::System { doing: "wait", cause })?;
        if happened[0] {
            return Err(TrackError::Ended);
        }
        // Several signals count as one.
        while happened[1] && (&self.rung).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        if happened.get(2) == Some(&true) {
            // On this connection the daemon sends nothing more; it can only close it.
            self.lose(source, AGAIN);
        }
        Ok(())
    }

    /// Waits unless tracking ends. Errors: it ended.
    fn pause(&self, until: Instant) -> Result<(), TrackError> {
        self.pause_with(&mut Source::Alone { watch: None, next_try: until }, None)
    }

    fn work_through(&self, list: &List, application: &dyn Application) -> Report {
        let default = || resident_bytes().unwrap_or(0) / GROWTH_ONE_IN;
        let growth = || Allowance::of(self.settings.most_growth_bytes.unwrap_or_else(default));
        let limits = Limits { huge: &self.huge, growth: self.growth.get_or_init(growth) };
        work_through(list, list.left_out, application, &limits, &mut &*self)
    }
}

impl Convert for &Shared {
    fn missing_bytes(&self, region: u64) -> io::Result<u64> {
        missing_bytes(region)
    }

    fn is_huge(&self, region: u64) -> bool {
        // What the kernel does not tell is tried.
        any_huge_here(region, region + REGION).unwrap_or(false)
    }

    fn convert(&mut self, region: u64) -> io::Result<()> {
        match &mut *locked(&self.source) {
            Source::Alone { watch: Some(watch), .. } => watch.convert(region),
            Source::Daemon(_) | Source::Alone { .. } => collapse_own(region, REGION),
        }
    }
}

/// Sends a notice to the daemon, if there is one. A daemon that returns learns it on registration.
fn tell(speaker: &Option<UnixStream>, notice: Notice) {
    if let Some(speaker) = speaker {
        let _ = send_all(speaker, &notice.line());
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section is left inconsistent by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
