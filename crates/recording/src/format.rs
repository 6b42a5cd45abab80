//! The lines of a recording.
//!
//! Owns: their fields, and validating them, because a recording may come from anywhere. Never touches: files.
//!
//! Regions are stored in columns, which compress better than rows; addresses of regions are differences, in regions.

use heat::clearing::Clearing;
use heat::units::{Address, Bytes, HUGE_PAGE, Nanos, PAGES_PER_REGION};
use heat::{Cost, Estimate, Growth, Heat, Mapping, Meaning, Obstacle, PageSet, Region, Sample, TrackerKind, Walks};
use serde::{Deserialize, Serialize};

use crate::Moment;

pub(super) const VERSION: u64 = 2;

/// Every address is below this: 5-level page tables.
const END_OF_USER_SPACE: u64 = 1 << 56;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    #[serde(rename = "hugepilot_recording")]
    pub(super) version: u64,
    #[serde(default)]
    pub(super) name: String,
}

/// Every further line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Observation {
    at_ns: Nanos,
    pid: u32,
    tracker: TrackerKind,
    meaning: Meaning,
    /// Absent in older recordings, and for trackers that clear nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clearing: Option<Clearing>,
    window_ns: Nanos,
    busy_cpus: Option<f64>,
    /// Absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_share: Option<f64>,
    rss_bytes: Bytes,
    page_tables_bytes: Bytes,
    cost: Cost,
    /// None: as in the previous observation.
    mappings: Option<Vec<Mapping>>,
    regions: Columns,
    /// Absent in recordings of an earlier hugepilot.
    #[serde(default)]
    walks: Walks,
    /// Only where a sample was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
}

/// One value per region in each, except `growth`, which only regions that would grow have.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    /// Distance from the previous region, in regions; from address 0 for the first.
    start: Vec<u64>,
    mapping: Vec<Option<u32>>,
    obstacle: Vec<Option<Obstacle>>,
    /// 0 or 1.
    huge: Vec<u8>,
    present: Vec<u16>,
    walked: Vec<u16>,
    walked_in_window: Vec<u16>,
    unobserved: Vec<u16>,
    walks_per_second: Vec<f64>,
    /// The region's index, from 0, and its growth.
    growth: Vec<(usize, Growth)>,
    /// The indices of the regions that the program passed along their addresses; absent in recordings of an earlier hugepilot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    in_order: Vec<usize>,
}

impl Header {
    pub(super) fn new(name: &str) -> Self {
        Self { version: VERSION, name: name.to_owned() }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

impl Observation {
    /// The line for an observation, with or without its mappings.
    pub(super) fn of(moment: &Moment, with_mappings: bool) -> Self {
        let heat = &moment.heat;
        Self {
            at_ns: moment.at,
            pid: heat.pid,
            tracker: heat.tracker,
            meaning: heat.meaning,
            clearing: heat.clearing,
            window_ns: heat.window,
            busy_cpus: heat.busy_cpus,
            waited_share: heat.waited_share,
            rss_bytes: heat.rss,
            page_tables_bytes: moment.page_tables,
            cost: heat.cost,
            mappings: with_mappings.then(|| heat.mappings.clone()),
            regions: Columns::of(&heat.regions),
            walks: heat.walks,
            sample: heat.sample,
        }
    }

    pub(super) fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| error.to_string())
    }

    /// The observation; `last` holds the mappings of the previous one, and afterwards its own. Errors: what is wrong with it, in words.
    pub(super) fn moment(self, last: &mut Option<Vec<Mapping>>) -> Result<Moment, String> {
        if self.mappings.is_some() {
            *last = self.mappings;
        }
        let mappings = last.clone().ok_or("the first observation has no mappings")?;
        let regions = self.regions.regions(mappings.len())?;
        if !(is_sound_bound(&self.walks) && self.sample.is_none_or(|sample| is_sound_sample(&sample))) {
            return Err("its page walks altogether are impossible".to_owned());
        }
        if self.waited_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err("its share of waiting is impossible".to_owned());
        }
        let heat = Heat {
            pid: self.pid,
            address_space: None,
            tracker: self.tracker,
            meaning: self.meaning,
            clearing: self.clearing,
            window: self.window_ns,
            busy_cpus: self.busy_cpus,
            waited_share: self.waited_share,
            rss: self.rss_bytes,
            mappings,
            regions,
            cost: self.cost,
            walks: self.walks,
            // A recording is of one process.
            walked_by_others: 0,
            sample: self.sample,
        };
        Ok(Moment { at: self.at_ns, heat, page_tables: self.page_tables_bytes })
    }
}

