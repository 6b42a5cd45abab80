//! Aging: what memory is used for, what was aged, and what that has changed.

use heat::memory_use::MemoryUse;
use heat::units::Bytes;
use kernel::page_use::Age;
use observe::Census;
use reclaim::{AgeState, Moment};
use serde::Serialize;

use super::{VERSION, line};
use crate::report::AgeStatusReport;

#[derive(Serialize)]
struct StatusDocument<'a> {
    version: u32,
    census: Option<CensusFields>,
    no_census_because: Option<&'a str>,
    now: &'a Moment,
    running: bool,
    age: Option<&'a AgeState>,
}

#[derive(Serialize)]
struct CensusFields {
    total_bytes: Bytes,
    sampled: f64,
    classes: Vec<ClassFields>,
    free_bytes: Bytes,
    unevictable_bytes: Bytes,
    hugetlb_bytes: Bytes,
    slab_bytes: Bytes,
    page_tables_bytes: Bytes,
    kernel_bytes: Bytes,
    behind_cache_bytes: Bytes,
}

#[derive(Serialize)]
struct ClassFields {
    class: MemoryUse,
    held_bytes: Bytes,
    active_bytes: Bytes,
    referenced_bytes: Bytes,
    old_bytes: Bytes,
    idle_bytes: Bytes,
}

/// How aging stands, whole.
pub fn age(state: &AgeState) -> String {
    line(state)
}

/// What memory is used for, and how aging stands.
pub fn age_status(report: &AgeStatusReport<'_>) -> String {
    line(&StatusDocument {
        version: VERSION,
        census: report.census.ok().map(census_fields),
        no_census_because: report.census.err(),
        now: report.now,
        running: report.is_alive,
        age: report.state,
    })
}

fn census_fields(census: &Census) -> CensusFields {
    let class = |&class: &MemoryUse| {
        let of = |age: Age| census.held[class][age as usize];
        ClassFields {
            class,
            held_bytes: census.held(class),
            active_bytes: of(Age::Active),
            referenced_bytes: of(Age::Referenced),
            old_bytes: of(Age::Old),
            idle_bytes: of(Age::Idle),
        }
    };
    CensusFields {
        total_bytes: census.total,
        sampled: census.sampled,
        classes: MemoryUse::ALL.iter().map(class).collect(),
        free_bytes: census.free,
        unevictable_bytes: census.fixed.unevictable,
        hugetlb_bytes: census.fixed.hugetlb,
        slab_bytes: census.fixed.slab,
        page_tables_bytes: census.fixed.page_tables,
        kernel_bytes: census.fixed.kernel,
        behind_cache_bytes: census.behind_cache,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::tests::pretty;
    use crate::report::samples;

    #[test]
    fn a_status_has_every_field() {
        let (census, state, now) = (samples::census(), samples::age_state(), samples::moment(9));
        let report = AgeStatusReport { census: Ok(&census), now: &now, state: Some(&state), is_alive: true };
        insta::assert_snapshot!(pretty(&age_status(&report)));
    }

    #[test]
    fn a_state_is_read_again_as_it_was() {
        let document = age(&samples::age_state());
        assert_eq!(serde_json::from_str::<AgeState>(&document).unwrap(), samples::age_state());
    }
}
