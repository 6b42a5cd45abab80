//! `hugepilot heat --live`: observes repeatedly and shows each observation until it is told to quit.
//!
//! Owns: the terminal during the view. Never touches: what is shown; that is `report::live`.
//!
//! Keys must work during an observation, so one thread observes and another draws.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, bail};
use heat::Heat;
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use observe::Tracker;
use pilot::series::{Rhythm, Series};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::args::HeatArgs;
use super::record::follow;
use crate::report::live::{Asked, Live};

/// The longest delay before a key is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Shows a process until `q`, Ctrl-C or a signal. If the process ends first, the view says so.
pub(super) fn live(args: &HeatArgs, target: &Target, tracker: &mut dyn Tracker, stop: &Stop) -> anyhow::Result<()> {
    use std::io::IsTerminal;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("--live needs a terminal; without --live the heat is printed once");
    }
    let (sender, heats) = channel();
    let view = Live::new(format!("{} (process {})", target.name, target.pid()));
    let shown_until = stop.clone();
    // This restores the terminal in any case, even after a panic.
    let terminal = ratatui::try_init().context("the terminal cannot be taken over")?;
    let showing = thread::spawn(move || {
        let shown = show(terminal, view, &heats, &shown_until);
        shown_until.request();
        shown
    });
    let observed = observe(args, target, tracker, &sender, stop);
    if observed.is_err() {
        stop.request();
    }
    let shown = showing.join().unwrap_or_else(|_| bail!("showing failed"));
    // If the terminal is gone, there is nothing to restore, and nobody to tell.
    _ = ratatui::try_restore();
    observed.and(shown)
}

/// Sends observations to the view, until the view or a signal ends it.
fn observe(
    args: &HeatArgs,
    target: &Target,
    tracker: &mut dyn Tracker,
    sender: &Sender<Result<Heat, String>>,
    stop: &Stop,
) -> anyhow::Result<()> {
    let rhythm = Rhythm { max_cpu: args.budget.max_cpu, ..Rhythm::default() };
    let series = Series::new(tracker, target, args.watch.options(), rhythm, stop);
    follow(series, target, stop, |moment| {
        _ = sender.send(Ok(moment.heat));
        Ok(())
    })?;
    if target.handle().has_exited() {
        _ = sender.send(Err("the process has ended; q ends".to_owned()));
    }
    Ok(())
}

fn show(
    mut terminal: DefaultTerminal,
    mut view: Live,
    heats: &Receiver<Result<Heat, String>>,
    stop: &Stop,
) -> anyhow::Result<()> {
    while !stop.requested() {
        match heats.try_recv() {
            Ok(Ok(heat)) => view.show(heat),
            Ok(Err(message)) => view.say(message),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        terminal.draw(|frame| view.draw(frame))?;
        let Some(pressed) = pressed()? else { break };
        if keys(&pressed).into_iter().any(|(code, modifiers)| view.key(code, modifiers) == Asked::Quit) {
            break;
        }
    }
    Ok(())
}

/// The bytes of pressed keys, after waiting briefly for one; None if the terminal is gone (a closed window, a lost connection).
///
/// Does not use crossterm, which reads nothing from a terminal that is gone, again and again, and never returns (0.28).
fn pressed() -> io::Result<Option<Vec<u8>>> {
    let (input, mut bytes) = (io::stdin(), Vec::new());
    let wait = Timespec { tv_sec: 0, tv_nsec: POLL.subsec_nanos().into() };
    loop {
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut polled, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Some(bytes)),
            Ok(_) if polled[0].revents() != PollFlags::IN => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 64];
        match rustix::io::read(&input, &mut buffer)? {
            0 => return Ok(None),
            len => bytes.extend(&buffer[..len]),
        }
        // An arrow key sends three bytes, which may arrive one by one.
        if !bytes.ends_with(b"\x1b") && !bytes.ends_with(b"\x1b[") {
            return Ok(Some(bytes));
        }
    }
}

/// Parses bytes into keys.
fn keys(bytes: &[u8]) -> Vec<(KeyCode, KeyModifiers)> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let (key, taken) = match (first, after) {
            (0x1b, [b'[' | b'O', b'A', ..]) => (KeyCode::Up, 3),
            (0x1b, [b'[' | b'O', b'B', ..]) => (KeyCode::Down, 3),
            // Any other escape sequence.
            (0x1b, [b'[' | b'O', ..]) => (KeyCode::Null, 3),
            (0x1b, _) => (KeyCode::Esc, 1),
            (b'\r' | b'\n', _) => (KeyCode::Enter, 1),
            (byte, _) => (KeyCode::Char(char::from(byte)), 1),
        };
        keys.push(match key {
            KeyCode::Char('\x03') => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            key => (key, KeyModifiers::NONE),
        });
        rest = &rest[taken.min(rest.len())..];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_terminal_are_keys() {
        let codes = |bytes: &[u8]| keys(bytes).into_iter().map(|(code, _)| code).collect::<Vec<_>>();
        assert_eq!(codes(b"\x1b[A\x1bOBq"), [KeyCode::Up, KeyCode::Down, KeyCode::Char('q')]);
        assert_eq!(codes(b"\r\x1b"), [KeyCode::Enter, KeyCode::Esc]);
        assert_eq!(codes(b"\x1b[Cs\x1b["), [KeyCode::Null, KeyCode::Char('s'), KeyCode::Null]);
        assert_eq!(keys(b"\x03"), [(KeyCode::Char('c'), KeyModifiers::CONTROL)]);
        assert_eq!(codes(b""), []);
    }
}
