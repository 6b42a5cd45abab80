//! Programs that manage their own memory and ask which of it is active: which they are, and what they last said.
//!
//! Owns: the limited number of clients' places, and the files of their lists. Never touches: sockets, or which pages are active ([`crate::engine`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hps::wire::{Head, Notice, Track, WalkedRun};
use hugepilot_os::PidFd;
use hugepilot_os::signals::Addressee;
use kernel::process::{self, ProcessStatus};
use kernel::target::Process;
use kernel::{KernelError, Root};
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};

/// The most clients at once.
pub const MOST_CLIENTS: usize = 256;
/// The most clients of one user other than root.
pub const MOST_CLIENTS_OF_ONE: usize = 32;

/// All registered clients.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    registered: Arc<Mutex<Registered>>,
}

#[derive(Debug, Default)]
struct Registered {
    next: u64,
    clients: BTreeMap<u64, Client>,
}

/// A client's state at one moment.
#[derive(Clone, Debug)]
pub struct Client {
    /// The process.
    pub process: Process,
    /// The owner of the process.
    pub uid: u32,
    /// How it asked to be tracked.
    pub track: Track,
    /// Whether it asked to be left alone until its walks rise.
    pub resting: bool,
    /// The sequence number of the list that it last took.
    pub taken: u64,
    /// Where its lists are written and signals sent.
    pub mailbox: Arc<dyn Mailbox>,
}

impl Client {
    /// Whether the program that registered still runs in the process.
    pub fn is_there(&self) -> bool {
        self.mailbox.is_there()
    }
}

/// The channel to a client.
pub trait Mailbox: std::fmt::Debug + Send + Sync {
    /// Whether the program that registered still runs in the process.
    fn is_there(&self) -> bool;

    /// Frees the memory of a list that was taken, or never will be. Errors: the list cannot be shortened.
    fn clear(&self) -> io::Result<()>;

    /// Writes a list: first the runs, then the head that announces them. Errors: there is no memory for it.
    fn write(&self, head: Head, runs: &mut dyn Iterator<Item = WalkedRun>) -> io::Result<()>;

    /// Signals that a list of this many pages is there. Errors: the process must not be signalled, or has ended.
    fn tell(&self, signal: i32, pages: u64) -> io::Result<Told>;
}

/// The result of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was sent.
    Now,
    /// The kernel has no room for it now.
    Later,
    /// The program has no handler; the signal would end it.
    NotListening,
}

/// A file that the client reads, and a signal.
#[derive(Debug)]
struct ListFile {
    pid: u32,
    /// The program that ran in the process when it registered.
    program: Program,
    list: File,
    addressee: Addressee,
}

/// Runs written at a time.
const AT_ONCE: usize = 1 << 14;

impl Drop for ListFile {
    fn drop(&mut self) {
        // The client has the file open, too, and may keep it.
        let _ = self.list.set_len(0);
    }
}

impl Mailbox for ListFile {
    fn is_there(&self) -> bool {
        match Program::of(self.pid) {
            Ok(program) => program == self.program,
            // For example for lack of file descriptors.
            Err(error) => !error.is_gone(),
        }
    }

    fn clear(&self) -> io::Result<()> {
        self.list.set_len(0)
    }

    fn write(&self, head: Head, runs: &mut dyn Iterator<Item = WalkedRun>) -> io::Result<()> {
        let mut runs = runs.peekable();
        let mut offset = Head::LEN as u64;
        while runs.peek().is_some() {
            let piece: Vec<WalkedRun> = runs.by_ref().take(AT_ONCE).collect();
            self.list.write_all_at(bytemuck::cast_slice(&piece), offset)?;
            offset += (piece.len() * WalkedRun::LEN) as u64;
        }
        self.list.write_all_at(&head.bytes(), 0)
    }

    fn tell(&self, signal: i32, pages: u64) -> io::Result<Told> {
        if !ProcessStatus::read(&Root::host(), self.pid).is_ok_and(|status| status.handles(signal)) {
            return Ok(Told::NotListening);
        }
        match self.addressee.send(signal, pages) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Told::Later),
            sent => sent.map(|()| Told::Now),
        }
    }
}

