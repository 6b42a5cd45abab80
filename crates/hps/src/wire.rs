//! The protocol between a client and the daemon: lines of JSON over the control socket, and a file in memory with the list of active
//! pages.
//!
//! Owns: the format and the maximum size of both. Never touches: sockets, signals, or whether a client is served.
//!
//! A client sends `{"version":2,"command":"track","track":{..}}` and receives one line together with the descriptor of the list. The
//! connection stays open for as long as the client is tracked: on it the client says what it has read ([`Notice`]), and nothing comes
//! back. The daemon writes the list, then its head with the next sequence number, then signals. It writes the next list after the client
//! has taken this one, or has not taken it for a minute: it then empties the file first. So a client reads the head again after the runs,
//! and only a list with the same head before and after is whole.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// The version of tracking: of its lines, and of the list. It rises with each change of either. The control socket's other lines have a
/// version of their own, which also goes for refusals: any client, older or newer, can then read why.
pub const VERSION: u32 = 2;
/// Where the daemon listens.
pub const SOCKET: &str = "/run/hugepilot/control.sock";
/// Ranges of interest at most.
pub const MOST_RANGES: usize = 32;
/// The shortest time from one list to the next, in milliseconds.
pub const SHORTEST_INTERVAL_MS: u32 = 100;
/// The longest.
pub const LONGEST_INTERVAL_MS: u32 = 3_600_000;
/// The most pages in a list: those of a tebibyte.
pub const MOST_PAGES: u64 = 1 << 28;
/// The most runs in a list: 16 MiB of them.
pub const MOST_RUNS: u64 = 1 << 20;

/// How a client is to be tracked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// The real-time signal that announces a new list.
    pub signal: i32,
    /// The thread that should receive it, if the kernel supports that (6.9); None for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// A list comes once at least this many base pages are active.
    pub threshold_pages: u64,
    /// A page is active if it was used within this time; also the shortest time between two lists.
    pub interval_ms: u32,
    /// Only pages in these ranges count (half-open, in bytes), at most [`MOST_RANGES`]; all pages if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Range>,
}

/// Addresses from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[repr(C)]
pub struct Range {
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

/// What a client sends later, on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// The list with this sequence number was read; the next one may be written.
    Taken(u64),
    /// Enough was converted. Wake me when my walks have risen again.
    Rest,
    /// Track me again.
    Watch,
}

#[derive(Serialize)]
struct TrackLine<'a> {
    version: u32,
    command: &'a str,
    track: &'a Track,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoticeLine {
    version: u32,
    notice: Notice,
}

/// Why a request cannot be met.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "each message says it")]
pub enum WireError {
    #[error("signal {0} is none of the real-time signals, {1} to {2}")]
    Signal(i32, i32, i32),
    #[error("an interval of {0} ms is out of range; expected {SHORTEST_INTERVAL_MS} to {LONGEST_INTERVAL_MS}")]
    Interval(u32),
    #[error("{0} ranges are too many; {MOST_RANGES} may be given")]
    Ranges(usize),
    #[error("the range {0:#x}-{1:#x} holds nothing; its end must be after its start")]
    Empty(u64, u64),
    #[error("a threshold of 0 pages would tell of nothing; expected is 1 or more")]
    Threshold,
    #[error("not a notice: {0}")]
    Notice(String),
    #[error("the list of pages is not one of version {VERSION}; daemon and library must be of the same release")]
    List,
}

/// The default signal: system programs use the first few real-time signals.
pub fn usual_signal() -> i32 {
    libc::SIGRTMIN() + 4
}

impl Default for Track {
    /// Everywhere: a list each second in which at least 512 pages, 2 MiB, are active.
    fn default() -> Self {
        Self { signal: usual_signal(), thread: None, threshold_pages: 512, interval_ms: 1000, ranges: Vec::new() }
    }
}

impl Track {
    /// The request, as a line with its line break.
    pub fn line(&self) -> Vec<u8> {
        line(&TrackLine { version: VERSION, command: "track", track: self })
    }

    /// Errors: it requests something that no client may have.
    pub fn check(&self) -> Result<(), WireError> {
        let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
        if !(first..=last).contains(&self.signal) {
            return Err(WireError::Signal(self.signal, first, last));
        }
        if !(SHORTEST_INTERVAL_MS..=LONGEST_INTERVAL_MS).contains(&self.interval_ms) {
            return Err(WireError::Interval(self.interval_ms));
        }
        if self.ranges.len() > MOST_RANGES {
            return Err(WireError::Ranges(self.ranges.len()));
        }
        if let Some(range) = self.ranges.iter().find(|range| range.start >= range.end) {
            return Err(WireError::Empty(range.start, range.end));
        }
        if self.threshold_pages == 0 { Err(WireError::Threshold) } else { Ok(()) }
    }
}

