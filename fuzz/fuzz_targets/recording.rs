//! A recording: any lines are understood or refused, and what is understood can be decided on.
#![no_main]

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use pilot::decide::{Allowance, Past, Spent, decide};
use pilot::recording::Recording;

libfuzzer_sys::fuzz_target!(|lines: &str| {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"{\"hugepilot_recording\":2,\"name\":\"a\"}\n").expect("memory");
    gzip.write_all(lines.as_bytes()).expect("memory");
    let bytes = gzip.finish().expect("memory");
    let recording = Recording::parse(Path::new("fuzz"), &bytes[..]).expect("the header is right");
    for moment in recording.flatten() {
        let heat = moment.heat;
        let plan = decide(&heat, &Allowance::default().limits(heat.rss, &Spent::default()), &Past::default());
        assert_eq!(plan.decisions.len(), heat.regions.len());
    }
});
