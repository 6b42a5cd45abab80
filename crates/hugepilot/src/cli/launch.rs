//! What `run --pages` and `run --shm` add to `run`: the program is inspected before it starts, started with settings that suit it, and checked
//! afterwards.
//!
//! Owns: the file with the preload library's counters. Never touches: which settings suit which program; that is `launch`.

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use heat::RefusalReason;
use heat::units::{Bytes, HUGE_PAGE};
use hugepilot_os::placement::CountsFile;
use hugepilot_os::stop::Stop;
use kernel::Root;
use launch::counts::Placed;
use launch::request::LaunchRequest;
use launch::verify::{Piloted, Verification};
use launch::watch::{Seen, watch};
use launch::{COUNTS_VARIABLE, Prepared, prepare};
use pilot::engine::PilotSummary;

use super::args::{PrintFormat, RunArgs};
use super::terminal;
use crate::report::text;

/// The exit status if less memory than required was on huge pages.
const NOT_MET: u8 = 3;

/// A program that is started on huge pages.
pub(super) struct Launch {
    pub(super) prepared: Prepared,
    counts: Option<Arc<CountsFile>>,
    required: Option<f64>,
}

/// Finds out how to start the program; None if the user requests nothing and the program needs nothing.
pub(super) fn prepare_for(args: &RunArgs) -> anyhow::Result<Option<Prepared>> {
    let prepare = |request| prepare(&Root::host(), &args.command, request, std::env::vars_os());
    match args.launch.request() {
        Some(request) => Ok(Some(prepare(request)?)),
        // Errors about the program are reported when it is started.
        None => Ok(prepare(LaunchRequest::shared()).ok().filter(Prepared::needs_aligning)),
    }
}

/// Prints what the program would be started with.
pub(super) fn print(args: &RunArgs, prepared: &Prepared, format: PrintFormat) -> anyhow::Result<ExitCode> {
    let words = args.command.iter().map(|word| word.to_str().map(str::to_owned));
    let command: Vec<String> =
        words.collect::<Option<_>>().context("--print writes text, and a word of the command is not UTF-8")?;
    terminal::print(&match format {
        PrintFormat::Shell => text::shell_command(prepared, &command),
        PrintFormat::Systemd => text::unit_environment(prepared, &command),
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Launch {
    /// Reports what the program is started with.
    pub(super) fn begin(mut prepared: Prepared, args: &RunArgs) -> anyhow::Result<Self> {
        // Until the program starts, a signal ends this process as it ends any other.
        prepared.cache_code(&Stop::default());
        let counts = prepared.counts.then(CountsFile::create).transpose();
        let counts = counts.context(
            "cannot make memory for the preload library to count in; raise the limit on open files (ulimit -n)",
        )?;
        terminal::say(&text::recipe(&prepared));
        Ok(Self { prepared, counts: counts.map(Arc::new), required: args.launch.require })
    }

    /// Adds the program's environment variables and arguments to those of the user.
    pub(super) fn equip(&self, command: &mut Command, arguments: &[OsString]) {
        command.args(self.prepared.recipe.arguments_around(arguments.iter().cloned()));
        command.envs(self.prepared.recipe.variables.iter().map(|variable| (variable.name, &variable.value)));
        command.envs(self.counts.iter().map(|counts| (COUNTS_VARIABLE, counts.path())));
    }

    /// Observes the program until stopping is requested.
    pub(super) fn watch(&self, pid: u32, stop: Stop) -> JoinHandle<Seen> {
        watch(pid, self.prepared.request.pages, self.counts.clone(), stop)
    }

    /// How much of its memory was huge, with a pilot or without.
    pub(super) fn account(&self, seen: Seen, pilot_summary: &PilotSummary, piloted: bool) -> Verification {
        let placed = self.counts.as_ref().map(|counts| Placed::of(&counts.tally()));
        let given_back = Bytes(pilot_summary.counts.given_back.saturating_mul(HUGE_PAGE));
        let Prepared { request, recipe, machine, .. } = &self.prepared;
        // If memory changed or its process ended, nothing was refused.
        let passing = [RefusalReason::Changed, RefusalReason::Exited];
        let refused = pilot_summary.outcome.refused.iter().map(|refusal| refusal.reason);
        let piloted = piloted.then(|| Piloted {
            promoted: pilot_summary.outcome.applied_bytes().saturating_sub(given_back),
            refused: refused.filter(|reason| !passing.contains(reason)).collect(),
        });
        Verification::of(seen, (request, recipe, machine), placed.as_ref(), piloted.as_ref(), self.required)
    }
}

/// The program's own status takes precedence if it failed.
pub(super) fn status(own: ExitCode, succeeded: bool, account: Option<&Verification>) -> ExitCode {
    if succeeded && account.is_some_and(|account| !account.is_met()) { ExitCode::from(NOT_MET) } else { own }
}
