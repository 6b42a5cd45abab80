//! `/proc/PID/smaps` and `smaps_rollup`: any text is parsed or refused, and no mapping is empty.
#![no_main]

use kernel::rollup::Rollup;
use kernel::smaps;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = Rollup::parse(text);
    if let Ok(mappings) = smaps::parse(text) {
        assert!(mappings.len() <= text.lines().count());
        assert!(mappings.iter().all(|mapping| !mapping.line.range.is_empty()));
    }
});
