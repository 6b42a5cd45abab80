//! `hugepilot pause` and `hugepilot resume`: make the daemon leave one process, or all, alone for a while.

use daemon::control::ControlClient;

use super::args::PauseArgs;
use super::terminal;
use crate::report::text;

pub(super) fn pause(args: &PauseArgs) -> anyhow::Result<()> {
    ControlClient::at(&args.daemon.socket).pause(args.pid)?;
    terminal::print(&text::paused(args.pid))
}

pub(super) fn resume(args: &PauseArgs) -> anyhow::Result<()> {
    let all_paused = ControlClient::at(&args.daemon.socket).resume(args.pid)?;
    terminal::print(&text::resumed(args.pid, all_paused))
}
