//! `hugepilot pause` and `hugepilot resume`: make the daemon leave some programs, or all, alone for a while.

use daemon::control::ControlClient;

use super::args::PauseArgs;
use super::{target, terminal};
use crate::report::{json, text};

pub(super) fn pause(args: &PauseArgs) -> anyhow::Result<()> {
    let daemon = ControlClient::at(&args.daemon.socket);
    for pid in meant(args)? {
        daemon.pause(pid)?;
        terminal::print(&if args.json { json::paused(pid) } else { text::paused(pid) })?;
    }
    Ok(())
}

pub(super) fn resume(args: &PauseArgs) -> anyhow::Result<()> {
    let daemon = ControlClient::at(&args.daemon.socket);
    for pid in meant(args)? {
        let all_paused = daemon.resume(pid)?;
        terminal::print(&if args.json { json::resumed(pid, all_paused) } else { text::resumed(pid, all_paused) })?;
    }
    Ok(())
}

/// The processes that are meant; one `None` stands for all.
fn meant(args: &PauseArgs) -> anyhow::Result<Vec<Option<u32>>> {
    if args.target.is_empty() && !args.target.children {
        return Ok(vec![None]);
    }
    Ok(target::processes(&args.target)?.into_iter().map(Some).collect())
}
