//! Records of performance events: any bytes are understood or skipped, and a record takes at least its header.
#![no_main]

use observe::perf_mem::samples::{PerfRecord, records};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let found: Vec<PerfRecord> = records(bytes).collect();
    assert!(found.len() <= bytes.len() / 8);
    for record in found {
        if let PerfRecord::Sample(sample) = record {
            let _ = sample.source.walked();
        }
    }
});
