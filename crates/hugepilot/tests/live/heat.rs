//! `heat` must report what the program does.

use heat::clearing::{ClearMethod, ClearPolicy, ClearReason};
use heat::units::{BASE_PAGE, Bytes, Nanos};
use heat::{Coverage, Estimate, Heat, Meaning, Region};
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use observe::{ObserveOptions, PageWalk, Tracker};
use serde_json::Value;

use crate::program::Rule;
use crate::support::{Program, Setting, hugepilot, in_some_try, list, number, wait_until};

crate::trials!(
    the_walked_third_is_found,
    scattered_pages_are_told_from_their_neighbours,
    every_field_is_there_and_agrees_with_the_others,
    the_window_is_obeyed,
    huge_pages_are_seen_and_left_whole,
    memory_that_was_always_huge_is_seen,
    memory_shared_between_processes_is_seen,
    sixty_thousand_mappings_are_no_obstacle,
    quiet_programs_are_cleared_at_once_whatever_their_size,
    programs_whose_calls_would_wait_are_cleared_in_slices,
    a_sample_says_what_observing_everything_says,
    large_processes_are_cleared_in_slices_unless_stalls_are_allowed,
    what_slices_cannot_clear_is_not_taken_for_hot,
    memory_whose_every_access_faults_is_present,
    text_for_people_names_the_hottest_mapping,
);

const WINDOW: Nanos = Nanos(300_000_000);

fn observe(program: &Program, allow_stall: bool) -> Heat {
    observe_with(&mut PageWalk::new().expect("a tracker"), program, allow_stall)
}

/// Observes a program through the library, which shows single pages. It scans again if the program got little CPU time, because idle memory cannot be
/// observed, and returns the scan with the most CPU time; the bits do not affect that choice. The last memory is scanned after a tenth of a second;
/// reading all memory once may take half of that.
pub fn observe_with(tracker: &mut dyn Tracker, program: &Program, allow_stall: bool) -> Heat {
    let clearing = ClearPolicy::allowing_stalls(allow_stall);
    observe_as(tracker, program, &ObserveOptions { window: WINDOW, clearing, ..ObserveOptions::default() })
}

fn observe_as(tracker: &mut dyn Tracker, program: &Program, options: &ObserveOptions) -> Heat {
    let target = Target::open(program.pid).expect("a target");
    let busy = |heat: &Heat| heat.busy_cpus.expect("it runs");
    let mut busiest = tracker.observe(&target, options, &Stop::default()).expect("a heat");
    for scan in 0..20 {
        let enough = if scan < 6 { 0.8 } else { 0.4 };
        if busy(&busiest) > enough {
            break;
        }
        let heat = tracker.observe(&target, options, &Stop::default()).expect("a heat");
        busiest = if busy(&heat) > busy(&busiest) { heat } else { busiest };
    }
    busiest
}

/// Pages that a processor may keep in its TLB while thousands of others are read: these are not walked, and rightly not found. Some 230 on a Xeon of
/// family 6, model 207, as long as the program keeps its processor.
const KEPT_IN_TLB: usize = 512;

/// Precision and recall of the walked pages, measured against the pages that the rule names.
pub fn assert_found(heat: &Heat, program: &Program, rule: Rule) {
    let pages = (program.len / BASE_PAGE) as usize;
    let named = (0..pages).filter(|&page| rule.names(page, pages)).count();
    let (mut walked, mut right) = (0, 0);
    for region in heat.regions.iter().filter(|region| program.holds(region.start.0)) {
        let first = ((region.start.0 - program.start) / BASE_PAGE) as usize;
        walked += region.walked.len();
        right += region.walked.iter().filter(|page| rule.names(first + page, pages)).count();
    }
    let (precision, recall) = (right as f64 / walked as f64, (right + KEPT_IN_TLB).min(named) as f64 / named as f64);
    assert!(precision >= 0.99 && recall >= 0.99, "precision {precision}, recall {recall}, of {named} pages");
}

/// Pages of a region that a processor may walk to speculatively, although the program does not read them.
pub const RUN_AHEAD: usize = 2;

