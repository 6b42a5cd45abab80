//! `hugepilot status`: the state of a running daemon.

use daemon::control::ControlClient;

use super::args::StatusArgs;
use super::terminal;
use crate::report::{json, text};

pub(super) fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let state = ControlClient::at(&args.daemon.socket).status()?;
    terminal::print(&if args.json { json::status(&state) } else { text::status(&state) })
}
