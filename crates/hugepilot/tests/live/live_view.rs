//! `heat --live` in a terminal: however the view ends, it restores the terminal.
//!
//! Owns: a script(1) terminal for each view. Never touches: the terminal that the tests run in.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use kernel::Root;
use kernel::process::descendants;
use rustix::process::Signal;

use crate::support::{Ended, Program, binary, hugepilot, send, wait_until};

crate::trials!(
    keys_work_and_the_terminal_is_given_back,
    an_interrupt_and_a_signal_give_the_terminal_back,
    the_end_of_the_program_is_said,
    a_terminal_that_goes_away_ends_it,
    a_small_terminal_says_so,
    without_a_terminal_it_says_what_to_do,
);

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A running view.
struct View {
    script: Ended,
    output: PathBuf,
    _folder: tempfile::TempDir,
}

impl View {
    /// Shows a program in a terminal of this size. Afterwards the terminal's settings are printed.
    fn of(program: &Program, rows: u32, columns: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("output");
        let view = format!("{} heat {} --live --window 100ms", binary(), program.pid);
        let command = format!("stty rows {rows} cols {columns}; {view}; echo status=$?; stty -a");
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--command", &command]).arg(&output);
        // The command is written for this shell.
        script.env("SHELL", "/bin/sh");
        let script = script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let view = Self { script: Ended(script.expect("script starts")), output, _folder: folder };
        view.wait_for(ENTER);
        view
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        wait_until(text, || self.shown().contains(text));
    }

    /// Waits for something on the screen. The view redraws everything when the size changes, and otherwise only differences. It writes a space only
    /// where that has a style, as in headings.
    fn wait_for_redrawn(&self, text: &str) {
        let terminal = format!("/proc/{}/fd/0", self.pid());
        let mut rows = [31, 30].iter().cycle();
        wait_until(text, || {
            let rows = rows.next().expect("without end").to_string();
            let resized = Command::new("stty").args(["-F", &terminal, "rows", &rows]).status();
            assert!(resized.expect("stty starts").success(), "the view has ended: {}", self.shown());
            std::thread::sleep(std::time::Duration::from_millis(200));
            self.shown().contains(text)
        });
    }

    fn press(&mut self, keys: &str) {
        let child: &mut Child = &mut self.script.0;
        child.stdin.as_mut().expect("piped").write_all(keys.as_bytes()).expect("a terminal that listens");
    }

    /// The process id of hugepilot itself.
    fn pid(&self) -> u32 {
        let is_ours =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "hugepilot\n");
        let below = descendants(&Root::host(), self.script.0.id()).expect("processes");
        below.into_iter().find(is_ours).expect("hugepilot runs")
    }

    /// Asserts that it ends with this status, and that the terminal is as it was.
    fn assert_ended(mut self, status: u8) {
        self.wait_for("status=");
        wait_until("script ends", || self.script.0.try_wait().expect("a child can be asked").is_some());
        let shown = self.shown();
        let (view, after) = shown.rsplit_once("status=").expect("a status");
        assert!(after.starts_with(&format!("{status}\r\n")), "{shown}");
        assert_eq!((view.matches(ENTER).count(), view.matches(LEAVE).count()), (1, 1), "{shown}");
        assert!(view.rfind("\x1b[?25h") > view.rfind("\x1b[?25l"), "the cursor is hidden: {shown}");
        let settings: Vec<&str> = after.split([' ', ';', '\r', '\n']).collect();
        for setting in ["icanon", "echo", "isig", "opost"] {
            assert!(settings.contains(&setting), "'{setting}' is off: {shown}");
        }
        assert!(!shown.contains("panicked"), "{shown}");
    }
}

fn program() -> Program {
    Program::start("map=32M nohugepage fill ready read=all")
}

fn keys_work_and_the_terminal_is_given_back() {
    let program = program();
    let mut view = View::of(&program, 30, 100);
    view.wait_for("walks v");
    view.press("s");
    view.wait_for_redrawn("present v");
    // Selecting and zooming have unit tests; here the keys must reach the view and leave it running.
    view.press("\x1b[Bjkz");
    view.press("s");
    view.wait_for_redrawn("huge v");
    view.press("q");
    view.assert_ended(0);
}

fn an_interrupt_and_a_signal_give_the_terminal_back() {
    let program = program();
    for ends in ["key", "TERM", "INT", "HUP"] {
        let mut view = View::of(&program, 30, 100);
        view.wait_for("walks v");
        match ends {
            // The view reads raw keys, so Ctrl-C is an ordinary one.
            "key" => view.press("\x03"),
            "TERM" => send(view.pid(), Signal::TERM),
            "INT" => send(view.pid(), Signal::INT),
            _ => send(view.pid(), Signal::HUP),
        }
        view.assert_ended(0);
    }
}

fn the_end_of_the_program_is_said() {
    let program = program();
    let mut view = View::of(&program, 30, 100);
    // The headings appear before the first observation, but the screen would then have nothing else to keep.
    view.wait_for("(anonymous)");
    drop(program);
    view.wait_for_redrawn("ended;");
    view.press("q");
    view.assert_ended(0);
}

fn a_terminal_that_goes_away_ends_it() {
    let program = program();
    let view = View::of(&program, 30, 100);
    view.wait_for("walks v");
    let pid = view.pid();
    // As when a window is closed or a connection is lost.
    send(view.script.0.id(), Signal::KILL);
    wait_until("hugepilot ends", || !std::path::Path::new(&format!("/proc/{pid}/exe")).exists());
}

fn a_small_terminal_says_so() {
    let program = program();
    for (rows, columns) in [(5, 60), (30, 20), (1, 1)] {
        let mut view = View::of(&program, rows, columns);
        if columns > 20 {
            view.wait_for("small:");
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
        view.press("sz\x1b[Bq");
        view.assert_ended(0);
    }
}

fn without_a_terminal_it_says_what_to_do() {
    let program = program();
    hugepilot(&format!("heat {} --live", program.pid)).assert_fails_with(&["--live needs a terminal", "printed once"]);
}
