//! Programs that run all the time: some of their memory is used every second, the rest every ten minutes or so.
//!
//! Owns: which of their pages are used when. Never touches: other pages.

use anyhow::Result;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::event::{EventSource, Layout, TickRate, TraceEvent};
use crate::lists::pages::Class;

/// The average interval between uses of a hot page.
const HOT_SECONDS: f64 = 1.0;
/// The same for other pages: used by a check, a timer, a rare request.
const COLD_SECONDS: f64 = 600.0;
/// Programs start over several seconds; this many pages come in per tick.
const STARTED_PER_TICK: u32 = 2048;

/// A part of their memory.
pub struct Resident {
    first: u32,
    pages: u32,
    hot: u32,
    started: u32,
    writes: bool,
    hot_uses: TickRate,
    cold_uses: TickRate,
}

impl Resident {
    /// Adds pages to a layout, of which `hot_share` is hot; `mappers` processes map each.
    pub fn add(layout: &mut Layout, class: Class, pages: u32, hot_share: f64, mappers: u32) -> Self {
        let first = layout.add(class, pages, mappers);
        let hot = ((f64::from(pages) * hot_share) as u32).clamp(1, pages);
        let every = |pages: u32, seconds: f64| TickRate::per_second(f64::from(pages) / seconds);
        Self {
            first,
            pages,
            hot,
            started: 0,
            writes: class.is_swapped(),
            hot_uses: every(hot, HOT_SECONDS),
            cold_uses: every(pages - hot, COLD_SECONDS),
        }
    }
}

impl EventSource for Resident {
    /// During the start of programs, each page is used for the first time.
    fn tick(&mut self, random: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()> {
        let starts = (self.pages - self.started).min(STARTED_PER_TICK);
        let (first, started, writes) = (self.first, self.started, self.writes);
        events.extend((started..started + starts).map(|page| TraceEvent::Use { page: first + page, write: writes }));
        self.started += starts;
        if self.started < self.pages {
            return Ok(());
        }
        for _ in 0..self.hot_uses.next() {
            let page = first + random.random_range(0..self.hot);
            events.push(TraceEvent::Use { page, write: writes && random.random::<bool>() });
        }
        for _ in 0..self.cold_uses.next() {
            events.push(TraceEvent::Use { page: first + random.random_range(self.hot..self.pages), write: false });
        }
        Ok(())
    }
}
