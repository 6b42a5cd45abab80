//! Lists of frames: doubly linked through arrays, so that moving a page is a few stores.
//!
//! Owns: the links, and which list a frame is on. Never touches: the contents of a frame.
//!
//! Each frame is on one list or on none. A list has a newest end, where pages arrive, and an oldest end, where they are judged.

/// No frame.
const NONE: u32 = u32::MAX;
/// No list.
const NOWHERE: u8 = u8::MAX;

/// The two ends of a list, and the two neighbours of a frame on it.
const NEWEST: usize = 0;
const OLDEST: usize = 1;

/// Several lists of one set of frames.
pub struct Lists {
    /// For each frame, its neighbours towards both ends.
    links: Vec<[u32; 2]>,
    on: Vec<u8>,
    /// For each list, the frames at both ends.
    ends: Vec<[u32; 2]>,
    lens: Vec<u32>,
}

impl Lists {
    /// Empty lists, numbered from 0; the frames are on none of them.
    pub fn new(frames: u32, lists: usize) -> Self {
        debug_assert!(lists < usize::from(NOWHERE));
        Self {
            links: vec![[NONE; 2]; frames as usize],
            on: vec![NOWHERE; frames as usize],
            ends: vec![[NONE; 2]; lists],
            lens: vec![0; lists],
        }
    }

    /// The number of frames on a list.
    pub fn len(&self, list: usize) -> u32 {
        self.lens[list]
    }

    /// The list that a frame is on.
    pub fn of(&self, frame: u32) -> Option<usize> {
        let on = self.on[frame as usize];
        (on != NOWHERE).then_some(usize::from(on))
    }

    /// Adds a frame that is on no list.
    pub fn add_newest(&mut self, list: usize, frame: u32) {
        self.add(list, frame, NEWEST);
    }

    /// Adds a frame that is on no list, to be judged next.
    pub fn add_oldest(&mut self, list: usize, frame: u32) {
        self.add(list, frame, OLDEST);
    }

    fn add(&mut self, list: usize, frame: u32, end: usize) {
        debug_assert_eq!(self.on[frame as usize], NOWHERE, "frame {frame} is on a list");
        let (other_end, next) = (1 - end, self.ends[list][end]);
        self.links[frame as usize][end] = NONE;
        self.links[frame as usize][other_end] = next;
        match next {
            NONE => self.ends[list][other_end] = frame,
            next => self.links[next as usize][end] = frame,
        }
        self.ends[list][end] = frame;
        self.on[frame as usize] = list as u8;
        self.lens[list] += 1;
    }

    /// Removes a frame from its list.
    pub fn remove(&mut self, frame: u32) {
        let list = self.of(frame).expect("only frames on a list are removed");
        let links = self.links[frame as usize];
        for (end, other_end) in [(NEWEST, OLDEST), (OLDEST, NEWEST)] {
            match links[end] {
                NONE => self.ends[list][end] = links[other_end],
                next => self.links[next as usize][other_end] = links[other_end],
            }
        }
        self.on[frame as usize] = NOWHERE;
        self.lens[list] -= 1;
    }

    /// Removes the oldest frame from a list.
    pub fn take_oldest(&mut self, list: usize) -> Option<u32> {
        let oldest = self.ends[list][OLDEST];
        (oldest != NONE).then(|| {
            self.remove(oldest);
            oldest
        })
    }

    /// Moves a frame from any list to the newest end of this one.
    pub fn make_newest(&mut self, list: usize, frame: u32) {
        self.remove(frame);
        self.add_newest(list, frame);
    }

    /// Moves a frame from any list to the oldest end of this one.
    pub fn make_oldest(&mut self, list: usize, frame: u32) {
        self.remove(frame);
        self.add_oldest(list, frame);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    impl Lists {
        /// The frames of a list, newest first.
        pub fn newest_first(&self, list: usize) -> Vec<u32> {
            let next = |frame: &u32| Some(self.links[*frame as usize][OLDEST]).filter(|&older| older != NONE);
            std::iter::successors(Some(self.ends[list][NEWEST]).filter(|&newest| newest != NONE), next).collect()
        }

        /// Panics unless links, ends, lengths and marks agree.
        pub fn check(&self) {
            let mut seen = vec![NOWHERE; self.on.len()];
            for (list, ends) in self.ends.iter().enumerate() {
                let frames = self.newest_first(list);
                assert_eq!(frames.len(), self.lens[list] as usize, "length of list {list}");
                assert_eq!(frames.last().copied().unwrap_or(NONE), ends[OLDEST], "oldest of list {list}");
                for pair in frames.windows(2) {
                    assert_eq!(self.links[pair[1] as usize][NEWEST], pair[0], "links of list {list}");
                }
                for frame in frames {
                    assert_eq!(
                        std::mem::replace(&mut seen[frame as usize], list as u8),
                        NOWHERE,
                        "frame {frame} twice"
                    );
                }
            }
            assert_eq!(seen, self.on, "every frame is where its mark says");
        }
    }

    #[test]
    fn pages_come_at_one_end_and_go_at_the_other() {
        let mut lists = Lists::new(4, 2);
        (0..3).for_each(|frame| lists.add_newest(0, frame));
        lists.add_oldest(0, 3);
        assert_eq!(lists.newest_first(0), [2, 1, 0, 3]);
        lists.make_newest(1, 1);
        lists.make_oldest(0, 2);
        assert_eq!((lists.newest_first(0), lists.newest_first(1)), (vec![0, 3, 2], vec![1]));
        let taken: Vec<u32> = std::iter::from_fn(|| lists.take_oldest(0)).collect();
        assert_eq!((taken, lists.len(0), lists.of(1), lists.of(2)), (vec![2, 3, 0], 0, Some(1), None));
        lists.check();
    }

    proptest! {
        #[test]
        fn lists_are_what_two_queues_would_be(steps in prop::collection::vec((0..5u8, 0..3usize, 0..12u32), 1..200)) {
            let mut lists = Lists::new(12, 3);
            let mut queues = vec![VecDeque::new(); 3];
            for (what, list, frame) in steps {
                let on = lists.of(frame);
                queues.iter_mut().for_each(|queue: &mut VecDeque<u32>| {
                    if what < 4 {
                        queue.retain(|&other| other != frame);
                    }
                });
                match (what, on) {
                    (0, None) => lists.add_newest(list, frame),
                    (1, None) => lists.add_oldest(list, frame),
                    (0 | 2, Some(_)) => lists.make_newest(list, frame),
                    (1 | 3, Some(_)) => lists.make_oldest(list, frame),
                    (2 | 3, None) => continue,
                    _ => prop_assert_eq!(lists.take_oldest(list), queues[list].pop_back()),
                }
                match what {
                    0 | 2 => queues[list].push_front(frame),
                    1 | 3 => queues[list].push_back(frame),
                    _ => {}
                }
                lists.check();
                for (list, queue) in queues.iter().enumerate() {
                    prop_assert_eq!(&lists.newest_first(list), &queue.iter().copied().collect::<Vec<_>>());
                }
            }
        }
    }
}
