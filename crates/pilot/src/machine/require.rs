//! What a command needs before it starts: it fails early, completely, and names what is missing.
//!
//! Owns: which capabilities observing and acting require. Never touches: gaining them, or giving them up.

use std::fmt;

use heat::TrackerKind;
use hugepilot_os::rights::remedy;
use kernel::capability::Capability;
use kernel::process::ProcessStatus;
use kernel::{KernelError, Root};
use observe::TrackerChoice;

/// Work that needs capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegedWork {
    /// Observing, with any tracker.
    Observing,
    /// Reading page tables, which the tracker `page-walk` does besides.
    ReadingPageTables,
    /// Changing another process's memory, after observing it.
    Acting,
    /// Telling applications of other users which memory of theirs is hot. Without it the rest works.
    Signalling,
}

/// What needs which capability, and what for: the one list, of which each command requires its part.
pub const CAPABILITIES: [(PrivilegedWork, Capability, &str); 7] = [
    (PrivilegedWork::Observing, Capability::SysAdmin, "page frame numbers"),
    (PrivilegedWork::Observing, Capability::DacOverride, "clearing accessed bits of other users' processes"),
    (PrivilegedWork::Observing, Capability::SysPtrace, "reading other users' processes"),
    (PrivilegedWork::ReadingPageTables, Capability::Bpf, "loading BPF programs"),
    (PrivilegedWork::ReadingPageTables, Capability::Perfmon, "reading page tables from BPF programs"),
    (PrivilegedWork::Acting, Capability::SysNice, "advising other processes' memory"),
    (PrivilegedWork::Signalling, Capability::Kill, "telling applications of other users that memory of theirs is hot"),
];

/// Which programs and commands do it.
impl fmt::Display for PrivilegedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observing => "commands that observe (scan, explain, heat, record) or change memory",
            Self::ReadingPageTables => "the tracker page-walk (CAP_SYS_ADMIN includes these)",
            Self::Acting => "commands that change memory (promote, trial, give-back, attach, run, hugepilotd)",
            Self::Signalling => "hugepilotd",
        })
    }
}

impl PrivilegedWork {
    /// What it needs.
    fn capabilities(self) -> impl Iterator<Item = Capability> {
        CAPABILITIES.into_iter().filter(move |each| each.0 == self).map(|each| each.1)
    }
}

/// Why a command cannot do its work.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum RightsError {
    #[error(
        "missing {missing}: {}; `hugepilot doctor` tells what other commands need",
        remedy("these capabilities (systemd's AmbientCapabilities=, `setpriv --ambient-caps`)")
    )]
    Missing { missing: String },
    #[error(transparent)]
    Status(#[from] KernelError),
}

/// Errors: this process lacks capabilities to observe with the chosen tracker, or to change memory.
pub fn acting(choice: TrackerChoice) -> Result<(), RightsError> {
    capabilities(&to_observe(choice).chain(PrivilegedWork::Acting.capabilities()).collect::<Vec<_>>())
}

/// Errors: this process lacks capabilities for the chosen tracker. `auto` falls back to others where BPF is refused.
pub fn observing(choice: TrackerChoice) -> Result<(), RightsError> {
    capabilities(&to_observe(choice).collect::<Vec<_>>())
}

fn to_observe(choice: TrackerChoice) -> impl Iterator<Item = Capability> {
    let reads_page_tables = choice == TrackerChoice::Only(TrackerKind::PageWalk);
    let besides = reads_page_tables.then(|| PrivilegedWork::ReadingPageTables.capabilities());
    PrivilegedWork::Observing.capabilities().chain(besides.into_iter().flatten())
}

/// Errors: this process lacks some of these capabilities; the error names them.
pub fn capabilities(needed: &[Capability]) -> Result<(), RightsError> {
    let own = ProcessStatus::read(&Root::host(), std::process::id())?.cap_eff;
    let missing: Vec<String> = needed.iter().filter(|each| !own.permits(**each)).map(Capability::to_string).collect();
    if missing.is_empty() { Ok(()) } else { Err(RightsError::Missing { missing: missing.join(", ") }) }
}
