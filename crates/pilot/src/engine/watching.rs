//! Watching one client: when it is scanned, when its list is written, and when it is told.
//!
//! Owns: the order of these. Never touches: what the client does with the list, or which clients there are ([`crate::engine::clients`]).
//!
//! A scan clears and reads bits; more reads follow over the client's interval, at next to no cost. A new list is written, and anything observed, only
//! after the client has taken the one before, or has not taken it for a minute: its memory is then freed. A signal that could not be sent is sent
//! again; the list's sequence number shows a client what it missed.

use std::time::{Duration, Instant};

use anyhow::Context;
use heat::units::{BASE_PAGE, Bytes, Nanos, Slowdown};
use hps::wire::{Head, MOST_RUNS, WalkedRun};
use hugepilot_os::stop::Stop;
use kernel::process::ProcessStatus;
use observe::{ObserveError, ObserveOptions};

use crate::clients::{Client, Told};
use crate::engine::activity::Activity;
use crate::engine::client_budget::{MOST_REGIONS, Room};
use crate::engine::coverage;
use crate::engine::pilot::Pilot;

/// The window of the scan; later reads need none.
const SCAN_WINDOW: Nanos = Nanos(110_000_000);
/// When bits are read again, in eighths of the interval.
const READS: [u32; 4] = [1, 2, 4, 8];
/// Resting clients are scanned this many times less often.
const RESTING: u32 = 10;
/// How long a client whose scan failed is left alone.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Nobody else is scanned during a scan of a client, so that it takes four times as long as this at most. Of a client that would take longer, a part is
/// observed, another part each time.
const LONGEST: Nanos = Nanos(500_000_000);
/// A client asks to be observed: that may slow it down this much in any case.
const SLOWDOWN: Slowdown = Slowdown(0.1);
/// How often it is checked whether the client's program still runs.
const CHECK: Duration = Duration::from_secs(1);
/// How long a list waits to be taken.
const KEPT: Duration = Duration::from_secs(60);

