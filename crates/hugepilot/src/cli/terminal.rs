//! The terminal: its width, colours, progress, and what happens when nobody reads.
//!
//! Owns: standard output and standard error. Never touches: words; those are in `report`.
//!
//! Progress lines show nothing if standard error is no terminal, and are cleared when dropped; indicatif does both.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail};
use hugepilot_os::stdout;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::args::Verbosity;
use crate::report::Detail;
use crate::report::heat_map::Canvas;

/// How much is said; the command line says so once.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();
/// Width if there is no terminal to ask.
const DEFAULT_WIDTH: usize = 100;

/// The capabilities of standard output.
pub(super) fn canvas() -> Canvas {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let width = size.map_or(DEFAULT_WIDTH, |size| usize::from(size.ws_col).max(1));
    Canvas { width, color: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()) }
}

/// Prints a report.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    if stdout::was_closed() {
        bail!("standard output is closed, so the report could not be written; lead it to a file or a terminal");
    }
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write the report to standard output")
}

/// Sets, once and before anything is said, how much is said.
pub(super) fn set_verbosity(verbosity: Verbosity) {
    // A second call changes nothing, and there is none.
    _ = VERBOSITY.set(verbosity);
}

fn verbosity() -> Verbosity {
    VERBOSITY.get().copied().unwrap_or_default()
}

/// How much reports say.
pub(super) fn detail() -> Detail {
    if verbosity().verbose { Detail::Full } else { Detail::Usual }
}

/// Says something beside the report, on standard error, unless `--quiet`.
pub(super) fn note(text: &str) {
    say(&format!("hugepilot: {text}\n"));
}

/// Says these lines on standard error, unless `--quiet`. It may be closed; nothing depends on this.
pub(super) fn say(lines: &str) {
    if !verbosity().quiet {
        _ = io::stderr().write_all(lines.as_bytes());
    }
}

/// Says what failed, as clap says what is wrong with a command line.
pub(super) fn say_error(error: &anyhow::Error) {
    _ = writeln!(io::stderr(), "error: {error:#}");
}

/// Explains the one pause in commands that estimate a gain.
pub(super) fn say_measuring() {
    note(
        "measuring what a page walk costs here: five to ten seconds of CPU time, longer by the clock where the machine is busy; once until it is restarted, and again if it was too busy",
    );
}

/// Errors: nobody can read standard output any more; then nothing must be changed, because nobody would see it.
pub(super) fn ensure_read() -> anyhow::Result<()> {
    let output = io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::OUT)];
    let answered = poll(&mut polled, Some(&Timespec::default()));
    if stdout::was_closed() || answered.is_err() || polled[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL) {
        bail!("standard output is closed, so the report could not be read; nothing was changed");
    }
    Ok(())
}

/// A line on standard error, for work without a known end.
pub(super) struct StatusLine {
    bar: ProgressBar,
    /// How the user can end it, and what that does.
    ending: &'static str,
}

impl StatusLine {
    pub(super) fn begin(ending: &'static str) -> Self {
        let line = Self { bar: unless_quiet(ProgressBar::new_spinner()), ending };
        line.show("the first observation is under way");
        line
    }

    pub(super) fn show(&self, text: &str) {
        self.bar.set_message(format!("{text}; {}", self.ending));
        self.bar.tick();
    }
}

/// A line that shows the time elapsed so far.
pub(super) fn spinner(text: String) -> ProgressBar {
    let bar = unless_quiet(ProgressBar::new_spinner());
    let bar = bar.with_style(style("{spinner} {msg} {elapsed}")).with_message(text);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// A progress bar.
pub(super) fn progress(count: u64, things: &str) -> ProgressBar {
    unless_quiet(ProgressBar::new(count))
        .with_style(style(&format!("{{bar:40}} {{pos}}/{{len}} {things}, {{eta}} left")))
}

/// A progress bar that counts bytes and also shows the speed.
pub(super) fn memory_progress(bytes: u64) -> ProgressBar {
    let template = "{bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    unless_quiet(ProgressBar::new(bytes)).with_style(style(template))
}

fn unless_quiet(bar: ProgressBar) -> ProgressBar {
    if verbosity().quiet { ProgressBar::hidden() } else { bar }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a valid template")
}
