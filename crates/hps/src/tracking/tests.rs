//! Tracking against a daemon that the test plays.

use super::*;
use crate::daemon::tests::{Stand, TRACKED, track, write_list};
use crate::judge::{ActiveRegion, Judge, RegionVerdict};
use crate::wire::{Page, Range};
use hugepilot_os::PidFd;
use hugepilot_os::memory::AlignedMemory;
use hugepilot_os::signals::Addressee;
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};

fn settings(stand: &Stand, signal: i32) -> TrackingSettings {
    TrackingSettings {
        track: Track { signal: libc::SIGRTMIN() + signal, ..track() },
        socket: stand.path.clone(),
        own_writes: false,
        most_huge_bytes: u64::MAX,
        most_growth_bytes: None,
    }
}

fn page(number: u64) -> Page {
    Page { address: number * 4096, walks_per_second: 1.0 }
}

fn ring(signal: i32) {
    let own = PidFd::open(std::process::id()).unwrap();
    Addressee::process(&own).unwrap().send(libc::SIGRTMIN() + signal, 1).unwrap();
}

/// Reports each list.
struct Tells(Mutex<Sender<u64>>);

impl Application for Tells {
    fn judge(&self, _: &ActiveRegion<'_>) -> RegionVerdict {
        RegionVerdict::Keep
    }

    fn end(&self, report: &Report) {
        self.0.lock().unwrap().send(report.pages).unwrap();
    }
}

#[test]
fn who_waits_gets_the_list_on_the_signal_in_time_and_once() {
    let stand = Stand::new("waits");
    let settings = settings(&stand, 11);
    let made = thread::spawn(|| ProcessTracking::new(settings).unwrap());
    let (_reader, _, file) = stand.serve(TRACKED);
    let tracker = &made.join().unwrap();
    thread::scope(|scope| {
        let short = Some(Duration::from_millis(30));
        assert!(matches!(tracker.wait(short, &Judge), Err(TrackError::TimedOut)));
        ring(11);
        assert!(matches!(tracker.wait(short, &Judge), Err(TrackError::TimedOut)), "a signal without a list is none");
        let waits = scope.spawn(move || tracker.wait(Some(Duration::from_secs(20)), &Judge));
        while !tracker.shared.busy.load(Ordering::Acquire) && !waits.is_finished() {
            thread::yield_now();
        }
        assert!(matches!(tracker.wait(short, &Judge), Err(TrackError::Busy)));
        write_list(&file, 1, &[page(1), page(2)]);
        ring(11);
        assert_eq!(waits.join().unwrap().unwrap().pages, 2);
        assert!(matches!(tracker.wait(short, &Judge), Err(TrackError::TimedOut)));
        write_list(&file, 2, &[page(1)]);
        assert_eq!(tracker.wait(short, &Judge).unwrap().pages, 1, "also if the signal was missed");
    });
}

#[test]
fn a_list_whose_signal_never_comes_is_found_all_the_same() {
    let stand = Stand::new("silent");
    let settings = settings(&stand, 19);
    thread::scope(|scope| {
        let made = scope.spawn(|| ProcessTracking::new(settings).unwrap());
        let (_reader, _, file) = stand.serve(TRACKED);
        let tracker = made.join().unwrap();
        let waits = scope.spawn(move || tracker.wait(Some(Duration::from_secs(20)), &Judge));
        while !waits.is_finished() {
            write_list(&file, 1, &[page(1)]);
            thread::yield_now();
        }
        assert_eq!(waits.join().unwrap().unwrap().pages, 1);
    });
}

#[test]
fn the_librarys_own_thread_works_through_lists_and_ends() {
    let stand = Stand::new("thread");
    let settings = settings(&stand, 12);
    let (tell, told) = channel();
    let made =
        thread::spawn(move || ProcessTracking::with_thread(settings, Arc::new(Tells(Mutex::new(tell)))).unwrap());
    let (mut reader, asked, file) = stand.serve(TRACKED);
    let tracker = made.join().unwrap();
    assert!(asked.contains("\"thread\":"), "{asked}");
    for sequence in 1..4 {
        write_list(&file, sequence, &(0..sequence).map(page).collect::<Vec<_>>());
        ring(12);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), sequence);
    }
    tracker.rest();
    let mut said = String::new();
    while !said.contains("rest") {
        assert_ne!(reader.read_line(&mut said).unwrap(), 0, "{said}");
    }
    tracker.end();
    drop(tracker);
    assert!(told.recv().is_err(), "the thread is gone");
    said.clear();
    assert_eq!(reader.read_line(&mut said).unwrap(), 0, "and so is the registration");
}

#[test]
fn a_daemon_that_comes_back_finds_the_client_again() {
    let stand = Stand::new("back");
    let settings = settings(&stand, 13);
    thread::scope(|scope| {
        let made = scope.spawn(|| ProcessTracking::new(settings).unwrap());
        let (reader, ..) = stand.serve(TRACKED);
        let tracker = made.join().unwrap();
        tracker.rest();
        drop(reader);
        let waits = scope.spawn(move || tracker.wait(Some(Duration::from_secs(20)), &Judge));
        let (mut reader, asked, file) = stand.serve(TRACKED);
        assert!(asked.contains("track"), "{asked}");
        let mut said = String::new();
        reader.read_line(&mut said).unwrap();
        assert!(said.contains("rest"), "{said}");
        write_list(&file, 1, &[page(5)]);
        ring(13);
        assert_eq!(waits.join().unwrap().unwrap().pages, 1);
    });
}

