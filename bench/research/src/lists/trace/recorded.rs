//! A recording of a real process, beside the paper's writers: the process uses the pages that it was observed to walk.
//!
//! Owns: turning observations into uses of pages, in an endless loop. Never touches: the files of recordings, except for reading.
//!
//! A recording has the number of a region's pages that were walked, not which ones; the first that many pages stand for them. The pages of an
//! observation's window are all used at its time. Recordings do not distinguish writes: anonymous and shared memory is modified when it comes in, and
//! only read afterwards. Memory mapped privately from a file counts as read-only data.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use heat::units::{BASE_PAGE, HUGE_PAGE, Nanos, PAGES_PER_REGION};
use heat::{Heat, Mapping, Region};
use rand::rngs::Xoshiro256PlusPlus;
use recording::{Moment, Recording};

use super::event::{EventSource, Layout, TICKS_PER_SECOND, Trace, TraceEvent, TraceSetup};
use super::writers::Files;
use crate::lists::pages::Class;

/// A recording's contents.
struct Recorded {
    path: PathBuf,
    /// By address.
    regions: BTreeMap<u64, RecordedRegion>,
    base_pages: usize,
    recording: Recording<BufReader<File>>,
    next: Option<Moment>,
    /// When replay of the recording began, in the trace's time, and its length.
    begun: Nanos,
    length: Nanos,
    ticks: u64,
}

struct RecordedRegion {
    first: u32,
    class: Class,
    was_there: bool,
}

/// The whole trace. Reads the recording once to find out its pages. Errors: it cannot be read, or is not a recording.
pub fn trace(path: &Path, setup: &TraceSetup) -> Result<Trace> {
    let (mut layout, mut regions, mut length) = (Layout::default(), BTreeMap::new(), Nanos(0));
    for moment in Recording::open(path)? {
        let Moment { at, heat, .. } = moment?;
        length = at;
        for region in &heat.regions {
            regions.entry(region.start.0).or_insert_with(|| {
                let class = class_of(&heat, region);
                let first = layout.add(class, (HUGE_PAGE / setup.page.0) as u32, 1);
                RecordedRegion { first, class, was_there: false }
            });
        }
    }
    ensure!(!regions.is_empty(), "no memory was seen in the recording {}", path.display());
    let recording = Recording::open(path)?;
    let description =
        format!("{} as recorded for {length}, again and again, beside 1024 writers of files", recording.name);
    let recorded = Recorded {
        path: path.to_owned(),
        regions,
        base_pages: (setup.page.0 / BASE_PAGE) as usize,
        recording,
        next: None,
        begun: Nanos(0),
        length,
        ticks: 0,
    };
    let files = Files::add(&mut layout, setup);
    Ok(Trace::new(setup, layout, description, vec![Box::new(recorded), Box::new(files)]))
}

impl Recorded {
    fn now(&self) -> Nanos {
        Nanos(self.ticks * 1_000_000_000 / u64::from(TICKS_PER_SECOND))
    }

    /// The next observation; starts over after the last.
    fn take_next(&mut self) -> Result<Moment> {
        if let Some(moment) = self.next.take() {
            return Ok(moment);
        }
        if let Some(moment) = self.recording.next() {
            return Ok(moment?);
        }
        self.recording = Recording::open(&self.path)?;
        // At least a tick each time, however short the recording is.
        self.begun = Nanos(self.begun.0 + self.length.0.max(1_000_000_000 / u64::from(TICKS_PER_SECOND)));
        self.recording.next().map_or_else(|| unreachable!("a recording without observations says so"), |next| Ok(next?))
    }

    fn use_regions(&mut self, heat: &Heat, events: &mut Vec<TraceEvent>) {
        for region in &heat.regions {
            // A recording that was appended to between two readings may have more.
            let Some(known) = self.regions.get_mut(&region.start.0) else { continue };
            let new = !std::mem::replace(&mut known.was_there, true);
            let used = if region.huge && region.walked_in_window > 0 {
                PAGES_PER_REGION
            } else {
                usize::from(region.walked_in_window)
            };
            let pages = if new { region.present.len().max(used) } else { used }.div_ceil(self.base_pages) as u32;
            let write = new && known.class.is_swapped();
            events.extend((0..pages).map(|page| TraceEvent::Use { page: known.first + page, write }));
        }
    }
}

fn class_of(heat: &Heat, region: &Region) -> Class {
    region.mapping_index().and_then(|mapping| heat.mappings.get(mapping)).map_or(Class::Data, class_of_mapping)
}

fn class_of_mapping(mapping: &Mapping) -> Class {
    let in_memory = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"].iter().any(|start| mapping.name.starts_with(start));
    match (mapping.shared.is_some(), in_memory) {
        (true, true) => Class::Shared,
        (false, true) => Class::Data,
        _ if mapping.name.starts_with('/') => Class::ReadOnly,
        (true, false) => Class::Shared,
        (false, false) => Class::Data,
    }
}

impl EventSource for Recorded {
    fn tick(&mut self, _: &mut Xoshiro256PlusPlus, events: &mut Vec<TraceEvent>) -> Result<()> {
        self.ticks += 1;
        loop {
            let moment = self.take_next()?;
            if self.begun.0 + moment.at.0 > self.now().0 {
                self.next = Some(moment);
                return Ok(());
            }
            self.use_regions(&moment.heat, events);
        }
    }
}
