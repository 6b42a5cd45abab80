//! The survey without eBPF: it must see what the page tables say.

use hugepilot::kernel::Root;
use hugepilot::observe::heat::{Growth, Heat, Meaning, Region, TrackerKind};
use hugepilot::observe::{PageWalk, Survey, Tracker};
use hugepilot::target::Target;
use hugepilot_os::{Advice, PidFd, advise::advise};

use crate::support::{Program, Setting};

crate::trials!(it_agrees_with_the_page_tables, growth_is_told, another_program_is_noticed);

fn survey(program: &Program) -> Heat {
    let target = Target::open(program.pid).expect("a target");
    let survey = Survey::new(&Root::host(), TrackerKind::DamonVaddr, Meaning::Sampled).expect("a survey");
    survey.look(&target, |_, _| ()).expect("a heat")
}

/// What two looks at a quiet program must agree about.
fn seen(region: &Region) -> impl PartialEq + std::fmt::Debug {
    (region.start, region.mapping, region.obstacle, region.huge, region.present.iter().collect::<Vec<_>>())
}

fn it_agrees_with_the_page_tables() {
    let _madvise = Setting::huge_pages("madvise");
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
        // Some of the huge pages among base pages of the same mapping.
        for region in program.regions().step_by(4).filter(|_| steps.starts_with("map=64M fill ready")) {
            let handle = PidFd::open(program.pid).expect("it lives");
            advise(&handle, region, 2 << 20, Advice::Collapse).expect("a huge page");
        }
        let target = Target::open(program.pid).expect("a target");
        let walked = PageWalk::new().expect("a tracker").survey(&target).expect("a heat");
        let surveyed = survey(&program);
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

fn growth_is_told() {
    let _madvise = Setting::huge_pages("madvise");
    let growth_of = |steps: &str| {
        let program = Program::start(steps);
        let regions = survey(&program).regions;
        let own = regions.into_iter().filter(|region| program.holds(region.start.0)).map(|region| region.growth);
        own.reduce(|sum, each| Growth {
            unpopulated: sum.unpopulated + each.unpopulated,
            zero: sum.zero + each.zero,
            lazily_freed: sum.lazily_freed + each.lazily_freed,
            shared_by_fork: sum.shared_by_fork + each.shared_by_fork,
            merged: sum.merged + each.merged,
        })
        .expect("a region")
    };
    let nothing = Growth::default();
    assert_eq!(growth_of("map=16M fill ready sleep=60s"), nothing);
    assert_eq!(growth_of("map=16M fill=half ready sleep=60s"), Growth { unpopulated: 8 * 256, ..nothing });
    let freed = growth_of("map=16M fill free=half ready sleep=60s");
    // Some wait in a processor's batch to be marked as freed, up to 31 in each.
    assert!((8 * 256 - 100..=8 * 256).contains(&freed.lazily_freed), "{freed:?}");
    assert_eq!(Growth { lazily_freed: 0, ..freed }, nothing);
    let zeros = growth_of("map=16M read-zeros=half fill=odd ready sleep=60s");
    assert_eq!(zeros, Growth { zero: 8 * 256, ..nothing });
    let shared = growth_of("map=16M fill fork ready sleep=60s");
    // Many kernels mark every anonymous page as merged.
    assert_eq!((shared.shared_by_fork + shared.merged, shared.unpopulated), (8 * 512, 0), "{shared:?}");
}

fn another_program_is_noticed() {
    let first = Program::start("map=4M fill ready sleep=60s");
    let second = Program::start("map=4M fill ready sleep=60s");
    let space = |program: &Program| survey(program).address_space.expect("root sees it");
    assert_eq!(space(&first), space(&first));
    assert_ne!(space(&first), space(&second));
}
