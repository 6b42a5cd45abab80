//! A machine's files together, those too that have no parser to call by itself.
//!
//! Owns: making a folder of them in memory, and reading all of it. Never touches: this machine's own.

use std::fs;
use std::path::Path;

use hugepilot::doctor;
use kernel::pressure::Pressure;
use kernel::probe::{Facts, LiveProbes};
use kernel::{Root, cgroup, cpu, hugetlb, hugetlb_limits, pmu, process, zones};
use launch::machine::MachineFacts;
use launch::request::PageKind;
use pool::PoolSurroundings;

/// A part of the input starts with the letter of its file: `a` to `z`, then `A` to `G`.
const FILES: [&str; 33] = [
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
    "proc/zoneinfo",
    "proc/pressure/memory",
    "sys/fs/cgroup/memory.pressure",
    "proc/1/task/1/schedstat",
];

/// Whatever a machine's files hold, facts are gathered and judged.
pub fn tree(bytes: &[u8]) {
    let tree = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    for part in bytes.split(|&byte| byte == 0) {
        write_part(tree.path(), part);
    }
    let root = Root::at(tree.path());
    assert!(!doctor::check(&Facts::gather(&root, LiveProbes::default())).is_empty());
    read_machine(&root);
    read_process(&root);
}

fn write_part(tree: &Path, part: &[u8]) {
    let Some((letter, text)) = part.split_first() else { return };
    let Some(name) = (b'a'..=b'z').chain(b'A'..=b'Z').zip(FILES).find(|each| each.0 == *letter) else { return };
    let path = tree.join(name.1);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("room");
    fs::write(path, text).expect("room");
}

fn read_machine(root: &Root) {
    if let Ok(machine) = MachineFacts::read(root, PageKind::Huge) {
        assert!(machine.binding_limit().is_none_or(|limit| limit.pages_left() == machine.available()));
    }
    let _ = (PoolSurroundings::read(root), hugetlb::default_size(root), hugetlb_limits::read(root));
    let _ = (cpu::online(root), pmu::walk_events(root), pmu::most_samples_per_second(root));
    let _ = (cgroup::processes(root, "/"), cgroup::name(root, "/a"), cgroup::with_file(root, "memory.reclaim"));
    let _ = (zones::free_in_cpu_lists(root), Pressure::read(root));
}

fn read_process(root: &Root) {
    let _ = (process::threads(root, 1), process::descendants(root, 1), process::stack_pointer(root, 1, 1));
    let _ = (process::thread_times(root, 1), process::cpu_time(root, 1), process::start_time(root, 1));
    let _ = (cgroup::memory_room(root, 1), cgroup::groups(root, 1), Pressure::of_process(root, 1));
}
