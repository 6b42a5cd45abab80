//! `/proc/PID/maps`: any text is parsed or refused, and no mapping is empty.
#![no_main]

use kernel::maps;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(lines) = maps::parse(text) {
        assert!(lines.len() <= text.lines().count());
        assert!(lines.iter().all(|line| !line.range.is_empty()));
    }
});
