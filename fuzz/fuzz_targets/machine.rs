//! `/proc/cpuinfo`, `/proc/meminfo` and `/proc/iomem`: any text is parsed or refused, and ranges of memory come in order.
#![no_main]

use kernel::cpu::Cpu;
use kernel::iomem;
use kernel::memory::Meminfo;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = (Cpu::parse(text), Meminfo::parse(text));
    if let Ok(memory) = iomem::parse(text) {
        assert!(memory.iter().all(|range| range.start < range.end));
    }
});
