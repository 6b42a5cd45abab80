//! Which page goes where: the color sequence, and the next-best color once one has run out.
//!
//! Owns: arithmetic on page frames. Never touches: memory; the same frames give the same choice.
//!
//! The color of a page is its frame number modulo the number of colors; frame 0, which no program ever gets, stands for a page that is not
//! present. Each page wants the next color, counted from the beginning of the sequence, whatever color the previous page got: a color that
//! has run out affects one page, not all that follow.

use super::ColorError;

/// No cache has more colors: it would have 16 GiB per way.
const MOST_COLORS: u32 = 1 << 22;

/// The number of colors, and which of them are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Palette {
    count: u32,
    /// Ascending, without duplicates, never empty.
    used: Vec<u32>,
}

/// Adjacent candidates with adjacent places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateRun {
    /// The first candidate.
    pub candidate: usize,
    /// The first place.
    pub place: usize,
    /// How many.
    pub pages: usize,
}

impl Palette {
    /// All of `count` colors.
    ///
    /// Errors: `count` is 0, or more than any cache has.
    pub fn all(count: u32) -> Result<Self, ColorError> {
        Self::only(count, 0..count)
    }

    /// Only these of `count` colors; duplicates do not matter.
    ///
    /// Errors: `count` is 0, or more than any cache has; a color is not below `count`; or no color is named.
    pub fn only(count: u32, used: impl IntoIterator<Item = u32>) -> Result<Self, ColorError> {
        if count == 0 || count > MOST_COLORS {
            return Err(ColorError::Count { count, most: MOST_COLORS });
        }
        let mut used: Vec<u32> = used.into_iter().collect();
        if let Some(&color) = used.iter().find(|&&color| color >= count) {
            return Err(ColorError::NoSuchColor { color, count });
        }
        used.sort_unstable();
        used.dedup();
        if used.is_empty() { Err(ColorError::NoColor) } else { Ok(Self { count, used }) }
    }

    /// How many colors there are, used or not.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many are used.
    pub fn used(&self) -> usize {
        self.used.len()
    }

    /// Whether every color is used.
    pub fn is_whole(&self) -> bool {
        self.used.len() == self.count as usize
    }

    /// The color of a page frame.
    pub fn color_of(&self, frame: u64) -> u32 {
        (frame % u64::from(self.count)) as u32
    }

    /// The color wanted for a place, if the first place has the used color number `first`.
    pub fn wanted(&self, first: usize, place: usize) -> u32 {
        self.used[(first % self.used.len() + place) % self.used.len()]
    }

    /// Whether a frame's color is one of those used.
    pub fn is_used(&self, frame: u64) -> bool {
        self.rank(frame).is_some()
    }

    /// Its position among the used colors. None for an unused color, and for frame 0.
    fn rank(&self, frame: u64) -> Option<usize> {
        if frame == 0 { None } else { self.used.binary_search(&self.color_of(frame)).ok() }
    }

    /// Chooses candidates for this many places by their frames; returns the index of a candidate for each place. If a color has run out,
    /// the place gets the next used color that has not. Among candidates of a color, the one next to the previous place's candidate is
    /// preferred, otherwise the first: neighbours that stay together are moved together, and keep the benefit of locality for the
    /// processor (and a host).
    ///
    /// None if there are too few candidates of the used colors.
    pub fn choose(&self, frames: &[u64], first: usize, places: usize) -> Option<Vec<usize>> {
        let mut by_color = vec![Vec::new(); self.used.len()];
        for (candidate, &frame) in frames.iter().enumerate().rev() {
            if let Some(rank) = self.rank(frame) {
                by_color[rank].push(candidate);
            }
        }
        let mut choice = Vec::with_capacity(places);
        let mut taken = vec![false; frames.len()];
        for place in 0..places {
            let wanted = (first % self.used.len() + place) % self.used.len();
            let next = choice.last().map_or(0, |last| last + 1);
            let fits = |&frame: &u64| !taken[next] && self.rank(frame) == Some(wanted);
            let candidate = match frames.get(next).filter(|frame| fits(frame)) {
                Some(_) => next,
                None => first_free(&mut by_color, wanted, &taken)?,
            };
            taken[candidate] = true;
            choice.push(candidate);
        }
        Some(choice)
    }

