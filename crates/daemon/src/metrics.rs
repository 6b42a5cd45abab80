//! Metrics: a pilot's state as OpenMetrics text for Prometheus and similar collectors.
//!
//! Owns: the name and meaning of every metric, and how many targets are listed individually. Never touches: sockets, or
//! the pilot.

mod series;

use std::cmp::Reverse;
use std::fmt;

use heat::PageSizes;
use heat::units::{Bytes, Nanos, Slowdown};
use pilot::decide::GainPercent;
use pilot::engine::shared_state::{COLLAPSE_CLASSES, Counts, State, TargetState};
use pilot::scope::PilotMode;
use pilot::words::name;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::metrics::series::{by_series, labels};

/// The HTTP content type of this format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Sets of labels exported, those with the most on huge pages or to be put there first: a collector stores some twenty series for each.
const MOST_TARGETS: usize = 1_000;

/// A number that may rise and fall, and how to read it; None omits it.
struct Gauge<T: 'static> {
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
}

/// A number that only rises.
struct Counter {
    name: &'static str,
    help: &'static str,
    value: fn(&State) -> f64,
}

const GAUGES: &[Gauge<State>] = &[
    gauge("hugepilot_uptime_seconds", "Time since the pilot began", |state| Some(state.up_ns.seconds())),
    gauge(
        "hugepilot_state_age_seconds",
        "Time since the other figures were taken: a second or less, longer during a scan or while regions are promoted",
        |state| Some(state.taken_ns_ago.seconds()),
    ),
    gauge("hugepilot_paused", "1 while everything is paused on request", |state| Some(flag(state.paused))),
    gauge("hugepilot_held_back", "1 while nothing is promoted, for example because memory is short", |state| {
        Some(flag(state.held_back.is_some()))
    }),
    gauge(
        "hugepilot_config_last_reload_successful",
        "1 if the configuration was read when that was last asked for, 0 if it was refused and stayed as it was",
        |state| Some(flag(state.reload_refused.is_none())),
    ),
    gauge("hugepilot_huge_bytes", "Memory on huge pages in all targets", |state| bytes(state.budget.huge_bytes)),
    gauge("hugepilot_max_huge_bytes", "Most memory on huge pages in all targets; absent without a limit", |state| {
        state.budget.max_huge_bytes.and_then(bytes)
    }),
    gauge("hugepilot_growth_bytes", "Memory growth that promoting took and that was not given back", |state| {
        bytes(state.budget.growth_bytes)
    }),
    gauge("hugepilot_max_cpu_ratio", "Share of one CPU that observing and deciding may take", |state| {
        Some(state.budget.max_cpu)
    }),
];

const COUNTERS: &[Counter] = &[
    counter("hugepilot_cpu_seconds", "CPU time of the pilot, collapsing included", |state| {
        state.budget.cpu_ns.seconds()
    }),
    counter("hugepilot_scans", "Scans of a target", |state| state.counts.scans as f64),
    counter("hugepilot_promoted_regions", "Regions put on huge pages", |state| state.counts.promoted as f64),
    counter("hugepilot_given_back_regions", "Regions given back", |state| state.counts.given_back as f64),
    counter(
        "hugepilot_lost_regions",
        "Regions put on huge pages that were split or released again, by their programs or for lack of memory",
        |state| state.counts.lost as f64,
    ),
];

