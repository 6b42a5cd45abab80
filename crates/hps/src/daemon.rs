//! The daemon as a client sees it: a connection, and a file in memory where lists of active pages appear.
//!
//! Owns: one registration. Never touches: signals, or what is done with a list.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hugepilot_os::socket::{connect, receive_with, send_all};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::Deserialize;

use crate::TrackError;
use crate::error::Outdated;
use crate::list::List;
use crate::wire::{Head, Notice, Track, VERSION, WalkedRun, WireError};

/// Time for the daemon to accept a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a list that the daemon changes meanwhile is read before that is left to the next time.
const ATTEMPTS: u32 = 3;
/// Maximum length of an answer in bytes.
const LONGEST_ANSWER: usize = 4 << 10;

/// A client's registration with the daemon; closing it ends tracking.
#[derive(Debug)]
pub(crate) struct Registration {
    path: PathBuf,
    stream: UnixStream,
    list: File,
    /// The sequence number of the list read last.
    taken: u64,
    /// The process that registered: a forked child has a copy.
    pid: u32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Children forked meanwhile hold the connection open, so closing it is not enough.
        if self.pid == std::process::id() {
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Tracked {},
    Error(String),
}

/// Read first, because another version may have other answers.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
    /// Beside an error, whose own version is that of the control socket.
    track_version: Option<u32>,
}

#[derive(Deserialize)]
struct AnswerLine {
    #[serde(flatten)]
    answer: Answer,
}

/// Errors: why there is no tracking.
fn check(line: &[u8], path: &Path) -> Result<(), TrackError> {
    let other = |outdated| TrackError::Release { path: path.to_owned(), outdated };
    let Ok(Versioned { version, track_version }) = serde_json::from_slice(line) else {
        return Err(other(Outdated::Unknown));
    };
    match (track_version.unwrap_or(version), serde_json::from_slice(line)) {
        (VERSION, Ok(AnswerLine { answer: Answer::Tracked {} })) => Ok(()),
        (VERSION, Ok(AnswerLine { answer: Answer::Error(why) })) => Err(TrackError::Refused { why }),
        (spoken, _) => Err(other(Outdated::by(spoken))),
    }
}

