//! `hugepilot run`: starts a program, with `--pages` on huge pages, and pilots it while it runs.
//!
//! Owns: the child process, its signals and its exit status. Never touches: how it is observed or promoted.
//!
//! Only the pilot needs rights. `--pages` needs none, so it also serves ordinary users, and servers that refuse to run as root.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Instant;

use ::launch::Prepared;
use ::launch::program::ProgramFamily;
use ::launch::verify::Verification;
use anyhow::{Context, anyhow, bail};
use heat::units::Nanos;
use hugepilot_os::PidFd;
use hugepilot_os::signals::is_ignored;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::target::Process;
use observe::Tracker;
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, PilotSummary, Rules};
use pilot::machine::{Machine, require};
use pilot::scope::Scope;
use rustix::process::Signal;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use super::args::RunArgs;
use super::launch::{self, Launch};
use super::pilot_summary::{report_of, say_if_fast};
use super::settings::settings;
use super::terminal;
use crate::report::{LaunchReport, RunReport, json, text};

/// Bytes that the kernel keeps of a program's name (`TASK_COMM_LEN`).
const LONGEST_NAME: usize = 15;
/// Signals meant for the program.
const PASSED_ON: [Signal; 6] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    match (launch::prepare_for(args)?, args.launch.print) {
        (Some(prepared), Some(format)) => launch::print(args, &prepared, format),
        (Some(prepared), None) => run_child(args, Some(prepared), tracker(args)),
        (None, Some(_)) => {
            bail!(
                "nothing has to be set for it; --pages thp, 2M or 1G says on which pages its memory is to be from the start"
            )
        }
        (None, None) => run_child(args, None, Ok(tracker(args)?)),
    }
}

/// The pilot's tracker. Errors: rights are missing, or this machine has no tracker.
fn tracker(args: &RunArgs) -> anyhow::Result<Box<dyn Tracker>> {
    require::acting(args.watch.tracker)?;
    Ok(observe::open(args.watch.tracker)?)
}

/// Runs the program until it ends: piloted, or alone where there is no tracker.
fn run_child(
    args: &RunArgs,
    prepared: Option<Prepared>,
    tracker: anyhow::Result<Box<dyn Tracker>>,
) -> anyhow::Result<ExitCode> {
    let summary = args.summary_json.as_ref().map(|path| create(path)).transpose()?;
    let launch = prepared.map(|prepared| Launch::begin(prepared, args)).transpose()?;
    let stop = Stop::default();
    // Handlers are installed before the program starts, so that no signal is lost.
    let signals = SignalsInfo::<WithOrigin>::new(taken()).context("cannot take signals")?;
    let started = Instant::now();
    let (child, handle) = start(args, launch.as_ref())?;
    let pid = child.id();
    let watching = launch.as_ref().map(|launch| launch.watch(pid, stop.clone()));
    pass_signals_on(signals, handle);
    let waiting = wait_in_background(child, stop.clone());
    let piloted = tracker.is_ok();
    let pilot_summary = match tracker {
        Ok(tracker) => pilot(args, pid, tracker, stop)?,
        Err(error) => without_pilot(&error),
    };
    let status = waiting.join().expect("the waiting thread does not panic").context("cannot wait for the program")?;
    let elapsed = Nanos::from_duration(started.elapsed());
    let seen = watching.map(|watching| watching.join().expect("the watching thread does not panic"));
    let account = launch.as_ref().zip(seen).map(|(launch, seen)| launch.account(seen, &pilot_summary, piloted));
    let launched = launch.as_ref().zip(account.as_ref());
    // The program's own exit status counts, even if the summary fails.
    if let Err(error) = report(args, &pilot_summary, launched, status, elapsed, summary) {
        terminal::say_error(&error);
    }
    Ok(launch::status(exit_code(status), status.success(), account.as_ref()))
}

fn pilot(args: &RunArgs, pid: u32, tracker: Box<dyn Tracker>, stop: Stop) -> anyhow::Result<PilotSummary> {
    say_if_fast(args.pace.max_slowdown());
    let settings = settings(&args.watch, &args.spend, &args.pace, args.budget.max_cpu)?;
    let mut machine = Machine::new(tracker, settings.max_slowdown);
    let mut pilot = Pilot::lasting(&mut machine, settings, stop);
    // If it has ended already, its start time is unknown; 0 matches no process.
    let process = Process::of(&Root::host(), pid).unwrap_or(Process { pid, start_ticks: 0 });
    let scope = Scope::process(process, true);
    let fleet = Fleet::begin(scope, Rules::default(), SharedState::default(), &mut pilot);
    Ok(fleet.run(&mut pilot, None, |_| ()))
}

/// The summary of a program that is not piloted; says at once why it is not.
fn without_pilot(why: &anyhow::Error) -> PilotSummary {
    terminal::note(&format!("not piloted, so that what is above is all it gets: {why:#}"));
    PilotSummary::never_begun("it was not piloted")
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path)
        .with_context(|| format!("cannot write the summary to {}; the program was not started", path.display()))
}

/// The signals to pass on. Signals that we inherited as ignored (nohup: SIGHUP) stay ignored, for us and for the program.
fn taken() -> impl Iterator<Item = i32> {
    PASSED_ON.into_iter().filter(|&signal| !is_ignored(signal)).map(Signal::as_raw)
}

