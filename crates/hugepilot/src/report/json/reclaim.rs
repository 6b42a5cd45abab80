//! Reclaim: what memory is used for, what was reclaimed, and what that changed.

use heat::memory_use::MemoryUse;
use kernel::page_use::Age;
use observe::Census;
use reclaim::ReclaimState;
use serde::Serialize;

use super::{ReportKind, document, state_document};
use crate::report::ReclaimStatusReport;

/// The complete state of reclaim.
pub fn reclaim(state: &ReclaimState) -> String {
    state_document(ReportKind::Reclaim, state)
}

/// What memory is used for, and the state of reclaim.
pub fn reclaim_status(report: &ReclaimStatusReport<'_>) -> String {
    document(
        ReportKind::ReclaimStatus,
        &object! {
            census: report.census.ok().map(census),
            no_census_because: report.census.err(),
            now: report.now,
            running: report.is_alive,
            reclaim: report.state,
        },
    )
}

fn census(census: &Census) -> impl Serialize {
    let class = |&class: &MemoryUse| {
        let of = |age: Age| census.held[class][age as usize];
        object! {
            class,
            held_bytes: census.held(class),
            active_bytes: of(Age::Active),
            referenced_bytes: of(Age::Referenced),
            old_bytes: of(Age::Old),
            idle_bytes: of(Age::Idle),
        }
    };
    object! {
        total_bytes: census.total,
        sampled: census.sampled,
        classes: MemoryUse::ALL.iter().map(class).collect::<Vec<_>>(),
        free_bytes: census.free,
        unevictable_bytes: census.fixed.unevictable,
        hugetlb_bytes: census.fixed.hugetlb,
        slab_bytes: census.fixed.slab,
        page_tables_bytes: census.fixed.page_tables,
        kernel_bytes: census.fixed.kernel,
        spare: census.spare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::tests::pretty;
    use crate::report::samples;

    #[test]
    fn a_status_has_every_field() {
        let (census, state, now) = (samples::census(), samples::reclaim_state(), samples::moment(9));
        let report = ReclaimStatusReport { census: Ok(&census), now: &now, state: Some(&state), is_alive: true };
        insta::assert_snapshot!(pretty(&reclaim_status(&report)));
    }

    #[test]
    fn a_state_is_read_again_as_it_was() {
        let document = reclaim(&samples::reclaim_state());
        assert_eq!(serde_json::from_str::<ReclaimState>(&document).unwrap(), samples::reclaim_state());
    }
}