#[test]
fn who_never_waits_finds_a_daemon_that_comes_back() {
    let stand = Stand::new("never-waits");
    let settings = settings(&stand, 21);
    thread::scope(|scope| {
        let made = scope.spawn(|| ProcessTracking::new(settings).unwrap());
        let (reader, ..) = stand.serve(TRACKED);
        let tracker = made.join().unwrap();
        drop(reader);
        let polls = scope.spawn(move || {
            loop {
                match tracker.wait(Some(Duration::ZERO), &Judge) {
                    Err(TrackError::TimedOut) => thread::yield_now(),
                    told => return told.unwrap().pages,
                }
            }
        });
        let (_reader, _, file) = stand.serve(TRACKED);
        write_list(&file, 1, &[page(5)]);
        assert_eq!(polls.join().unwrap(), 1);
    });
}

#[test]
fn a_daemon_whose_lists_cannot_be_read_is_told_and_left_alone() {
    let stand = Stand::new("unreadable");
    let settings = settings(&stand, 20);
    thread::scope(|scope| {
        let made = scope.spawn(|| ProcessTracking::new(settings).unwrap());
        let (mut reader, _, file) = stand.serve(TRACKED);
        let tracker = made.join().unwrap();
        file.write_all_at(b"hpslist9, which has another head", 0).unwrap();
        let told = tracker.wait(Some(Duration::from_secs(20)), &Judge);
        assert!(matches!(told, Err(TrackError::Release { .. })), "{told:?}");
        assert_eq!(reader.read_line(&mut String::new()).unwrap(), 0, "the registration is over");
        let limit = AGAIN + Duration::from_millis(500);
        assert!(matches!(tracker.wait(Some(limit), &Judge), Err(TrackError::TimedOut)));
        assert!(!stand.is_asked(), "it would be scanned in vain once more");
    });
}

#[test]
fn a_daemon_that_comes_is_preferred_to_own_writes() {
    let stand = Stand::new("comes");
    let mut memory = AlignedMemory::anonymous(2 << 20).unwrap();
    memory.bytes_mut().fill(1);
    let range = Range { start: memory.address(), end: memory.address() + (2 << 20) };
    let settings = settings(&stand, 16);
    let track = Track { ranges: vec![range], ..settings.track.clone() };
    let (hidden, path) = (stand.path.with_extension("hidden"), stand.path.clone());
    std::fs::rename(&path, &hidden).unwrap();
    let tracker = match ProcessTracking::new(TrackingSettings { own_writes: true, track, ..settings }) {
        Err(TrackError::System { cause, .. }) => return eprintln!("skipped: this kernel cannot do it ({cause})"),
        made => made.unwrap(),
    };
    memory.bytes_mut()[0] = 2;
    assert_eq!(tracker.wait(Some(Duration::from_secs(20)), &Judge).unwrap().pages, 1, "written");
    std::fs::rename(&hidden, &path).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| tracker.wait(Some(Duration::from_secs(20)), &Judge));
        let (_reader, _, file) = stand.serve(TRACKED);
        write_list(&file, 1, &[page(5), page(6)]);
        ring(16);
        assert_eq!(waits.join().unwrap().unwrap().pages, 2, "told by the daemon");
    });
}

#[test]
fn a_daemon_is_waited_for_where_own_writes_cannot_be_watched() {
    let stand = Stand::new("waited");
    let settings = TrackingSettings { own_writes: true, ..settings(&stand, 17) };
    thread::scope(|scope| {
        let made = scope.spawn(|| ProcessTracking::new(settings).unwrap());
        let (reader, ..) = stand.serve(TRACKED);
        let tracker = made.join().unwrap();
        drop((reader, stand));
        let limit = AGAIN + Duration::from_millis(500);
        assert!(matches!(tracker.wait(Some(limit), &Judge), Err(TrackError::TimedOut)));
    });
}

#[test]
fn who_waits_learns_of_the_end() {
    let stand = Stand::new("end");
    let settings = settings(&stand, 14);
    thread::scope(|scope| {
        let made = scope.spawn(|| ProcessTracking::new(settings).unwrap());
        let (_reader, _, file) = stand.serve(TRACKED);
        let tracker = made.join().unwrap();
        let shared = Arc::clone(&tracker.shared);
        let waits = scope.spawn(move || shared.next(None, &Judge));
        tracker.end();
        assert!(matches!(waits.join().unwrap(), Err(TrackError::Ended)));
        write_list(&file, 1, &[page(1)]);
        assert!(matches!(tracker.wait(None, &Judge), Err(TrackError::Ended)), "a list that comes late is left alone");
    });
}

#[test]
fn what_cannot_be_had_is_told_at_once() {
    let stand = Stand::new("none");
    let nobody = TrackingSettings { socket: "/tmp/hps-nobody".into(), ..settings(&stand, 15) };
    assert!(matches!(ProcessTracking::new(nobody.clone()), Err(TrackError::NoDaemon { .. })));
    let own = TrackingSettings { own_writes: true, ..nobody.clone() };
    assert!(matches!(ProcessTracking::new(own), Err(TrackError::NoRanges)));
    let track = Track { interval_ms: 0, ..nobody.track.clone() };
    assert!(matches!(ProcessTracking::new(TrackingSettings { track, ..nobody.clone() }), Err(TrackError::Wire(_))));
    let track = Track { signal: libc::SIGRTMIN() + 18, ..nobody.track.clone() };
    signal_hook::flag::register(track.signal, Arc::default()).unwrap();
    let taken = ProcessTracking::new(TrackingSettings { track, ..nobody }).err().unwrap();
    assert!(matches!(taken, TrackError::SignalTaken { .. }), "{taken}");
}