    /// How many pages the scarcest color lacks for this many places.
    pub fn shortage(&self, frames: &[u64], first: usize, places: usize) -> u64 {
        let colors = self.used.len();
        let mut there = vec![0_u64; colors];
        frames.iter().filter_map(|&frame| self.rank(frame)).for_each(|rank| there[rank] += 1);
        let wanted = |rank: usize| {
            let place = (rank + colors - first % colors) % colors;
            (places / colors + usize::from(place < places % colors)) as u64
        };
        (0..colors).map(|rank| wanted(rank).saturating_sub(there[rank])).max().unwrap_or(0)
    }
}

/// The first free candidate of this color or, cyclically, of the next ones.
fn first_free(by_color: &mut [Vec<usize>], wanted: usize, taken: &[bool]) -> Option<usize> {
    let mut from_there = (wanted..by_color.len()).chain(0..wanted);
    from_there.find_map(|rank| {
        let mut left = std::iter::from_fn(|| by_color[rank].pop());
        left.find(|&candidate| !taken[candidate])
    })
}

/// Splits a choice into as few runs as possible; a run never continues across the candidate `border`.
pub fn runs(choice: &[usize], border: usize) -> Vec<CandidateRun> {
    let mut runs: Vec<CandidateRun> = Vec::new();
    for (place, &candidate) in choice.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.candidate + run.pages == candidate && candidate != border => run.pages += 1,
            _ => runs.push(CandidateRun { candidate, place, pages: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn colors(palette: &Palette, frames: &[u64], choice: &[usize]) -> Vec<u32> {
        choice.iter().map(|&candidate| palette.color_of(frames[candidate])).collect()
    }

    #[test]
    fn the_next_best_color_takes_one_place_and_not_those_that_follow() {
        let palette = Palette::all(4).unwrap();
        // Two pages of each color, except one of color 2 and three of color 3.
        let frames = [8, 1, 2, 3, 4, 5, 7, 11];
        let choice = palette.choose(&frames, 1, 8).unwrap();
        assert_eq!(colors(&palette, &frames, &choice), [1, 2, 3, 0, 1, 3, 3, 0]);
        assert_eq!(palette.shortage(&frames, 1, 8), 1);
        assert_eq!(palette.choose(&frames, 1, 9), None);
    }

    #[test]
    fn colors_that_are_not_used_stay_away() {
        let palette = Palette::only(8, [5, 2, 5]).unwrap();
        let frames: Vec<u64> = (32..64).collect();
        let choice = palette.choose(&frames, 1, 6).unwrap();
        assert_eq!(colors(&palette, &frames, &choice), [5, 2, 5, 2, 5, 2]);
        assert_eq!((palette.choose(&frames, 0, 9), palette.shortage(&frames, 0, 9)), (None, 1));
        assert!((0..9).map(|place| palette.wanted(1, place)).eq([5, 2, 5, 2, 5, 2, 5, 2, 5]));
    }

    #[test]
    fn neighbours_are_taken_together() {
        let palette = Palette::all(4).unwrap();
        let choice = palette.choose(&[4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15], 0, 8).unwrap();
        assert_eq!(choice, vec![0, 1, 2, 3, 7, 8, 9, 10]);
    }

    #[test]
    fn a_page_that_is_not_there_is_of_no_color() {
        let palette = Palette::all(4).unwrap();
        let frames = [0, 1, 0, 4];
        assert_eq!(palette.choose(&frames, 0, 2).unwrap(), [3, 1]);
        assert_eq!((palette.choose(&frames, 0, 3), palette.shortage(&[0, 1, 2, 3], 0, 4)), (None, 1));
    }

    #[test]
    fn palettes_that_make_no_sense_are_refused() {
        let refused = |palette: Result<Palette, ColorError>| palette.unwrap_err().to_string();
        assert!(refused(Palette::all(0)).contains("not 0") && refused(Palette::all(u32::MAX)).contains("colors"));
        assert!(refused(Palette::only(8, [3, 8])).contains("no color 8 among 8"));
        assert!(refused(Palette::only(8, [])).contains("at least one"));
    }

    #[test]
    fn neighbours_that_stay_together_are_one_piece() {
        let choice = vec![7, 8, 9, 3, 2, 3];
        let run = |candidate, place, pages| CandidateRun { candidate, place, pages };
        assert_eq!(runs(&choice, 0), [run(7, 0, 3), run(3, 3, 1), run(2, 4, 2)]);
        assert_eq!(runs(&choice, 8), [run(7, 0, 1), run(8, 1, 2), run(3, 3, 1), run(2, 4, 2)]);
        assert_eq!(runs(&[], 0), []);
    }

    /// A palette, and distinct frames.
    fn palette_and_frames() -> impl Strategy<Value = (Palette, Vec<u64>)> {
        let palette = (1..40_u32).prop_flat_map(|count| {
            prop::collection::vec(0..count, 1..20).prop_map(move |used| Palette::only(count, used).unwrap())
        });
        (palette, prop::collection::hash_set(1..2000_u64, 0..300).prop_map(|frames| frames.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn no_page_comes_twice_and_none_of_a_color_that_is_not_used(
            (palette, frames) in palette_and_frames(), first in 0..50_usize, places in 0..300_usize,
        ) {
            let usable = frames.iter().filter(|&&frame| palette.used.contains(&palette.color_of(frame))).count();
            let Some(choice) = palette.choose(&frames, first, places) else {
                prop_assert!(usable < places);
                return Ok(());
            };
            prop_assert!(usable >= places && choice.len() == places);
            let mut candidates = choice.clone();
            candidates.sort_unstable();
            candidates.dedup();
            prop_assert_eq!(candidates.len(), places);
            prop_assert!(colors(&palette, &frames, &choice).iter().all(|color| palette.used.contains(color)));
        }

        #[test]
        fn the_sequence_is_exact_where_no_color_is_short(
            (palette, frames) in palette_and_frames(), first in 0..50_usize, places in 0..300_usize,
        ) {
            let is_exact = |choice: Vec<usize>| {
                let got = colors(&palette, &frames, &choice);
                got.iter().enumerate().all(|(place, &color)| color == palette.wanted(first, place))
            };
            prop_assert_eq!(palette.choose(&frames, first, places).is_some_and(is_exact), palette.shortage(&frames, first, places) == 0);
        }

        #[test]
        fn a_place_gets_another_color_only_when_its_own_is_gone_and_then_the_next_one(
            (palette, frames) in palette_and_frames(), first in 0..50_usize, places in 0..300_usize,
        ) {
            let Some(choice) = palette.choose(&frames, first, places) else { return Ok(()) };
            let mut left = vec![0; palette.count as usize];
            frames.iter().for_each(|&frame| left[palette.color_of(frame) as usize] += 1);
            for (place, color) in colors(&palette, &frames, &choice).into_iter().enumerate() {
                let better = (0..palette.used.len())
                    .map(|further| palette.wanted(first, place + further))
                    .find(|&color| left[color as usize] > 0);
                prop_assert_eq!(better, Some(color), "place {}", place);
                left[color as usize] -= 1;
            }
        }

        #[test]
        fn pieces_are_the_choice(candidates in prop::collection::vec(0..20_usize, 0..40), border in 0..20_usize) {
            let mut rebuilt = Vec::new();
            for run in runs(&candidates, border) {
                prop_assert_eq!(run.place, rebuilt.len());
                prop_assert!(!(run.candidate + 1..run.candidate + run.pages).contains(&border));
                rebuilt.extend(run.candidate..run.candidate + run.pages);
            }
            prop_assert_eq!(rebuilt, candidates);
        }
    }
}