/// Exactly the regions in which the rule names a page are walked.
pub fn assert_regions_found(heat: &Heat, program: &Program, rule: Rule) {
    let hot = program.regions_named(rule);
    for region in heat.regions.iter().filter(|region| program.holds(region.start.0)) {
        let (walked, is_hot) = (region.walked.len(), hot.contains(&region.start.0));
        assert!(region.walks_per_second > 0.0 || !is_hot, "{:?}: hot, and {walked} pages walked", region.start);
        assert!(walked <= RUN_AHEAD || is_hot, "{:?}: not hot, and {walked} pages walked", region.start);
    }
}

fn the_walked_third_is_found() {
    let mut program = Program::start("map=1G nohugepage fill ready read=third");
    let heat = observe(&program, true);
    assert_eq!(heat.meaning, Meaning::Walked);
    assert_found(&heat, &program, Rule::Third);
    assert_regions_found(&heat, &program, Rule::Third);
    program.assert_unharmed();
}

fn scattered_pages_are_told_from_their_neighbours() {
    let program = Program::start("map=128M nohugepage fill ready read=scattered");
    assert_found(&observe(&program, false), &program, Rule::Scattered);
}

fn every_field_is_there_and_agrees_with_the_others() {
    let program = Program::start("map=64M nohugepage fill ready read=all");
    let json = hugepilot(&format!("heat {} --window 200ms --json", program.pid)).json();
    assert_eq!((number(&json, "pid"), &json["tracker"]), (program.pid.into(), &Value::from("page-walk")));
    assert_eq!(json["meaning"], "walked");
    let cost = &json["cost"];
    assert!(number(cost, "clear_ns") > 0 && number(cost, "read_ns") > 0 && number(cost, "reads") >= 5, "{cost}");
    let regions = list(&json, "regions");
    let sum = |name: &str| regions.iter().map(|region| number(region, name)).sum::<u64>();
    assert_eq!(sum("pages_present"), number(&json, "pages_present"));
    assert_eq!(sum("pages_walked"), number(&json, "pages_walked"));
    let huge = regions.iter().filter(|region| region["huge"].as_bool().expect("a truth")).count() as u64;
    assert_eq!(huge << 21, number(&json, "huge_bytes"));
    let rates: f64 = regions.iter().map(|region| region["walks_per_second"].as_f64().expect("a rate")).sum();
    assert!((rates / json["walks_per_second"].as_f64().expect("a rate") - 1.0).abs() < 1e-6);
    assert!(regions.windows(2).all(|pair| number(&pair[0], "start") < number(&pair[1], "start")));
    // All filled memory is present, none of it is huge, and none would have to grow.
    let of_program: Vec<_> = regions.iter().filter(|region| program.holds(number(region, "start"))).collect();
    assert_eq!(of_program.len(), 32);
    for region in of_program {
        assert_eq!((number(region, "pages_present"), region["huge"].as_bool()), (512, Some(false)));
        assert_eq!((number(region, "growth_bytes"), &region["obstacle"]), (0, &Value::from("no_huge_page")));
    }
}

fn the_window_is_obeyed() {
    let program = Program::start("map=4M fill ready read=all");
    for (window, nanos) in [("200ms", 200_000_000), ("700ms", 700_000_000)] {
        let command = format!("heat {} --window {window} --json", program.pid);
        let seen = || number(&hugepilot(&command).json(), "window_ns");
        let mut windows = vec![seen()];
        // It takes longer only by the last read and by the machine's other load.
        let obeyed = in_some_try(|| {
            windows.push(seen());
            windows.iter().any(|&window| window < nanos + 400_000_000)
        });
        assert!(obeyed && windows.iter().all(|&window| window >= nanos), "{windows:?} of {nanos}");
    }
}

fn huge_pages_are_seen_and_left_whole() {
    let mut program = Program::start("map=128M fill ready read=third");
    let half: Vec<u64> = program.regions().step_by(2).collect();
    collapse(&program, &half);
    assert_eq!(program.huge_bytes(), 64 << 20);
    let heat = observe(&program, false);
    let huge = heat.regions.iter().filter(|region| region.huge && program.holds(region.start.0));
    assert_eq!(huge.map(|region| region.start.0).collect::<Vec<_>>(), half);
    assert_eq!(program.huge_bytes(), 64 << 20, "observing split huge pages");
    program.assert_unharmed();
}

