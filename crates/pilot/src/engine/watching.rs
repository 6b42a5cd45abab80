//! Watching one client: when it is scanned, when its list is written, and when it is told.
//!
//! Owns: the order of these. Never touches: what the client does with the list, or which clients there are ([`crate::engine::clients`]).
//!
//! A scan clears and reads bits; more reads follow over the client's interval, at next to no cost. A new list is written, and anything observed, only
//! after the client has taken the one before. A signal for which the kernel has no room is sent again; the list's sequence number shows a client what
//! it missed.

use std::time::{Duration, Instant};

use anyhow::Context;
use heat::units::Nanos;
use hps::wire::{Head, MOST_PAGES};
use observe::ObserveOptions;

use crate::clients::{Client, Told};
use crate::engine::activity::Activity;
use crate::engine::pilot::Pilot;

/// The window of the scan; later reads need none.
const SCAN_WINDOW: Nanos = Nanos(110_000_000);
/// When bits are read again, in eighths of the interval.
const READS: [u32; 4] = [1, 2, 4, 8];
/// Resting clients are scanned this many times less often.
const RESTING: u32 = 10;
/// How long a client whose scan failed is left alone.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// One client, as the loop sees it.
#[derive(Debug)]
pub(super) struct Watching {
    /// The sequence number of the list written last.
    written: u64,
    /// Pages of that list, of which the client is still to be told.
    owed: Option<u64>,
    under_way: Option<Scan>,
    next: Instant,
    /// An earlier scan would cost the program more than its share.
    not_before: Instant,
    was_resting: bool,
    /// Active pages and page walks a second when it began to rest.
    at_rest: Option<(u64, f64)>,
    /// Active pages at the last scan.
    pub(super) active: u64,
}

#[derive(Debug)]
struct Scan {
    began: Instant,
    activity: Activity,
    /// Index into [`READS`].
    reads: usize,
}

