//! The protocol of the control socket: one line of JSON each way, then the connection closes. Only after `track` does it stay open
//! ([`hps::wire`]).
//!
//! Owns: the format and maximum length of requests and replies. Never touches: sockets, or whether a request is granted.
//!
//! ```json
//! {"version":1,"command":"give-back","pid":4242}
//! {"version":1,"given_back":{"pid":4242,"regions":512}}
//! ```
//!
//! `track` and its reply have a version of their own, because programs with a libhps of another release may run on beside a new daemon.
//! An error has the version of all others, which each release of libhps can read, and beside it the version of tracking spoken here.

use hps::wire::{self, Track, WireError};
use pilot::engine::shared_state::{RecordsAtEnd, State};
use serde::{Deserialize, Serialize};

use crate::control::capped::CappedLimit;
use crate::control::target_set::{GroupTarget, TargetSet, TargetSetError};

/// The version in every line but `track` and its reply ([`wire::VERSION`]).
pub const VERSION: u32 = 1;
/// Maximum length of a request in bytes, without its line break.
pub const LONGEST_REQUEST: usize = 4 << 10;
/// The same for a set of targets, which only root may send.
pub const LONGEST_SET: usize = 1 << 20;
/// Maximum length of a reply in bytes.
pub const LONGEST_REPLY: usize = 64 << 20;

/// What a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The state of the pilot.
    Status,
    /// Pause piloting of this process, or of all.
    Pause(Option<u32>),
    /// End that pause.
    Resume(Option<u32>),
    /// Give back what was promoted in this process, and pause it.
    GiveBack(u32),
    /// Report which pages of the client's own memory are active, for as long as the connection lasts.
    Track(Track),
    /// Pilot these control groups, in place of those that the same owner set before.
    SetTargets(TargetSet),
    /// When the daemon ends, keep the records of promotions, or remove all that it wrote below its run directory.
    AtEnd(RecordsAtEnd),
}

/// What a client receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The state of the pilot; users other than root see their own targets only.
    State(Box<State>),
    /// It is paused from now on.
    Paused {
        /// The process; None for all.
        pid: Option<u32>,
    },
    /// Its own pause has ended.
    Resumed {
        /// The process; None for all.
        pid: Option<u32>,
        /// Whether it stays paused because everything is.
        all_paused: bool,
    },
    /// Its memory was given back, and it is paused from now on.
    GivenBack {
        /// The process.
        pid: u32,
        /// How many regions were split.
        regions: u64,
    },
    /// The owner's targets are these from now on.
    TargetsSet {
        /// Who set them.
        owner: String,
        /// How many.
        targets: u64,
        /// Limits that do not hold as they were asked for; an earlier release told none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        capped: Vec<CappedLimit>,
    },
    /// That becomes of the records when the daemon ends.
    AtEnd {
        /// Kept or removed.
        records: RecordsAtEnd,
    },
    /// The client's process is tracked from now on; the descriptor of its list comes with this line.
    Tracked {},
    /// Nothing was done, for this reason.
    Error(String),
}

/// Why a line is not a valid request.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum RequestError {
    #[error("the request is longer than {LONGEST_REQUEST} bytes, or a set of targets longer than {LONGEST_SET}")]
    TooLong,
    #[error("not a request: {0}. Expected is a line such as {{\"version\":1,\"command\":\"pause\",\"pid\":4242}}")]
    Malformed(#[from] serde_json::Error),
    #[error("version {0} of the protocol is not known here; expected is version {VERSION}")]
    Version(u64),
    #[error(
        "this program's libhps is older than the daemon: it tracks by version {0}, and expected is version {known}; update libhps and \
         restart the program",
        known = wire::VERSION
    )]
    OldLibrary(u64),
    #[error(
        "this program's libhps is newer than the daemon: it tracks by version {0}, and known here is version {known}; update hugepilotd \
         and restart it",
        known = wire::VERSION
    )]
    NewLibrary(u64),
    #[error("'give-back' needs the pid of a process: {{\"version\":1,\"command\":\"give-back\",\"pid\":4242}}")]
    WithoutPid,
    #[error("'status', 'keep-records' and 'remove-records' take no pid; they concern all targets")]
    WithPid,
    #[error("'track' takes a field of that name and no pid; a process is tracked only for itself")]
    WithoutTrack,
    #[error("only 'track' takes a field of that name")]
    WithTrack,
    #[error("'set-targets' takes the fields owner and targets, and no other")]
    WithoutTargets,
    #[error("only 'set-targets' takes the fields owner and targets")]
    WithTargets,
    #[error(transparent)]
    Track(#[from] WireError),
    #[error(transparent)]
    Targets(#[from] TargetSetError),
}

/// Read first, because another version may have other fields.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
    #[serde(default)]
    command: serde_json::Value,
}

