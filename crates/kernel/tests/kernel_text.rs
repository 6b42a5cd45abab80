//! The parsers against captured trees of kernel text (tests/fixtures/README.md).

use std::path::Path;

use heat::units::{Address, Bytes, Nanos, Pages};
use kernel::capability::Capability;
use kernel::lockdown::{self, Lockdown};
use kernel::probe::{Ability, CollapseTimes, Facts, LiveProbes};
use kernel::process::{self, ProcessStatus};
use kernel::thp::Thp;
use kernel::{
    Root, buddy, cache, cgroup, cpu, hugetlb, iomem, kallsyms, maps, memory, nodes, numa_maps, smaps, vm_flags,
};

const TREES: [&str; 3] = ["linux-6.18", "debian-6.1", "debian-6.12"];

fn tree(name: &str) -> Root {
    Root::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name))
}

fn able() -> LiveProbes {
    LiveProbes {
        bpf: Ability::Yes,
        process_madvise: Ability::Yes,
        pagemap: Ability::Yes,
        cachestat: Ability::Yes,
        own_writes: Ability::Yes,
        huge_files: Ability::Yes,
        collapsed_files: Ability::Yes,
        collapses: Some(CollapseTimes {
            prepared: Nanos(600_000),
            unprepared: Nanos(620_000),
            preparing: Nanos(200_000),
        }),
    }
}

#[test]
fn mappings() {
    let redis = maps::read(&tree("debian-6.1"), 633).unwrap();
    assert_eq!(redis.len(), 15);
    assert_eq!((redis[3].name.as_str(), redis[3].writable), ("[heap]", true));
    assert_eq!(redis[4].range.start, Address(0x7f1a38000000));
    assert_eq!(redis[4].range.len(), Bytes(5 << 30));
    assert_eq!((redis[7].shared, redis[7].inode, redis[7].device), (true, 2049, (0, 1)));
    assert_eq!(redis[8].name, "[anon:connection pool 1]");
    let sleep = maps::read(&tree("linux-6.18"), 812).unwrap();
    assert!(sleep.iter().any(|line| line.name == "/usr/bin/sleep" && line.executable && line.device == (0xfe, 0)));
    assert_eq!(maps::read(&tree("linux-6.18"), 2).unwrap(), [], "a kernel thread has none");
    assert!(maps::read(&tree("linux-6.18"), 3).unwrap_err().is_gone());
}

#[test]
fn contents_of_mappings() {
    let cat = smaps::parse(&tree("linux-6.18").text("proc/self/smaps").unwrap()).unwrap();
    assert_eq!(
        (cat[0].line.name.as_str(), cat[0].resident, cat[0].flags),
        ("/usr/bin/cat", Bytes(8 << 10), vm_flags::MAY_WRITE)
    );
    let redis = smaps::read(&tree("debian-6.1"), 633).unwrap();
    let arena = &redis[1];
    assert_eq!((arena.line.range.len(), arena.huge), (Bytes(5 << 30), Bytes(4 << 20)));
    assert_eq!((arena.resident, arena.lazily_freed), (Bytes(5301200 << 10), Bytes(64 << 10)));
    let flags: Vec<u64> = redis.iter().map(|mapping| mapping.flags).collect();
    let writable = |flags: u64| vm_flags::MAY_WRITE | flags;
    let shared = writable(vm_flags::SHARED | vm_flags::HUGETLB);
    let of_device = vm_flags::IO | vm_flags::PFNMAP;
    assert_eq!(flags, [writable(0), writable(0), shared, writable(vm_flags::GROWSDOWN), of_device]);
    assert!(smaps::read(&tree("debian-6.1"), 3).unwrap_err().is_gone());
}

#[test]
fn memory_nodes() {
    let several = |name| nodes::are_several(&tree(name)).unwrap();
    assert_eq!(TREES.map(several), [false, false, true]);
    let machine = tree("debian-6.12");
    assert_eq!(nodes::processors(&machine, 0).unwrap(), [0, 1, 4, 5]);
    assert_eq!(nodes::processors(&machine, 1).unwrap(), [0; 0], "it has memory only");
    let lines = numa_maps::read(&machine, 1204).unwrap();
    let spread: Vec<u64> = lines.iter().filter(|line| line.policy.spreads_pages()).map(|line| line.start.0).collect();
    assert_eq!(spread, [0x7f1a38000000, 0x7f1b80000000]);
    assert_eq!(lines[4].pages, [(0, Pages(655360)), (1, Pages(655360))]);
    let mapped = maps::read(&machine, 1204).unwrap();
    assert!(lines.iter().all(|line| mapped.iter().any(|mapping| mapping.range.start == line.start)));
    assert!(numa_maps::read(&machine, 3).unwrap_err().is_gone());
}

#[test]
fn processes() {
    let redis = ProcessStatus::read(&tree("debian-6.1"), 633).unwrap();
    assert_eq!((redis.name.as_str(), redis.threads, redis.thp_enabled), ("redis-server", 5, Some(false)));
    assert_eq!((redis.vm_rss, redis.rss_anon), (Bytes(5312444 << 10), Bytes(5301200 << 10)));
    assert_eq!(process::threads(&tree("debian-6.1"), 633).unwrap(), [633, 640, 641, 642, 643]);
    assert_eq!(process::descendants(&tree("debian-6.1"), 1).unwrap(), [633]);
    assert_eq!(process::descendants(&tree("debian-6.1"), 633).unwrap(), [0; 0]);
    assert_eq!(process::cpu_time(&tree("debian-6.1"), 633).unwrap(), Nanos(1_184_330_000_000));
    let worker = ProcessStatus::read(&tree("debian-6.12"), 1310).unwrap();
    assert_eq!((worker.name.as_str(), worker.namespace_pids.as_slice()), ("shop (worker)", [1310, 7].as_slice()));
    assert_eq!(process::start_time(&tree("debian-6.12"), 1310).unwrap(), 9000);
}

