//! What the kernel writes.
//!
//! Owns: one target for each group of files, and for records of performance events. Never touches: files themselves; [`crate::tree`] has those.

use kernel::buddy::Buddy;
use kernel::cpu::Cpu;
use kernel::hugetlb::page_size;
use kernel::memory::Meminfo;
use kernel::mounts::Mount;
use kernel::nodes::MOST_NODES;
use kernel::page_types::PageTypes;
use kernel::pressure::Pressure;
use kernel::process::{ProcessStatus, Stat};
use kernel::rollup::Rollup;
use kernel::thp::Setting;
use kernel::{iomem, kallsyms as symbols, maps as mappings};
use observe::perf_mem::samples::{PerfRecord, records};

use crate::text;

/// `/proc/PID/maps`: any text is parsed or refused, and no mapping is empty.
pub fn maps(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(lines) = mappings::parse(text) {
        assert!(lines.len() <= text.lines().count());
        assert!(lines.iter().all(|line| !line.range.is_empty()));
    }
}

/// `/proc/PID/numa_maps`: any text is parsed or refused, and no node is beyond what Linux can have.
pub fn numa_maps(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(lines) = kernel::numa_maps::parse(text) {
        assert!(lines.len() <= text.lines().count());
        assert!(lines.iter().flat_map(|line| &line.pages).all(|(node, _)| *node < MOST_NODES));
    }
}

/// `/proc/PID/smaps` and `smaps_rollup`: any text is parsed or refused, and no mapping is empty.
pub fn smaps(bytes: &[u8]) {
    let text = text(bytes);
    let _ = Rollup::parse(text);
    if let Ok(mappings) = kernel::smaps::parse(text) {
        assert!(mappings.len() <= text.lines().count());
        assert!(mappings.iter().all(|mapping| !mapping.line.range.is_empty()));
    }
}

/// `/proc/PID/status` and `/proc/PID/stat`: any text is parsed or refused.
pub fn status(bytes: &[u8]) {
    let text = text(bytes);
    let _ = (ProcessStatus::parse(text), Stat::parse(text));
}

/// `/proc/buddyinfo` and `/proc/pagetypeinfo`: any text is parsed or refused, and the parts are no more than the whole.
pub fn buddyinfo(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(buddy) = Buddy::parse(text) {
        assert!(buddy.free_huge() <= buddy.free());
        assert!((0.0..=1.0).contains(&buddy.fragmentation().unusable));
    }
    if let Ok(types) = PageTypes::parse(text) {
        assert!(types.zones.iter().all(|zone| zone.unmovable <= zone.blocks));
    }
}

/// Names below `/sys/kernel/mm/hugepages`, and settings of transparent huge pages.
pub fn hugetlb(bytes: &[u8]) {
    let text = text(bytes);
    if let Some(size) = page_size(text) {
        assert!(size.0 > 0 && size.0 % 1024 == 0);
    }
    if let Ok(setting) = Setting::parse(text) {
        assert!(setting.choices.contains(&setting.chosen));
    }
}

/// `/proc/kallsyms` after a line with a symbol: any bytes are searched for any symbol.
pub fn kallsyms(bytes: &[u8]) {
    let line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let (symbol, list) = bytes.split_at(line);
    if let Some(address) = symbols::find(list, text(symbol)).expect("memory") {
        assert!(list.windows(text(symbol).len().max(1)).any(|bytes| bytes == text(symbol).as_bytes()), "{address}");
    }
}

/// `/proc/cpuinfo`, `meminfo`, `iomem`, `pressure` and `mountinfo`: any text is parsed or refused, and ranges of memory come in order.
pub fn machine(bytes: &[u8]) {
    let text = text(bytes);
    let _ = (Cpu::parse(text), Meminfo::parse(text), Mount::parse(text));
    if let Ok(pressure) = Pressure::parse(text) {
        assert!((0.0..=1.0).contains(&pressure.some));
    }
    if let Ok(memory) = iomem::parse(text) {
        assert!(memory.iter().all(|range| range.start < range.end));
        assert!(memory.is_sorted_by_key(|range| range.start));
    }
}

/// Records of performance events: any bytes are understood or skipped, and a record takes at least its header.
pub fn samples(bytes: &[u8]) {
    let found: Vec<PerfRecord> = records(bytes).collect();
    assert!(found.len() <= bytes.len() / 8);
    for record in found {
        if let PerfRecord::Sample(sample) = record {
            let _ = sample.source.walked();
        }
    }
}
