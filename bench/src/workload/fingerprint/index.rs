//! The inverted index: for each fingerprint, where it occurs.
//!
//! Owns: two large pieces of memory, and filling them. Never touches: what fingerprints mean.
//!
//! Built by a counting sort: one pass over all songs counts the length of each list, a second one puts each occurrence in its place. Fingerprints are
//! computed again each time, because storing them would take as much memory again. Each thread goes through all songs and takes those of its own part
//! of the fingerprints, whose lists are adjacent; so no two threads write to the same memory, and the result does not depend on their number.

use std::ops::Range;

/// The collection to be indexed.
pub struct Collection<F> {
    /// The number of different fingerprints; they are numbers below this.
    pub fingerprints: u32,
    /// The number of songs.
    pub songs: u32,
    /// The number of fingerprints per song.
    pub song_length: u32,
    /// The fingerprint of a song at a place.
    pub fingerprint: F,
    /// The time of a place in a song.
    pub time: fn(u32) -> u32,
    /// The limit on a list's length; a full list takes no more entries.
    pub longest_list: u32,
}

/// Where each fingerprint occurs.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    /// The start of each list, and the end of the last one.
    starts: Vec<u64>,
    postings: Vec<u64>,
}

/// One list during filling.
#[derive(Clone, Copy, Default)]
struct Room {
    /// The position of the next entry, relative to the part's first.
    next: u32,
    /// The number of entries that still fit.
    left: u32,
}

/// An entry of a list. It is a number and not a struct, because the allocator hands out zeroed memory for zeros.
pub fn posting(song: u32, time: u32) -> u64 {
    u64::from(song) << 32 | u64::from(time)
}

/// The song of an entry, and the time within it.
pub fn song_and_time(posting: u64) -> (u32, u32) {
    ((posting >> 32) as u32, posting as u32)
}

impl Index {
    /// Indexes a collection, with that many threads.
    pub fn build<F: Fn(u32, u32) -> u32 + Sync>(collection: &Collection<F>, threads: u32) -> Self {
        let lists = collection.fingerprints as usize;
        // Enough parts for 32 bits to count the entries of each.
        let occurrences = u64::from(collection.songs) * u64::from(collection.song_length);
        let parts = u64::from(threads.max(1)).max((occurrences >> 31) + 1);
        let part = lists.div_ceil(parts as usize);
        let mut rooms = vec![Room::default(); lists];
        std::thread::scope(|scope| {
            for (number, rooms) in rooms.chunks_mut(part).enumerate() {
                scope.spawn(move || collection.count(number * part, rooms));
            }
        });
        let mut starts = vec![0u64; lists + 1];
        for (list, room) in rooms.iter().enumerate() {
            starts[list + 1] = starts[list] + u64::from(room.left);
        }
        let mut postings = vec![0u64; starts[lists] as usize];
        std::thread::scope(|scope| {
            let mut rest = &mut postings[..];
            for (number, rooms) in rooms.chunks_mut(part).enumerate() {
                let first = number * part;
                let entries = starts[first + rooms.len()] - starts[first];
                let (own, others) = rest.split_at_mut(entries as usize);
                rest = others;
                scope.spawn(move || collection.fill(first, rooms, own));
            }
        });
        Self { starts, postings }
    }

    /// The entries of a list.
    pub fn postings(&self, fingerprint: u32) -> &[u64] {
        let list = fingerprint as usize;
        &self.postings[self.starts[list] as usize..self.starts[list + 1] as usize]
    }

    /// The address of the entries.
    pub fn address(&self) -> u64 {
        self.postings.as_ptr().addr() as u64
    }

    /// Its size in memory.
    pub fn size_bytes(&self) -> u64 {
        8 * (self.starts.len() + self.postings.len()) as u64
    }
}

impl<F: Fn(u32, u32) -> u32> Collection<F> {
    /// Counts a part's occurrences, and makes room for those that its lists take.
    fn count(&self, first: usize, rooms: &mut [Room]) {
        self.for_each_in(first..first + rooms.len(), |list, _| rooms[list].left += 1);
        let mut next = 0;
        for room in rooms {
            room.left = room.left.min(self.longest_list);
            room.next = next;
            next += room.left;
        }
    }

    fn fill(&self, first: usize, rooms: &mut [Room], postings: &mut [u64]) {
        self.for_each_in(first..first + rooms.len(), |list, entry| {
            let room = &mut rooms[list];
            if room.left > 0 {
                postings[room.next as usize] = entry;
                room.next += 1;
                room.left -= 1;
            }
        });
    }

    /// Calls `take` for each occurrence of these fingerprints, song by song, with its list relative to the first, and its entry.
    fn for_each_in(&self, part: Range<usize>, mut take: impl FnMut(usize, u64)) {
        let (first, lists) = (part.start as u32, part.len() as u32);
        let mut own = vec![(0, 0); self.song_length as usize];
        for song in 0..self.songs {
            let mut count = 0;
            for place in 0..self.song_length {
                let list = (self.fingerprint)(song, place).wrapping_sub(first);
                // The entry is kept or overwritten; a branch here would be mispredicted every other time.
                own[count] = (list, place);
                count += usize::from(list < lists);
            }
            for &(list, place) in &own[..count] {
                take(list as usize, posting(song, (self.time)(place)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LISTS: u32 = 37;

    /// Songs with the given fingerprints, all equally long.
    fn collection(songs: &[Vec<u32>], longest_list: u32) -> Collection<impl Fn(u32, u32) -> u32 + Sync + '_> {
        Collection {
            fingerprints: LISTS,
            songs: songs.len() as u32,
            song_length: songs.first().map_or(0, Vec::len) as u32,
            fingerprint: move |song, place| songs[song as usize][place as usize],
            time: |place| place / 2,
            longest_list,
        }
    }

    fn naive(songs: &[Vec<u32>], longest_list: usize) -> Vec<Vec<u64>> {
        let mut lists = vec![Vec::new(); LISTS as usize];
        for (song, fingerprints) in songs.iter().enumerate() {
            for (place, &fingerprint) in fingerprints.iter().enumerate() {
                let list: &mut Vec<u64> = &mut lists[fingerprint as usize];
                if list.len() < longest_list {
                    list.push(posting(song as u32, place as u32 / 2));
                }
            }
        }
        lists
    }

    fn songs() -> impl Strategy<Value = Vec<Vec<u32>>> {
        (0..20usize).prop_flat_map(|length| prop::collection::vec(prop::collection::vec(0..LISTS, length), 0..12))
    }

    proptest! {
        #[test]
        fn lists_are_those_of_a_naive_index(songs in songs(), longest in 0..9u32, threads in 1..50u32) {
            let index = Index::build(&collection(&songs, longest), threads);
            let lists: Vec<Vec<u64>> = (0..LISTS).map(|list| index.postings(list).to_vec()).collect();
            prop_assert_eq!(lists, naive(&songs, longest as usize));
        }

        #[test]
        fn an_entry_tells_what_went_into_it(song: u32, time: u32) {
            prop_assert_eq!(song_and_time(posting(song, time)), (song, time));
        }
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let songs = vec![vec![5; 10]; 4];
        let index = Index::build(&collection(&songs, 12), 2);
        assert_eq!(index.postings(5).len(), 12);
        assert_eq!(song_and_time(index.postings(5)[11]), (1, 0), "the first to come");
        assert_eq!((index.postings(4).len(), index.size_bytes()), (0, 8 * (38 + 12)));
    }
}
