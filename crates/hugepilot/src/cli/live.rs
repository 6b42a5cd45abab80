//! `hugepilot heat --live`: observes again and again, and shows it until it is told to end.
//!
//! Owns: the terminal while it shows. Never touches: what is shown; that is `report::live`.
//!
//! Keys must work while an observation is under way, so one thread observes and another one shows.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::args::HeatArgs;
use crate::observe::{Heat, ObserveError, Tracker};
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
    let observed = loop {
        match tracker.observe(target, &args.watch.options(), stop) {
            Ok(heat) => {
                let next = Instant::now() + heat.cost.rest();
                _ = sender.send(Ok(heat));
                if stop.sleep_until(next).is_err() {
                    break Ok(());
                }
            }
            // Another program from now on, whose memory is looked at as well.
            Err(ObserveError::Exec { .. }) => {}
            Err(ObserveError::Stopped(_)) => break Ok(()),
            Err(error) if target.handle().has_exited() => {
                _ = sender.send(Err(format!("the process has ended; q ends ({error})")));
                break Ok(());
            }
            Err(error) => {
                stop.request();
                break Err(error.into());
            }
        }
    };
    let shown = showing.join().unwrap_or_else(|_| bail!("showing failed"));
    ratatui::restore();
    observed.and(shown)
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
