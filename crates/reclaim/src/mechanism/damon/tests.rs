//! Which schemes are written to the kernel, and how its answers are evaluated.

use std::fs;

use damon::samples::{Release, text};
use kernel::damon::{DIRECTORY, NOTE};

use super::*;

fn open(release: Release) -> (tempfile::TempDir, Root, DamonReclaim) {
    let (folder, root, claim) = release.claim();
    let damon = DamonReclaim::with(claim.unwrap(), &root).unwrap();
    (folder, root, damon)
}

fn step(damon: &mut DamonReclaim, batches: &[Batch]) -> Vec<Effect> {
    damon.step(batches, &Stop::default()).unwrap()
}

fn batch(classes: &[MemoryUse], mib: u64) -> Batch {
    Batch { uses: classes.iter().copied().collect(), bytes: Bytes(mib << 20), most: Bytes((120 << 20) * MOST_QUOTAS) }
}

fn scheme(root: &Root, number: usize, name: &str) -> String {
    text(root, &format!("0/contexts/0/schemes/{number}/{name}"))
}

#[test]
fn what_a_kernel_can_do_is_found_out_by_what_it_takes() {
    let abilities = |release| open(release).2.abilities;
    let oldest = abilities(Release::Linux61);
    assert_eq!((oldest.filters, oldest.anon, oldest.lru_deprio), (None, false, true));
    let middle = abilities(Release::Linux612);
    assert_eq!((middle.filters, middle.anon, middle.young, middle.unmapped), (Some("filters"), true, true, false));
    let newest = abilities(Release::Linux618);
    assert_eq!((newest.filters, newest.unmapped, newest.active), (Some("ops_filters"), true, true));
    let counts = open(Release::Linux612).2.counts();
    assert_eq!(counts.into_keys().collect::<Vec<_>>(), ["filter_anon", "filter_young"]);
}

#[test]
fn what_is_reached_follows_from_the_filters() {
    let reach = |release| open(release).2.reach();
    assert_eq!(reach(Release::Linux61), [Uses::ALL]);
    assert_eq!(reach(Release::Linux612).len(), 2);
    let cache = reach(Release::Linux618)[0];
    assert!(cache.has(MemoryUse::UnmappedCache) && !cache.has(MemoryUse::MappedFiles));
}

#[test]
fn a_scheme_is_set_up_switched_on_told_of_and_taken_away() {
    let (_folder, root, mut damon) = open(Release::Linux618);
    assert_eq!(step(&mut damon, &[batch(&[MemoryUse::UnmappedCache], 64)]), []);
    assert_eq!(scheme(&root, 0, "action"), "pageout");
    let filter = |scheme_number, number: usize| {
        let part = |name| scheme(&root, scheme_number, &format!("ops_filters/{number}/{name}"));
        (part("type"), part("matching"))
    };
    let expected = [("anon", "Y"), ("unmapped", "N"), ("young", "Y"), ("active", "Y")];
    for (number, (kind, matching)) in expected.into_iter().enumerate() {
        assert_eq!(filter(0, number), (kind.to_owned(), matching.to_owned()));
    }
    assert_eq!((scheme(&root, 0, "quotas/bytes"), scheme(&root, 0, "quotas/ms")), ("67108864".into(), "100".into()));
    assert_eq!(
        (scheme(&root, 0, "watermarks/metric"), scheme(&root, 0, "apply_interval_us")),
        ("none".into(), String::new())
    );
    assert_eq!((scheme(&root, 1, "action"), filter(1, 2)), ("lru_prio".into(), ("young".into(), "N".into())));
    assert_eq!(text(&root, "0/state"), "on");
    for (name, value) in [("sz_tried", 9000), ("sz_applied", 8000), ("qt_exceeds", 2)] {
        fs::write(root.path(&format!("{DIRECTORY}/0/contexts/0/schemes/0/stats/{name}")), value.to_string()).unwrap();
    }
    let effects = step(&mut damon, &[]);
    let uses = [MemoryUse::UnmappedCache].into_iter().collect();
    assert_eq!(effects, [Effect { uses, applied: Bytes(8000), reclaimed: Bytes(8000) }]);
    assert_eq!((text(&root, "0/state").as_str(), damon.counts()["quota_exceeded"]), ("off", 2));
    drop(damon);
    assert_eq!((text(&root, "nr_kdamonds").as_str(), root.path(NOTE).exists()), ("0", false));
}

#[test]
fn quotas_follow_while_it_goes_on() {
    let (_folder, root, mut damon) = open(Release::Linux612);
    let files: Vec<MemoryUse> = Uses::OF_FILES.iter().collect();
    step(&mut damon, &[batch(&files, 100)]);
    assert_eq!(
        (scheme(&root, 0, "filters/nr_filters"), scheme(&root, 0, "watermarks/metric")),
        ("2".into(), "none".into())
    );
    let counted = |applied: u64| {
        for name in ["sz_tried", "sz_applied"] {
            fs::write(root.path(&format!("{DIRECTORY}/0/contexts/0/schemes/0/stats/{name}")), applied.to_string())
                .unwrap();
        }
    };
    counted(100 << 20);
    step(&mut damon, &[batch(&files, 105)]);
    assert_eq!(text(&root, "0/state"), "update_schemes_stats", "as good as the same");
    counted(205 << 20);
    let told = step(&mut damon, &[batch(&files, 50)]);
    assert_eq!((told[0].applied, text(&root, "0/state").as_str()), (Bytes(105 << 20), "commit"));
    assert_eq!(scheme(&root, 0, "quotas/bytes"), (50 << 20).to_string());
    counted(30);
    assert_eq!(step(&mut damon, &[])[0].applied, Bytes(30), "the kernel counted anew");
}

