//! The doctor on captured machines (crates/kernel/tests/fixtures/README.md), and on machines with one fault.

#[path = "schema/mod.rs"]
mod schema;

use std::path::Path;

use heat::units::{Bytes, Nanos};
use hugepilot::doctor::{self, CheckStatus, HostCheck, Lasts};
use kernel::Root;
use kernel::capability::{Capabilities, Capability};
use kernel::pmu::MemorySampling;
use kernel::probe::{Ability, CollapseTimes, Facts, LiveProbes, ProcessName};
use kernel::thp::{Setting, Thp};

fn facts(tree: &str) -> Facts {
    let root = Root::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/tests/fixtures").join(tree));
    let bpf = match tree {
        "debian-6.12" => Ability::No("loading was refused: Invalid argument (EINVAL)".to_owned()),
        _ => Ability::Yes,
    };
    Facts::gather(
        &root,
        LiveProbes {
            bpf,
            process_madvise: Ability::Yes,
            pagemap: Ability::Yes,
            cachestat: Ability::Yes,
            own_writes: Ability::Yes,
            huge_files: Ability::Yes,
            collapsed_files: Ability::Yes,
            collapses: Some(COLLAPSES),
        },
    )
}

/// Measured on a virtual machine whose host takes free memory back.
const COLLAPSES: CollapseTimes =
    CollapseTimes { prepared: Nanos(600_000), unprepared: Nanos(7_000_000), preparing: Nanos(6_500_000) };

/// Checks the 6.18 tree after a change. Apart from the change nothing is amiss on it, because shared memory is aligned first.
fn after(change: impl FnOnce(&mut Facts)) -> Vec<HostCheck> {
    let mut facts = facts("linux-6.18");
    set_shared_memory(&mut facts, "always within_size [advise] never deny force");
    change(&mut facts);
    doctor::check(&facts)
}

fn set_shared_memory(facts: &mut Facts, setting: &str) {
    thp(facts).shmem_enabled = Some(Setting::parse(setting).unwrap());
}

fn thp(facts: &mut Facts) -> &mut Thp {
    facts.thp.as_mut().unwrap().as_mut().unwrap()
}

#[test]
fn nothing_is_unknown_on_captured_machines() {
    for tree in ["linux-6.18", "debian-6.1", "debian-6.12"] {
        let unknown = |check: &HostCheck| check.finding.contains("not known");
        let unknown: Vec<HostCheck> = doctor::check(&facts(tree)).into_iter().filter(unknown).collect();
        assert!(unknown.is_empty(), "{tree}: {unknown:#?}");
    }
}

/// The only check that is not OK. The tracker's check does not count, because it follows from others.
fn amiss(checks: Vec<HostCheck>) -> HostCheck {
    let is_amiss = |check: &HostCheck| check.status != CheckStatus::Ok && check.name != "tracker";
    let mut amiss: Vec<HostCheck> = checks.into_iter().filter(is_amiss).collect();
    assert_eq!(amiss.len(), 1, "{amiss:#?}");
    amiss.remove(0)
}

fn command(check: &HostCheck) -> &str {
    check.fix.as_ref().map_or("", |fix| fix.command.as_str())
}

#[test]
fn tables() {
    for tree in ["linux-6.18", "debian-6.1", "debian-6.12"] {
        insta::assert_snapshot!(format!("table-{tree}"), doctor::render_table(&doctor::check(&facts(tree)), true, 120));
    }
}

#[test]
fn a_table_for_someone_without_rights() {
    let checks = after(|facts| {
        facts.uid = Ok(1000);
        facts.capabilities = Ok(Capabilities(0));
        facts.kpageflags = Ability::No("cannot read /proc/kpageflags: Permission denied; run as root".to_owned());
        facts.live = LiveProbes::default();
    });
    insta::assert_snapshot!(doctor::render_table(&checks, true, 100));
}

