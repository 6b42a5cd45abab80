//! `/proc/PID/numa_maps`: any text is parsed or refused, and no node is beyond what Linux can have.
#![no_main]

use kernel::nodes::MOST_NODES;
use kernel::numa_maps;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(lines) = numa_maps::parse(text) {
        assert!(lines.len() <= text.lines().count());
        assert!(lines.iter().flat_map(|line| &line.pages).all(|(node, _)| *node < MOST_NODES));
    }
});
