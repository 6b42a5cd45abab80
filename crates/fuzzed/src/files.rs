//! Files that others write, or that hugepilot wrote once.
//!
//! Owns: configurations, recordings and what is drawn of them, records, outcomes of trials, the kernel's command line and programs. Never touches:
//! a file itself.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use daemon::config::Config;
use flate2::Compression;
use flate2::write::GzEncoder;
use heat::units::Bytes;
use hugepilot::report::heat_grid::{HeatRecorder, html};
use hugepilot::report::heat_map::Canvas;
use hugepilot::report::{Detail, PlanReport, ReclaimStatusReport, json, text as words};
use launch::program::elf::{Elf, parse};
use pilot::decide::{Allowance, GainPercent, Past, Spent, decide};
use pilot::engine::Family;
use pilot::machine::PromotionRecord;
use pilot::past_trials::{PastTrials, TriedProgram};
use pool::{Edit, Lasting, LastingPool, PoolSurroundings, persist};
use reclaim::ReclaimState;
use recording::{Moment, Recording};

use crate::text;

/// A configuration: any text is understood or refused, with a message that stays short.
pub fn config(bytes: &[u8]) {
    match Config::parse(text(bytes)) {
        Ok(config) => assert!(config.scope.rules().iter().all(|rule| rule.weight > 0.0 && !rule.matcher.is_empty())),
        Err(mistake) => assert!(mistake.to_string().len() < 32 << 10),
    }
}

/// A recording, or its lines without their header: any bytes are understood or refused, and what is understood can be shown, drawn and decided on.
pub fn recording(bytes: &[u8]) {
    let packed = if bytes.starts_with(GZIP) { bytes.to_vec() } else { recording_of(text(bytes)) };
    let recording = match Recording::parse(Path::new("fuzz"), &packed[..]) {
        Err(_) if bytes.starts_with(GZIP) => return,
        parsed => parsed.expect("its header is right"),
    };
    let mut recorder = HeatRecorder::default();
    for moment in recording.flatten() {
        show(&moment);
        recorder.take(&moment);
    }
    assert!(html::page(&recorder.grid("a".to_owned())).expect("it can be drawn").contains("</html>"));
}

const GZIP: &[u8] = &[0x1f, 0x8b];

fn recording_of(lines: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"{\"hugepilot_recording\":2,\"name\":\"a\"}\n").expect("memory");
    gzip.write_all(lines.as_bytes()).expect("memory");
    gzip.finish().expect("memory")
}

/// As `hugepilot replay` does.
fn show(moment: &Moment) {
    let heat = &moment.heat;
    let memory = heat.promotable_here(&BTreeSet::new());
    let plan = decide(heat, &Allowance::default().limits(memory, &Spent::default()), &Past::default());
    assert_eq!(plan.decisions.len(), heat.regions.len());
    let report = PlanReport {
        plan: &plan,
        family: Family::alone(Bytes(0), heat.footprint()),
        growth_limit: Allowance::default().growth_limit(memory),
        clearing: heat.clearing,
        forecast: pilot::forecast::Forecast::Idle,
        basis: None,
        doubt: None,
        expectation: None,
    };
    assert!(words::plan(&report).ends_with('\n') && json::plan(&report).starts_with('{'));
    assert!(
        !words::heat(heat, None, Canvas { width: 80, color: true }, Detail::Full).is_empty()
            && json::heat(heat, None).starts_with('{')
    );
}

/// The record of promotions: any bytes are understood or refused, and what is understood is written as it was read.
pub fn record(bytes: &[u8]) {
    if let Ok(record) = serde_json::from_slice::<PromotionRecord>(bytes) {
        let written = serde_json::to_vec(&record).expect("it can be written");
        assert_eq!(serde_json::from_slice::<PromotionRecord>(&written).expect("it can be read again"), record);
    }
}

/// The outcomes of trials: any bytes are understood or refused, and what is understood corrects an estimate to a range.
pub fn trials(bytes: &[u8]) {
    let Ok(trials) = PastTrials::parse(bytes) else { return };
    let model = GainPercent { low: 5.0, likely: 10.0, high: 20.0 };
    let tried =
        TriedProgram::Service { service: "redis.service".to_owned(), executable: "/usr/bin/redis-server".into() };
    for program in [None, Some(&tried)] {
        let (GainPercent { low, likely, high }, _) = trials.correction(program).apply(model);
        assert!(
            low <= likely && likely <= high && high.is_finite() && low > -100.0,
            "{low} to {high}, likely {likely}"
        );
    }
}

/// The state of reclaim: any bytes are understood or refused, and what is understood can be shown.
pub fn reclaim_state(bytes: &[u8]) {
    let Ok(state) = serde_json::from_slice::<ReclaimState>(bytes) else { return };
    let report = ReclaimStatusReport {
        census: Err("unknown"),
        now: &state.after,
        state: Some(&state),
        is_alive: state.pid == 1,
    };
    assert!(words::reclaim_status(&report).ends_with('\n') && json::reclaim_status(&report).starts_with('{'));
    assert!(!words::reclaimed(&state).is_empty() && !words::reclaiming(&state).is_empty());
}

/// A program's file: any bytes are understood or refused, and what is named in it is bounded.
pub fn elf(bytes: &[u8]) {
    if let Some(elf) = parse(bytes) {
        assert!(elf.needed.len() <= 256);
        assert!(!elf.is_32_bit || elf == Elf { is_32_bit: true, ..Elf::default() });
    }
}

/// `/etc/kernel/cmdline` after eight bytes that say how many pages are added to it: whatever stands there, what is added is taken away again, and
/// nothing else.
pub fn command_line(bytes: &[u8]) {
    let Some((pages, bytes)) = bytes.split_first_chunk() else { return };
    let mut around = PoolSurroundings::default();
    around.files.insert(COMMAND_LINE.to_owned(), text(bytes).to_owned());
    let pool = LastingPool { page_size: Bytes(1 << 30), pages: u64::from_le_bytes(*pages), overcommit: 0 };
    let lasting = Lasting { pools: vec![pool], ..Lasting::default() };
    // What somebody else reserves there is left to them.
    let Ok((edits, _)) = persist(&lasting, &around) else { return };
    apply(edits, &mut around);
    assert!(persist(&lasting, &around).expect("it was right before").0.is_empty());
    let (edits, _) = persist(&Lasting::default(), &around).expect("nothing is to be added");
    apply(edits, &mut around);
    // Spaces at the end of a line may go.
    assert!(around.files[COMMAND_LINE].split_whitespace().eq(text(bytes).split_whitespace()));
    assert_eq!(around.files.len(), 1);
}

const COMMAND_LINE: &str = "/etc/kernel/cmdline";

fn apply(edits: Vec<Edit>, around: &mut PoolSurroundings) {
    for Edit { path, after, .. } in edits {
        match after {
            Some(text) => drop(around.files.insert(path, text)),
            None => drop(around.files.remove(&path)),
        }
    }
}