/// Collapses regions into huge pages directly.
pub fn collapse(program: &Program, regions: &[u64]) {
    use hugepilot_os::{Advice, PidFd, advise::advise};
    let target = PidFd::open(program.pid).expect("it lives");
    for &region in regions {
        advise(&target, region, 2 << 20, Advice::Collapse).expect("a huge page");
    }
}

fn memory_that_was_always_huge_is_seen() {
    let _always = Setting::huge_pages("always");
    let program = Program::start("map=64M fill ready read=all");
    assert!(program.huge_bytes() >= 64 << 20, "the kernel had no huge pages left for this test");
    let json = hugepilot(&format!("heat {} --window 200ms --json", program.pid)).json();
    assert!(number(&json, "huge_bytes") >= 64 << 20, "{json}");
}

fn memory_shared_between_processes_is_seen() {
    let program = Program::start("shmem=256M fill ready read=third");
    assert_found(&observe(&program, false), &program, Rule::Third);
}

fn sixty_thousand_mappings_are_no_obstacle() {
    let program = Program::start("map=234M fill split ready read=third");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid)).expect("it lives");
    assert!(maps.lines().count() > 59_000);
    let heat = observe(&program, false);
    assert!(heat.mappings.len() > 59_000);
    assert_found(&heat, &program, Rule::Third);
}

/// Page tables that take longer to clear than is always accepted, and little memory to read.
const LARGE: &str = "page-tables=4G map=64M nohugepage fill";

fn quiet_programs_are_cleared_at_once_whatever_their_size() {
    let mut program = Program::start(&format!("{LARGE} ready read=third"));
    let heat = observe(&program, false);
    let clearing = heat.clearing.expect("bits were cleared");
    assert_eq!((clearing.method, clearing.reason), (ClearMethod::ClearRefs, ClearReason::FewCalls), "{clearing:?}");
    assert_eq!(heat.meaning, Meaning::Walked);
    assert_found(&heat, &program, Rule::Third);
    let text = hugepilot(&format!("heat {} --window 200ms", program.pid)).stdout;
    assert!(text.contains("cleared at once (clear_refs, about ") && text.contains(" page faults and "), "{text}");
    let plan = hugepilot(&format!("promote {} --dry-run --window 200ms --json", program.pid)).json();
    assert_eq!(plan["clearing"]["reason"], "few_calls", "{plan}");
    program.assert_unharmed();
}

fn programs_whose_calls_would_wait_are_cleared_in_slices() {
    for (step, rate) in [("remap", "mmap_calls_per_second"), ("fault", "faults_per_second")] {
        let program = Program::start(&format!("{LARGE} {step} ready read=resident"));
        let json = hugepilot(&format!("heat {} --window 200ms --json", program.pid)).json();
        let clearing = &json["clearing"];
        assert_eq!(
            (&clearing["method"], &clearing["reason"]),
            (&"madv_cold".into(), &"many_calls".into()),
            "{clearing}"
        );
        assert!(clearing[rate].as_f64().is_some_and(|rate| rate > 50.0), "{step}: {clearing}");
        // It takes the whole sample to tell that a program makes few calls.
        assert!(number(clearing, "sample_ns") < 3 * number(clearing, "expected_ns"), "{step}: {clearing}");
        let text = hugepilot(&format!("explain {} --window 200ms", program.pid)).stdout;
        assert!(text.contains("cleared in slices (MADV_COLD): the program makes "), "{step}: {text}");
        let allowed = hugepilot(&format!("heat {} --window 200ms --json --allow-stall", program.pid)).json();
        assert_eq!((&allowed["meaning"], &allowed["clearing"]["reason"]), (&"walked".into(), &"stall_allowed".into()));
    }
}