fn start(args: &RunArgs, launch: Option<&Launch>) -> anyhow::Result<(Child, PidFd)> {
    let mut child = spawn(args, launch)?;
    match PidFd::open(child.id()) {
        Ok(handle) => Ok((child, handle)),
        Err(error) => {
            // We must end it: without this handle neither signals nor the exit status could be passed on.
            child.kill().and_then(|()| child.wait()).context("cannot end the program")?;
            bail!("cannot hold the program, so it was ended again: {error}; raise the limit on open files (ulimit -n)")
        }
    }
}

fn spawn(args: &RunArgs, launch: Option<&Launch>) -> anyhow::Result<Child> {
    let (program, arguments) = args.command.split_first().context("no program was given")?;
    let shown = program.to_string_lossy();
    let mut command = Command::new(program);
    match launch {
        None => _ = command.args(arguments),
        Some(launch) => launch.equip(&mut command, arguments),
    }
    match command.spawn() {
        Ok(child) => Ok(child),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("cannot run '{shown}': no such program; give its path, or check PATH")
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!("cannot run '{shown}': it is not executable; `chmod +x` makes it so, or start its interpreter")
        }
        Err(error) => bail!("cannot run '{shown}': {error}"),
    }
}

/// Passes on signals that were sent to us alone. The terminal sends its own (Ctrl-C) to the whole process group, including the program, which must
/// not get them twice.
fn pass_signals_on(mut signals: SignalsInfo<WithOrigin>, program: PidFd) {
    thread::spawn(move || {
        for origin in &mut signals {
            if origin.cause != Cause::Kernel
                && let Some(signal) = Signal::from_named_raw(origin.signal)
            {
                // It may have ended already; then the signal has no receiver.
                let _ = program.signal(signal);
            }
        }
    });
}

fn wait_in_background(mut child: Child, stop: Stop) -> thread::JoinHandle<io::Result<ExitStatus>> {
    thread::spawn(move || {
        let status = child.wait();
        stop.request();
        status
    })
}

fn report(
    args: &RunArgs,
    pilot_summary: &PilotSummary,
    launched: Option<(&Launch, &Verification)>,
    status: ExitStatus,
    elapsed: Nanos,
    summary: Option<File>,
) -> anyhow::Result<()> {
    let command: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let report = RunReport {
        command: &command,
        exit_status: status.code(),
        signal: status.signal(),
        pilot_summary: report_of(pilot_summary, elapsed),
        launch: launched.map(|(launch, account)| LaunchReport { prepared: &launch.prepared, account }),
    };
    let is_script = launched.is_some_and(|(launch, _)| launch.prepared.program.script.is_some());
    let explain = explain(&args.command[0]).filter(|_| !is_script);
    let mut lines = text::pilot_summary(&report.pilot_summary, explain.as_deref());
    lines.extend(report.launch.iter().map(text::account));
    terminal::say(&lines);
    if let Some((_, account)) = launched
        && let (Some(required), false) = (account.required, account.is_met())
    {
        let share = account.percent().map_or("none".to_owned(), |percent| format!("{percent:.1} %"));
        terminal::say_error(&anyhow!("{share} of the memory that could be huge was; --require asks for {required} %"));
    }
    match summary {
        Some(mut file) => file.write_all(json::run(&report).as_bytes()).context("cannot write the summary"),
        None => Ok(()),
    }
}

/// The command that says more about the program when it runs again: by its name, because it has ended. None if it starts another one, whose name is
/// not known.
fn explain(program: &OsStr) -> Option<String> {
    let program = Path::new(program);
    let starts_another = [ProgramFamily::Shell, ProgramFamily::Wrapper, ProgramFamily::Elsewhere];
    let name = program.file_name().filter(|_| !starts_another.contains(&ProgramFamily::of(program)))?;
    let mut pattern = name.to_string_lossy().into_owned();
    if pattern.len() > LONGEST_NAME {
        let end = (0..=LONGEST_NAME).rev().find(|&end| pattern.is_char_boundary(end)).unwrap_or(0);
        pattern.replace_range(end.., "*");
    }
    Some(format!("when it runs again, `hugepilot explain --name {}` says more", text::quoted_for_shell(&pattern)))
}

/// The program's own status; if a signal ended it, 128 plus the signal's number, as in shells.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(code as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_explained_by_its_name_when_it_runs_again() {
        let told = |program: &str| explain(OsStr::new(program));
        let expected = "when it runs again, `hugepilot explain --name search` says more";
        assert_eq!(told("/opt/bin/search").as_deref(), Some(expected));
        for (program, pattern) in [
            ("search-engine-1", "search-engine-1"),
            ("search-engine-17", "'search-engine-1*'"),
            ("12345678901234ü", "'12345678901234*'"),
            ("it's", r"'it'\''s'"),
        ] {
            let expected = format!("when it runs again, `hugepilot explain --name {pattern}` says more");
            assert_eq!(told(program), Some(expected));
        }
        assert_eq!((told("setpriv"), told("/bin/sh")), (None, None));
    }
}