impl Watching {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            written: 0,
            owed: None,
            under_way: None,
            next: now,
            not_before: now,
            was_resting: false,
            at_rest: None,
            active: 0,
        }
    }

    /// Lists written so far.
    pub(super) fn lists(&self) -> u64 {
        self.written
    }

    /// When something is to be done next.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Whether a scan is due; one takes a tenth of a second.
    pub(super) fn wants_a_scan(&self, client: &Client, now: Instant) -> bool {
        self.under_way.is_none() && self.next.max(self.not_before) <= now && client.taken == self.written
    }

    /// Does what is due; scans only if `may_scan`. Returns whether a rest is over.
    pub(super) fn go_on(&mut self, client: &Client, may_scan: bool, pilot: &mut Pilot<'_>) -> anyhow::Result<bool> {
        self.tell(client)?;
        let now = pilot.now();
        if std::mem::replace(&mut self.was_resting, client.resting) && !client.resting {
            (self.at_rest, self.next) = (None, now);
        }
        if now < self.next {
            return Ok(false);
        }
        // The default until set below.
        self.next = now + AFTER_FAILURE;
        match self.under_way.take() {
            Some(scan) => self.read(scan, client, pilot),
            None if !may_scan || client.taken != self.written || self.not_before > now => {
                self.next = now;
                Ok(false)
            }
            None => {
                // The previous list was taken, and its memory is no longer needed.
                client.mailbox.clear().context("cannot shorten a client's list")?;
                self.scan(client, pilot).map(|()| false)
            }
        }
    }

    fn scan(&mut self, client: &Client, pilot: &mut Pilot<'_>) -> anyhow::Result<()> {
        ensure_same_program(client)?;
        let options = ObserveOptions { window: SCAN_WINDOW, which_pages: true, tell_use_of_huge: false, ..pilot.watch };
        let began = pilot.now();
        let heat = pilot.world.observe(client.process, &options, &pilot.stop.clone())?;
        pilot.charge(heat.cost.kernel);
        self.not_before = began + pilot.budget.rest_for(heat.cost.program);
        self.under_way = Some(Scan { began, activity: Activity::of(&heat, &client.track.ranges), reads: 0 });
        self.next = began + at_eighths(client, READS[0]);
        Ok(())
    }

    fn read(&mut self, mut scan: Scan, client: &Client, pilot: &mut Pilot<'_>) -> anyhow::Result<bool> {
        ensure_same_program(client)?;
        let activity = &mut scan.activity;
        activity.begin_read(pilot.now() - scan.began);
        let can_tell = pilot.world.walked(client.process, &mut |start, walked| activity.note(start, walked))?;
        pilot.charge(Nanos(0));
        let now = pilot.now();
        // The loop runs a few times a second; for a short interval one read replaces several.
        let passed = |eighths: &&u32| scan.began + at_eighths(client, **eighths) <= now;
        scan.reads = READS.iter().take_while(passed).count().max(scan.reads + 1);
        if can_tell && scan.reads < READS.len() {
            self.next = scan.began + at_eighths(client, READS[scan.reads]);
            self.under_way = Some(scan);
            return Ok(false);
        }
        self.finish(&scan, client, now)
    }

    /// Writes the list if there is enough to tell.
    fn finish(&mut self, scan: &Scan, client: &Client, now: Instant) -> anyhow::Result<bool> {
        self.active = scan.activity.pages(&client.track.ranges).count() as u64;
        self.next = now + if client.resting { interval(client) * RESTING } else { Duration::ZERO };
        let has_risen = !client.resting || self.has_risen(scan.activity.walks_per_second(&client.track.ranges));
        if self.active < client.track.threshold_pages || !has_risen {
            return Ok(false);
        }
        let pages = scan.activity.pages(&client.track.ranges);
        let head = Head { sequence: self.written + 1, pages: self.active.min(MOST_PAGES) };
        client.mailbox.write(head, &mut pages.take(head.pages as usize)).context("cannot write a client's list")?;
        self.written = head.sequence;
        self.owed = Some(head.pages);
        self.next = now;
        self.tell(client)?;
        Ok(client.resting)
    }

    /// Whether a resting client now walks 1.5 times as many pages, or walks 1.5 times as often, as when it began to rest. Pages alone do not tell: a
    /// program whose few hot pages are huge walks most other pages sooner or later, and no more of them when others become hot.
    fn has_risen(&mut self, walks_per_second: f64) -> bool {
        let (pages, walks) = *self.at_rest.get_or_insert((self.active, walks_per_second));
        self.active > pages + pages / 2 || walks_per_second > walks * 1.5
    }

    /// Sends the signal that is owed.
    fn tell(&mut self, client: &Client) -> anyhow::Result<()> {
        let Some(pages) = self.owed.take() else { return Ok(()) };
        let signal = client.track.signal;
        // Without a handler, as after an exec that closed nothing, the signal would end the program.
        ensure_same_program(client)?;
        if client.taken == self.written {
            return Ok(());
        }
        match client.mailbox.tell(signal, pages).context("cannot signal a client")? {
            Told::Later => self.owed = Some(pages),
            Told::Now | Told::NotListening => {}
        }
        Ok(())
    }
}

fn interval(client: &Client) -> Duration {
    Duration::from_millis(client.track.interval_ms.into())
}

fn at_eighths(client: &Client, eighths: u32) -> Duration {
    interval(client) * eighths / 8
}

/// Errors if another program now runs in the process; that one has asked for nothing.
fn ensure_same_program(client: &Client) -> anyhow::Result<()> {
    anyhow::ensure!(client.is_there(), "process {} has replaced its program (exec)", client.process.pid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_rise_by_their_pages_or_by_their_rate() {
        let mut watching = Watching { active: 100, ..Watching::new(Instant::now()) };
        assert!(!watching.has_risen(1000.0), "that is how it rests");
        assert!(!watching.has_risen(1500.0));
        assert!(watching.has_risen(1501.0), "the same pages, more often");
        watching.active = 150;
        assert!(!watching.has_risen(1000.0));
        watching.active = 151;
        assert!(watching.has_risen(1000.0), "more pages, at the same rate");
    }
}
