//! A set of base pages of a region, such as those present or walked.
//!
//! Owns: the set and its compact form, since a pilot keeps two for each 2 MiB that it observes. Never touches: their meaning.

use crate::units::PAGES_PER_REGION;

/// A set of base pages of one region, by index 0 to 511. Most take 16 bytes, because in most regions all base pages are present, or the first few
/// hundred, or only a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSet(Form);

/// The first of these forms that can hold the set, which makes equal sets equal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// The first pages, this many.
    First(u16),
    /// Pages, ascending; entries after the first `len` are 0.
    Few { len: u8, pages: [u16; FEW] },
    /// A bit for each page.
    Any(Box<Words>),
}

/// Page 0 is in the lowest bit of the first word.
type Words = [u64; PAGES_PER_REGION / 64];

/// Pages that fit in the space of a pointer.
const FEW: usize = 6;

impl Default for PageSet {
    fn default() -> Self {
        Self::NONE
    }
}

impl PageSet {
    /// All 512 pages.
    pub const ALL: PageSet = PageSet(Form::First(PAGES_PER_REGION as u16));
    /// No page.
    pub const NONE: PageSet = PageSet(Form::First(0));

    /// The first `count` pages; at most all.
    pub fn first(count: usize) -> PageSet {
        PageSet(Form::First(count.min(PAGES_PER_REGION) as u16))
    }

    /// From eight words, page 0 in the lowest bit of the first.
    pub fn from_words(words: [u64; PAGES_PER_REGION / 64]) -> PageSet {
        let len = count(&words);
        if words == words_of_first(len) {
            return PageSet::first(len);
        }
        if len > FEW {
            return PageSet(Form::Any(Box::new(words)));
        }
        let mut pages = [0; FEW];
        pages.iter_mut().zip(pages_of(words)).for_each(|(place, page)| *place = page as u16);
        PageSet(Form::Few { len: len as u8, pages })
    }

    fn words(&self) -> Words {
        match &self.0 {
            Form::First(len) => words_of_first((*len).into()),
            Form::Few { len, pages } => {
                let mut words = Words::default();
                pages[..usize::from(*len)].iter().for_each(|&page| set_bit(&mut words, page.into()));
                words
            }
            Form::Any(words) => **words,
        }
    }

    /// The pages that are in either set.
    pub fn or(&self, other: &PageSet) -> PageSet {
        let (one, other) = (self.words(), other.words());
        PageSet::from_words(std::array::from_fn(|word| one[word] | other[word]))
    }

    /// The pages that are in this set and not in the other.
    pub fn without(&self, other: &PageSet) -> PageSet {
        let (one, other) = (self.words(), other.words());
        PageSet::from_words(std::array::from_fn(|word| one[word] & !other[word]))
    }

    /// Adds a page. Panics if `page` is above 511.
    pub fn insert(&mut self, page: usize) {
        match &mut self.0 {
            Form::First(len) if page < usize::from(*len) => {}
            Form::First(len) if page == usize::from(*len) && page < PAGES_PER_REGION => *len += 1,
            Form::Any(words) => {
                set_bit(words, page);
                let len = count(words);
                if **words == words_of_first(len) {
                    *self = PageSet::first(len);
                }
            }
            _ => {
                let mut words = self.words();
                set_bit(&mut words, page);
                *self = PageSet::from_words(words);
            }
        }
    }

    /// Whether the page is in the set. Panics if `page` is above 511.
    pub fn contains(&self, page: usize) -> bool {
        self.words()[page / 64] & (1 << (page % 64)) != 0
    }

    /// How many pages are in the set.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::First(len) => (*len).into(),
            Form::Few { len, .. } => (*len).into(),
            Form::Any(words) => count(words),
        }
    }

    /// How many cache lines of the page table, of eight entries each, cover a page in the set.
    pub fn page_table_lines(&self) -> usize {
        self.words().iter().flat_map(|word| word.to_le_bytes()).filter(|&line| line != 0).count()
    }

    /// Whether no page is in the set.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// The pages in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        pages_of(self.words())
    }
}

fn count(words: &Words) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

fn set_bit(words: &mut Words, page: usize) {
    words[page / 64] |= 1 << (page % 64);
}

fn words_of_first(len: usize) -> Words {
    std::array::from_fn(|word| match len.saturating_sub(word * 64) {
        more if more >= 64 => u64::MAX,
        rest => (1 << rest) - 1,
    })
}

fn pages_of(words: Words) -> impl Iterator<Item = usize> {
    words.into_iter().enumerate().flat_map(|(number, word)| {
        let rest = |&word: &u64| Some(word & word.wrapping_sub(1)).filter(|&rest| rest != 0);
        let bits = std::iter::successors(Some(word).filter(|&word| word != 0), rest);
        bits.map(move |word| number * 64 + word.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cache_lines_of_the_page_table_are_counted() {
        let mut set = PageSet::NONE;
        [0, 63, 64, 511].into_iter().for_each(|page| set.insert(page));
        assert_eq!((set.page_table_lines(), PageSet::ALL.page_table_lines()), (4, 64));
        set.insert(65);
        assert_eq!(set.page_table_lines(), 4, "in one line with page 64");
    }

    #[test]
    fn most_sets_are_small() {
        assert_eq!(size_of::<PageSet>(), 16);
        let mut filled = PageSet::NONE;
        (0..PAGES_PER_REGION).rev().for_each(|page| filled.insert(page));
        assert_eq!(filled, PageSet::ALL, "however it was filled");
    }

    fn pages() -> impl Strategy<Value = BTreeSet<usize>> {
        let some = |most| prop::collection::btree_set(0..PAGES_PER_REGION, 0..=most);
        prop_oneof![some(8), some(PAGES_PER_REGION), (0..=PAGES_PER_REGION).prop_map(|len| (0..len).collect())]
    }

    fn set_of(pages: impl IntoIterator<Item = usize>) -> PageSet {
        let mut set = PageSet::NONE;
        pages.into_iter().for_each(|page| set.insert(page));
        set
    }

    proptest! {
        #[test]
        fn it_is_a_set(one in pages(), other in pages()) {
            let (a, b) = (set_of(one.iter().copied()), set_of(other.iter().copied()));
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), one.clone());
            prop_assert_eq!((a.len(), a.is_empty()), (one.len(), one.is_empty()));
            prop_assert!((0..PAGES_PER_REGION).all(|page| a.contains(page) == one.contains(&page)));
            prop_assert_eq!(a.or(&b), set_of(one.union(&other).copied()));
            prop_assert_eq!(a.without(&b), set_of(one.difference(&other).copied()));
            prop_assert_eq!(PageSet::from_words(a.words()), a.clone());
            prop_assert_eq!(a == b, one == other);
        }

        #[test]
        fn it_matters_not_in_which_order_it_was_filled(
            shuffled in pages().prop_map(|pages| pages.into_iter().collect::<Vec<_>>()).prop_shuffle()
        ) {
            let ascending: BTreeSet<usize> = shuffled.iter().copied().collect();
            prop_assert_eq!(set_of(shuffled), set_of(ascending));
        }
    }
}