const TARGET_GAUGES: &[Gauge<TargetState>] = &[
    gauge(
        "hugepilot_target_resident_bytes",
        "A target's resident memory, with its proportion of what targets share (as with Pss), so that sums count that once",
        |target| bytes(target.proportional_bytes),
    ),
    gauge(
        "hugepilot_target_huge_bytes",
        "A target's memory on huge pages, whoever put it there, with its proportion of what targets share",
        |target| bytes(target.proportional_huge_bytes),
    ),
    gauge(
        "hugepilot_target_promoted_bytes",
        "A target's memory that the pilot put on huge pages and did not give back",
        |target| bytes(target.promoted_bytes),
    ),
    gauge("hugepilot_target_growth_bytes", "A target's memory growth that promoting took", |target| {
        bytes(target.growth_bytes)
    }),
    gauge(
        "hugepilot_target_may_have_bytes",
        "Memory that a target may have on huge pages; absent without a limit, and before its first plan",
        |target| target.may_have_bytes.and_then(bytes),
    ),
    gauge(
        "hugepilot_target_walks_per_second_before",
        "A target's page walks a second at the last scan before anything was promoted in it; absent until something is, and where an earlier daemon did that",
        |target| target.walks_per_second_before,
    ),
    gauge("hugepilot_target_walks_per_second", "A target's page walks a second at the last scan", |target| {
        target.walks_per_second
    }),
    gauge(
        "hugepilot_target_walks_saved_per_second",
        "Page walks a second that promoting saved in a target, with page faults and page tables counted as such",
        |target| Some(target.walks_saved_per_second),
    ),
    gauge(
        "hugepilot_target_faults_per_second",
        "Page faults a second on a target's shared memory, at the last scan, that huge pages would save",
        |target| Some(target.faults_per_second),
    ),
    gauge("hugepilot_target_page_tables_bytes", "Memory that a target's page tables take", |target| {
        bytes(target.page_tables_bytes)
    }),
    gauge(
        "hugepilot_target_forecast_gain_ratio",
        "Speed that huge pages would likely gain a target that is only observed, 0.1 for 10 %; absent if it uses no CPU time, or waits for it too much to tell",
        |target| forecast_gain(target, |gain| gain.likely),
    ),
    gauge("hugepilot_target_forecast_gain_low_ratio", "The low end of that forecast", |target| {
        forecast_gain(target, |gain| gain.low)
    }),
    gauge("hugepilot_target_forecast_gain_high_ratio", "The high end of that forecast", |target| {
        forecast_gain(target, |gain| gain.high)
    }),
    gauge(
        "hugepilot_target_forecast_huge_bytes",
        "Memory that would be put on huge pages in a target that is only observed",
        |target| target.forecast.and_then(|forecast| bytes(forecast.would_pay_bytes)),
    ),
    gauge("hugepilot_target_busy_cpus", "Processors that a target kept busy at its last scan", |target| {
        target.busy_cpus
    }),
    gauge("hugepilot_target_promoting", "1 if what pays is promoted in a target, 0 if it is only observed", |target| {
        Some(flag(target.mode != PilotMode::Observe))
    }),
    gauge("hugepilot_target_paused", "1 while a target is left alone on request", |target| Some(flag(target.paused))),
    gauge("hugepilot_target_left_alone", "1 if a target could not be observed when that was last tried", |target| {
        Some(flag(target.left_alone.is_some()))
    }),
];

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> Option<f64>) -> Gauge<T> {
    Gauge { name, help, value }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&State) -> f64) -> Counter {
    Counter { name, help, value }
}

fn forecast_gain(target: &TargetState, of: fn(GainPercent) -> f64) -> Option<f64> {
    target.forecast?.gain_percent.map(|gain| of(gain) / 100.0)
}

fn bytes(bytes: Bytes) -> Option<f64> {
    Some(bytes.0 as f64)
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// A state as OpenMetrics text, with the content type [`CONTENT_TYPE`].
pub fn open_metrics(state: State) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment::of(state)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes any text");
    text
}

/// The data behind one exposition.
#[derive(Debug)]
struct Moment {
    state: State,
    targets: usize,
    targets_not_shown: usize,
}

impl Moment {
    fn of(mut state: State) -> Self {
        let targets = &mut state.targets;
        // Of two processes with one id only the later can still be alive.
        targets.sort_by_key(|target| (target.pid, Reverse(target.start_ticks)));
        targets.dedup_by_key(|target| target.pid);
        let living = targets.len();
        *targets = by_series(std::mem::take(targets));
        let would_pay = |target: &TargetState| target.forecast.map_or(Bytes(0), |forecast| forecast.would_pay_bytes);
        targets.sort_by_key(|target| Reverse(target.proportional_huge_bytes + would_pay(target)));
        let targets_not_shown = targets.len().saturating_sub(MOST_TARGETS);
        targets.truncate(MOST_TARGETS);
        Self { state, targets: living, targets_not_shown }
    }
}

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_build(&self.state, &mut encoder)?;
        for gauge in GAUGES {
            encode_gauge(gauge.name, gauge.help, (gauge.value)(&self.state), &mut encoder)?;
        }
        for counter in COUNTERS {
            let mut metric = encoder.encode_descriptor(counter.name, counter.help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, f64>(&(counter.value)(&self.state), None)?;
        }
        encode_refused(&self.state.counts, &mut encoder)?;
        encode_collapses(&self.state.counts, self.state.budget.busy_ns, &mut encoder)?;
        encode_gauge("hugepilot_targets", "Live targets", Some(self.targets as f64), &mut encoder)?;
        let help = "Sets of labels left out because there are more than 1,000, those with the least on huge pages or to be put there";
        encode_gauge("hugepilot_targets_not_shown", help, Some(self.targets_not_shown as f64), &mut encoder)?;
        TARGET_GAUGES.iter().try_for_each(|gauge| encode_targets(gauge, &self.state.targets, &mut encoder))?;
        encode_slowed(&self.state, &mut encoder)?;
        encode_smaller_pages(&self.state.targets, &mut encoder)?;
        encode_targets_held_back(&self.state.targets, &mut encoder)
    }
}

