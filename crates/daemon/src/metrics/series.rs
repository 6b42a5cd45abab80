//! Which targets share a series.
//!
//! Owns: the labels of a target, and the sum of those with the same ones. Never touches: metrics' names.
//!
//! A service or container that restarts keeps its series, and one that starts processes without end adds none.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use heat::units::Bytes;
use pilot::engine::shared_state::{ForecastState, TargetState};

/// The labels that its control group was assigned, or else its name and where it runs.
pub(super) fn labels(target: &TargetState) -> BTreeMap<String, String> {
    if !target.labels.is_empty() {
        return target.labels.clone();
    }
    let own = [("name", Some(&target.name)), ("unit", target.unit.as_ref()), ("container", target.container.as_ref())];
    own.into_iter().filter_map(|(label, value)| Some((label.to_owned(), value?.clone()))).collect()
}

/// One for each set of labels.
pub(super) fn by_series(targets: Vec<TargetState>) -> Vec<TargetState> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<TargetState>> = BTreeMap::new();
    for target in targets {
        groups.entry(labels(&target)).or_default().push(target);
    }
    groups.into_values().filter_map(together).collect()
}

/// The sum of what can be added up; the rest is that of the largest.
fn together(mut targets: Vec<TargetState>) -> Option<TargetState> {
    targets.sort_by_key(|target| Reverse(target.rss_bytes));
    let sum = |of: fn(&TargetState) -> Bytes| targets.iter().map(of).sum();
    let add = |of: fn(&TargetState) -> f64| targets.iter().map(of).fold(0.0, |sum, each| sum + each);
    let add_known = |of: fn(&TargetState) -> Option<f64>| targets.iter().filter_map(of).reduce(|sum, each| sum + each);
    let forecasts = || targets.iter().filter_map(|target| target.forecast);
    let largest = targets.first()?.clone();
    Some(TargetState {
        proportional_bytes: sum(|target| target.proportional_bytes),
        proportional_huge_bytes: sum(|target| target.proportional_huge_bytes),
        promoted_bytes: sum(|target| target.promoted_bytes),
        growth_bytes: sum(|target| target.growth_bytes),
        smaller_huge_bytes: targets.iter().filter_map(|target| target.smaller_huge_bytes.clone()).reduce(
            |mut sum, each| {
                sum += &each;
                sum
            },
        ),
        page_tables_bytes: sum(|target| target.page_tables_bytes),
        may_have_bytes: targets.iter().filter_map(|target| target.may_have_bytes).reduce(|sum, each| sum + each),
        walks_per_second_before: add_known(|target| target.walks_per_second_before),
        walks_per_second: add_known(|target| target.walks_per_second),
        walks_saved_per_second: add(|target| target.walks_saved_per_second),
        busy_cpus: add_known(|target| target.busy_cpus),
        faults_per_second: add(|target| target.faults_per_second),
        forecast: forecasts().find(|each| each.gain_percent.is_some()).or_else(|| forecasts().next()).map(
            |of_largest| ForecastState {
                gain_percent: of_largest.gain_percent,
                waited_share: of_largest.waited_share,
                would_pay_bytes: forecasts().map(|forecast| forecast.would_pay_bytes).sum(),
                growth_bytes: forecasts().map(|forecast| forecast.growth_bytes).sum(),
            },
        ),
        paused: targets.iter().any(|target| target.paused),
        left_alone: targets.iter().find_map(|target| target.left_alone.clone()),
        held_back: targets.iter().filter_map(|target| target.held_back).max(),
        ..largest
    })
}

#[cfg(test)]
mod tests {
    use pilot::decide::GainPercent;
    use pilot::engine::shared_state::TargetHeldBack;

    use super::*;

    fn target(pid: u32, pod: &str, rss: u64) -> TargetState {
        let labels = if pod.is_empty() { BTreeMap::new() } else { [("pod".to_owned(), pod.to_owned())].into() };
        // Of several processes that share memory.
        let (rss_bytes, proportional_bytes) = (Bytes(rss), Bytes(rss / 2));
        TargetState { pid, labels, rss_bytes, proportional_bytes, ..TargetState::default() }
    }

    #[test]
    fn targets_with_the_same_labels_are_added_up_and_others_are_not() {
        let series = by_series(vec![
            target(1, "a", 10),
            target(2, "", 20),
            target(3, "b", 30),
            target(4, "a", 40),
            target(5, "", 20),
        ]);
        let shown: Vec<_> = series.iter().map(|target| (target.pid, target.proportional_bytes.0)).collect();
        assert_eq!(shown, [(2, 20), (4, 25), (3, 15)], "those without labels have one name");
    }

    #[test]
    fn what_runs_in_different_places_is_told_apart() {
        let of = |pid, unit: Option<&str>, container: Option<&str>| TargetState {
            pid,
            name: "postgres".to_owned(),
            unit: unit.map(str::to_owned),
            container: container.map(str::to_owned),
            ..TargetState::default()
        };
        let one = of(1, Some("a.service"), None);
        assert_eq!(
            labels(&one),
            [("name", "postgres"), ("unit", "a.service")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
        let series = by_series(vec![
            one.clone(),
            of(2, Some("b.service"), None),
            of(3, None, Some("0123")),
            of(4, Some("a.service"), None),
        ]);
        assert_eq!(series.len(), 3);
    }

    #[test]
    fn a_forecast_is_that_of_the_largest_and_memory_is_a_sum() {
        let forecast = |likely, bytes| {
            let gain_percent = Some(GainPercent { low: 0.0, likely, high: 9.0 });
            Some(ForecastState {
                gain_percent,
                would_pay_bytes: Bytes(bytes),
                growth_bytes: Bytes(1),
                ..ForecastState::default()
            })
        };
        let small = TargetState {
            forecast: forecast(2.0, 100),
            walks_per_second: Some(5.0),
            paused: true,
            ..target(1, "a", 10)
        };
        let large = TargetState {
            forecast: forecast(7.0, 10),
            may_have_bytes: Some(Bytes(8)),
            held_back: Some(TargetHeldBack::NearMemoryLimit),
            ..target(2, "a", 90)
        };
        let idle = TargetState { forecast: Some(ForecastState::default()), ..target(3, "a", 900) };
        let both = by_series(vec![small, large, idle]).remove(0);
        let seen = both.forecast.expect("a forecast");
        assert_eq!(
            (seen.gain_percent.map(|gain| gain.likely), seen.would_pay_bytes, seen.growth_bytes),
            (Some(7.0), Bytes(110), Bytes(2))
        );
        assert_eq!((both.may_have_bytes, both.walks_per_second, both.paused), (Some(Bytes(8)), Some(5.0), true));
        assert_eq!(both.held_back, Some(TargetHeldBack::NearMemoryLimit));
    }
}