impl Columns {
    fn of(regions: &[Region]) -> Self {
        let mut columns = Self::default();
        let mut before = 0;
        for (number, region) in regions.iter().enumerate() {
            let start = region.start.0 / HUGE_PAGE;
            columns.start.push(start - std::mem::replace(&mut before, start));
            columns.mapping.push(region.mapping);
            columns.obstacle.push(region.obstacle);
            columns.huge.push(region.huge.into());
            columns.present.push(region.present.len() as u16);
            columns.walked.push(region.walked.len() as u16);
            columns.walked_in_window.push(region.walked_in_window);
            columns.unobserved.push(region.unobserved);
            columns.walks_per_second.push(four_digits(region.walks_per_second));
            if region.growth != Growth::default() {
                columns.growth.push((number, region.growth));
            }
            if region.in_order {
                columns.in_order.push(number);
            }
        }
        columns
    }

    fn regions(&self, mappings: usize) -> Result<Vec<Region>, String> {
        let count = self.start.len();
        let lens = [self.mapping.len(), self.obstacle.len(), self.huge.len(), self.present.len(), self.walked.len()];
        let more_lens = [self.walked_in_window.len(), self.unobserved.len(), self.walks_per_second.len()];
        if lens.iter().chain(&more_lens).any(|&len| len != count) {
            return Err("the columns of its regions differ in length".to_owned());
        }
        let mut regions = Vec::with_capacity(count);
        let mut start = 0u64;
        for at in 0..count {
            let step = self.start[at];
            start = start.saturating_add(step.saturating_mul(HUGE_PAGE));
            let region = self.region(at, Address(start));
            let in_order = step > 0 || at == 0;
            if !in_order || start >= END_OF_USER_SPACE || !is_sound(&region, mappings) {
                return Err(format!("its region {at} at {} is impossible", region.start));
            }
            regions.push(region);
        }
        for &(at, growth) in &self.growth {
            let region = regions.get_mut(at).filter(|_| growth.pages().0 <= PAGES_PER_REGION as u64);
            region.ok_or_else(|| format!("the growth of its region {at} is impossible"))?.growth = growth;
        }
        for &at in &self.in_order {
            regions.get_mut(at).ok_or_else(|| format!("it has no region {at} that was passed"))?.in_order = true;
        }
        Ok(regions)
    }

    fn region(&self, at: usize, start: Address) -> Region {
        Region {
            obstacle: self.obstacle[at],
            huge: self.huge[at] != 0,
            present: PageSet::first(self.present[at].into()),
            walked: PageSet::first(self.walked[at].into()),
            walked_in_window: self.walked_in_window[at],
            unobserved: self.unobserved[at],
            walks_per_second: self.walks_per_second[at],
            ..Region::blank(start, self.mapping[at])
        }
    }
}

fn is_sound(region: &Region, mappings: usize) -> bool {
    let most = PAGES_PER_REGION as u16;
    region.mapping_index().is_none_or(|mapping| mapping < mappings)
        && region.walked_in_window <= most
        && region.unobserved <= most
        && region.walks_per_second.is_finite()
        && region.walks_per_second >= 0.0
}

fn is_sound_bound(walks: &Walks) -> bool {
    let Walks { at_least_per_second, at_most_per_second, scattered } = *walks;
    at_least_per_second >= 0.0
        && at_most_per_second >= 0.0
        && scattered.is_none_or(|share| (0.0..=1.0).contains(&share))
}

fn is_sound_sample(sample: &Sample) -> bool {
    let is_sound = |estimate: Estimate| estimate.value >= 0.0 && estimate.error >= 0.0;
    is_sound(sample.walks_per_second) && is_sound(sample.pages_walked) && sample.observed <= sample.of
}

/// Rates are estimates: four digits exceed their precision, and compress well.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
