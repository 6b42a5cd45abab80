//! What a command needs before it starts, so that it fails early, whole, and with a name.

use anyhow::bail;
use heat::TrackerKind;
use kernel::Root;
use kernel::capability::Capability;
use kernel::process::ProcessStatus;
use observe::TrackerChoice;

/// What observing with any tracker takes.
const OBSERVE: &[Capability] = &[Capability::SysAdmin, Capability::DacOverride, Capability::SysPtrace];
/// What reading page tables takes besides.
const READ_PAGE_TABLES: &[Capability] = &[Capability::Bpf, Capability::Perfmon];
/// What changing another process's memory takes besides.
pub(super) const ACT: &[Capability] = &[Capability::SysNice, Capability::SysPtrace];

/// Errors if this process lacks what the chosen tracker takes, naming it. `auto` goes on to others where BPF is refused.
pub(super) fn observing(choice: TrackerChoice) -> anyhow::Result<()> {
    let besides = if choice == TrackerChoice::Only(TrackerKind::PageWalk) { READ_PAGE_TABLES } else { &[] };
    capabilities(&[besides, OBSERVE].concat())
}

/// Errors if this process lacks one of the capabilities, naming those that are missing.
pub(super) fn capabilities(needed: &[Capability]) -> anyhow::Result<()> {
    let own = ProcessStatus::read(&Root::host(), std::process::id())?.cap_eff;
    let missing: Vec<String> = needed.iter().filter(|each| !own.permits(**each)).map(Capability::to_string).collect();
    if !missing.is_empty() {
        bail!(
            "missing {}: run as root (sudo hugepilot ..), or give the capabilities with systemd's AmbientCapabilities= or \
             `setpriv --ambient-caps`",
            missing.join(", ")
        );
    }
    Ok(())
}