/// The program in a process. After exec the id is the same, but the program, and perhaps its rights, are different; a child forked earlier may still
/// hold the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    user_ids: [u32; 3],
    /// The user who may read its memory: root where the program has rights that its user has not (set-group-id, file capabilities), or must not be read.
    reader: u32,
    address_space: Option<u64>,
}

impl Program {
    /// The program there now. Errors: the process has ended (`is_gone`), or cannot be read.
    fn of(pid: u32) -> Result<Self, KernelError> {
        let root = Root::host();
        let status = ProcessStatus::read(&root, pid)?;
        let user_ids = [status.uid, status.effective_uid, status.saved_uid];
        Ok(Self { user_ids, reader: process::reader(&root, pid)?, address_space: process::address_space(&root, pid)? })
    }

    fn is_of(&self, uid: u32) -> bool {
        self.user_ids == [uid; 3] && self.reader == uid
    }
}

/// A client's place; dropping this frees it.
#[derive(Debug)]
pub struct Place {
    id: u64,
    clients: Clients,
}

/// Why a client gets no place.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ClientError {
    #[error("too many clients are tracked already; {most} may be")]
    TooMany { most: usize },
    #[error("process {pid} has ended")]
    Ended { pid: u32 },
    #[error("process {pid} is tracked already")]
    Twice { pid: u32 },
    #[error(
        "process {pid} has rights that user {uid} has not, must not be read by that user, or has replaced its program"
    )]
    NotOwned { pid: u32, uid: u32 },
    #[error("process {pid} has no thread {thread}")]
    NoThread { pid: u32, thread: u32 },
    #[error("process {pid} cannot be tracked: {cause}")]
    System { pid: u32, cause: io::Error },
}

impl Clients {
    /// Registers a process of this user; returns its place and the file in which it finds its lists.
    ///
    /// Errors: too many are registered, of this user or in all; the process has ended, is already registered, or is not entirely this user's; it has
    /// no such thread; or there is no memory or file descriptor for its lists.
    pub fn enter(&self, pid: u32, uid: u32, track: Track) -> Result<(Place, OwnedFd), ClientError> {
        let refused = |cause| ClientError::System { pid, cause };
        let held = PidFd::open(pid).map_err(|_| ClientError::Ended { pid })?;
        // While it is held and lives, no other process can have its id.
        let process = Process::of(&Root::host(), pid).filter(|_| !held.has_exited());
        let process = process.ok_or(ClientError::Ended { pid })?;
        let program = Program::of(pid).map_err(|error| match error.is_gone() {
            true => ClientError::Ended { pid },
            false => refused(io::Error::other(error)),
        })?;
        if uid != 0 && !program.is_of(uid) {
            return Err(ClientError::NotOwned { pid, uid });
        }
        let addressee = addressee(&held, &track)?;
        let list = memfd_create("hugepilot-list", MemfdFlags::CLOEXEC).map_err(|error| refused(error.into()))?;
        let handed_over = readable(&list).map_err(refused)?;
        let client = Client {
            process,
            uid,
            track,
            resting: false,
            taken: 0,
            mailbox: Arc::new(ListFile { pid, program, list: File::from(list), addressee }),
        };
        Ok((self.admit(client)?, handed_over))
    }

    /// Gives a client a place. Errors: there is none left, or it already has one.
    pub fn admit(&self, client: Client) -> Result<Place, ClientError> {
        let mut registered = self.locked();
        registered.clients.retain(|_, other| other.is_there());
        let id = registered.enter(client)?;
        Ok(Place { id, clients: self.clone() })
    }

    /// All clients, by the number of their place.
    pub fn all(&self) -> Vec<(u64, Client)> {
        self.locked().clients.iter().map(|(&id, client)| (id, client.clone())).collect()
    }

    /// Whether a process is a client; it manages its huge pages itself.
    pub fn hold(&self, process: Process) -> bool {
        self.locked().clients.values().any(|client| client.process == process)
    }

