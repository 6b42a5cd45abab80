//! What is written for which request, and that it can be removed again.

use super::*;
use proptest::prelude::*;
use std::fs;

const TWO: LastingPool = LastingPool { page_size: Bytes(2 << 20), pages: 1000, overcommit: 0 };
const ONE: LastingPool = LastingPool { page_size: Bytes(1 << 30), pages: 4, overcommit: 0 };

fn around(files: &[(&str, &str)]) -> PoolSurroundings {
    let files = files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
    PoolSurroundings { default_size: Some(Bytes(2 << 20)), files, ..PoolSurroundings::default() }
}

fn lasting(pools: &[LastingPool]) -> Lasting {
    Lasting { pools: pools.to_vec(), ..Lasting::default() }
}

/// The contents of each file afterwards, without the first line.
fn written(edits: &[Edit]) -> Vec<(&str, Option<&str>)> {
    let without_head = |text| str::strip_prefix(text, HEAD).unwrap_or(text);
    edits.iter().map(|edit| (edit.path.as_str(), edit.after.as_deref().map(without_head))).collect()
}

#[test]
fn the_default_size_is_a_matter_of_sysctl_and_others_of_tmpfiles() {
    let small = LastingPool { page_size: Bytes(64 << 10), pages: 7, overcommit: 3 };
    let (edits, steps) = persist(&lasting(&[TWO, small]), &around(&[])).unwrap();
    let tmpfiles = "w /sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages - - - - 7\n\
                    w /sys/kernel/mm/hugepages/hugepages-64kB/nr_overcommit_hugepages - - - - 3\n";
    assert_eq!(written(&edits), [(SYSCTL, Some("vm.nr_hugepages = 1000\n")), (TMPFILES, Some(tmpfiles))]);
    assert_eq!(steps, [NextStep::LoadSysctl { path: SYSCTL }, NextStep::CreateTmpfiles { path: TMPFILES }]);
}

#[test]
fn giant_pages_are_reserved_by_the_boot_loader_that_is_there() {
    let words = "hugepagesz=1G hugepages=4".to_owned();
    let (edits, steps) = persist(&lasting(&[ONE]), &around(&[])).unwrap();
    assert_eq!((edits.len(), steps), (0, vec![NextStep::ByHand { words: words.clone() }]));
    let fedora = PoolSurroundings { grubby: true, ..around(&[]) };
    assert_eq!(persist(&lasting(&[ONE]), &fedora).unwrap().1, [NextStep::Grubby { words: words.clone() }]);
    let debian = PoolSurroundings { grub_reads_files: true, ..around(&[]) };
    let (edits, steps) = persist(&lasting(&[ONE]), &debian).unwrap();
    let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"\n");
    assert_eq!((written(&edits), steps), (vec![(GRUB, Some(line.as_str()))], vec![NextStep::UpdateGrub]));
    let (edits, steps) = persist(&lasting(&[ONE]), &around(&[(COMMAND_LINE, "root=/dev/sda1 ro\n")])).unwrap();
    let (line, own) = (format!("root=/dev/sda1 ro {words}\n"), format!("{words}\n"));
    assert_eq!(written(&edits), [(OWN_WORDS, Some(own.as_str())), (COMMAND_LINE, Some(line.as_str()))]);
    assert_eq!(steps, [NextStep::InstallKernel { image: KERNEL_IMAGES[0] }]);
}

#[test]
fn words_that_an_administrator_wrote_stay() {
    let theirs = |words: &str| around(&[(COMMAND_LINE, &format!("ro {words} quiet\n"))]);
    for words in ["hugepagesz=1G hugepages=16", "hugepagesz=1G splash hugepages=16"] {
        assert_eq!(persist(&Lasting::default(), &theirs(words)).unwrap(), (Vec::new(), Vec::new()), "{words}");
        assert!(persist(&lasting(&[TWO]), &theirs(words)).unwrap().0.iter().all(|edit| edit.path == SYSCTL));
        let told = persist(&lasting(&[ONE]), &theirs(words)).unwrap_err().to_string();
        assert!(told.contains("did not write (hugepagesz=1G hugepages=16)"), "{told}");
    }
    let same = persist(&lasting(&[ONE]), &theirs("hugepagesz=1G hugepages=4")).unwrap().0;
    assert_eq!(same, [], "what is wanted stands there already");
}

