//! `/proc/PID/smaps`: any text is parsed or refused, and no mapping is empty.
#![no_main]

use hugepilot::kernel::smaps;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(mappings) = smaps::parse(text) {
        assert!(mappings.len() <= text.lines().count());
        assert!(mappings.iter().all(|mapping| !mapping.line.range.is_empty()));
    }
});
