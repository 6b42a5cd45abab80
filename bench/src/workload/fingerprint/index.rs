//! The inverted index: for each fingerprint, where it occurs.
//!
//! Owns: the memory of its lists, and filling them. Never touches: what fingerprints mean.
//!
//! Built by a counting sort: once through all songs to see how long each list gets, once more to put each occurrence where it
//! belongs. Fingerprints are told anew each time rather than kept, which would take as much memory again. Each thread goes through
//! all songs and takes those of its own share of the fingerprints: so no two write to the same memory, and what the lists hold does
//! not depend on how many threads there are.

use super::pieces::Pieces;

/// Places of a song that an entry tells apart, so that it fits in 32 bits with its song.
pub const PLACES: u32 = 1 << PLACE_BITS;
/// Songs that fit beside a place.
pub const MOST_SONGS: u32 = 1 << (32 - PLACE_BITS);
const PLACE_BITS: u32 = 13;

/// Lists that are filled together: what is known of them fits in a cache.
const SIDE_BY_SIDE: u32 = 1 << 15;
/// Songs whose occurrences are gathered first, in some tens of MiB.
const SONGS_AT_ONCE: u32 = 1 << 10;

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
    /// A list that is full takes no more.
    pub longest_list: u32,
}

/// Where each fingerprint occurs.
pub struct Index {
    /// Fingerprints of each share.
    share_length: u32,
    shares: Vec<Share>,
}

/// The lists of fingerprints that lie side by side.
struct Share {
    lists: Vec<List>,
    postings: Pieces<u32>,
}

/// Where a list lies among the entries of its share.
#[derive(Clone, Copy, Default)]
struct List {
    start: u32,
    length: u32,
}

/// An entry of a list. A number rather than a struct, because memory for zeros comes zeroed.
pub fn posting(song: u32, place: u32) -> u32 {
    song << PLACE_BITS | place
}

/// The song of an entry, and the place in it.
pub fn song_and_place(posting: u32) -> (u32, u32) {
    (posting >> PLACE_BITS, posting % PLACES)
}

impl Index {
    /// Indexes a collection, with that many threads.
    pub fn build<F: Fn(u32, u32) -> u32 + Sync>(collection: &Collection<F>, threads: u32) -> Self {
        let share_length = collection.fingerprints.div_ceil(threads.max(1));
        let shares = std::thread::scope(|scope| {
            let firsts = (0..collection.fingerprints).step_by(share_length as usize);
            let build = |first| scope.spawn(move || collection.share(first, share_length));
            let builders: Vec<_> = firsts.map(build).collect();
            builders.into_iter().map(|builder| builder.join().expect("a thread that fills lists ends")).collect()
        });
        Self { share_length, shares }
    }

    /// A list.
    pub fn postings(&self, fingerprint: u32) -> &[u32] {
        let share = &self.shares[(fingerprint / self.share_length) as usize];
        let List { start, length } = share.lists[(fingerprint % self.share_length) as usize];
        share.postings.slice(start as usize, length as usize)
    }

    /// Where the entries lie, those of the first share.
    pub fn address(&self) -> u64 {
        self.shares.first().map_or(0, |share| share.postings.address())
    }

    /// Its size in memory.
    pub fn size_bytes(&self) -> u64 {
        self.shares.iter().map(Share::size_bytes).sum()
    }
}

impl Share {
    fn size_bytes(&self) -> u64 {
        (self.lists.len() * size_of::<List>() + self.postings.length() * size_of::<u32>()) as u64
    }

    /// Room for lists of these lengths, none of them in two pieces; all are empty.
    fn with_room_for(mut lists: Vec<List>) -> Self {
        let mut end = 0;
        for list in &mut lists {
            let start = Pieces::<u32>::place_for(end, list.length as usize);
            end = start + list.length as usize;
            *list = List { start: start as u32, length: 0 };
        }
        Self { lists, postings: Pieces::zeros(end) }
    }
}

impl<F: Fn(u32, u32) -> u32> Collection<F> {
    /// The lists of so many fingerprints, or of as many as there are from the first on.
    fn share(&self, first: u32, length: u32) -> Share {
        let count = length.min(self.fingerprints - first);
        let mut lists = vec![List::default(); count as usize];
        self.for_each_in(first, count, |list, _| {
            let length = &mut lists[list].length;
            *length = self.longest_list.min(*length + 1);
        });
        let mut share = Share::with_room_for(lists);
        self.for_each_in(first, count, |list, entry| {
            let List { start, length } = &mut share.lists[list];
            if *length < self.longest_list {
                *share.postings.at_mut((*start + *length) as usize) = entry;
                *length += 1;
            }
        });
        share
    }

    /// Calls `take` with each occurrence of these fingerprints: its list, counted from the first, and its entry. Each list gets its own
    /// song after song; lists that lie side by side get theirs together, or each entry would wait for memory that no cache holds.
    fn for_each_in(&self, first: u32, lists: u32, mut take: impl FnMut(usize, u32)) {
        let mut gathered = vec![Vec::new(); lists.div_ceil(SIDE_BY_SIDE) as usize];
        let mut own = vec![(0, 0); self.song_length as usize];
        for song in 0..self.songs {
            for &(list, place) in self.of_song(song, first, lists, &mut own) {
                gathered[(list / SIDE_BY_SIDE) as usize].push((list, posting(song, place)));
            }
            if song % SONGS_AT_ONCE == SONGS_AT_ONCE - 1 || song == self.songs - 1 {
                let gathered = gathered.iter_mut().flat_map(|occurrences| occurrences.drain(..));
                gathered.for_each(|(list, entry)| take(list as usize, entry));
            }
        }
    }

    /// Where these fingerprints occur in a song: their lists, counted from the first, and the places.
    fn of_song<'o>(&self, song: u32, first: u32, lists: u32, own: &'o mut [(u32, u32)]) -> &'o [(u32, u32)] {
        let mut count = 0;
        for place in 0..self.song_length {
            let list = (self.fingerprint)(song, place).wrapping_sub(first);
            // Kept or written over: a branch here would be mispredicted every other time.
            own[count] = (list, place);
            count += usize::from(list < lists);
        }
        &own[..count]
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
            longest_list,
        }
    }

    fn naive(songs: &[Vec<u32>], longest_list: usize) -> Vec<Vec<u32>> {
        let mut lists = vec![Vec::new(); LISTS as usize];
        for (song, fingerprints) in songs.iter().enumerate() {
            for (place, &fingerprint) in fingerprints.iter().enumerate() {
                let list: &mut Vec<u32> = &mut lists[fingerprint as usize];
                if list.len() < longest_list {
                    list.push(posting(song as u32, place as u32));
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
            let lists: Vec<Vec<u32>> = (0..LISTS).map(|list| index.postings(list).to_vec()).collect();
            prop_assert_eq!(lists, naive(&songs, longest as usize));
        }

        #[test]
        fn an_entry_tells_what_went_into_it(song in 0..MOST_SONGS, place in 0..PLACES) {
            prop_assert_eq!(song_and_place(posting(song, place)), (song, place));
        }
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let songs = vec![vec![5; 10]; 4];
        let index = Index::build(&collection(&songs, 12), 2);
        assert_eq!(index.postings(5).len(), 12);
        assert_eq!(song_and_place(index.postings(5)[11]), (1, 1), "the first to come");
        assert_eq!((index.postings(4).len(), index.size_bytes()), (0, 8 * 37 + 4 * 12));
    }
}
