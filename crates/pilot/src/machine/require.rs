//! What a command needs before it starts: it fails early, completely, and names what is missing.
//!
//! Owns: which capabilities observing and acting require. Never touches: gaining them, or giving them up.

use heat::TrackerKind;
use hugepilot_os::rights::remedy;
use kernel::capability::Capability;
use kernel::process::ProcessStatus;
use kernel::{KernelError, Root};
use observe::TrackerChoice;

/// Required to observe with any tracker.
const OBSERVE: &[Capability] = &[Capability::SysAdmin, Capability::DacOverride, Capability::SysPtrace];
/// Also required to read page tables.
const READ_PAGE_TABLES: &[Capability] = &[Capability::Bpf, Capability::Perfmon];
/// Also required to change another process's memory.
const ACT: &[Capability] = &[Capability::SysNice];

/// Why a command cannot do its work.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum RightsError {
    #[error(
        "missing {missing}: {}",
        remedy("these capabilities (systemd's AmbientCapabilities=, `setpriv --ambient-caps`)")
    )]
    Missing { missing: String },
    #[error(transparent)]
    Status(#[from] KernelError),
}

/// Errors: this process lacks capabilities to observe with the chosen tracker, or to change memory.
pub fn acting(choice: TrackerChoice) -> Result<(), RightsError> {
    capabilities(&[to_observe(choice), ACT.to_vec()].concat())
}

/// Errors: this process lacks capabilities for the chosen tracker. `auto` falls back to others where BPF is refused.
pub fn observing(choice: TrackerChoice) -> Result<(), RightsError> {
    capabilities(&to_observe(choice))
}

fn to_observe(choice: TrackerChoice) -> Vec<Capability> {
    let besides = if choice == TrackerChoice::Only(TrackerKind::PageWalk) { READ_PAGE_TABLES } else { &[] };
    [besides, OBSERVE].concat()
}

/// Errors: this process lacks some of these capabilities; the error names them.
pub fn capabilities(needed: &[Capability]) -> Result<(), RightsError> {
    let own = ProcessStatus::read(&Root::host(), std::process::id())?.cap_eff;
    let missing: Vec<String> = needed.iter().filter(|each| !own.permits(**each)).map(Capability::to_string).collect();
    if missing.is_empty() { Ok(()) } else { Err(RightsError::Missing { missing: missing.join(", ") }) }
}