#[test]
fn kernel_threads_and_virtual_machines_are_recognized() {
    for name in TREES {
        assert!(ProcessStatus::read(&tree(name), 2).unwrap().kernel_thread, "{name}");
    }
    assert!(ProcessStatus::read(&tree("debian-6.1"), 57).unwrap().kernel_thread);
    assert!(!ProcessStatus::read(&tree("debian-6.1"), 633).unwrap().kernel_thread);
    assert!(process::holds_kvm(&tree("debian-6.12"), 1204).unwrap());
}

#[test]
fn room_in_control_groups() {
    let redis = cgroup::memory_room(&tree("debian-6.1"), 633).unwrap().unwrap();
    assert_eq!(redis.cgroup, "/system.slice/redis-server.service");
    assert_eq!((redis.limit, redis.usage), (Bytes(8 << 30), Bytes(5568987136)));
    assert_eq!(redis.left(), Bytes((8 << 30) - 5568987136 + 73400320));
    assert_eq!(cgroup::memory_room(&tree("debian-6.12"), 1204).unwrap(), None, "no limit is set");
    let sleep = cgroup::memory_room(&tree("linux-6.18"), 812).unwrap().unwrap();
    assert_eq!(
        (sleep.cgroup.as_str(), sleep.left()),
        ("/services/sleep", Bytes((512 << 20) - (100 << 20) + (30 << 20)))
    );
}

#[test]
fn settings_and_pools() {
    let thp = Thp::read(&tree("debian-6.1")).unwrap().unwrap();
    assert!(thp.enabled.is("always") && thp.defrag.is("madvise") && thp.sizes.is_empty());
    assert_eq!((thp.khugepaged.collapsed, thp.khugepaged.sleep), (5812, Nanos(10_000_000_000)));
    let thp = Thp::read(&tree("linux-6.18")).unwrap().unwrap();
    assert!(thp.enabled.is("madvise") && thp.shmem_enabled.unwrap().is("never"));
    let sizes: Vec<(u64, &str)> =
        thp.sizes.iter().map(|size| (size.size.0 >> 10, size.enabled.chosen.as_str())).collect();
    assert_eq!(sizes.first(), Some(&(16, "never")), "8 KiB is for shared memory only");
    assert_eq!(sizes.last(), Some(&(2048, "inherit")));
    let pools = hugetlb::pools(&tree("debian-6.1")).unwrap();
    let counts: Vec<_> =
        pools.iter().map(|pool| (pool.page_size.0 >> 20, pool.total, pool.free, pool.available())).collect();
    assert_eq!(counts, [(2, 512, 40, 4), (1024, 4, 2, 0)]);
}

#[test]
fn caches() {
    let told = |name| cache::data_caches(&tree(name), 0).unwrap();
    let shapes: Vec<_> =
        told("debian-6.1").iter().map(|cache| (cache.level, cache.size.0 >> 10, cache.colors())).collect();
    assert_eq!(shapes, [(1, 48, 1), (2, 1280, 16), (3, 54 << 10, 1152)]);
    assert_eq!(told("debian-6.12"), [], "some virtual machines tell of none");
}

#[test]
fn the_machine() {
    let free: Vec<Bytes> = TREES.iter().map(|name| buddy::Buddy::read(&tree(name)).unwrap().free_huge()).collect();
    assert_eq!(free[1], Bytes(((1 + 2 + 88) << 21) + ((2 + 31 + 301) << 22)));
    assert_eq!(free[2], Bytes((1 << 21) + (2 << 22)));
    assert_eq!(memory::Meminfo::read(&tree("debian-6.1")).unwrap().total, Bytes(32777244 << 10));
    let levels = |name| cpu::Cpu::read(&tree(name)).map(|cpu| (cpu.physical_bits, cpu.five_levels)).unwrap();
    assert_eq!(TREES.map(levels), [(48, false), (46, true), (48, false)]);
    assert_eq!(iomem::end_of_memory(&tree("debian-6.1")).unwrap(), Some(0x840000000));
    assert_eq!(iomem::end_of_memory(&tree("debian-6.12")).unwrap(), None, "hidden");
    let base = |name| kallsyms::address_of(&tree(name), "page_offset_base");
    assert_eq!(TREES.map(base), [None, Some(0xffffffffa5b40010), None]);
    let state = |name| lockdown::read(&tree(name)).unwrap();
    assert_eq!(TREES.map(state), [None, Some(Lockdown::None), Some(Lockdown::Confidentiality)]);
}

#[test]
fn facts_are_complete() {
    for name in TREES {
        let facts = Facts::gather(&tree(name), able());
        assert!(facts.capabilities.unwrap().has(Capability::SysNice), "{name}");
    }
    let facts = Facts::gather(&tree("debian-6.1"), able());
    let disabled: Vec<u32> = facts.thp_disabled.unwrap().iter().map(|process| process.pid).collect();
    assert_eq!(disabled, [633]);
}