/// One client, as the loop sees it.
#[derive(Debug)]
pub(super) struct Watching {
    /// The sequence number of the list written last, and when that was.
    written: u64,
    written_at: Instant,
    /// Memory that this list takes.
    list: Bytes,
    /// Its active pages, if the client is still to be told of it.
    owed: Option<u64>,
    /// Whether it was said that no signal reaches the client.
    is_warned: bool,
    under_way: Option<Scan>,
    checked_at: Instant,
    next: Instant,
    /// An earlier scan would cost the program more than its share.
    not_before: Instant,
    was_resting: bool,
    /// Active pages and page walks a second when it began to rest.
    at_rest: Option<(u64, f64)>,
    /// Active pages at the last scan.
    pub(super) active: u64,
    /// Why the last attempt to observe it failed.
    pub(super) left_alone: Option<String>,
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
            written_at: now,
            list: Bytes(0),
            owed: None,
            is_warned: false,
            under_way: None,
            checked_at: now,
            next: now,
            not_before: now,
            was_resting: false,
            at_rest: None,
            active: 0,
            left_alone: None,
        }
    }

    /// Lists written so far.
    pub(super) fn lists(&self) -> u64 {
        self.written
    }

    /// Memory that it takes at present.
    pub(super) fn taken(&self) -> Room {
        Room { list: self.list, regions: self.under_way.as_ref().map_or(0, |scan| scan.activity.regions()) }
    }

    /// When something is to be done next.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Whether a scan is due; one takes a tenth of a second.
    pub(super) fn wants_a_scan(&self, client: &Client, now: Instant) -> bool {
        self.under_way.is_none() && self.next.max(self.not_before) <= now && !self.awaits_reader(client, now)
    }

    /// Whether the list written last is still to be taken.
    fn awaits_reader(&self, client: &Client, now: Instant) -> bool {
        client.taken != self.written && now < self.written_at + KEPT
    }

    /// Does what is due, within `room`; scans and reads only if `may_observe`. Returns whether a rest is over.
    pub(super) fn go_on(
        &mut self,
        client: &Client,
        may_observe: bool,
        room: Room,
        pilot: &mut Pilot<'_>,
        stop: &Stop,
    ) -> anyhow::Result<bool> {
        let now = pilot.now();
        if self.checked_at + CHECK <= now {
            self.checked_at = now;
            ensure_same_program(client)?;
        }
        self.tell(client)?;
        if self.list > Bytes(0) && !self.awaits_reader(client, now) {
            client.mailbox.clear().context("cannot shorten a client's list")?;
            (self.list, self.owed) = (Bytes(0), None);
        }
        if std::mem::replace(&mut self.was_resting, client.resting) && !client.resting {
            (self.at_rest, self.next) = (None, now);
        }
        if now < self.next {
            return Ok(false);
        }
        // The default until set below.
        self.next = now + AFTER_FAILURE;
        match self.under_way.take() {
            Some(scan) if !may_observe => {
                (self.under_way, self.next) = (Some(scan), now);
                Ok(false)
            }
            Some(scan) => self.read(scan, client, room.list, pilot),
            None if !may_observe || self.awaits_reader(client, now) || self.not_before > now => {
                self.next = now;
                Ok(false)
            }
            None => self.scan(client, room.regions, pilot, stop).map(|()| false),
        }
    }

    /// Scans, unless the client has more regions than there is room for now.
    fn scan(&mut self, client: &Client, room: u64, pilot: &mut Pilot<'_>, stop: &Stop) -> anyhow::Result<()> {
        ensure_same_program(client)?;
        let regions = least_regions(pilot.world.status(client.process))?;
        if regions > room {
            self.next = pilot.now() + interval(client);
            return Ok(());
        }
        let began = pilot.now();
        let heat = match pilot.world.observe(client.process, &options(pilot.watch, room), stop) {
            // Not too many by themselves: others take the room now.
            Err(ObserveError::TooManyRegions { .. }) if room < MOST_REGIONS => {
                self.next = pilot.now() + interval(client);
                return Ok(());
            }
            observed => observed?,
        };
        pilot.charge(heat.cost.kernel);
        self.not_before = began + pilot.budget.rest_for(heat.cost.program);
        let mut activity = Activity::of(&heat, &client.track.ranges);
        if activity.has_stale_bits() {
            pilot.world.walked(client.process, &mut |start, set| activity.mask(start, set))?;
        }
        self.left_alone = None;
        self.under_way = Some(Scan { began, activity, reads: 0 });
        self.next = began + at_eighths(client, READS[0]);
        Ok(())
    }

    fn read(&mut self, mut scan: Scan, client: &Client, room: Bytes, pilot: &mut Pilot<'_>) -> anyhow::Result<bool> {
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
        self.finish(&scan, client, room, now)
    }

    /// Writes the list if there is enough to tell.
    fn finish(&mut self, scan: &Scan, client: &Client, room: Bytes, now: Instant) -> anyhow::Result<bool> {
        let ranges = &client.track.ranges;
        let totals = scan.activity.totals(ranges);
        self.active = totals.pages;
        self.next = now + if client.resting { interval(client) * RESTING } else { Duration::ZERO };
        let has_risen = !client.resting || self.has_risen(totals.walks_per_second);
        if self.active < client.track.threshold_pages || !has_risen {
            return Ok(false);
        }
        // A program that exec has replaced does not come back: what was read until here is of the program that asked.
        ensure_same_program(client)?;
        let runs = totals.runs.min(MOST_RUNS).min(room.0 / WalkedRun::LEN as u64);
        let head = Head { sequence: self.written + 1, runs, active_pages: self.active };
        let written = client.mailbox.write(head, &mut scan.activity.hottest_runs(ranges, runs, totals));
        // Even half a list takes memory.
        self.list = Bytes((Head::LEN + runs as usize * WalkedRun::LEN) as u64);
        written.context("cannot write a client's list")?;
        (self.written, self.written_at) = (head.sequence, now);
        self.owed = Some(self.active);
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

    /// Sends the signal that is owed; if that fails, again at the next step. Errors: another program runs in the process.
    fn tell(&mut self, client: &Client) -> anyhow::Result<()> {
        let Some(pages) = self.owed.filter(|_| client.taken != self.written) else {
            self.owed = None;
            return Ok(());
        };
        // Without a handler, as after an exec that closed nothing, the signal would end the program.
        ensure_same_program(client)?;
        match client.mailbox.tell(client.track.signal, pages) {
            Ok(Told::Now | Told::NotListening) => self.owed = None,
            Ok(Told::Later) => {}
            Err(error) if !std::mem::replace(&mut self.is_warned, true) => tracing::warn!(
                "process {} cannot be signalled that its list of active pages is there: {error}. libhps looks for it by \
                 itself; signals to other users' processes need CAP_KILL",
                client.process.pid
            ),
            Err(_) => {}
        }
        Ok(())
    }
}