impl Notice {
    /// As a line, with its line break.
    pub fn line(self) -> Vec<u8> {
        line(&NoticeLine { version: VERSION, notice: self })
    }

    /// Parses a line without its line break.
    ///
    /// Errors: the line is not a notice in JSON, or has another version.
    pub fn parse(line: &[u8]) -> Result<Self, WireError> {
        let read: Result<NoticeLine, _> = serde_json::from_slice(line);
        match read {
            Ok(NoticeLine { version: VERSION, notice }) => Ok(notice),
            Ok(NoticeLine { version, .. }) => Err(WireError::Notice(format!("version {version} is not known here"))),
            Err(error) => Err(WireError::Notice(error.to_string())),
        }
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("every key is a string");
    line.push(b'\n');
    line
}

/// The head of a list, at the beginning of its file; the runs follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Counts the lists of a client from 1; 0 while there was none.
    pub sequence: u64,
    /// Runs in it, at most [`MOST_RUNS`].
    pub runs: u64,
    /// Active pages, of which the list has those walked most: it may have no room for all.
    pub active_pages: u64,
}

/// Neighbouring active pages that are walked equally often. A list's file holds them in the machine's own byte order, ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct WalkedRun {
    /// Where the first page starts; a multiple of 4096.
    pub address: u64,
    /// How many pages there are.
    pub pages: u32,
    /// Page walks a second of each page, about.
    pub walks_per_second: f32,
}

/// An active page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Page {
    /// Where it starts; a multiple of 4096.
    pub address: u64,
    /// Page walks a second, about; writes a second where there is no daemon.
    pub walks_per_second: f64,
}

impl Head {
    /// Bytes that it takes.
    /// cbindgen:ignore
    pub const LEN: usize = 32;
    const MAGIC: u64 = u64::from_le_bytes(*b"hpslist2");

    /// Its bytes in the file.
    pub fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip([Self::MAGIC, self.sequence, self.runs, self.active_pages]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Errors: it is the head of something else, or announces too much.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, WireError> {
        let word = |number: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * number + byte]));
        let head = Self { sequence: word(1), runs: word(2), active_pages: word(3) };
        if word(0) == Self::MAGIC && head.runs <= MOST_RUNS { Ok(head) } else { Err(WireError::List) }
    }
}

impl WalkedRun {
    /// Bytes that it takes.
    /// cbindgen:ignore
    pub const LEN: usize = size_of::<Self>();

    /// Ascending pages as runs.
    pub fn of(pages: impl Iterator<Item = Page>) -> impl Iterator<Item = Self> {
        let mut pages = pages.peekable();
        std::iter::from_fn(move || {
            let Page { address, walks_per_second } = pages.next()?;
            let mut run = Self { address, pages: 1, walks_per_second: walks_per_second as f32 };
            while pages.next_if(|next| run.is_continued_by(next)).is_some() {
                run.pages += 1;
            }
            Some(run)
        })
    }

    fn is_continued_by(&self, next: &Page) -> bool {
        self.address.checked_add(u64::from(self.pages) * PAGE) == Some(next.address)
            && self.walks_per_second == next.walks_per_second as f32
            && self.pages < u32::MAX
    }

    /// The pages of ascending runs.
    ///
    /// Errors: they are not ascending, are more than [`MOST_PAGES`], or are walked at an impossible rate, which no application could sort by.
    pub fn pages(runs: &[Self]) -> Result<impl Iterator<Item = Page>, WireError> {
        let (mut end, mut pages) = (0, 0);
        for run in runs {
            let len = u64::from(run.pages) * PAGE;
            let is_next = run.address >= end && run.address.is_multiple_of(PAGE) && run.pages > 0;
            let is_walked = (0.0..f32::INFINITY).contains(&run.walks_per_second);
            end = run.address.checked_add(len).filter(|_| is_next && is_walked).ok_or(WireError::List)?;
            pages += u64::from(run.pages);
        }
        if pages > MOST_PAGES {
            return Err(WireError::List);
        }
        let of_run = |run: &Self| {
            let Self { address, walks_per_second, .. } = *run;
            let page = move |number| Page {
                address: address + u64::from(number) * PAGE,
                walks_per_second: walks_per_second.into(),
            };
            (0..run.pages).map(page)
        };
        Ok(runs.iter().flat_map(of_run))
    }
}

impl Page {
    /// Bytes that it takes.
    pub const LEN: usize = size_of::<Self>();
}

