//! Traces: what they write, how often pages are used, and recordings as traces.

use std::collections::BTreeSet;

use heat::units::{Address, AddressRange, Bytes, HUGE_PAGE, Nanos};
use heat::{Heat, Mapping, Meaning, PageSet, Region, TrackerKind};
use recording::{Moment, Recorder};

use super::super::pages::Class;
use super::event::TickRate;
use super::*;

const SECOND: u64 = 1_000_000_000;

fn setup() -> TraceSetup {
    TraceSetup { memory: Bytes(1 << 30), page: Bytes(64 << 10), disk: Bytes(100 << 20), resident: 0.4, seed: 1 }
}

/// The events of this many ticks.
fn events(trace: &mut Trace, ticks: u32) -> Vec<TraceEvent> {
    let (mut all, mut tick) = (Vec::new(), Vec::new());
    for _ in 0..ticks {
        trace.tick(&mut tick).unwrap();
        all.extend(tick.iter().copied());
    }
    all
}

#[test]
fn files_are_moved_at_the_speed_of_the_disk() {
    for choice in BUILT_IN {
        let mut trace = choice.open(&setup()).unwrap();
        let moved = events(&mut trace, 10 * TICKS_PER_SECOND);
        let moved = moved.iter().filter(|event| !matches!(event, TraceEvent::Use { .. })).count();
        // 1,600 pages of 64 KiB a second.
        assert_eq!(moved, 16_000, "{choice}");
    }
}

#[test]
fn uses_are_of_pages_that_there_are_and_the_seed_decides_which() {
    for choice in BUILT_IN {
        let of_seed = |seed| {
            let mut trace = choice.open(&TraceSetup { seed, ..setup() }).unwrap();
            let pages = trace.layout.pages();
            let events = events(&mut trace, 200);
            assert!(
                events.iter().all(|event| !matches!(event, TraceEvent::Use { page, .. } if *page >= pages)),
                "{choice}"
            );
            events
        };
        assert_eq!(of_seed(1), of_seed(1), "{choice}");
        assert_ne!(of_seed(1), of_seed(2), "{choice}");
    }
}

#[test]
fn programs_use_what_is_hot_every_second_and_the_rest_rarely() {
    let mut trace = writers::trace(&setup());
    let layout = trace.layout.clone();
    let data: Vec<u32> = (0..layout.pages()).filter(|&page| layout.class(page) == Class::Data).collect();
    // The start, and half a minute after it.
    events(&mut trace, 10);
    let (mut uses, mut touched) = (0, BTreeSet::new());
    for event in events(&mut trace, 30 * TICKS_PER_SECOND) {
        if let TraceEvent::Use { page, .. } = event
            && layout.class(page) == Class::Data
        {
            uses += 1;
            touched.insert(page);
        }
    }
    let (hot, all) = (data.len() as f64 / 5.0, data.len() as f64);
    let expected = 30.0 * hot + 30.0 / 600.0 * (all - hot);
    assert!((f64::from(uses) / expected - 1.0).abs() < 0.02, "{uses} uses, {expected} expected");
    // All hot pages, and a twentieth of the rest.
    let share = touched.len() as f64 / all;
    assert!((0.22..0.25).contains(&share), "{share} of the data was used");
}

#[test]
fn a_rate_that_is_no_whole_number_is_kept_over_time() {
    let mut rate = TickRate::per_second(0.25 * f64::from(TICKS_PER_SECOND));
    assert_eq!((0..100).map(|_| rate.next()).sum::<u32>(), 25);
}

#[test]
fn names_of_traces_are_read_as_they_are_written() {
    for choice in BUILT_IN {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    assert!("/nowhere".parse::<TraceChoice>().is_err());
}

/// Two regions at 2 and 4 MiB: anonymous memory, and a mapped file.
fn heat(walked: [u16; 2]) -> Heat {
    let mapping = |number: u64, name: &str| Mapping {
        range: AddressRange::new(Address(number * HUGE_PAGE), Bytes(HUGE_PAGE)),
        name: name.to_owned(),
        ..Mapping::default()
    };
    let region = |number: u64| Region {
        present: PageSet::first(64),
        walked_in_window: walked[number as usize - 1],
        walks_per_second: 1.0,
        ..Region::blank(Address(number * HUGE_PAGE), Some(number as u32 - 1))
    };
    Heat {
        window: Nanos(SECOND),
        rss: Bytes(512 << 10),
        mappings: vec![mapping(1, ""), mapping(2, "/lib/a.so")],
        regions: vec![region(1), region(2)],
        ..Heat::blank(1, TrackerKind::PageWalk, Meaning::Walked)
    }
}

#[test]
fn a_recordings_walked_pages_are_used_when_they_were_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let mut recorder = Recorder::create(&path, "a-server").unwrap();
    for (second, walked) in [(1, [17, 0]), (2, [16, 32])] {
        let moment = Moment { at: Nanos(second * SECOND), heat: heat(walked), page_tables: Bytes(0) };
        recorder.add(&moment).unwrap();
    }
    recorder.finish().unwrap();
    let choice: TraceChoice = path.to_str().unwrap().parse().unwrap();
    let mut trace = choice.open(&setup()).unwrap();
    assert!(trace.description.starts_with("a-server as recorded for 2.00 s"), "{}", trace.description);
    // 32 pages of 64 KiB in each region.
    let layout = trace.layout.clone();
    assert_eq!((layout.class(0), layout.class(31), layout.class(32)), (Class::Data, Class::Data, Class::ReadOnly));
    let mut second = || {
        let uses = events(&mut trace, TICKS_PER_SECOND);
        let used = uses.into_iter().filter_map(|event| match event {
            TraceEvent::Use { page, write } if page < 64 => Some((page, write)),
            _ => None,
        });
        used.collect::<Vec<_>>()
    };
    // The pages present, 64 base pages or four model pages, come in first; anonymous memory is modified then.
    let start: Vec<(u32, bool)> = (0..4).map(|page| (page, true)).chain((32..36).map(|page| (page, false))).collect();
    assert_eq!(second(), start);
    assert_eq!(second(), [(0, false), (32, false), (33, false)]);
    // From the beginning again: 17 base pages are two model pages.
    assert_eq!(second(), [(0, false), (1, false)]);
    assert_eq!(second(), [(0, false), (32, false), (33, false)]);
}