fn large_processes_are_cleared_in_slices_unless_stalls_are_allowed() {
    let mut program = Program::start("map=4G nohugepage fill remap ready read=scattered");
    let mut heat = observe(&program, false);
    assert_eq!(heat.meaning, Meaning::Accessed);
    // There are 64 slices; how long one takes depends on the machine: some 1 ms on an idle one.
    let in_slices = in_some_try(|| {
        heat = observe(&program, false);
        heat.cost.longest_stall.0 * 2 <= heat.cost.clear.0
    });
    assert!(in_slices, "{:?}", heat.cost);
    // Reading 1.4 GiB once takes more than the 100 ms, but the accessed pages are those that the program reads.
    assert_only_named(&heat, &program, Rule::Scattered);
    let certain = heat.walks_at_least_per_second() / heat.walks_per_second();
    assert!(certain > 0.3 && certain <= 1.0, "{certain} of the walks certain: {:?}", heat.walks);
    assert!(heat.walks.scattered.is_none_or(|share| share > 0.8), "{:?}", heat.walks);
    let json = hugepilot(&format!("heat {} --window 200ms --json --allow-stall", program.pid)).json();
    assert_eq!(json["meaning"], "walked");
    let text = hugepilot(&format!("heat {} --window 200ms", program.pid));
    assert!(text.stdout.contains("bits mean accessed") && text.stdout.contains("--allow-stall"), "{text:?}");
    program.assert_unharmed();
}

fn a_sample_says_what_observing_everything_says() {
    let mut program = Program::start("map=2G fill ready read=third");
    let some: Vec<u64> = program.regions().step_by(64).collect();
    collapse(&program, &some);
    let mut tracker = PageWalk::new().expect("a tracker");
    let base = |heat: &Heat| heat.regions.iter().filter(|region| !region.huge).map(|region| region.walked.len()).sum();
    let whole: usize = base(&observe_with(&mut tracker, &program, true));
    let size = Bytes(480 << 20);
    for seed in 1..=6 {
        let coverage = Coverage::Sample { size, longest: None, seed };
        let heat = observe_as(
            &mut tracker,
            &program,
            &ObserveOptions { window: WINDOW, coverage, ..ObserveOptions::default() },
        );
        let sample = heat.sample.expect("a sample");
        let Estimate { value, error } = sample.pages_walked;
        assert!((value - whole as f64).abs() < 3.0 * error, "seed {seed}: {value} +- {error}, not {whole}");
        assert!(error < 0.35 * whole as f64, "seed {seed}: {value} +- {error}");
        assert!((size..size + Bytes(9 << 20)).contains(&sample.observed), "{sample:?}");
        // Memory outside the sample was not scanned, and must not be reported as cold. Within it, some pages of a region
        // may tell nothing: those of a library that other processes map as well.
        let observed = |region: &Region| region.present.len() as u64 - u64::from(region.unobserved);
        let (seen, unseen): (Vec<_>, Vec<_>) = heat.regions.iter().partition(|region| observed(region) > 0);
        let pages = seen.into_iter().map(observed).sum::<u64>();
        assert!((size.0..size.0 + (9 << 20)).contains(&(pages * BASE_PAGE)), "{pages} pages were observed");
        assert!(unseen.iter().all(|region| region.walked.is_empty() && region.walks_per_second == 0.0));
        assert!(heat.walks_at_least_per_second() > 0.3 * heat.walks_per_second(), "{:?} of {sample:?}", heat.walks);
    }
    assert_eq!(program.huge_bytes(), (some.len() as u64) << 21, "observing split huge pages");
    let text = hugepilot(&format!("heat {} --window 300ms --sample 256M", program.pid)).stdout;
    assert!(text.contains("%, from a sample of 2") && text.contains("not in the sample, or "), "{text}");
    let json = hugepilot(&format!("heat {} --window 300ms --sample 256M --json", program.pid)).json();
    assert!(number(&json["sample"], "observed_bytes") >= 256 << 20, "{}", json["sample"]);
    program.assert_unharmed();
}

