//! `/proc/PID/status` and `/proc/PID/stat`: any text is parsed or refused.
#![no_main]

use kernel::process::{Stat, Status};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = Status::parse(text);
    let _ = Stat::parse(text);
});