fn encode_build(state: &State, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Which hugepilot this is, and how it was told to work";
    let mut metric = encoder.encode_descriptor("hugepilot_build", help, None, MetricType::Info)?;
    metric.encode_info(&[
        ("version", env!("CARGO_PKG_VERSION")),
        ("tracker", &state.tracker.map_or_else(String::new, |tracker| tracker.to_string())),
        ("max_slowdown", &Slowdown(state.max_slowdown).to_string()),
        ("fairness", &name(state.fairness)),
    ])
}

fn encode_gauge(called: &str, help: &str, value: Option<f64>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(called, help, None, MetricType::Gauge)?;
    value.map_or(Ok(()), |value| metric.encode_gauge(&value))
}

fn encode_refused(counts: &Counts, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Regions that the kernel refused to put on huge pages";
    let mut metric = encoder.encode_descriptor("hugepilot_refused_regions", help, None, MetricType::Counter)?;
    counts.refused.iter().try_for_each(|(reason, count)| {
        let labels = [("reason", name(*reason))];
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(count, None)
    })
}

fn encode_collapses(counts: &Counts, busy: Nanos, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "How long the collapse of a region took";
    let name = "hugepilot_collapse_duration_seconds";
    let ends = COLLAPSE_CLASSES.iter().map(|end| end.seconds()).chain([f64::INFINITY]);
    // Before the first collapse there may be no classes.
    let classes = counts.collapse_classes.iter().copied().chain(std::iter::repeat(0));
    let buckets: Vec<(f64, u64)> = ends.zip(classes).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(busy.seconds(), count, &buckets, None)
}

fn encode_targets(
    gauge: &Gauge<TargetState>,
    targets: &[TargetState],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
    targets
        .iter()
        .filter_map(|target| Some((target, (gauge.value)(target)?)))
        .try_for_each(|(target, value)| metric.encode_family(&pairs(target))?.encode_gauge(&value))
}

/// Its labels as they are written.
fn pairs(target: &TargetState) -> Vec<(String, String)> {
    labels(target).into_iter().collect()
}

fn encode_smaller_pages(targets: &[TargetState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "A target's memory on huge pages of 8 KiB to 1 MiB (mTHP) at its last scan, judged by a part of it";
    let mut metric = encoder.encode_descriptor("hugepilot_target_smaller_huge_bytes", help, None, MetricType::Gauge)?;
    let each = |target: &TargetState| {
        let sizes = target.smaller_huge_bytes.iter().flat_map(PageSizes::iter);
        sizes.map(|(page, memory)| (pairs(target), page, memory)).collect::<Vec<_>>()
    };
    targets.iter().flat_map(each).try_for_each(|(mut labels, page, memory)| {
        labels.push(("page_bytes".to_owned(), page.0.to_string()));
        metric.encode_family(&labels)?.encode_gauge(&(memory.0 as f64))
    })
}

fn encode_slowed(state: &State, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1 for each limit that makes promoting slow: max_slowdown, busy_programs, max_cpu";
    let mut metric = encoder.encode_descriptor("hugepilot_slowed", help, None, MetricType::Gauge)?;
    state.slowed_by.iter().try_for_each(|limit| metric.encode_family(&[("by", name(*limit))])?.encode_gauge(&1.0))
}

fn encode_targets_held_back(targets: &[TargetState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1 while nothing is promoted in a target because of its control group's memory";
    let mut metric = encoder.encode_descriptor("hugepilot_target_held_back", help, None, MetricType::Gauge)?;
    targets.iter().filter_map(|target| Some((target, target.held_back?))).try_for_each(|(target, why)| {
        let mut labels = pairs(target);
        labels.push(("reason".to_owned(), name(why)));
        metric.encode_family(&labels)?.encode_gauge(&1.0)
    })
}

#[cfg(test)]
mod tests;
