//! A scan for tests.

use heat::Obstacle;
use heat::units::Bytes;
use kernel::target::Process;
use pilot::decide::{GainPercent, Reason};
use pilot::forecast::Forecast;
use pilot::past_trials::EstimatedFrom;
use pilot::programs::RunningProgram;
use pilot::programs::scan::{GainByRestart, ObservedProgram, RestartRemedy, ScanFinding};

/// A scan: a program of several processes that would gain, two that should be restarted, one that was contended, one with many page faults, a
/// virtual machine, and an idle one.
pub fn scanned() -> Vec<(RunningProgram, ScanFinding)> {
    let program = |name: &str, processes, busy_cpus| RunningProgram {
        name: name.to_owned(),
        place: Some(format!("{name}.service")),
        processes,
        busiest: Process { pid: 4242, start_ticks: 1 },
        busiest_name: name.to_owned(),
        share_of_busiest: 1.0 / processes as f64,
        busy_cpus,
        memory: Bytes(3 << 30),
        page_tables: Bytes(6 << 20),
        switched_off: Some(false),
    };
    let gain = |low, likely, high| Forecast::Gain(GainPercent { low, likely, high }, EstimatedFrom::Model);
    let observed = ObservedProgram {
        resident: Bytes(3 << 30),
        huge: Bytes(300 << 20),
        walk_share: Some(0.124),
        would_pay: Bytes(2 << 30),
        growth: Bytes(8 << 20),
        page_tables_freed: Bytes(0),
        forecast: gain(8.0, 13.0, 21.0),
        kept: None,
        after_restart: None,
        fault_share: None,
        is_sparse: false,
    };
    let restarted = |obstacle, first| ObservedProgram {
        forecast: gain(0.0, 0.0, 0.0),
        kept: Some(Reason::Obstacle(obstacle)),
        after_restart: Some(GainByRestart { first, forecast: gain(3.0, 6.0, 9.0) }),
        ..observed.clone()
    };
    let misaligned = restarted(Obstacle::Misaligned, RestartRemedy::AlignSharedMemory);
    let file = RestartRemedy::CacheFile("/srv/an index/segment.bin".to_owned());
    let mapped = restarted(Obstacle::ReadOnlyFile, file);
    let contended = ObservedProgram { forecast: Forecast::Contended(0.8), ..observed.clone() };
    let faulting = ObservedProgram { forecast: gain(0.0, 0.1, 0.4), fault_share: Some(0.18), ..observed.clone() };
    vec![
        (program("memcached", 2, 1.5), ScanFinding::Observed(observed)),
        (program("postgres", 1, 0.7), ScanFinding::Observed(misaligned)),
        (program("searchd", 1, 0.5), ScanFinding::Observed(mapped)),
        (program("java", 1, 0.2), ScanFinding::Observed(contended)),
        (program("pagerank", 1, 0.9), ScanFinding::Observed(faulting)),
        (program("qemu", 1, 1.0), ScanFinding::Refused("process 4242 is a virtual machine".to_owned())),
        (program("redis-server", 1, 0.0), ScanFinding::Idle),
    ]
}
