//! A program started on huge pages.

use std::collections::BTreeMap;

use heat::units::Bytes;
use launch::recipe::{MemoryMechanism, Remark};
use launch::verify::{By, NotHugeReason};
use launch::watch::TreeSample;
use serde::Serialize;

use crate::report::LaunchReport;

#[derive(Serialize)]
pub(super) struct LaunchFields<'a> {
    pages: &'static str,
    environment: BTreeMap<&'static str, &'a str>,
    arguments: Vec<&'a str>,
    obstacles: Vec<RemarkFields<'a>>,
    named: Vec<RemarkFields<'a>>,
    left_to_pilot: &'a [String],
    scans: u64,
    /// When the program had most memory, which is what the share is of.
    largest: SampleFields,
    last: SampleFields,
    huge_percent: Option<f64>,
    faults_saved: u64,
    required_percent: Option<f64>,
    met: bool,
    by: Vec<ShareFields>,
    rest: Vec<&'static str>,
}

#[derive(Serialize)]
struct RemarkFields<'a> {
    what: &'a str,
    next_step: Option<&'a str>,
}

#[derive(Serialize)]
struct SampleFields {
    processes: usize,
    could_be_huge_bytes: Bytes,
    transparent_bytes: Bytes,
    reserved_bytes: Bytes,
    pool_left_pages: Option<u64>,
}

#[derive(Serialize)]
struct ShareFields {
    who: &'static str,
    mechanisms: Vec<MechanismFields>,
    bytes: Bytes,
}

#[derive(Serialize)]
struct MechanismFields {
    memory: &'static str,
    name: &'static str,
}

pub(super) fn launch_fields<'a>(report: &LaunchReport<'a>) -> LaunchFields<'a> {
    let (recipe, account) = (&report.prepared.recipe, report.account);
    LaunchFields {
        pages: report.prepared.request.pages.word(),
        environment: recipe.variables.iter().map(|variable| (variable.name, variable.value.as_str())).collect(),
        arguments: recipe.arguments.iter().flat_map(|insert| &insert.words).map(String::as_str).collect(),
        obstacles: recipe.obstacles.iter().map(remark_fields).collect(),
        named: recipe.named.iter().map(remark_fields).collect(),
        left_to_pilot: &recipe.left_to_pilot,
        scans: account.seen.scans,
        largest: sample_fields(&account.seen.largest),
        last: sample_fields(&account.seen.last),
        huge_percent: account.percent(),
        faults_saved: account.faults_saved(),
        required_percent: account.required,
        met: account.is_met(),
        by: account.by.iter().map(|(by, bytes)| share_fields(by, *bytes)).collect(),
        rest: account.rest.iter().map(why_name).collect(),
    }
}

fn remark_fields(remark: &Remark) -> RemarkFields<'_> {
    RemarkFields { what: &remark.what, next_step: remark.next_step.as_deref() }
}

fn sample_fields(sample: &TreeSample) -> SampleFields {
    SampleFields {
        processes: sample.processes,
        could_be_huge_bytes: sample.could,
        transparent_bytes: sample.transparent,
        reserved_bytes: sample.reserved,
        pool_left_pages: sample.pool_left,
    }
}

fn share_fields(by: &By, bytes: Bytes) -> ShareFields {
    let (who, mechanisms) = match by {
        By::Recipe(mechanisms) => ("recipe", mechanisms.as_slice()),
        By::Pilot => ("pilot", &[] as &[MemoryMechanism]),
        By::Itself => ("itself", &[] as &[MemoryMechanism]),
    };
    let fields =
        |&MemoryMechanism { memory, name, .. }: &MemoryMechanism| MechanismFields { memory: memory.word(), name };
    ShareFields { who, mechanisms: mechanisms.iter().map(fields).collect(), bytes }
}

fn why_name(why: &NotHugeReason) -> &'static str {
    match why {
        NotHugeReason::SwitchedOff => "switched_off",
        NotHugeReason::SwitchedOffForItself(_) => "switched_off_for_itself",
        NotHugeReason::PoolEmpty => "pool_empty",
        NotHugeReason::PoolUsedUp => "pool_used_up",
        NotHugeReason::Limited(_) => "limited",
        NotHugeReason::Hindered(_) => "hindered",
        NotHugeReason::NotReached(_) => "not_reached",
        NotHugeReason::Refused(_) => "refused",
        NotHugeReason::NotPiloted => "not_piloted",
        NotHugeReason::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use launch::counts::InTheWay;
    use launch::verify::{NotHugeReason, Verification};

    use super::*;
    use crate::report::samples::{account_of_a_search, prepared_search};

    #[test]
    fn a_launch_has_its_fields() {
        let (prepared, account) = (prepared_search(), account_of_a_search());
        let fields = launch_fields(&LaunchReport { prepared: &prepared, account: &account });
        insta::assert_snapshot!(serde_json::to_string_pretty(&fields).unwrap());
    }

    #[test]
    fn every_reason_has_its_name() {
        let rest = vec![
            NotHugeReason::SwitchedOff,
            NotHugeReason::SwitchedOffForItself(1),
            NotHugeReason::PoolEmpty,
            NotHugeReason::PoolUsedUp,
            NotHugeReason::Limited("/a".to_owned()),
            NotHugeReason::Hindered(InTheWay::default()),
            NotHugeReason::NotReached(Vec::new()),
            NotHugeReason::Refused(BTreeSet::new()),
            NotHugeReason::NotPiloted,
            NotHugeReason::Unknown,
        ];
        let (prepared, account) = (prepared_search(), Verification { rest, ..account_of_a_search() });
        let fields = launch_fields(&LaunchReport { prepared: &prepared, account: &account });
        assert!(serde_json::to_string(&fields).unwrap().ends_with(
            r#""rest":["switched_off","switched_off_for_itself","pool_empty","pool_used_up","limited","hindered","not_reached","refused","not_piloted","unknown"]}"#
        ));
    }
}
