//! `/proc/PID/status` and `/proc/PID/stat`: any text is parsed or refused.
#![no_main]

use kernel::process::{ProcessStatus, Stat};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = ProcessStatus::parse(text);
    let _ = Stat::parse(text);
});