/// The least regions that a client has, by its page tables. This spares most scans that would find too many; it is no bound, because page tables hardly
/// tell of huge pages, and because the client may map more before the scan.
///
/// Errors: they cannot be read, or are of more than [`MOST_REGIONS`].
fn least_regions(status: Option<ProcessStatus>) -> anyhow::Result<u64> {
    let status =
        status.context("the size of its page tables cannot be read, and so not whether there is room to observe it")?;
    let regions = status.vm_pte.0 / BASE_PAGE;
    anyhow::ensure!(
        regions <= MOST_REGIONS,
        "its page tables are of {regions} regions of 2 MiB; a program that is told which of its memory is active may have {MOST_REGIONS}"
    );
    Ok(regions)
}

/// How a client is observed with room for so many regions.
fn options(watch: ObserveOptions, room: u64) -> ObserveOptions {
    ObserveOptions {
        window: SCAN_WINDOW,
        which_pages: true,
        tell_use_of_huge: false,
        coverage: coverage::in_time(LONGEST),
        max_slowdown: watch.max_slowdown.map(|asked| if asked < SLOWDOWN { SLOWDOWN } else { asked }),
        most_regions: room.min(MOST_REGIONS) as usize,
        ..watch
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
    use heat::Coverage;

    #[test]
    fn a_client_whose_page_tables_are_unknown_is_not_scanned() {
        let of = |regions| ProcessStatus { vm_pte: Bytes(regions * BASE_PAGE), ..ProcessStatus::default() };
        assert_eq!(least_regions(Some(of(7))).unwrap(), 7);
        assert_eq!(least_regions(Some(of(MOST_REGIONS))).unwrap(), MOST_REGIONS);
        assert!(least_regions(Some(of(MOST_REGIONS + 1))).unwrap_err().to_string().contains("65537 regions"));
        assert!(least_regions(None).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn a_scan_keeps_no_more_regions_than_there_is_room_for() {
        let most = |room| options(ObserveOptions::default(), room).most_regions as u64;
        assert_eq!([0, 7, MOST_REGIONS, u64::MAX].map(most), [0, 7, MOST_REGIONS, MOST_REGIONS]);
    }

    #[test]
    fn a_scan_of_a_client_takes_no_longer_than_others_can_wait() {
        let of = |max_slowdown| options(ObserveOptions { max_slowdown, ..ObserveOptions::default() }, 7);
        let coverage = of(Some(Slowdown(0.01))).coverage;
        assert!(
            matches!(coverage, Coverage::Sample { size: Bytes(u64::MAX), longest: Some(LONGEST), .. }),
            "{coverage:?}"
        );
        let slowdowns = [Some(Slowdown(0.01)), Some(Slowdown(0.4)), None].map(|asked| of(asked).max_slowdown);
        assert_eq!(slowdowns, [Some(SLOWDOWN), Some(Slowdown(0.4)), None]);
    }

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