/// Bytes of a base page.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn track() -> Track {
        Track { signal: usual_signal(), thread: None, threshold_pages: 512, interval_ms: 1000, ranges: Vec::new() }
    }

    #[test]
    fn what_no_client_may_have_is_refused_with_what_it_may() {
        assert_eq!(track().check(), Ok(()));
        let refused = |track: Track| track.check().unwrap_err().to_string();
        assert!(
            refused(Track { signal: libc::SIGKILL, ..track() }).contains("signal 9 is none of the real-time signals")
        );
        assert!(refused(Track { interval_ms: 1, ..track() }).contains("expected 100 to 3600000"));
        assert!(refused(Track { threshold_pages: 0, ..track() }).contains("1 or more"));
        let range = |start, end| vec![Range { start, end }];
        assert!(refused(Track { ranges: range(5, 5), ..track() }).contains("0x5-0x5 holds nothing"));
        let many = vec![Range { start: 0, end: 1 }; MOST_RANGES + 1];
        assert!(refused(Track { ranges: many, ..track() }).contains("32 may be given"));
        assert_eq!(Track { ranges: range(0, u64::MAX), ..track() }.check(), Ok(()));
    }

    #[test]
    fn notices_have_the_form_that_is_documented() {
        let text = |notice: Notice| String::from_utf8(notice.line()).unwrap();
        assert_eq!(text(Notice::Taken(7)), "{\"version\":2,\"notice\":{\"taken\":7}}\n");
        assert_eq!(text(Notice::Rest), "{\"version\":2,\"notice\":\"rest\"}\n");
        assert!(Notice::parse(br#"{"version":1,"notice":"rest"}"#).is_err());
        assert!(Notice::parse(br#"{"version":2,"notice":"melt"}"#).is_err());
    }

    #[test]
    fn a_head_of_something_else_or_of_too_much_is_refused() {
        let head = Head { sequence: 3, runs: MOST_RUNS, active_pages: u64::MAX };
        assert_eq!(Head::parse(&head.bytes()), Ok(head));
        assert_eq!(Head::parse(&[0; Head::LEN]), Err(WireError::List));
        assert!(Head::parse(&Head { runs: MOST_RUNS + 1, ..head }.bytes()).is_err());
    }

    fn run(address: u64, pages: u32, walks_per_second: f32) -> WalkedRun {
        WalkedRun { address, pages, walks_per_second }
    }

    #[test]
    fn neighbours_that_are_walked_alike_are_one_run() {
        let page = |number: u64, walks_per_second| Page { address: number * PAGE, walks_per_second };
        let pages = [page(1, 2.5), page(2, 2.5), page(3, 7.0), page(5, 7.0), page(6, 7.0)];
        let runs: Vec<WalkedRun> = WalkedRun::of(pages.into_iter()).collect();
        assert_eq!(runs, [run(PAGE, 2, 2.5), run(3 * PAGE, 1, 7.0), run(5 * PAGE, 2, 7.0)]);
        assert_eq!(WalkedRun::pages(&runs).unwrap().collect::<Vec<_>>(), pages);
    }

    #[test]
    fn runs_that_no_daemon_writes_are_refused() {
        let many = MOST_PAGES as u32;
        assert!(WalkedRun::pages(&[run(0, many, 1.0)]).is_ok());
        for runs in [
            vec![run(0, many, 1.0), run(u64::from(many) * PAGE, 1, 1.0)],
            vec![run(PAGE, 2, 1.0), run(2 * PAGE, 1, 1.0)],
            vec![run(PAGE + 8, 1, 1.0)],
            vec![run(PAGE, 0, 1.0)],
            vec![run(u64::MAX - PAGE + 1, 1, 1.0)],
            vec![run(PAGE, 1, f32::NAN)],
            vec![run(PAGE, 1, f32::INFINITY)],
            vec![run(PAGE, 1, -1.0)],
        ] {
            assert!(WalkedRun::pages(&runs).is_err(), "{runs:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(bytes: Vec<u8>, head: [u8; Head::LEN]) {
            let _ = Notice::parse(&bytes);
            let _ = Head::parse(&head);
        }

        #[test]
        fn pages_come_back_as_they_were(numbers in proptest::collection::btree_set(0..9_000u64, 0..300), kinds in 1..4u64) {
            let page = |number: u64| Page { address: number * PAGE, walks_per_second: (number % kinds) as f64 };
            let pages: Vec<Page> = numbers.into_iter().map(page).collect();
            let runs: Vec<WalkedRun> = WalkedRun::of(pages.iter().copied()).collect();
            prop_assert!(runs.len() <= pages.len());
            prop_assert_eq!(WalkedRun::pages(&runs).unwrap().collect::<Vec<_>>(), pages);
        }

        #[test]
        fn notices_come_back_as_they_were(sequence: u64) {
            for notice in [Notice::Taken(sequence), Notice::Rest, Notice::Watch] {
                let line = notice.line();
                prop_assert_eq!(Notice::parse(line.strip_suffix(b"\n").unwrap()).unwrap(), notice);
            }
        }
    }
}
