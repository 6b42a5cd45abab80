//! Which tracker observes: the one requested, or the best that this machine allows.
//!
//! Owns: the order of preference. Never touches: a target.
//!
//! Where reclaim depends on accessed bits ([`reclaim`]), `auto` prefers trackers that leave it this information.

use std::fmt;
use std::str::FromStr;

use heat::TrackerKind;
use heat::names::named;
use kernel::Root;

use crate::damon::Space;
use crate::{DamonTracker, IdlePage, ObserveError, PageWalk, PerfMem, Tracker, reclaim};

/// Every tracker that can observe another process, best first: those that count page walks before those that sample them, except that DAMON sees only
/// one process's pages, while idle-page marks include other processes' accesses; and those that observe all of the memory before one that meets only
/// what is accessed often.
pub const TRACKERS: [TrackerKind; 5] = [
    TrackerKind::PageWalk,
    TrackerKind::DamonVaddr,
    TrackerKind::IdlePage,
    TrackerKind::DamonPaddr,
    TrackerKind::PerfMem,
];

/// The tracker requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackerChoice {
    /// The first of [`TRACKERS`] that works here.
    #[default]
    Auto,
    /// Only this one.
    Only(TrackerKind),
}

/// Opens a tracker. Errors: the requested one does not work here; for `auto`, why the best one does not.
pub fn open(choice: TrackerChoice) -> Result<Box<dyn Tracker>, ObserveError> {
    match choice {
        TrackerChoice::Only(kind) => open_one(kind),
        TrackerChoice::Auto => {
            let reclaim = reclaim::of_machine(&Root::host());
            let order = reclaim::order(reclaim, TRACKERS);
            let opened = order.into_iter().find_map(|kind| open_one(kind).ok());
            let tracker = opened.map_or_else(|| open_one(TRACKERS[0]), Ok)?;
            if let Some(reclaim) = reclaim {
                let kind = tracker.kind();
                tracing::warn!("{reclaim}, so trackers that leave reclaim its information come first: {kind} watches");
            }
            Ok(tracker)
        }
    }
}

fn open_one(kind: TrackerKind) -> Result<Box<dyn Tracker>, ObserveError> {
    Ok(match kind {
        TrackerKind::PageWalk => Box::new(PageWalk::new()?),
        TrackerKind::DamonVaddr => Box::new(DamonTracker::new(Space::Virtual)?),
        TrackerKind::IdlePage => Box::new(IdlePage::new()?),
        TrackerKind::DamonPaddr => Box::new(DamonTracker::new(Space::Physical)?),
        TrackerKind::PerfMem => Box::new(PerfMem::new()?),
        TrackerKind::WriteScan => return Err(ObserveError::OnlyItself { tracker: kind }),
    })
}

impl FromStr for TrackerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(TrackerChoice::Auto);
        }
        named(text).map(TrackerChoice::Only).ok_or_else(|| {
            let names = TRACKERS.map(|kind| kind.to_string()).join(", ");
            format!("'{text}' is not a tracker: write auto, {names}")
        })
    }
}

impl fmt::Display for TrackerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrackerChoice::Auto => f.pad("auto"),
            TrackerChoice::Only(kind) => kind.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tracker_is_found_by_its_name() {
        for choice in TRACKERS.into_iter().map(TrackerChoice::Only).chain([TrackerChoice::Auto]) {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "best".parse::<TrackerChoice>().unwrap_err();
        assert!(error.contains("auto, page-walk, damon-vaddr, idle-page, damon-paddr, perf-mem"), "{error}");
    }
}
