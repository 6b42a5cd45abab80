//! `hugepilot heat --live`: observes again and again, and shows it until it is told to end.
//!
//! Owns: the terminal while it shows. Never touches: what is shown; that is `report::live`.
//!
//! Keys must work while an observation is under way, so one thread observes and another one shows.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::args::HeatArgs;
use crate::observe::{Heat, ObserveError, Tracker};
use crate::pilot::{Rhythm, Series};
use crate::report::live::{Asked, Live};
use crate::stop::Stop;
use crate::target::Target;

/// How soon a key is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Shows a process until `q`, Ctrl-C or a signal; that it ends meanwhile is said.
pub(super) fn live(args: &HeatArgs, target: &Target, tracker: &mut dyn Tracker, stop: &Stop) -> anyhow::Result<()> {
    use std::io::IsTerminal;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("--live needs a terminal; without --live the heat is printed once");
    }
    let (sender, heats) = channel();
    let view = Live::new(format!("{} (process {})", target.name, target.pid()));
    let shown_until = stop.clone();
    // Puts the terminal back in any case, also when something panics.
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
    ratatui::restore();
    observed.and(shown)
}

/// Sends what is seen to whoever shows it, until that one or a signal ends it.
fn observe(
    args: &HeatArgs,
    target: &Target,
    tracker: &mut dyn Tracker,
    sender: &Sender<Result<Heat, String>>,
    stop: &Stop,
) -> anyhow::Result<()> {
    for moment in Series::new(tracker, target, args.watch.options(), Rhythm::default(), stop) {
        match moment {
            Ok(moment) => _ = sender.send(Ok(moment.heat)),
            // Another program from now on, whose memory is looked at as well.
            Err(ObserveError::Exec { .. }) => {}
            Err(_) if stop.requested() || target.handle().has_exited() => break,
            Err(error) => return Err(error.into()),
        }
    }
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
        if event::poll(LOOK)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && view.key(key.code, key.modifiers) == Asked::Quit
        {
            return Ok(());
        }
    }
    Ok(())
}
