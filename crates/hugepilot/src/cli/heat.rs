//! `hugepilot heat`: show where the page walks are.

use std::process::ExitCode;

use super::args::HeatArgs;
use super::{require, terminal};
use crate::observe::{PageWalk, Tracker};
use crate::report::{json, text};
use crate::stop::Stop;
use crate::target::Target;

pub(super) fn heat(args: &HeatArgs) -> anyhow::Result<ExitCode> {
    let target = Target::open(args.pid)?;
    require::capabilities(require::OBSERVE)?;
    let stop = Stop::on_signals()?;
    let heat = PageWalk::new()?.observe(&target, &args.watch.options(), &stop)?;
    terminal::print(&if args.json { json::heat(&heat) } else { text::heat(&heat, terminal::canvas()) })?;
    Ok(ExitCode::SUCCESS)
}
