//! The survey, with and without eBPF: it must report what the page tables contain.

use heat::{Growth, Heat, Meaning, Region, TrackerKind};
use hugepilot_os::advise::advise;
use hugepilot_os::{Advice, PidFd};
use kernel::Root;
use kernel::pagemap::Entry;
use kernel::target::Target;
use observe::{PageWalk, Survey, Tracker};

use crate::support::Program;

crate::trials!(it_agrees_with_the_page_tables, growth_is_told, another_program_is_noticed);

/// The survey from page tables, and the survey without them.
fn both_ways(program: &Program) -> [Heat; 2] {
    [Survey::new, Survey::without_bpf].map(|open| {
        let target = Target::open(program.pid).expect("a target");
        let mut survey = open(&Root::host(), TrackerKind::DamonVaddr, Meaning::Sampled).expect("a survey");
        let mut frames = 0;
        let count = |region: &mut Region, entries: &[Entry]| {
            let framed = entries.iter().filter(|entry| entry.frame().is_some()).count();
            assert_eq!(framed, region.present.len(), "{region:?}");
            frames += framed;
            true
        };
        let heat = survey.scan(&target, usize::MAX, count).expect("a heat");
        assert_eq!((heat.tracker, heat.pages_present().0), (TrackerKind::DamonVaddr, frames as u64));
        heat
    })
}

/// The properties on which two scans of an idle program must agree.
fn seen(region: &Region) -> impl PartialEq + std::fmt::Debug {
    (region.start, region.mapping, region.obstacle, region.huge, region.present.iter().collect::<Vec<_>>())
}

fn it_agrees_with_the_page_tables() {
    let programs = [
        "map=64M fill=half ready sleep=60s",
        "map=64M fill=scattered free-now=third ready sleep=60s",
        "map=32M nohugepage fill thread ready sleep=60s",
        "map=32M hugepage fill map=16M read-zeros=third fill=sparse ready sleep=60s",
        "shmem=32M fill fork ready sleep=60s",
        "map=16M fill split lock ready sleep=60s",
        "map=64M fill ready sleep=60s",
    ];
    for steps in programs {
        let program = Program::start(steps);
        // Some huge pages among base pages of the same mapping.
        for region in program.regions().step_by(4).filter(|_| steps.starts_with("map=64M fill ready")) {
            let handle = PidFd::open(program.pid).expect("it lives");
            advise(&handle, region, 2 << 20, Advice::Collapse).expect("a huge page");
        }
        let target = Target::open(program.pid).expect("a target");
        let walked = PageWalk::new().expect("a tracker").survey(&target).expect("a heat");
        for surveyed in both_ways(&program) {
            assert_eq!(surveyed.mappings, walked.mappings, "{steps}");
            assert_eq!(surveyed.regions.len(), walked.regions.len(), "{steps}");
            for (ours, theirs) in surveyed.regions.iter().zip(&walked.regions) {
                let (ours, theirs) = (seen(ours), seen(theirs));
                assert!(ours == theirs, "{steps}: {ours:?}, but the page tables say {theirs:?}");
            }
            assert_eq!(surveyed.huge_bytes(), walked.huge_bytes());
            assert!(surveyed.pages_walked().0 == 0 && surveyed.rss == walked.rss, "{steps}");
        }
    }
}

fn add(sum: Growth, each: Growth) -> Growth {
    Growth {
        unpopulated: sum.unpopulated + each.unpopulated,
        zero: sum.zero + each.zero,
        lazily_freed: sum.lazily_freed + each.lazily_freed,
        shared_by_fork: sum.shared_by_fork + each.shared_by_fork,
        merged: sum.merged + each.merged,
    }
}

fn growth_is_told() {
    let growth_of = |steps: &str| {
        let program = Program::start(steps);
        let [with, without] = both_ways(&program).map(|heat| {
            let regions = heat.regions.into_iter().filter(|region| program.holds(region.start.0));
            regions.map(|region| region.growth).reduce(add).expect("a region")
        });
        assert_eq!(with, without, "{steps}");
        with
    };
    let nothing = Growth::default();
    assert_eq!(growth_of("map=16M fill ready sleep=60s"), nothing);
    assert_eq!(growth_of("map=16M fill=half ready sleep=60s"), Growth { unpopulated: 8 * 256, ..nothing });
    let freed = growth_of("map=16M fill free=half ready sleep=60s");
    // Up to 31 per processor wait in a batch to be marked as freed.
    assert!((8 * 256 - 100..=8 * 256).contains(&freed.lazily_freed), "{freed:?}");
    assert_eq!(Growth { lazily_freed: 0, ..freed }, nothing);
    let zeros = growth_of("map=16M read-zeros=half fill=odd ready sleep=60s");
    assert_eq!(zeros, Growth { zero: 8 * 256, ..nothing });
    assert_eq!(growth_of("shmem=16M fill fork ready sleep=60s"), nothing, "shared memory is copied for nobody");
    let shared = growth_of("map=16M fill fork ready sleep=60s");
    // Many kernels mark every anonymous page as merged.
    assert_eq!((shared.shared_by_fork + shared.merged, shared.unpopulated), (8 * 512, 0), "{shared:?}");
}

fn another_program_is_noticed() {
    let first = Program::start("map=4M fill ready sleep=60s");
    let second = Program::start("map=4M fill ready sleep=60s");
    let spaces = |program: &Program| both_ways(program).map(|heat| heat.address_space.expect("root sees it"));
    assert_eq!(spaces(&first), spaces(&first));
    assert!(spaces(&first).iter().zip(spaces(&second)).all(|(one, other)| *one != other));
}
