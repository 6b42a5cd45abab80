//! `hugepilot doctor`: what this machine offers, and how to fix what is missing.

use std::io;
use std::path::Path;

use heat::units::{Address, HUGE_PAGE};
use hugepilot_os::advise::advise;
use hugepilot_os::memory::AlignedMemory;
use hugepilot_os::page_scan::WriteWatch;
use hugepilot_os::{Advice, PidFd};
use kernel::probe::{Ability, Facts, LiveProbes};
use kernel::{Root, pagemap};
use launch::cached_file::{PROBED_FILES, probe_files};
use observe::PageWalk;
use pilot::machine::collapse_times;
use reclaim::mechanism::probe_drop_behind;

use super::args::DoctorArgs;
use super::terminal;
use crate::doctor::{abilities, check, render_table, to_json};

pub(super) fn doctor(args: &DoctorArgs) -> anyhow::Result<()> {
    let facts = Facts::gather(&Root::host(), try_on_ourselves());
    let checks = check(&facts);
    terminal::print(&if args.json {
        to_json(&checks, &abilities(&facts))? + "\n"
    } else {
        render_table(&checks, args.all, terminal::canvas().width)
    })
}

/// Probes with our own memory what only a trial can show.
fn try_on_ourselves() -> LiveProbes {
    let (huge_files, collapsed_files) = of_files();
    LiveProbes {
        bpf: ability(PageWalk::new().map(|_| true)),
        process_madvise: ability(collapse_own()),
        pagemap: ability(own_frames_are_shown()),
        cachestat: ability(probe_drop_behind().map(|()| true)),
        own_writes: ability(WriteWatch::new().map(|_| true)),
        huge_files,
        collapsed_files,
        collapses: collapse_times().ok(),
    }
}

/// Whether files are read on huge pages, and collapsed on them, where temporary files are.
fn of_files() -> (Ability, Ability) {
    let both = |ability: Ability| (ability.clone(), ability);
    match probe_files(Path::new(PROBED_FILES)) {
        Ok(Some(can)) => (ability(Ok::<_, io::Error>(can.reads_huge)), ability(Ok::<_, io::Error>(can.collapses))),
        Ok(None) => both(Ability::Unknown(format!("{PROBED_FILES} is in memory (tmpfs), no disk"))),
        Err(error) => both(Ability::Unknown(format!("cannot try it in {PROBED_FILES}: {error}"))),
    }
}

fn ability<E: std::fmt::Display>(tried: Result<bool, E>) -> Ability {
    match tried {
        Ok(true) => Ability::Yes,
        Ok(false) => Ability::No("tried, without an error and without effect".to_owned()),
        Err(error) => Ability::No(error.to_string()),
    }
}

fn collapse_own() -> std::io::Result<bool> {
    let mut mapping = AlignedMemory::anonymous(HUGE_PAGE as usize)?;
    mapping.bytes_mut()[0] = 1;
    advise(&PidFd::open(std::process::id())?, mapping.address(), HUGE_PAGE, Advice::Collapse)?;
    Ok(true)
}

fn own_frames_are_shown() -> anyhow::Result<bool> {
    let mut mapping = AlignedMemory::anonymous(HUGE_PAGE as usize)?;
    mapping.bytes_mut()[0] = 1;
    Ok(pagemap::own_frames(Address(mapping.address()), 1)?[0] != 0)
}
