//! `hugepilot color`: whether page colors are real on this machine.

use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::capability::Capability;
use pilot::machine::require;

use super::args::{ColorArgs, ColorCommand};
use super::terminal;
use crate::report::{json, text};

pub(super) fn color(args: &ColorArgs) -> anyhow::Result<()> {
    let ColorCommand::Probe(args) = &args.command;
    require::capabilities(&[Capability::SysAdmin])?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let progress = terminal::progress(100, "% measured");
    let probe =
        ::color::probe(&Root::host(), args.rounds, &stop, |share| progress.set_position((share * 100.0) as u64))?;
    drop(progress);
    terminal::print(&if args.json { json::color(&probe) } else { text::color(&probe) })
}