#[test]
fn json() {
    let facts = facts("debian-6.12");
    let text = doctor::to_json(&doctor::check(&facts), &doctor::abilities(&facts)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    schema::check(&value);
    insta::assert_snapshot!("json-debian-6.12", serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn an_ability_says_why_it_is_missing() {
    let mut facts = facts("linux-6.18");
    facts.damon_threads = Ok(Some(1));
    facts.live = LiveProbes::default();
    for ability in doctor::abilities(&facts) {
        assert_eq!(ability.here == Some(true), ability.why.is_none(), "{ability:?}");
    }
    let of = |name: &str| doctor::abilities(&facts).into_iter().find(|ability| ability.name == name).unwrap();
    assert_eq!(of("tracker damon-paddr").here, Some(false));
    assert!(of("tracker damon-paddr").why.unwrap().contains("in use by someone else"));
    assert_eq!(of("own writes by userfaultfd").here, None, "it was not tried");
}

#[test]
fn the_table_of_kernels_has_every_ability() {
    let page = include_str!("../../../docs/reference/supported.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| ability")).skip(2);
    let rows: Vec<&str> = table.map_while(|line| Some(line.strip_prefix('|')?.split('|').next()?.trim())).collect();
    let abilities: Vec<String> =
        doctor::abilities(&facts("linux-6.18")).into_iter().map(|ability| ability.name).collect();
    assert_eq!(rows, abilities, "make supported");
}

#[test]
fn nothing_is_amiss_on_a_good_machine() {
    assert!(after(|_| {}).iter().all(|check| check.status == CheckStatus::Ok && check.fix.is_none()));
}

#[test]
fn names_are_unique_and_sentences_end() {
    for tree in ["linux-6.18", "debian-6.1", "debian-6.12"] {
        let checks = doctor::check(&facts(tree));
        let mut names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks.len());
        for check in checks {
            assert!(check.meaning.ends_with('.') && !check.finding.ends_with('.'), "{check:?}");
            assert!(check.fix.is_none_or(|fix| (fix.lasts == Lasts::ForGood) == fix.permanent.is_none()));
        }
    }
}

#[test]
fn a_missing_capability_is_named_with_what_it_is_for() {
    let without = |capability: Capability| Capabilities(!(1 << capability as u8));
    let check = amiss(after(|facts| facts.capabilities = Ok(without(Capability::SysNice))));
    assert_eq!((check.status, check.finding.as_str()), (CheckStatus::Missing, "missing: CAP_SYS_NICE"));
    assert!(check.meaning.contains("advising"), "{check:?}");
    assert_eq!(amiss(after(|facts| facts.capabilities = Ok(without(Capability::Kill)))).status, CheckStatus::Warning);
    let covered = after(|facts| facts.capabilities = Ok(without(Capability::Bpf)));
    assert!(covered.iter().all(|check| check.status == CheckStatus::Ok), "CAP_SYS_ADMIN stands in for CAP_BPF");
}

#[test]
fn root_in_a_container_of_its_own_is_not_root() {
    let check = amiss(after(|facts| facts.initial_user_namespace = Ok(false)));
    assert!(check.status == CheckStatus::Missing && check.meaning.contains("on the host"), "{check:?}");
}

#[test]
fn what_is_not_known_is_a_warning_and_never_missing() {
    let empty = Root::at(tempfile::tempdir().unwrap().path());
    let unknown = Facts::gather(&empty, LiveProbes::default());
    let check = amiss(after(|facts| facts.memory = unknown.memory));
    assert!(check.status == CheckStatus::Warning && check.finding.contains("proc/meminfo"), "{check:?}");
    let check = amiss(after(|facts| facts.live.bpf = Ability::Unknown("not tried".to_owned())));
    assert_eq!((check.status, check.finding.as_str()), (CheckStatus::Warning, "not known: not tried"));
    assert!(doctor::check(&Facts::gather(&empty, LiveProbes::default())).len() > 10);
}

#[test]
fn a_host_that_takes_free_memory_back_is_named() {
    let check = amiss(after(|facts| facts.free_memory_reported = Ok(true)));
    assert!(check.name == "free memory" && check.status == CheckStatus::Warning && check.fix.is_none(), "{check:?}");
}

#[test]
fn what_the_kernel_refuses_is_missing() {
    let refused = || Ability::No("refused".to_owned());
    let changes: [fn(&mut Facts) -> &mut Ability; 5] = [
        |facts| &mut facts.btf,
        |facts| &mut facts.live.bpf,
        |facts| &mut facts.live.process_madvise,
        |facts| &mut facts.live.pagemap,
        |facts| &mut facts.clear_refs,
    ];
    for ability in changes {
        assert_eq!(amiss(after(|facts| *ability(facts) = refused())).finding, "refused");
    }
    assert_eq!(amiss(after(|facts| facts.page_size = Ok(Bytes(64 << 10)))).status, CheckStatus::Missing);
    assert_eq!(amiss(after(|facts| facts.thp = Ok(None))).status, CheckStatus::Missing);
}

#[test]
fn files_get_huge_pages_at_any_time_before_the_start_or_never() {
    let refused = || Ability::No("refused".to_owned());
    let told = |huge_files: Ability, collapsed_files: Ability| {
        let checks = after(|facts| (facts.live.huge_files, facts.live.collapsed_files) = (huge_files, collapsed_files));
        let check = checks.into_iter().find(|check| check.name == "mapped files").expect("it is checked");
        (check.status, check.finding)
    };
    assert_eq!(told(refused(), Ability::Yes), (CheckStatus::Ok, "huge pages, at any time".to_owned()));
    assert_eq!(told(Ability::Yes, refused()), (CheckStatus::Ok, "huge pages, before the start".to_owned()));
    assert_eq!(told(refused(), refused()), (CheckStatus::Warning, "base pages".to_owned()));
    let untried = || Ability::Unknown("not tried".to_owned());
    assert_eq!(told(untried(), untried()), (CheckStatus::Warning, "not known: not tried".to_owned()));
}

#[test]
fn the_tracker_is_the_best_that_works() {
    let refused = || Ability::No("refused".to_owned());
    let check = |bpf: Ability, damon_threads: Option<u32>, vaddr: bool, idle: bool| {
        let checks = after(|facts| {
            facts.live.bpf = bpf;
            facts.damon_threads = Ok(damon_threads);
            facts.damon_vaddr = if vaddr { Ability::Yes } else { refused() };
            facts.idle_pages = if idle { Ability::Yes } else { refused() };
        });
        checks.into_iter().find(|check| check.name == "tracker").expect("it is checked")
    };
    let picked = |bpf, damon_threads| {
        let check = check(bpf, damon_threads, true, false);
        (check.status, check.finding)
    };
    assert_eq!(picked(Ability::Yes, Some(0)), (CheckStatus::Ok, "page-walk".to_owned()));
    assert_eq!(picked(refused(), Some(0)), (CheckStatus::Warning, "damon-vaddr".to_owned()));
    assert_eq!(picked(refused(), Some(1)), (CheckStatus::Missing, "none".to_owned()), "someone else's is left alone");
    assert_eq!(picked(refused(), None), (CheckStatus::Missing, "none".to_owned()));
    assert_eq!(check(refused(), Some(0), false, false).finding, "damon-paddr");
    assert_eq!(check(refused(), Some(0), false, true).finding, "idle-page");
    assert_eq!(check(refused(), Some(1), true, true).finding, "idle-page");
    let meaning = check(Ability::Yes, Some(0), false, false).meaning;
    for passed_over in ["damon-vaddr: refused", "idle-page: refused", "damon-paddr: samples"] {
        assert!(meaning.contains(passed_over), "{meaning}");
    }
}

#[test]
fn accesses_are_sampled_where_walks_cannot_be_had_otherwise() {
    let check = |damon_threads: Option<u32>, bpf: Ability| {
        let checks = after(|facts| {
            facts.live.bpf = bpf;
            facts.damon_threads = Ok(damon_threads);
            facts.damon_vaddr = Ability::Yes;
            facts.pmu = Ok(Some(MemorySampling {
                device: "ibs_op",
                event: Default::default(),
                leader: None,
                precise: 0,
                only_walks: false,
            }));
        });
        checks.into_iter().find(|check| check.name == "tracker").expect("it is checked")
    };
    let refused = || Ability::No("refused".to_owned());
    assert_eq!(check(Some(1), refused()).finding, "perf-mem");
    assert_eq!(check(Some(0), refused()).finding, "damon-vaddr");
    let passed_over = check(None, Ability::Yes).meaning;
    assert!(passed_over.contains("perf-mem: meets only what is accessed often"), "{passed_over}");
}

#[test]
fn a_size_of_its_own_overrules_the_general_setting() {
    let check = amiss(after(|facts| {
        let thp = thp(facts);
        thp.khugepaged.max_unpopulated.0 = 0;
        thp.sizes.last_mut().unwrap().enabled = Setting::parse("[always] inherit madvise never").unwrap();
    }));
    assert_eq!(check.name, "transparent huge pages");
    assert_eq!(command(&check), "echo madvise > /sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled");
    let never = after(|facts| thp(facts).enabled = Setting::parse("always madvise [never]").unwrap());
    assert!(never.iter().all(|check| check.status == CheckStatus::Ok), "hugepilot works with never");
}

#[test]
fn shared_memory_that_is_denied_or_mapped_badly_is_fixed() {
    for (setting, word) in [
        ("always within_size advise never [deny] force", "deny"),
        ("always within_size advise [never] deny force", "never"),
    ] {
        let check = amiss(after(|facts| set_shared_memory(facts, setting)));
        assert_eq!((check.name.as_str(), check.status), ("shared memory", CheckStatus::Warning));
        assert!(check.finding.starts_with(word), "{check:?}");
        assert_eq!(command(&check), "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
        assert!(check.fix.is_some_and(|fix| fix.permanent.is_some()), "for good, too");
    }
}

#[test]
fn a_long_list_of_processes_is_cut_off() {
    let listed = |name: &str, count| (1..=count).map(|pid| ProcessName { pid, name: name.to_owned() }).collect();
    let check = amiss(after(|facts| facts.thp_disabled = Ok(listed("worker", 20))));
    assert!(check.finding.ends_with("worker (8), and 12 more"), "{check:?}");
    assert_eq!(check.fix, None, "only Redis has a known switch");
    let check = amiss(after(|facts| facts.thp_disabled = Ok(listed("redis-server", 1))));
    assert!(command(&check).contains("disable-thp no"));
}

#[test]
fn scattered_memory_is_compacted_only_where_the_kernel_can() {
    let scatter = |facts: &mut Facts| {
        let zones = &mut facts.buddy.as_mut().unwrap().zones;
        zones.iter_mut().for_each(|zone| zone.free_blocks.truncate(9));
        zones[0].free_blocks[0] = 1 << 20;
    };
    assert_eq!(command(&amiss(after(scatter))), "echo 1 > /proc/sys/vm/compact_memory");
    let check = amiss(after(|facts| {
        scatter(facts);
        facts.compaction = Ability::No("the kernel was built without CONFIG_COMPACTION".to_owned());
    }));
    assert!(check.fix.is_none() && check.meaning.contains("CONFIG_COMPACTION"), "{check:?}");
}