#[test]
fn own_words_are_forgotten_once_they_are_taken_out() {
    let own = format!("{HEAD}hugepagesz=1G hugepages=4\n");
    let line = "ro hugepagesz=1G hugepages=4 quiet\n";
    let there = around(&[(COMMAND_LINE, line), (OWN_WORDS, &own)]);
    let (edits, _) = persist(&Lasting::default(), &there).unwrap();
    assert_eq!(written(&edits), [(COMMAND_LINE, Some("ro quiet\n")), (OWN_WORDS, None)]);
    let edited = around(&[(COMMAND_LINE, "ro hugepagesz=1G hugepages=8\n"), (OWN_WORDS, &own)]);
    let (edits, _) = persist(&Lasting::default(), &edited).unwrap();
    assert_eq!(written(&edits), [(OWN_WORDS, None)], "somebody changed them, so they are theirs");
}

#[test]
fn words_that_stand_in_no_file_are_named_when_they_are_to_go() {
    let words = "hugepagesz=1G hugepages=4".to_owned();
    let booted = |files: &[(&str, &str)]| PoolSurroundings { booted_with: words.clone(), ..around(files) };
    let steps = |lasting: &Lasting, around: &PoolSurroundings| persist(lasting, around).unwrap().1;
    let take_out = |grubby| NextStep::TakeOut { words: words.clone(), grubby };
    assert_eq!(steps(&Lasting::default(), &booted(&[])), [take_out(false)]);
    assert_eq!(steps(&Lasting::default(), &PoolSurroundings { grubby: true, ..booted(&[]) }), [take_out(true)]);
    assert_eq!(steps(&Lasting::default(), &booted(&[(COMMAND_LINE, &format!("ro {words}\n"))])), []);
    let grub = format!("{HEAD}GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"\n");
    assert_eq!(steps(&Lasting::default(), &booted(&[(GRUB, &grub)])), [NextStep::UpdateGrub]);
    assert_eq!(steps(&lasting(&[ONE]), &booted(&[])), [NextStep::ByHand { words: words.clone() }]);
    let seven = lasting(&[LastingPool { pages: 7, ..ONE }]);
    assert_eq!(steps(&seven, &booted(&[]))[0], take_out(false), "in place of what was there");
}

#[test]
fn the_kernel_is_installed_from_where_it_is() {
    let tree = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::create_dir_all(tree.path().join(name).parent().unwrap()).unwrap();
        fs::write(tree.path().join(name), text).unwrap();
    };
    let image = || PoolSurroundings::read(&Root::at(tree.path())).unwrap().kernel_image;
    write("proc/meminfo", "MemTotal: 1 kB\n");
    write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    write("boot/vmlinuz-6.1.0-17-amd64", "");
    assert_eq!(image(), None, "another one");
    write("boot/vmlinuz-6.1.0-18-amd64", "");
    assert_eq!(image(), Some("/boot/vmlinuz-$(uname -r)"));
    write("lib/modules/6.1.0-18-amd64/vmlinuz", "");
    assert_eq!(image(), Some("/lib/modules/$(uname -r)/vmlinuz"));
}

#[test]
fn a_group_gets_what_it_needs() {
    let group = Some(UnixGroup { name: "music".into(), gid: 27 });
    let (edits, steps) = persist(&Lasting { group: group.clone(), ..lasting(&[TWO]) }, &around(&[])).unwrap();
    let sysctl = "vm.nr_hugepages = 1000\nvm.hugetlb_shm_group = 27\n";
    assert_eq!(written(&edits), [(LIMITS, Some("@music - memlock 2048000\n")), (SYSCTL, Some(sysctl))]);
    assert_eq!(steps.last(), Some(&NextStep::LogInAnew));
    let alone = persist(&Lasting { group: group.clone(), ..Lasting::default() }, &around(&[])).unwrap().0;
    assert_eq!(written(&alone), [(SYSCTL, Some("vm.hugetlb_shm_group = 27\n"))], "a limit of 0 would forbid");
    let by_number = Some(UnixGroup { name: "27".into(), gid: 27 });
    let (edits, _) = persist(&Lasting { group: by_number, ..lasting(&[TWO]) }, &around(&[])).unwrap();
    assert_eq!(written(&edits)[0].1, Some("@:27 - memlock 2048000\n"));
}

#[test]
fn mounts_are_units_that_systemd_wants_by_itself() {
    let group = Some(UnixGroup { name: "music".into(), gid: 27 });
    let (edits, steps) = persist(&Lasting { group, mounts: true, ..lasting(&[TWO, ONE]) }, &around(&[])).unwrap();
    let texts: BTreeMap<&str, &str> =
        written(&edits).into_iter().filter_map(|(path, text)| Some((path, text?))).collect();
    let unit = texts["/etc/systemd/system/dev-hugepages\\x2d1G.mount"];
    assert!(
        unit.contains("Where=/dev/hugepages-1G\n") && unit.contains("pagesize=1G,uid=0,gid=27,mode=1770\n"),
        "{unit}"
    );
    assert_eq!(texts[WANTS], "[Unit]\nWants=dev-hugepages\\x2d2M.mount dev-hugepages\\x2d1G.mount\n");
    let units = vec!["dev-hugepages\\x2d1G.mount".to_owned(), "dev-hugepages\\x2d2M.mount".to_owned()];
    assert!(steps.contains(&NextStep::ReloadUnits { units }), "{steps:?}");
}

