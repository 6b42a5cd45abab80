//! A program started on huge pages.

use std::collections::BTreeMap;

use heat::units::Bytes;
use launch::verify::By;
use serde::Serialize;

use crate::report::LaunchReport;

/// `largest` is when the program had the most memory; shares refer to that.
pub(super) fn launch(report: LaunchReport) -> impl Serialize {
    let (recipe, account) = (&report.prepared.recipe, report.account);
    let environment = recipe.variables.iter().map(|variable| (variable.name, &variable.value));
    object! {
        pages: report.prepared.request.pages.to_string(),
        environment: environment.collect::<BTreeMap<_, _>>(),
        arguments: recipe.arguments.iter().flat_map(|insert| &insert.words).collect::<Vec<_>>(),
        obstacles: &recipe.obstacles,
        named: &recipe.named,
        left_to_pilot: &recipe.left_to_pilot,
        scans: account.seen.scans,
        largest: account.seen.largest,
        last: account.seen.last,
        huge_percent: account.percent(),
        faults_saved: account.faults_saved(),
        required_percent: account.required,
        met: account.is_met(),
        by: account.by.iter().map(share).collect::<Vec<_>>(),
        rest: &account.rest,
        text: account.text,
    }
}

fn share((who, bytes): &(By, Bytes)) -> impl Serialize {
    let mechanisms = if let By::Recipe(mechanisms) = who { mechanisms.as_slice() } else { &[] };
    object! { who, mechanisms, bytes }
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
        let fields = launch(LaunchReport { prepared: &prepared, account: &account });
        insta::assert_snapshot!(serde_json::to_string_pretty(&fields).unwrap());
    }

    #[test]
    fn every_reason_has_its_name() {
        let rest = vec![
            NotHugeReason::SwitchedOff,
            NotHugeReason::SwitchedOffForItself(1),
            NotHugeReason::NotSeen,
            NotHugeReason::PoolEmpty,
            NotHugeReason::PoolUsedUp,
            NotHugeReason::Limited("/a".to_owned()),
            NotHugeReason::Hindered(InTheWay::default()),
            NotHugeReason::NotReached(Vec::new()),
            NotHugeReason::Refused(BTreeSet::new()),
            NotHugeReason::NotPiloted,
            NotHugeReason::Unknown,
        ];
        let (prepared, account) = (prepared_search(), Verification { rest, text: None, ..account_of_a_search() });
        let fields = launch(LaunchReport { prepared: &prepared, account: &account });
        assert!(serde_json::to_string(&fields).unwrap().ends_with(
            r#""rest":["switched_off","switched_off_for_itself","not_seen","pool_empty","pool_used_up","limited","hindered","not_reached","refused","not_piloted","unknown"],"text":null}"#
        ));
    }
}
