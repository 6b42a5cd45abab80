//! Finds the program that is named on the command line.
//!
//! Owns: the choice among several. Never touches: the program.

use std::time::Instant;

use anyhow::bail;
use heat::units::Bytes;
use kernel::Root;
use kernel::process::{ProcessStatus, descendants};
use kernel::target::Target;
use pilot::scope::{PilotMode, Rule, Scope};

use super::args::TargetOptions;

/// A program, and whether its descendants belong to it.
pub(super) struct Named {
    pub(super) target: Target,
    pub(super) has_children: bool,
}

/// The named process, or of those found the one that started the others; if several did, the one of them with the most memory, which is said.
///
/// Errors: there is none.
pub(super) fn find(options: &TargetOptions) -> anyhow::Result<Named> {
    if let Some(pid) = options.pid {
        return Ok(Named { target: Target::open(pid)?, has_children: false });
    }
    let root = Root::host();
    let rule = Rule { matcher: options.matcher(), children: false, weight: 1.0, mode: PilotMode::Observe };
    let found: Vec<u32> =
        Scope::new(vec![rule], Vec::new()).census(&root, Instant::now()).iter().map(|each| each.process.pid).collect();
    let below: Vec<Vec<u32>> = found.iter().map(|&pid| descendants(&root, pid)).collect::<Result<_, _>>()?;
    let starts_itself = |pid: &u32| !below.iter().any(|below| below.contains(pid));
    let memory = |pid: u32| ProcessStatus::read(&root, pid).map_or(Bytes(0), |status| status.vm_rss);
    let mut tops: Vec<u32> = found.iter().copied().filter(starts_itself).collect();
    tops.sort_by_key(|&pid| std::cmp::Reverse(memory(pid)));
    let Some(&pid) = tops.first() else {
        bail!("no running program is found by that; `hugepilot trial PID` takes a process id")
    };
    if tops.len() > 1 {
        eprintln!("hugepilot: {} programs are found; process {pid} has the most memory ({})", tops.len(), memory(pid));
    }
    let has_children = found
        .iter()
        .position(|&each| each == pid)
        .is_some_and(|index| below[index].iter().any(|each| found.contains(each)));
    Ok(Named { target: Target::open(pid)?, has_children })
}