impl Registration {
    /// Errors: no daemon listens at `path`, it refuses, or it is of another release.
    pub(crate) fn open(path: &Path, track: &Track) -> Result<Self, TrackError> {
        let told = |cause| TrackError::Daemon { path: path.to_owned(), cause };
        let stream = connect(path, PATIENCE).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => TrackError::NoDaemon { path: path.to_owned() },
            _ => told(cause),
        })?;
        set_socket_timeout(&stream, Timeout::Recv, Some(PATIENCE)).map_err(|error| told(error.into()))?;
        // A client that is refused on connecting cannot send any more, but can still read the reason.
        let sent = send_all(&stream, &track.line());
        let mut line = Vec::new();
        let mut list = None;
        while !line.ends_with(b"\n") && line.len() < LONGEST_ANSWER {
            let mut piece = [0; LONGEST_ANSWER];
            let (count, descriptor) = receive_with(&stream, &mut piece).map_err(told)?;
            line.extend_from_slice(&piece[..count]);
            list = list.or(descriptor);
            if count == 0 {
                return Err(told(sent.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into())));
            }
        }
        check(&line, path)?;
        let list = list.ok_or_else(|| told(ErrorKind::InvalidData.into()))?;
        Ok(Self { path: path.to_owned(), stream, list: File::from(list), taken: 0, pid: std::process::id() })
    }

    /// The descriptor to wait for: it becomes readable when the daemon closes the connection.
    pub(crate) fn connection(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// A handle for sending notices to the daemon while another thread waits.
    pub(crate) fn speaker(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// The next unread list, if there is one; the daemon may then write the next. Errors: the daemon is gone, or is of another release:
    /// what it writes is no list.
    pub(crate) fn take(&mut self) -> Result<Option<List>, TrackError> {
        self.take_by(|file, bytes| file.read_exact_at(bytes, Head::LEN as u64))
    }

    fn take_by(&mut self, read_runs: impl Fn(&File, &mut [u8]) -> io::Result<()>) -> Result<Option<List>, TrackError> {
        let path = self.path.clone();
        let told = |cause: io::Error| match cause.get_ref().is_some_and(|cause| cause.is::<WireError>()) {
            true => TrackError::Release { path: path.clone(), outdated: Outdated::Unknown },
            false => TrackError::Daemon { path: path.clone(), cause },
        };
        let Some((sequence, list)) = self.read(read_runs).map_err(told)? else { return Ok(None) };
        send_all(&self.stream, &Notice::Taken(sequence).line()).map_err(told)?;
        self.taken = sequence;
        Ok(Some(list))
    }

    /// An unread list and its number. The daemon withdraws a list that nobody took for long and writes the next, perhaps during this: what
    /// was read is judged only if the head is still the same.
    fn read(&self, read_runs: impl Fn(&File, &mut [u8]) -> io::Result<()>) -> io::Result<Option<(u64, List)>> {
        for _ in 0..ATTEMPTS {
            let head = self.head()?;
            let read = self.read_below(&head, &read_runs);
            if self.head()? == head {
                return read;
            }
        }
        Ok(None)
    }

    /// All zero if nothing was written yet, or only the runs: the head is written after them.
    fn head(&self) -> io::Result<[u8; Head::LEN]> {
        let mut bytes = [0; Head::LEN];
        match self.list.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok([0; Head::LEN]),
            read => read.map(|()| bytes),
        }
    }

    /// Reads instead of mapping: a file truncated under a mapping would kill the program (SIGBUS).
    fn read_below(
        &self,
        head: &[u8; Head::LEN],
        read_runs: impl Fn(&File, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Option<(u64, List)>> {
        if *head == [0; Head::LEN] {
            return Ok(None);
        }
        let head = Head::parse(head).map_err(io::Error::other)?;
        if head.sequence <= self.taken {
            return Ok(None);
        }
        let there = self.list.metadata()?.len().saturating_sub(Head::LEN as u64) / WalkedRun::LEN as u64;
        if head.runs > there {
            return Err(io::Error::other(WireError::List));
        }
        let list = List::read(head.runs as usize, head.active_pages, |bytes| read_runs(&self.list, bytes))?;
        Ok(Some((head.sequence, list)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::wire::Page;
    use hugepilot_os::socket::send_with;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    /// A fake daemon for one client, which answers with this line.
    pub(crate) struct Stand {
        pub(crate) path: PathBuf,
        listener: UnixListener,
    }

    impl Stand {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hps-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            Self { listener: UnixListener::bind(&path).unwrap(), path }
        }

        /// Accepts the next client: its connection, its request, and the file for its lists.
        pub(crate) fn serve(&self, answer: &str) -> (BufReader<UnixStream>, String, File) {
            let (stream, _) = self.listener.accept().unwrap();
            let list = memfd_create("list", MemfdFlags::CLOEXEC).unwrap();
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            send_with(reader.get_ref(), format!("{answer}\n").as_bytes(), list.as_fd()).unwrap();
            (reader, line, File::from(list))
        }

        /// Whether another client is waiting to be served.
        pub(crate) fn is_asked(&self) -> bool {
            self.listener.set_nonblocking(true).unwrap();
            self.listener.accept().is_ok()
        }
    }

    impl Drop for Stand {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    pub(crate) const TRACKED: &str = r#"{"version":2,"tracked":{}}"#;

    pub(crate) fn write_list(file: &File, sequence: u64, pages: &[Page]) {
        let runs: Vec<WalkedRun> = WalkedRun::of(pages.iter().copied()).collect();
        write_runs(file, Head { sequence, runs: runs.len() as u64, active_pages: pages.len() as u64 }, &runs);
    }

    fn write_runs(file: &File, head: Head, runs: &[WalkedRun]) {
        file.write_all_at(bytemuck::cast_slice(runs), Head::LEN as u64).unwrap();
        file.write_all_at(&head.bytes(), 0).unwrap();
    }

    pub(crate) fn track() -> Track {
        Track { signal: libc::SIGRTMIN() + 4, thread: None, threshold_pages: 1, interval_ms: 100, ranges: Vec::new() }
    }

    fn open(answer: &'static str, name: &str) -> Result<Registration, TrackError> {
        let stand = Stand::new(name);
        let path = stand.path.clone();
        let served: JoinHandle<_> = thread::spawn(move || stand.serve(answer));
        let opened = Registration::open(&path, &track());
        served.join().unwrap();
        opened
    }

    #[test]
    fn lists_are_read_once_and_acknowledged() {
        let stand = Stand::new("lists");
        let path = stand.path.clone();
        let client = thread::spawn(move || Registration::open(&path, &track()).unwrap());
        let (mut reader, asked, file) = stand.serve(TRACKED);
        let mut registration = client.join().unwrap();
        assert!(asked.starts_with(r#"{"version":2,"command":"track","track":{"signal":"#), "{asked}");
        assert!(registration.take().unwrap().is_none(), "there is none yet");
        file.write_all_at(&[1], Head::LEN as u64).unwrap();
        assert!(registration.take().unwrap().is_none(), "its runs are being written");
        let pages: Vec<Page> =
            (0..40_000).map(|number| Page { address: number * 4096, walks_per_second: number as f64 }).collect();
        for sequence in [1, 2, 9] {
            write_list(&file, sequence, &pages[sequence as usize..]);
            assert_eq!(*registration.take().unwrap().unwrap(), pages[sequence as usize..]);
            assert!(registration.take().unwrap().is_none());
            let mut line = Vec::new();
            reader.read_until(b'\n', &mut line).unwrap();
            assert_eq!(Notice::parse(line.strip_suffix(b"\n").unwrap()), Ok(Notice::Taken(sequence)));
        }
        let run = WalkedRun { address: 4096, pages: 3, walks_per_second: 2.0 };
        let head = Head { sequence: 10, runs: 1, active_pages: 8 };
        write_runs(&file, head, &[run]);
        let cut = registration.take().unwrap().unwrap();
        assert_eq!((cut.len(), cut.left_out), (3, 5), "the head tells what is left out");
        let mut is_of_another = || matches!(registration.take(), Err(TrackError::Release { .. }));
        write_runs(&file, Head { sequence: 11, ..head }, &[WalkedRun { address: 1, ..run }]);
        assert!(is_of_another(), "no page begins there");
        file.write_all_at(&Head { sequence: 12, runs: 50_000, ..head }.bytes(), 0).unwrap();
        assert!(is_of_another(), "it promises more than there is");
        file.write_all_at(b"x", 0).unwrap();
        assert!(is_of_another(), "it is no list");
    }

    #[test]
    fn a_list_that_is_withdrawn_meanwhile_is_never_half_read() {
        let stand = Stand::new("withdrawn");
        let path = stand.path.clone();
        let client = thread::spawn(move || Registration::open(&path, &track()).unwrap());
        let (mut reader, _, file) = stand.serve(TRACKED);
        let mut registration = client.join().unwrap();
        let pages = |count: u64, from: u64| -> Vec<Page> {
            (from..from + count)
                .map(|number| Page { address: 4096 * number, walks_per_second: number as f64 })
                .collect()
        };
        let read_runs = |list: &File, bytes: &mut [u8]| list.read_exact_at(bytes, Head::LEN as u64);
        write_list(&file, 1, &pages(3, 0));
        let cleared = registration.take_by(|list, bytes| {
            file.set_len(0)?;
            read_runs(list, bytes)
        });
        assert!(cleared.unwrap().is_none(), "withdrawn before its runs were read");
        write_list(&file, 2, &pages(3, 0));
        let rewritten = registration.take_by(|list, bytes| {
            file.set_len(0)?;
            write_list(&file, 3, &pages(5, 100));
            read_runs(list, bytes)
        });
        assert_eq!(
            *rewritten.unwrap().unwrap(),
            pages(5, 100),
            "the next is read instead, not in part under the old head"
        );
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line.as_bytes(), Notice::Taken(3).line());
        let number = std::cell::Cell::new(4);
        write_list(&file, 4, &pages(3, 0));
        let always = registration.take_by(|list, bytes| {
            number.set(number.get() + 1);
            write_list(&file, number.get(), &pages(3, number.get()));
            read_runs(list, bytes)
        });
        assert!(always.unwrap().is_none(), "left to the next time");
        assert_eq!(*registration.take().unwrap().unwrap(), pages(3, number.get()));
    }

    #[test]
    fn ten_million_pages_are_no_trouble() {
        let stand = Stand::new("many");
        let path = stand.path.clone();
        let client = thread::spawn(move || Registration::open(&path, &track()).unwrap());
        let (_reader, _, file) = stand.serve(TRACKED);
        let mut registration = client.join().unwrap();
        let page = |number: u64| Page { address: number << 12, walks_per_second: 1.0 };
        write_list(&file, 1, &(0..10_000_000).map(page).collect::<Vec<_>>());
        let pages = registration.take().unwrap().expect("it is there");
        assert_eq!((pages.len(), pages.last()), (10_000_000, Some(&page(9_999_999))));
    }

    #[test]
    fn a_daemon_that_is_not_there_refuses_or_is_another_is_told() {
        let error = Registration::open(Path::new("/tmp/hps-nobody"), &track()).unwrap_err();
        assert!(matches!(error, TrackError::NoDaemon { .. }), "{error}");
        let refused = open(r#"{"version":1,"track_version":2,"error":"too many clients"}"#, "refused").unwrap_err();
        assert!(matches!(&refused, TrackError::Refused { why } if why == "too many clients"), "{refused}");
        for (answer, update) in [
            (
                r#"{"version":1,"error":"version 2 of the protocol is not known here; expected is version 1"}"#,
                "update it and",
            ),
            (r#"{"version":1,"tracked":{}}"#, "update it and"),
            (r#"{"version":1,"track_version":3,"error":"no"}"#, "update this program's libhps and"),
            (r#"{"version":3,"tracked":{"news":1}}"#, "update this program's libhps and"),
            (r#"{"version":2,"news":{}}"#, "update it or"),
            ("nonsense", "update it or"),
        ] {
            let other = open(answer, "other").unwrap_err();
            assert!(matches!(other, TrackError::Release { .. }), "{answer}: {other}");
            assert!(other.to_string().contains(update), "{answer}: {other}");
        }
    }
}