#[test]
fn unit_names_are_those_of_systemd_escape() {
    for (point, name) in [
        ("/dev/hugepages-1G", "dev-hugepages\\x2d1G.mount"),
        ("/a b/.c/d.e", "a\\x20b-.c-d.e.mount"),
        ("/.hidden", "\\x2ehidden.mount"),
        ("/é", "\\xc3\\xa9.mount"),
    ] {
        assert_eq!(unit_name(point), name);
    }
}

#[test]
fn what_somebody_else_wrote_is_left_alone() {
    let theirs = around(&[(SYSCTL, "vm.nr_hugepages = 5\n")]);
    let told = persist(&lasting(&[TWO]), &theirs).unwrap_err().to_string();
    assert!(told.starts_with(SYSCTL) && told.contains("not written by hugepilot"), "{told}");
    assert_eq!(persist(&Lasting::default(), &theirs).unwrap(), (Vec::new(), Vec::new()));
}

#[test]
fn a_tree_is_changed_and_put_back() {
    let tree = tempfile::tempdir().unwrap();
    let root = Root::at(tree.path());
    for (name, text) in [
        ("proc/meminfo", "MemTotal: 1 kB\nHugepagesize: 2048 kB\n"),
        ("etc/kernel/cmdline", "root=/dev/sda1 ro\n"),
        ("etc/default/grub.d/other.cfg", "X=1\n"),
        ("etc/systemd/system/dev-hugepages.mount", "[Mount]\n"),
    ] {
        fs::create_dir_all(tree.path().join(name).parent().unwrap()).unwrap();
        fs::write(tree.path().join(name), text).unwrap();
    }
    let found = PoolSurroundings::read(&root).unwrap();
    let group = Some(UnixGroup { name: "music".into(), gid: 27 });
    let all = Lasting { pools: vec![TWO, ONE], group, mounts: true };
    let (edits, _) = persist(&all, &found).unwrap();
    assert_eq!(edits.len(), 8, "{edits:?}");
    edits.iter().for_each(|edit| edit.apply(&root).unwrap());
    let after = PoolSurroundings::read(&root).unwrap();
    assert_eq!(persist(&all, &after).unwrap(), (Vec::new(), Vec::new()), "nothing is left to do");
    // What is no longer requested is removed.
    let fewer = persist(&lasting(&[TWO]), &after).unwrap().0;
    assert_eq!(fewer.iter().filter(|edit| edit.after.is_none()).count(), 6, "{fewer:?}");
    let (edits, _) = persist(&Lasting::default(), &after).unwrap();
    edits.iter().for_each(|edit| edit.apply(&root).unwrap());
    assert_eq!(PoolSurroundings::read(&root).unwrap(), found);
    assert!(tree.path().join("etc/systemd/system/dev-hugepages.mount").exists());
}

proptest! {
    #[test]
    fn what_is_written_is_taken_away(
        pages in prop::collection::vec((0..9u64, 0..3u64), 3), has_group: bool, mounts: bool, grub_reads_files: bool,
        command_line in prop::option::of("(root=/a|quiet)( ro){0,2}\n"),
    ) {
        let sizes = [64 << 10, 2 << 20, 1 << 30].map(Bytes);
        let pools = sizes.into_iter().zip(pages);
        let pools = pools.map(|(page_size, (pages, overcommit))| LastingPool { page_size, pages, overcommit }).collect();
        let group = has_group.then(|| UnixGroup { name: "g".into(), gid: 7 });
        let files: Vec<(&str, &str)> = command_line.iter().map(|text| (COMMAND_LINE, text.as_str())).collect();
        let found = PoolSurroundings { grub_reads_files, ..around(&files) };
        let applied = |edits: Vec<Edit>, around: &PoolSurroundings| {
            let mut around = around.clone();
            for edit in edits {
                match edit.after {
                    Some(text) => drop(around.files.insert(edit.path, text)),
                    None => drop(around.files.remove(&edit.path)),
                }
            }
            around
        };
        let lasting = Lasting { pools, group, mounts };
        let there = applied(persist(&lasting, &found).unwrap().0, &found);
        prop_assert!(persist(&lasting, &there).unwrap().0.is_empty());
        prop_assert_eq!(applied(persist(&Lasting::default(), &there).unwrap().0, &there), found);
    }
}
