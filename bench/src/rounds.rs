//! Rounds, in each of which everything has one turn: shared by all harnesses.
//!
//! Owns: the order of a round, progress bars, and stopping early. Never touches: what takes turns.

use std::time::Duration;

use anyhow::{Result, bail};
use hugepilot_os::stop::Stop;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

/// How often an idle bar is redrawn.
pub const TICK: Duration = Duration::from_millis(500);

/// All of these in the order for one round.
pub fn order_of_round<T: Clone>(all: &[T], seed: u64, round: u32) -> Vec<T> {
    let mut order = all.to_vec();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(round))));
    order
}

/// Three items; over the rounds each comes first, second and last equally often.
pub fn rotated<T>(mut three: [T; 3], round: u32) -> [T; 3] {
    three.rotate_left(round as usize % 3);
    three
}

/// Counts turns on standard error: as a bar on a terminal, otherwise by [`turns_done`].
pub fn progress_bar(turns: u64) -> ProgressBar {
    let bar = bar_with(turns, "{bar:30} {pos}/{len} {msg} (left: {eta})");
    bar.enable_steady_tick(TICK);
    bar
}

/// Moves the bar on; where there is no terminal, prints a line instead for each twentieth, so that a log shows how far it is.
pub fn turns_done(bar: &ProgressBar, turns: u64) {
    let (before, all) = (bar.position(), bar.length().unwrap_or_default());
    bar.inc(turns);
    let done = bar.position();
    let twentieths = |turns: u64| turns * 20 / all.max(1);
    if bar.is_hidden() && twentieths(before) < twentieths(done) {
        // The bar's own estimate weighs the last moments most, and is far off where a turn takes a minute.
        let left = bar.elapsed().as_secs_f64() * all.saturating_sub(done) as f64 / done.max(1) as f64;
        eprintln!("{done} of {all} turns done, about {:.0} min left", (left / 60.0).ceil());
    }
}

/// The same for steps of unequal length. It is redrawn only when it moves, unless the caller asks, because another thread would disturb what is
/// timed.
pub fn share_bar(length: u64) -> ProgressBar {
    bar_with(length, "{bar:30} {percent} % {msg} (left: {eta})")
}

/// The result of measuring; `kept` says what happened to the results so far.
pub fn ended(measured: Result<()>, stop: &Stop, kept: &str) -> Result<()> {
    match measured {
        // Any failure follows from the user's request to stop.
        Err(_) if stop.requested() => bail!("stopped on request; what was measured so far is {kept}"),
        measured => measured,
    }
}

fn bar_with(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_all_in_an_order_of_its_own() {
        let all = ["a", "b", "c", "d"];
        let orders: Vec<_> = (0..20).map(|round| order_of_round(&all, 1, round)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!(sorted, all);
        }
        assert!(orders.iter().any(|order| order != &orders[0]));
        assert_eq!(orders[3], order_of_round(&all, 1, 3));
    }
}
