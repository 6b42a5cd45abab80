//! A machine's files together, those too that have no parser to call by itself: whatever they hold, facts are gathered and judged.
#![no_main]

use std::fs;

use hugepilot::doctor;
use kernel::probe::{Facts, LiveProbes};
use kernel::{Root, cgroup, cpu, hugetlb, hugetlb_limits, pmu, process};
use launch::machine::MachineFacts;
use launch::request::PageKind;
use pool::PoolSurroundings;

/// A part of the input starts with the letter of its file.
const FILES: [&str; 29] = [
    "proc/1/cgroup",
    "proc/1/task/1/syscall",
    "proc/1/stat",
    "proc/1/status",
    "proc/buddyinfo",
    "proc/cpuinfo",
    "proc/kallsyms",
    "proc/meminfo",
    "proc/self/mountinfo",
    "proc/self/smaps",
    "proc/self/status",
    "proc/self/uid_map",
    "proc/sys/kernel/perf_event_max_sample_rate",
    "run/hugepilot/damon.json",
    "sys/bus/event_source/devices/cpu/events/mem-loads",
    "sys/bus/event_source/devices/cpu/format/event",
    "sys/bus/event_source/devices/cpu/type",
    "sys/devices/system/cpu/online",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.stat",
    "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
    "sys/kernel/security/lockdown",
    "proc/cmdline",
    "proc/self/cgroup",
    "sys/fs/cgroup/hugetlb.2MB.current",
    "sys/fs/cgroup/hugetlb.2MB.max",
];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let tree = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    for part in input.split(|&byte| byte == 0) {
        let Some((letter, text)) = part.split_first() else { continue };
        let Some(name) = FILES.get(usize::from(letter.wrapping_sub(b'a'))) else { continue };
        let path = tree.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("room");
        fs::write(path, text).expect("room");
    }
    let root = Root::at(tree.path());
    assert!(!doctor::check(&Facts::gather(&root, LiveProbes::default())).is_empty());
    let _ = (cgroup::memory_room(&root, 1), cgroup::processes(&root, "/"));
    let _ = (hugetlb::default_size(&root), hugetlb_limits::read(&root));
    if let Ok(machine) = MachineFacts::read(&root, PageKind::Huge) {
        assert!(machine.binding_limit().is_none_or(|limit| limit.pages_left() == machine.available()));
    }
    let _ = PoolSurroundings::read(&root);
    let _ = (cpu::online(&root), pmu::walk_events(&root), pmu::most_samples_per_second(&root));
    let _ = (process::threads(&root, 1), process::descendants(&root, 1), process::stack_pointer(&root, 1, 1));
});
