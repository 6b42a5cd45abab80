//! The machine under every policy: nothing is lost, whatever happens.

use proptest::prelude::*;

use super::*;

impl SimulatedMachine {
    /// Panics unless every frame is either free, or holds a page that is on exactly one list and recorded at its location.
    fn check(&self) {
        self.policy.lists().check();
        let frames = self.pages.frames();
        let mut free = vec![false; frames as usize];
        for &frame in &self.free {
            assert!(!std::mem::replace(&mut free[frame as usize], true), "frame {frame} is free twice");
        }
        let mut mapped = 0;
        for frame in 0..frames {
            let is_free = free[frame as usize];
            assert_eq!(self.pages.is_empty(frame), is_free, "frame {frame}");
            assert_eq!(self.policy.lists().of(frame).is_none(), is_free, "frame {frame}");
            if is_free {
                continue;
            }
            mapped += u32::from(self.pages.class(frame).is_mapped());
            let owner = self.pages.owner(frame);
            if owner & STREAMED == 0 {
                assert_eq!(self.places[owner as usize], Place::In(frame), "page {owner}");
                assert_eq!(self.pages.class(frame), self.classes.class(owner), "page {owner}");
            }
        }
        assert_eq!(self.pages.mapped(), mapped);
        for (page, place) in self.places.iter().enumerate() {
            if let Place::In(frame) = *place {
                assert_eq!(self.pages.owner(frame), page as u32, "page {page}");
            }
        }
        let early = |frame: &u32| self.pages.has(*frame, Bit::Writeback);
        assert!(self.early.iter().all(early), "what the disk writes is marked");
    }
}

const KINDS: [PolicyKind; 8] = [
    PolicyKind::Mixed,
    PolicyKind::MixedLater,
    PolicyKind::Split(8),
    PolicyKind::Split(100),
    PolicyKind::SplitByUse([8, 8, 8, 100]),
    PolicyKind::SplitByUse([1, 2, 8, 50]),
    PolicyKind::AnonFile,
    PolicyKind::Generations,
];

/// Pages of all classes, `each` of every class.
fn layout(each: u32) -> Layout {
    let mut layout = Layout::default();
    for class in Class::ALL {
        layout.add(class, each, 3);
    }
    layout
}

fn event(pages: u32) -> impl Strategy<Value = TraceEvent> {
    prop_oneof![
        3 => (0..3u32).prop_map(|writer| TraceEvent::Write { writer }),
        1 => Just(TraceEvent::Read),
        4 => (0..pages, any::<bool>()).prop_map(|(page, write)| TraceEvent::Use { page, write }),
    ]
}

proptest! {
    #[test]
    fn no_page_is_lost(
        kind in prop::sample::select(&KINDS[..]),
        base_pages in prop::sample::select(&[1u64, 16, 64][..]),
        ticks in prop::collection::vec(prop::collection::vec(event(60), 0..80), 1..12)
    ) {
        let mut machine = SimulatedMachine::new(40, base_pages, &layout(12), kind);
        for events in &ticks {
            machine.tick(events);
            machine.check();
        }
        let account = machine.take_account();
        let came = account.moved + account.refused;
        let asked = ticks.iter().flatten().filter(|event| !matches!(event, TraceEvent::Use { .. })).count() as u64;
        prop_assert!(came >= asked * base_pages, "what is not moved is refused");
        prop_assert!(account.scan.scanned >= account.scan.reclaimed);
        prop_assert!(account.scan.longest_hold <= account.scan.held);
    }
}

#[test]
fn memory_full_of_what_is_used_once_always_has_room() {
    for kind in KINDS {
        let mut machine = SimulatedMachine::new(256, 16, &layout(1), kind);
        for _ in 0..40 {
            machine.tick(&[TraceEvent::Write { writer: 1 }; 30]);
        }
        machine.check();
        let account = machine.take_account();
        assert_eq!((account.refused, account.moved), (0, 40 * 30 * 16), "{kind}");
        assert!(account.reclaims > 0, "{kind}");
    }
}

#[test]
fn what_was_evicted_comes_back_as_a_refault_of_its_class() {
    for kind in KINDS {
        let layout = layout(20);
        let mut machine = SimulatedMachine::new(64, 16, &layout, kind);
        let read_only: Vec<TraceEvent> = (20..40).map(|page| TraceEvent::Use { page, write: false }).collect();
        machine.tick(&read_only);
        assert_eq!(machine.take_account().first_reads, 20 * 16, "{kind}");
        for _ in 0..400 {
            machine.tick(&[TraceEvent::Read; 16]);
        }
        let evicted = (20..40).filter(|&page| matches!(machine.places[page], Place::Evicted(_))).count() as u64;
        machine.take_account();
        machine.tick(&read_only);
        let account = machine.take_account();
        // While some are read, others may be evicted again.
        assert!(account.refaults[1] >= evicted * 16, "{kind}");
        assert_eq!(account.all_refaults(), account.refaults[1], "{kind}");
        if kind == PolicyKind::Split(100) {
            // Like all file pages they entered the inactive list; they were found used, and have not been aged since.
            assert_eq!(evicted, 0);
        }
        machine.check();
    }
}

#[test]
fn a_writer_waits_for_the_disk_and_not_for_reclaim() {
    let mut machine = SimulatedMachine::new(100, 16, &layout(1), PolicyKind::Mixed);
    (0..30).for_each(|_| machine.tick(&[TraceEvent::Write { writer: 1 }; 2]));
    let account = machine.take_account();
    assert!(machine.pages.dirty_cache() <= 40 && account.written > 0, "40 % of memory may be dirty");
    assert_eq!(account.reclaims, 0, "60 of 100 frames are taken");
}

#[test]
fn dirty_pages_do_not_wait_for_ever() {
    let mut machine = SimulatedMachine::new(100, 16, &layout(1), PolicyKind::Mixed);
    machine.tick(&[TraceEvent::Write { writer: 1 }]);
    (0..LONGEST_WAIT_TICKS - 1).for_each(|_| machine.tick(&[]));
    assert_eq!(machine.pages.dirty_cache(), 1);
    machine.tick(&[]);
    assert_eq!(machine.pages.dirty_cache(), 0);
}

#[test]
fn free_memory_is_kept_as_linux_keeps_it() {
    // 4 GiB: four times the square root of 4,194,304 KiB is 8,192 KiB; twice and three times that.
    assert_eq!(watermarks(65_536, 16), [256, 384]);
    assert_eq!(watermarks(4, 1), [1, 2]);
}
