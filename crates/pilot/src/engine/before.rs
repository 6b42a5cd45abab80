//! How a member was before anything was promoted in it, which tells what promoting changed.
//!
//! Owns: when that is noted, and when it holds no longer. Never touches: memory.

use heat::units::Bytes;

use crate::engine::member::Member;

impl Member {
    /// Page walks a second then; None while nothing is promoted, and where an earlier pilot did that.
    pub(super) fn walks_before(&self) -> Option<f64> {
        self.first.as_ref().filter(|_| self.acted)?.0.walks_per_second
    }

    /// From here on it is compared with how it is now.
    pub(super) fn set_first(&mut self) {
        self.first = self.last.map(|last| (last, self.view.amounts.clone()));
    }

    /// Where nothing is left of what was promoted, there is nothing to compare with.
    pub(super) fn forget_first_if_undone(&mut self) {
        if self.acted && self.promoted() == Bytes(0) {
            (self.acted, self.first) = (false, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use heat::Snapshot;
    use heat::samples::{at, heat_of, region};

    use super::*;

    #[test]
    fn a_program_was_otherwise_before_as_long_as_anything_is_promoted() {
        let mut member = Member::new(Instant::now(), 1.0, true);
        member.last = Some(Snapshot { walks_per_second: Some(5e6), ..Snapshot::default() });
        member.set_first();
        member.forget_first_if_undone();
        assert!(member.first.is_some() && member.walks_before().is_none(), "nothing was promoted yet");
        member.acted = true;
        (0..2).for_each(|number| member.past.promoted(at(number), 1.0));
        member.past.given_back(at(0), Instant::now());
        member.forget_first_if_undone();
        assert_eq!(member.walks_before(), Some(5e6), "one region is left");
        _ = member.past.notice(&heat_of(vec![region(1, 1.0, 0)]), Instant::now());
        member.forget_first_if_undone();
        assert_eq!((member.walks_before(), member.first.is_some()), (None, false), "the kernel split it");
    }
}