    /// A client that is gone loses its place, even if a child that it forked holds the connection.
    pub fn forget(&self, id: u64) {
        self.locked().clients.remove(&id);
    }

    /// Ends a client's rest, because its walks have risen.
    pub fn wake(&self, id: u64) {
        if let Some(client) = self.locked().clients.get_mut(&id) {
            client.resting = false;
        }
    }

    fn locked(&self) -> MutexGuard<'_, Registered> {
        // A thread that panicked while holding the lock left every field intact.
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    fn enter(&mut self, client: Client) -> Result<u64, ClientError> {
        let pid = client.process.pid;
        if self.clients.values().any(|other| other.process == client.process) {
            return Err(ClientError::Twice { pid });
        }
        let own = self.clients.values().filter(|other| other.uid == client.uid).count();
        if client.uid != 0 && own >= MOST_CLIENTS_OF_ONE {
            return Err(ClientError::TooMany { most: MOST_CLIENTS_OF_ONE });
        }
        if self.clients.len() >= MOST_CLIENTS {
            let gives_way = self.gives_way(client.uid, own).ok_or(ClientError::TooMany { most: MOST_CLIENTS })?;
            self.clients.remove(&gives_way);
        }
        self.next += 1;
        self.clients.insert(self.next, client);
        Ok(self.next)
    }

    /// The latest client of the user other than root who has most, if that are more than this user would have; for root that user's in any case.
    fn gives_way(&self, uid: u32, own: usize) -> Option<u64> {
        let mut clients_of: BTreeMap<u32, usize> = BTreeMap::new();
        for other in self.clients.values().filter(|other| other.uid != 0) {
            *clients_of.entry(other.uid).or_default() += 1;
        }
        let (&user, &most) = clients_of.iter().max_by_key(|&(_, &count)| count)?;
        let gives_way = uid == 0 || most > own + 1;
        gives_way.then(|| self.clients.iter().rev().find(|(_, other)| other.uid == user).map(|(&id, _)| id))?
    }
}

impl Place {
    /// Whether it is still the client's: whoever has ended, or runs another program, loses it.
    pub fn is_held(&self) -> bool {
        self.clients.locked().clients.contains_key(&self.id)
    }