fn what_slices_cannot_clear_is_not_taken_for_hot() {
    let _never = Setting::huge_pages("never");
    let steps = "map=32M fill fork map=32M fill lock map=3300M fill remap ready read=resident";
    let program = Program::start(steps);
    let json = hugepilot(&format!("heat {} --window 300ms --json", program.pid)).json();
    assert_eq!(json["meaning"], "accessed");
    let full = list(&json, "regions").iter().filter(|region| number(region, "pages_present") == 512);
    let (own, others): (Vec<&Value>, Vec<&Value>) = full.partition(|region| program.holds(number(region, "start")));
    // The 16 locked regions, and the 16 shared with the child, whose bits were set when they were filled; forking cleared some.
    let unobserved: Vec<_> = others.iter().filter(|region| number(region, "pages_unobserved") > 256).collect();
    assert_eq!(unobserved.len(), 32);
    for region in unobserved {
        assert_eq!((number(region, "pages_walked"), region["walks_per_second"].as_f64()), (0, Some(0.0)), "{region}");
    }
    assert!(own.iter().all(|region| number(region, "pages_unobserved") == 0));
    // The resident region, and perhaps some new pages, up to 31 per CPU, that are in a per-CPU batch and not yet on an LRU list.
    let walked = own.iter().map(|region| number(region, "pages_walked")).sum::<u64>();
    assert!((512..600).contains(&walked), "{walked}");
    assert!(number(&json, "pages_unobserved") >= 32 * 512);
    let plan = hugepilot(&format!("promote {} --dry-run --window 300ms --json", program.pid)).json();
    let kept = list(&plan, "decisions").iter().filter(|decision| decision["reason"] == "not_observed");
    assert!(kept.count() >= 32, "{plan}");
    // 2 MiB fit in any TLB.
    assert_eq!(json["walks_at_least_per_second"].as_f64(), Some(0.0), "{}", json["walks_per_second"]);
    let text = hugepilot(&format!("heat {} --window 300ms", program.pid));
    assert!(text.stdout.contains("unobserved   "), "{}", text.stdout);
}

fn memory_whose_every_access_faults_is_present() {
    for (advice, huge) in [("nohugepage", false), ("hugepage", true)] {
        let program = Program::start(&format!("map=16M {advice} fill forbid sleep=60s"));
        let present = || {
            let json = hugepilot(&format!("heat {} --window 100ms --json", program.pid)).json();
            let regions: Vec<Value> = list(&json, "regions").to_vec();
            regions.into_iter().filter(|region| program.holds(number(region, "start"))).collect::<Vec<_>>()
        };
        // The program prints the memory's address just before it forbids access.
        wait_until("nothing is walked", || present().iter().all(|region| number(region, "pages_walked") == 0));
        let regions = present();
        assert_eq!(regions.len(), 8, "{regions:?}");
        for region in regions {
            assert_eq!((number(&region, "pages_present"), region["huge"].as_bool()), (512, Some(huge)), "{region}");
        }
    }
}

/// Asserts precision only.
fn assert_only_named(heat: &Heat, program: &Program, rule: Rule) {
    let pages = (program.len / BASE_PAGE) as usize;
    let regions = heat.regions.iter().filter(|region| program.holds(region.start.0));
    let walked = regions.flat_map(|region| {
        let first = ((region.start.0 - program.start) / BASE_PAGE) as usize;
        region.walked.iter().map(move |page| first + page)
    });
    let (right, wrong): (Vec<usize>, Vec<usize>) = walked.partition(|&page| rule.names(page, pages));
    assert!(
        right.len() > pages / 10 && wrong.len() * 100 <= right.len(),
        "{} right, {} wrong",
        right.len(),
        wrong.len()
    );
}

fn text_for_people_names_the_hottest_mapping() {
    let program = Program::start("map=64M fill ready read=all");
    let ran = hugepilot(&format!("heat {} --window 200ms", program.pid));
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    // The first line below the table's head; column widths depend on the numbers.
    let is_head = |line: &&str| line.contains("share") && line.ends_with("mapping");
    let hottest = ran.stdout.lines().skip_while(|line| !is_head(line)).nth(1);
    assert!(hottest.is_some_and(|line| line.contains("MiB") && line.ends_with("(anonymous)")), "{}", ran.stdout);
}