#[test]
fn more_is_scanned_where_little_of_it_can_be_taken_but_never_more_than_may_be_lost() {
    let (_folder, root, mut damon) = open(Release::Linux618);
    let cache = [MemoryUse::UnmappedCache];
    step(&mut damon, &[batch(&cache, 40)]);
    let counted = |tried: u64, applied: u64| {
        for (name, count) in [("sz_tried", tried), ("sz_applied", applied)] {
            let path = format!("{DIRECTORY}/0/contexts/0/schemes/0/stats/{name}");
            fs::write(root.path(&path), (count << 20).to_string()).unwrap();
        }
    };
    let quota = |damon: &mut DamonReclaim| {
        step(damon, &[batch(&cache, 40)]);
        scheme(&root, 0, "quotas/bytes").parse::<u64>().unwrap() >> 20
    };
    counted(40, 10);
    assert_eq!(quota(&mut damon), 80);
    counted(120, 30);
    assert_eq!(quota(&mut damon), 120, "all that may be lost");
    counted(120, 30);
    assert_eq!(quota(&mut damon), 120, "nothing was scanned, which tells nothing");
    let (tried, applied) = (100 << 20, 160 << 20);
    assert_eq!(effort_after(4.0, Bytes(80 << 20), Statistics { tried, applied, quota_exceeded: 0 }), 2.0);
}

#[test]
fn a_late_step_finds_it_switched_off_and_until_then_floors_hold() {
    let (_folder, root, mut damon) = open(Release::Linux618);
    let spare = Batch { most: Bytes(60 << 20), ..batch(&[MemoryUse::UnmappedCache], 60) };
    step(&mut damon, &[spare]);
    assert_eq!(scheme(&root, 0, "quotas/bytes"), (10 << 20).to_string(), "of 60, for six quotas");
    assert!(damon.deadline.hold().is_some_and(|until| until > Instant::now() && until <= Instant::now() + LATEST));
    *damon.deadline.hold() = Some(Instant::now());
    while damon.deadline.hold().is_some() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(text(&root, "0/state"), "off");
    step(&mut damon, &[spare]);
    assert_eq!((text(&root, "0/state").as_str(), damon.counts()["switched_off_late"]), ("on", 1));
    step(&mut damon, &[]);
    assert_eq!(*damon.deadline.hold(), None, "it is off");
}

#[test]
fn quotas_are_for_one_interval_however_late_a_step_comes() {
    let (_folder, _root, damon) = open(Release::Linux612);
    assert_eq!([1, 3, 60].map(|late| damon.span(Duration::from_secs(late))), [Duration::from_secs(1); 3]);
}

#[test]
fn without_a_filter_for_what_is_in_use_only_idle_regions_count() {
    let limits = |release| {
        let (_folder, root, mut damon) = open(release);
        step(&mut damon, &[batch(&MemoryUse::ALL, 1)]);
        (scheme(&root, 0, "access_pattern/nr_accesses/max"), scheme(&root, 0, "access_pattern/age/min"))
    };
    assert_eq!(limits(Release::Linux61), ("0".into(), "50".into()));
    assert_eq!(limits(Release::Linux612), (u32::MAX.to_string(), "0".into()));
}

#[test]
fn what_is_mapped_is_not_torn_out() {
    let abilities = open(Release::Linux618).2.abilities;
    let made = abilities.scheme(&batch(&[MemoryUse::MappedFiles, MemoryUse::Code], 1));
    assert_eq!(
        (made.action, made.filters),
        (Action::Deprioritize, vec![("anon", true), ("unmapped", true), ("young", true)])
    );
    let made = abilities.scheme(&batch(&[MemoryUse::Anonymous], 1));
    assert_eq!((made.action, made.filters), (Action::Pageout, vec![("anon", false), ("young", true)]));
    let made = abilities.scheme(&batch(&[MemoryUse::Shared, MemoryUse::UnmappedCache], 1));
    assert_eq!(made.filters[1], ("unmapped", false), "files that are mapped stay, though shared memory may be mapped");
    let cache = batch(&[MemoryUse::UnmappedCache], 1);
    assert_eq!(abilities.schemes(&[cache]).len(), 2, "and what is mapped and used is protected");
    assert_eq!(abilities.schemes(&[cache, batch(&[MemoryUse::Code], 1)]).len(), 2, "unless it is reclaimed as well");
}

#[test]
fn who_may_not_know_where_memory_is_is_told() {
    let (folder, root, claim) = Release::Linux612.claim();
    fs::write(folder.path().join("proc/iomem"), "00000000-00000000 : System RAM\n").unwrap();
    let error = DamonReclaim::with(claim.unwrap(), &root).unwrap_err();
    assert!(matches!(error, ReclaimError::HiddenMemory), "{error}");
    assert_eq!(text(&root, "nr_kdamonds"), "0", "nothing is left changed");
}