    /// Records a notice from the client.
    pub fn note(&self, notice: Notice) {
        let mut registered = self.clients.locked();
        let Some(client) = registered.clients.get_mut(&self.id) else { return };
        match notice {
            // A client that claims a list never written gets no other.
            Notice::Taken(sequence) => client.taken = sequence,
            Notice::Rest => client.resting = true,
            Notice::Watch => client.resting = false,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.locked().clients.remove(&self.id);
    }
}

/// The same file, read-only: with write access, a client could make our writes append.
fn readable(list: &OwnedFd) -> io::Result<OwnedFd> {
    fchmod(list, Mode::RUSR)?;
    let path = format!("/proc/self/fd/{}", list.as_raw_fd());
    Ok(File::open(path)?.into())
}

/// The requested thread if the kernel can signal a thread, otherwise the process.
fn addressee(held: &PidFd, track: &Track) -> Result<Addressee, ClientError> {
    let pid = held.pid();
    let of_process = || Addressee::process(held).map_err(|cause| ClientError::System { pid, cause });
    let Some(thread) = track.thread else { return of_process() };
    let opened = Addressee::thread(thread);
    // Checked after opening: a thread listed now is the one opened, not a later one with its id.
    let threads = process::threads(&Root::host(), pid).map_err(|_| ClientError::Ended { pid })?;
    if !threads.contains(&thread) {
        return Err(ClientError::NoThread { pid, thread });
    }
    opened.or_else(|_| of_process())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn track() -> Track {
        Track { signal: 40, thread: None, threshold_pages: 1, interval_ms: 1000, ranges: Vec::new() }
    }

    #[test]
    fn a_place_lasts_as_long_as_it_is_held_and_keeps_what_was_said() {
        let (clients, pid) = (Clients::default(), std::process::id());
        let own = Process::of(&Root::host(), pid).expect("it runs");
        let uid = ProcessStatus::read(&Root::host(), pid).unwrap().uid;
        let (place, list) = clients.enter(pid, uid, track()).unwrap();
        assert!(File::from(list).write_all(b"x").is_err(), "it is for reading");
        assert!(clients.hold(own));
        assert!(matches!(clients.enter(pid, uid, track()), Err(ClientError::Twice { .. })));
        assert!(matches!(clients.enter(pid, uid + 7, track()), Err(ClientError::NotOwned { .. })));
        place.note(Notice::Taken(3));
        place.note(Notice::Rest);
        let [(id, client)] = &clients.all()[..] else { panic!("there is one") };
        assert_eq!((client.taken, client.resting, client.uid), (3, true, uid));
        clients.wake(*id);
        assert!(!clients.all()[0].1.resting);
        let program = Program { user_ids: [uid; 3], reader: uid, address_space: Some(1) };
        let (list, addressee) =
            (File::open("/dev/null").unwrap(), Addressee::process(&PidFd::open(pid).unwrap()).unwrap());
        clients.locked().clients.get_mut(id).unwrap().mailbox = Arc::new(ListFile { pid, program, list, addressee });
        assert!(!clients.all()[0].1.is_there(), "as after exec");
        let (again, _list) = clients.enter(pid, uid, track()).expect("who is gone is no hindrance");
        assert!(!place.is_held() && again.is_held());
        drop(place);
        assert!(clients.hold(own), "the place of another is its own");
        drop(again);
        assert!(!clients.hold(own) && clients.all().is_empty());
    }

    #[test]
    fn places_are_few_and_of_each_user_fewer() {
        let mut registered = Registered::default();
        let mut enter = |pid: u32, uid: u32| {
            registered.enter(Client {
                process: Process { pid, start_ticks: 1 },
                uid,
                track: track(),
                resting: false,
                taken: 0,
                mailbox: Arc::new(ListFile {
                    pid,
                    program: Program { user_ids: [uid; 3], reader: uid, address_space: None },
                    list: File::open("/dev/null").unwrap(),
                    addressee: Addressee::process(&PidFd::open(std::process::id()).unwrap()).unwrap(),
                }),
            })
        };
        for pid in 0..MOST_CLIENTS_OF_ONE as u32 {
            enter(pid, 7).unwrap();
        }
        assert!(matches!(enter(1000, 7), Err(ClientError::TooMany { most: MOST_CLIENTS_OF_ONE })));
        for pid in MOST_CLIENTS_OF_ONE as u32..MOST_CLIENTS as u32 {
            enter(pid, 0).unwrap();
        }
        let is_full = |entered| matches!(entered, Err(ClientError::TooMany { most: MOST_CLIENTS }));
        for pid in 1000..1016 {
            enter(pid, 8).expect("who has most gives way");
        }
        assert!(is_full(enter(1016, 8)), "until it would have no less");
        for pid in 2000..2032 {
            enter(pid, 0).expect("all give way to root");
        }
        assert!(is_full(enter(3000, 0)) && is_full(enter(3000, 9)), "root's clients give way to nobody");
    }

    #[test]
    fn a_program_that_its_user_may_not_read_is_not_entirely_that_users() {
        let program = Program { user_ids: [7; 3], reader: 7, address_space: None };
        assert!(program.is_of(7) && !program.is_of(8));
        assert!(!Program { reader: 0, ..program }.is_of(7), "as after the exec of a set-group-id program");
        assert!(!Program { user_ids: [7, 0, 0], ..program }.is_of(7));
    }

    #[test]
    fn who_has_ended_or_names_a_thread_of_others_is_refused() {
        let clients = Clients::default();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(matches!(clients.enter(pid, 0, track()), Err(ClientError::Ended { .. })));
        let foreign = Track { thread: Some(1), ..track() };
        assert!(matches!(clients.enter(std::process::id(), 0, foreign), Err(ClientError::NoThread { .. })));
        assert!(clients.all().is_empty());
    }
}