impl Versioned {
    /// Errors: the command is not spoken in this version here.
    fn check(&self) -> Result<(), RequestError> {
        let version = self.version;
        let (is_track, tracked) = (self.command == "track", u64::from(wire::VERSION));
        match is_track {
            true if version < tracked => Err(RequestError::OldLibrary(version)),
            true if version > tracked => Err(RequestError::NewLibrary(version)),
            false if version != u64::from(VERSION) => Err(RequestError::Version(version)),
            _ => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    version: u32,
    command: Command,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    track: Option<Track>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    targets: Option<Vec<GroupTarget>>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Command {
    Status,
    Pause,
    Resume,
    GiveBack,
    Track,
    SetTargets,
    KeepRecords,
    RemoveRecords,
}

#[derive(Serialize, Deserialize)]
struct ReplyLine {
    version: u32,
    /// With an error only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    track_version: Option<u32>,
    #[serde(flatten)]
    reply: Reply,
}

impl Request {
    /// Parses a line, with or without its line break.
    ///
    /// Errors: the line is too long, is not a request in JSON, has another version, lacks a field that its command needs, or has a field
    /// that its command does not take.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let versioned = serde_json::from_slice::<Versioned>(line);
        let sets_targets = versioned.as_ref().is_ok_and(|line| line.command == "set-targets");
        if line.len() > if sets_targets { LONGEST_SET } else { LONGEST_REQUEST } {
            return Err(RequestError::TooLong);
        }
        versioned?.check()?;
        let RequestLine { command, pid, track, owner, targets, .. } = serde_json::from_slice(line)?;
        match (command, owner, targets) {
            (Command::SetTargets, Some(owner), Some(targets)) if pid.is_none() && track.is_none() => {
                let set = TargetSet { owner, targets };
                set.assignments()?;
                Ok(Request::SetTargets(set))
            }
            (Command::SetTargets, ..) => Err(RequestError::WithoutTargets),
            (_, None, None) => Self::of_process(command, pid, track),
            _ => Err(RequestError::WithTargets),
        }
    }

    fn of_process(command: Command, pid: Option<u32>, track: Option<Track>) -> Result<Self, RequestError> {
        match (command, pid, track) {
            (Command::SetTargets, ..) => Err(RequestError::WithoutTargets),
            (Command::Track, None, Some(track)) => {
                track.check()?;
                Ok(Request::Track(track))
            }
            (Command::Track, ..) => Err(RequestError::WithoutTrack),
            (_, _, Some(_)) => Err(RequestError::WithTrack),
            (Command::Status, None, _) => Ok(Request::Status),
            (Command::KeepRecords, None, _) => Ok(Request::AtEnd(RecordsAtEnd::Keep)),
            (Command::RemoveRecords, None, _) => Ok(Request::AtEnd(RecordsAtEnd::Remove)),
            (Command::Status | Command::KeepRecords | Command::RemoveRecords, Some(_), _) => Err(RequestError::WithPid),
            (Command::Pause, pid, _) => Ok(Request::Pause(pid)),
            (Command::Resume, pid, _) => Ok(Request::Resume(pid)),
            (Command::GiveBack, Some(pid), _) => Ok(Request::GiveBack(pid)),
            (Command::GiveBack, None, _) => Err(RequestError::WithoutPid),
        }
    }

    /// As a line, with its line break.
    pub fn line(&self) -> Vec<u8> {
        let (mut owner, mut targets) = (None, None);
        let (command, pid) = match *self {
            Request::Status => (Command::Status, None),
            Request::Pause(pid) => (Command::Pause, pid),
            Request::Resume(pid) => (Command::Resume, pid),
            Request::GiveBack(pid) => (Command::GiveBack, Some(pid)),
            Request::Track(ref track) => return track.line(),
            Request::SetTargets(ref set) => {
                (owner, targets) = (Some(set.owner.clone()), Some(set.targets.clone()));
                (Command::SetTargets, None)
            }
            Request::AtEnd(RecordsAtEnd::Keep) => (Command::KeepRecords, None),
            Request::AtEnd(RecordsAtEnd::Remove) => (Command::RemoveRecords, None),
        };
        line(&RequestLine { version: VERSION, command, pid, track: None, owner, targets })
    }
}

impl Reply {
    /// Parses a line, with or without its line break.
    ///
    /// Errors: the line is not a reply in JSON, or has another version; the text says which.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let read = serde_json::from_slice::<ReplyLine>(line);
        let expected = read.as_ref().map_or(VERSION, |line| line.reply.version());
        let version = read.as_ref().map(|line| u64::from(line.version));
        // If a reply cannot be parsed, a different version is the likeliest reason.
        let version = version.or_else(|_| serde_json::from_slice(line).map(|Versioned { version, .. }| version));
        match (version, read) {
            (Ok(version), _) if version != u64::from(expected) => {
                Err(format!("it has version {version}, not {expected}"))
            }
            (_, Ok(line)) => Ok(line.reply),
            (_, Err(error)) => Err(error.to_string()),
        }
    }

    /// As a line, with its line break.
    pub fn line(self) -> Vec<u8> {
        let track_version = matches!(self, Reply::Error(_)).then_some(wire::VERSION);
        line(&ReplyLine { version: self.version(), track_version, reply: self })
    }

    fn version(&self) -> u32 {
        if matches!(self, Reply::Tracked {}) { wire::VERSION } else { VERSION }
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("every key is a string");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use heat::units::{Address, Bytes, Nanos};
    use std::collections::BTreeMap;

    use heat::{Obstacle, PageSizes, RefusalReason};
    use pilot::decide::Reason;
    use pilot::engine::shared_state::{DecisionResult, DecisionState, TargetState};
    use proptest::prelude::*;

    use super::*;
    use crate::control::capped::LimitName;
    use crate::control::target_set::GroupMode;

    const TRACK: &str =
        r#"{"version":2,"command":"track","track":{"signal":38,"threshold_pages":512,"interval_ms":1000}}"#;

    const SET: &str =
        r#"{"version":1,"command":"set-targets","owner":"kubernetes","targets":[{"cgroups":["/a"],"mode":"off"}]}"#;

    fn set() -> TargetSet {
        let target = GroupTarget { cgroups: vec!["/a".to_owned()], mode: GroupMode::Off, ..GroupTarget::default() };
        TargetSet { owner: "kubernetes".to_owned(), targets: vec![target] }
    }

    fn refusal(line: &str) -> String {
        Request::parse(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn lines_have_the_form_that_is_documented() {
        for (line, request) in [
            (r#"{"version":1,"command":"status"}"#, Request::Status),
            (r#"{"version":1,"command":"pause"}"#, Request::Pause(None)),
            (r#"{"version":1,"command":"pause","pid":7}"#, Request::Pause(Some(7))),
            (r#"{"version":1,"command":"resume","pid":7}"#, Request::Resume(Some(7))),
            (r#"{"version":1,"command":"give-back","pid":7}"#, Request::GiveBack(7)),
            (TRACK, Request::Track(track())),
            (SET, Request::SetTargets(set())),
            (r#"{"version":1,"command":"keep-records"}"#, Request::AtEnd(RecordsAtEnd::Keep)),
            (r#"{"version":1,"command":"remove-records"}"#, Request::AtEnd(RecordsAtEnd::Remove)),
        ] {
            assert_eq!(Request::parse(line.as_bytes()).unwrap(), request);
            assert_eq!(String::from_utf8(request.line()).unwrap(), format!("{line}\n"));
        }
        let text = |reply: Reply| String::from_utf8(reply.line()).unwrap();
        assert_eq!(text(Reply::Paused { pid: None }), "{\"version\":1,\"paused\":{\"pid\":null}}\n");
        assert_eq!(text(Reply::Error("no".to_owned())), "{\"version\":1,\"track_version\":2,\"error\":\"no\"}\n");
        assert_eq!(text(Reply::Tracked {}), "{\"version\":2,\"tracked\":{}}\n");
        let given_back = Reply::GivenBack { pid: 4242, regions: 512 };
        let targets_set = |capped| Reply::TargetsSet { owner: "a".to_owned(), targets: 3, capped };
        assert_eq!(text(targets_set(Vec::new())), "{\"version\":1,\"targets_set\":{\"owner\":\"a\",\"targets\":3}}\n");
        let capped = CappedLimit {
            target: 2,
            limit: LimitName::MaxHuge,
            asked: "2G".to_owned(),
            to: "1 GiB".to_owned(),
            why: "so".to_owned(),
        };
        assert_eq!(
            text(targets_set(vec![capped])),
            "{\"version\":1,\"targets_set\":{\"owner\":\"a\",\"targets\":3,\"capped\":[{\"target\":2,\"limit\":\"max_huge\",\
             \"asked\":\"2G\",\"to\":\"1 GiB\",\"why\":\"so\"}]}}\n"
        );
        assert_eq!(
            text(Reply::AtEnd { records: RecordsAtEnd::Remove }),
            "{\"version\":1,\"at_end\":{\"records\":\"remove\"}}\n"
        );
        assert_eq!(text(given_back), "{\"version\":1,\"given_back\":{\"pid\":4242,\"regions\":512}}\n");
    }

    #[test]
    fn what_is_no_request_is_told_what_is_expected() {
        for (line, expected) in [
            ("", "Expected is a line such as"),
            ("status", "Expected is a line such as"),
            (r#"{"command":"status"}"#, "missing field `version`"),
            (
                r#"{"version":2,"command":"melt","weight":1}"#,
                "version 2 of the protocol is not known here; expected is version 1",
            ),
            (r#"{"version":1,"command":"melt"}"#, "`give-back`, `track`, `set-targets`"),
            (
                r#"{"version":1,"command":"pause","pib":1}"#,
                "unknown field `pib`, expected one of `version`, `command`, `pid`, `track`, `owner`, `targets`",
            ),
            (r#"{"version":1,"command":"pause","pid":-1}"#, "expected u32"),
            (r#"{"version":1,"command":"pause","pid":1,"pid":2}"#, "duplicate field `pid`"),
            (r#"{"version":1,"command":"status","pid":1}"#, "take no pid"),
            (r#"{"version":1,"command":"remove-records","pid":1}"#, "take no pid"),
            (r#"{"version":1,"command":"give-back"}"#, "'give-back' needs the pid"),
            (r#"{"version":2,"command":"track"}"#, "'track' takes a field of that name and no pid"),
            (&TRACK.replace("\"command\"", "\"pid\":1,\"command\""), "a process is tracked only for itself"),
            (&TRACK.replace("\"track\",", "\"status\",").replace('2', "1"), "only 'track' takes a field"),
            (&TRACK.replace("512", "0"), "a threshold of 0 pages"),
            (
                r#"{"version":1,"command":"set-targets","owner":"a"}"#,
                "'set-targets' takes the fields owner and targets",
            ),
            (&SET.replace("\"command\"", "\"pid\":1,\"command\""), "and no other"),
            (&SET.replace("set-targets", "status"), "only 'set-targets' takes the fields"),
            (&SET.replace("\"off\"", "\"odd\""), "unknown variant `odd`"),
            (&SET.replace("\"mode\"", "\"kind\":1,\"mode\""), "unknown field `kind`"),
            (&SET.replace("/a", "a"), "'a' of target 1 is not a control group"),
        ] {
            assert!(refusal(line).contains(expected), "{line}: {}", refusal(line));
        }
        let deep = format!("{{\"version\":1,\"pid\":{}", "[".repeat(LONGEST_REQUEST - 19));
        assert!(refusal(&deep).contains("Expected is a line such as"), "{}", refusal(&deep));
        assert!(refusal(&" ".repeat(LONGEST_REQUEST + 1)).contains("longer than 4096 bytes"));
        let padded = |length: usize| format!("{SET}{}", " ".repeat(length - SET.len()));
        assert!(Request::parse(padded(LONGEST_SET).as_bytes()).is_ok());
        assert!(refusal(&padded(LONGEST_SET + 1)).contains("longer than 1048576"));
    }

    #[test]
    fn a_library_of_another_release_is_told_what_to_update() {
        let of_version = |version: &str| TRACK.replacen('2', version, 1);
        assert!(Request::parse(of_version("2").as_bytes()).is_ok());
        let old = refusal(&of_version("1"));
        assert!(old.contains("expected is version 2; update libhps and restart the program"), "{old}");
        let new = refusal(&of_version("3").replace("\"signal\"", "\"news\""));
        assert!(new.contains("update hugepilotd"), "{new}");
        // As the library of the first release reads a refusal.
        let line = Reply::Error(old.clone()).line();
        let read: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&read["version"], &read["error"]), (&1.into(), &old.into()));
    }

    #[test]
    fn a_reply_of_another_version_is_known_as_such() {
        let why = Reply::parse(br#"{"version":2,"news":{}}"#).unwrap_err();
        assert_eq!(why, "it has version 2, not 1");
        assert!(Reply::parse(br#"{"version":1,"news":{}}"#).is_err());
        assert_eq!(Reply::parse(br#"{"version":1,"tracked":{}}"#).unwrap_err(), "it has version 1, not 2");
        assert!(Reply::parse(b"").unwrap_err().contains("EOF"));
    }

    fn track() -> Track {
        Track { signal: 38, thread: None, threshold_pages: 512, interval_ms: 1000, ranges: Vec::new() }
    }

    prop_compose! {
        fn any_track()(
            signal in libc::SIGRTMIN()..libc::SIGRTMAX(),
            thread: Option<u32>,
            threshold_pages in 1..u64::MAX,
            interval_ms in 100..3_600_000u32,
            ranges in proptest::collection::vec(0..u64::MAX, 0..9),
        ) -> Track {
            let ranges = ranges.into_iter().map(|start| hps::wire::Range { start, end: u64::MAX }).collect();
            Track { signal, thread, threshold_pages, interval_ms, ranges }
        }
    }

    fn any_request() -> impl Strategy<Value = Request> {
        prop_oneof![
            Just(Request::Status),
            any::<Option<u32>>().prop_map(Request::Pause),
            any::<Option<u32>>().prop_map(Request::Resume),
            any::<u32>().prop_map(Request::GiveBack),
            any_track().prop_map(Request::Track),
            any_set().prop_map(Request::SetTargets),
            any_records().prop_map(Request::AtEnd),
        ]
    }

    fn any_records() -> impl Strategy<Value = RecordsAtEnd> {
        prop_oneof![Just(RecordsAtEnd::Keep), Just(RecordsAtEnd::Remove)]
    }

    prop_compose! {
        fn any_set()(
            owner in "[a-z0-9-]{1,64}",
            // Distinct, as two targets for one group would be refused.
            groups in proptest::collection::btree_set("(/[a-z0-9 .-]{1,9}x){1,3}", 0..5),
            weight in proptest::option::of(1..1000u32),
            share in proptest::option::of(0..100u32),
            labels in proptest::collection::btree_map("[a-oq-z][a-z0-9_]{0,8}x", "[^\\pC]{0,20}", 0..4),
        ) -> TargetSet {
            let limit = share.map(|share| format!("{share}%"));
            let target = |group| GroupTarget {
                cgroups: vec![group],
                mode: GroupMode::Promote,
                weight: weight.map(|weight| weight.to_string()),
                max_growth: limit.clone(),
                max_huge: limit.clone(),
                max_slowdown: None,
                labels: labels.clone(),
            };
            TargetSet { owner, targets: groups.into_iter().map(target).collect() }
        }
    }

    prop_compose! {
        fn any_target()(
            pid: u32,
            start_ticks: u64,
            name in ".{0,15}",
            rss: u64,
            may_have: Option<u64>,
            walks in proptest::option::of(0..u32::MAX),
            left_alone in proptest::option::of(".{0,40}"),
            pays: u64,
            no_huge_page: u64,
            start: u64,
        ) -> TargetState {
            let decision = DecisionState {
                ns_ago: Nanos(rss),
                start: Address(start),
                done: DecisionResult::Refused,
                reason: Reason::Pays,
                refused: Some(RefusalReason::Busy),
                walks_per_second: 0.5,
            };
            let in_the_way = Reason::Obstacle(Obstacle::NoHugePage);
            TargetState {
                pid,
                start_ticks,
                name,
                rss_bytes: Bytes(rss),
                may_have_bytes: may_have.map(Bytes),
                scanned_ns_ago: may_have.map(Nanos),
                walks_per_second: walks.map(|walks| f64::from(walks) / 4.0),
                left_alone,
                smaller_huge_bytes: may_have.map(|bytes| {
                    let mut sizes = PageSizes::default();
                    sizes.add(Bytes(1 << 16), Bytes(bytes));
                    sizes
                }),
                reasons: BTreeMap::from([(Reason::Pays, pays), (in_the_way, no_huge_page)]),
                last_decisions: vec![decision],
                ..TargetState::default()
            }
        }
    }

    fn any_reply() -> impl Strategy<Value = Reply> {
        let state = (any::<bool>(), proptest::collection::vec(any_target(), 0..4)).prop_map(|(paused, targets)| {
            Reply::State(Box::new(State { version: VERSION, paused, targets, ..State::default() }))
        });
        prop_oneof![
            state,
            any::<Option<u32>>().prop_map(|pid| Reply::Paused { pid }),
            any::<(Option<u32>, bool)>().prop_map(|(pid, all_paused)| Reply::Resumed { pid, all_paused }),
            Just(Reply::Tracked {}),
            any::<(u32, u64)>().prop_map(|(pid, regions)| Reply::GivenBack { pid, regions }),
            (".{0,9}", any::<u64>()).prop_map(|(owner, targets)| Reply::TargetsSet {
                owner,
                targets,
                capped: Vec::new()
            }),
            any_records().prop_map(|records| Reply::AtEnd { records }),
            ".{0,60}".prop_map(Reply::Error),
        ]
    }

    proptest! {
        #[test]
        fn requests_come_back_as_they_were(request in any_request()) {
            prop_assert_eq!(Request::parse(&request.line()).unwrap(), request);
        }

        #[test]
        fn replies_come_back_as_they_were_on_one_line(reply in any_reply()) {
            let line = reply.clone().line();
            prop_assert_eq!(line.iter().position(|&byte| byte == b'\n'), Some(line.len() - 1));
            prop_assert_eq!(Reply::parse(&line).unwrap(), reply);
        }

        #[test]
        fn any_bytes_are_understood_or_refused(bytes: Vec<u8>) {
            let _ = Request::parse(&bytes);
            let _ = Reply::parse(&bytes);
        }
    }
}
