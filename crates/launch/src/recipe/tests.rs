//! Which programs get which recipe.

use std::collections::BTreeSet;

use heat::units::{Bytes, HUGE_PAGE};
use kernel::hugetlb_limits::Limit;
use proptest::prelude::*;

use super::*;
use crate::program::{
    Allocator, CodeFile, JEMALLOC_OPTIONS, Linking, MYSQL_VARIABLE, OPTIONS, POSTGRES_OPTION, REDIS_OPTION,
    TCMALLOC_OPTION,
};
use crate::recipe::samples::{given, machine, program, static_program};
use crate::request::{Want, WantText};

const THP: PageKind = PageKind::Transparent;
const HUGE: PageKind = PageKind::Huge;
const GIANT: PageKind = PageKind::Giant;

/// Only the heap, which needs no preloading.
fn heap(pages: PageKind) -> LaunchRequest {
    LaunchRequest { mmap: Want::No, ..LaunchRequest::of(pages) }
}

/// The recipe for a program whose user has set nothing.
fn plain(program: &Program, request: &LaunchRequest) -> Recipe {
    recipe(program, request, &machine("madvise", 7), &given(&[], &[]))
}

fn variables(recipe: &Recipe) -> Vec<(&str, &str)> {
    recipe.variables.iter().map(|variable| (variable.name, variable.value.as_str())).collect()
}

fn arguments(recipe: &Recipe, given: &[&str]) -> String {
    let given = given.iter().map(|&word| word.to_owned());
    recipe.arguments_around::<String>(given).join(" ")
}

fn said(remarks: &[Remark]) -> String {
    remarks.iter().map(|remark| format!("{} {}\n", remark.what, remark.next_step.as_deref().unwrap_or(""))).collect()
}

fn with(program: Program, allocators: &[Allocator], mentions: &[&'static str]) -> Program {
    Program {
        allocators: allocators.iter().copied().collect(),
        mentions: mentions.iter().copied().collect(),
        ..program
    }
}

#[test]
fn glibc_is_tuned_by_its_own_settings() {
    let other = program(ProgramFamily::Other);
    for (pages, tunables) in [
        (
            PageKind::Smaller(Bytes(64 << 10)),
            "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864",
        ),
        (THP, "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"),
        (HUGE, "glibc.malloc.hugetlb=2097152:glibc.malloc.mmap_threshold=6291456:glibc.malloc.trim_threshold=12582912"),
        (
            GIANT,
            "glibc.malloc.hugetlb=1073741824:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=2147483648:\
             glibc.malloc.arena_max=1",
        ),
    ] {
        let recipe = plain(&other, &heap(pages));
        assert_eq!(variables(&recipe)[0], ("GLIBC_TUNABLES", tunables));
        assert_eq!(variables(&recipe).contains(&("LD_BIND_NOW", "1")), !pages.is_reserved());
        assert_eq!(recipe.mechanisms()[0].is_reserved, pages.is_reserved());
        assert_eq!(recipe.left_to_pilot, [""; 0]);
        assert_eq!(said(&recipe.named).contains("SIGBUS"), pages.is_reserved());
    }
}

#[test]
fn what_the_user_has_set_stays() {
    let other = program(ProgramFamily::Other);
    let tuned =
        |there: &str| recipe(&other, &heap(THP), &machine("madvise", 0), &given(&[("GLIBC_TUNABLES", there)], &[]));
    let extended = tuned("glibc.malloc.arena_max=2:glibc.malloc.trim_threshold=1");
    let value = "glibc.malloc.arena_max=2:glibc.malloc.trim_threshold=1:glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432";
    assert_eq!(variables(&extended)[0], ("GLIBC_TUNABLES", value));
    let kept = tuned("glibc.malloc.hugetlb=2");
    assert_eq!((variables(&kept), kept.mechanisms()), (Vec::new(), Vec::new()));
    assert!(said(&kept.named).contains("has glibc.malloc.hugetlb already"), "{kept:?}");
    let mimalloc = with(program(ProgramFamily::Other), &[Allocator::Mimalloc], &[]);
    let given = given(&[("MIMALLOC_ALLOW_LARGE_OS_PAGES", "0")], &[]);
    assert!(recipe(&mimalloc, &heap(THP), &machine("madvise", 0), &given).variables.is_empty());
}

#[test]
fn a_servers_own_switch_that_the_user_gave_stays_in_any_form() {
    let postgres = with(program(ProgramFamily::Postgres), &[], &[POSTGRES_OPTION]);
    let mysql = with(program(ProgramFamily::Mysql), &[], &[MYSQL_VARIABLE]);
    let redis = with(program(ProgramFamily::Redis), &[], &[REDIS_OPTION]);
    for (program, words) in [
        (&postgres, ["-c", "huge_pages=off"]),
        (&postgres, ["-D/data", "-chuge_pages=on"]),
        (&postgres, ["--huge-pages=off", "-F"]),
        (&mysql, ["--large_pages=0", "-v"]),
        (&mysql, ["-v", "--skip-large-pages"]),
        (&mysql, ["-v", "--loose_skip_large_pages"]),
        (&redis, ["--disable-thp", "yes"]),
    ] {
        let recipe = recipe(program, &LaunchRequest::of(HUGE), &machine("madvise", 7), &given(&[], &words));
        assert_eq!(arguments(&recipe, &words), words.join(" "));
        assert!(said(&recipe.named).contains("is given already; it stays as it is"), "{words:?}: {recipe:?}");
    }
    for (words, added) in [
        (["-D", "/my/huge-pages"], "-c huge_pages=try -c huge_page_size=2MB"),
        (["-c", "huge_page_size=1GB"], "-c huge_pages=try"),
    ] {
        let recipe = recipe(&postgres, &LaunchRequest::of(HUGE), &machine("madvise", 7), &given(&[], &words));
        assert_eq!(arguments(&recipe, &words), format!("{} {added}", words.join(" ")));
    }
}

#[test]
fn a_runtimes_switch_that_the_user_gave_stays_in_any_form() {
    let quiet = |program: &Program, environment: &[(&str, &str)], words: &[&str], request: &LaunchRequest| {
        let recipe = recipe(program, request, &machine("madvise", 7), &given(environment, words));
        assert!(said(&recipe.named).contains("already; it stays as it is"), "{recipe:?}");
        recipe.variables
    };
    let java = program(ProgramFamily::Java);
    let off = "-Xmx1g -XX:-UseTransparentHugePages";
    for name in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"] {
        assert_eq!(quiet(&java, &[(name, off)], &[], &LaunchRequest::of(THP)), []);
    }
    assert_eq!(quiet(&java, &[], &["-XX:+UseLargePages", "-jar", "a.jar"], &LaunchRequest::of(THP)), []);
    let node = program(ProgramFamily::Node);
    let code = LaunchRequest { text: WantText::OfFile, heap: false, mmap: Want::No, ..LaunchRequest::of(THP) };
    assert_eq!(quiet(&node, &[("NODE_OPTIONS", "--use_largepages=off")], &[], &code), []);
    assert_eq!(quiet(&node, &[], &["--use-largepages=on", "a.js"], &code), []);
}

#[test]
fn what_is_copied_at_each_fork_stays_off_the_pool() {
    let redis = with(program(ProgramFamily::Redis), &[Allocator::Jemalloc], &[REDIS_OPTION]);
    let preloads = |recipe: &Recipe| variables(recipe).iter().any(|(name, _)| *name == "LD_PRELOAD");
    let by_default = plain(&redis, &LaunchRequest::of(HUGE));
    assert!(!preloads(&by_default) && said(&by_default.named).contains("at each fork"), "{by_default:?}");
    let asked = plain(&redis, &LaunchRequest { mmap: Want::Asked, ..LaunchRequest::of(HUGE) });
    assert!(preloads(&asked) && said(&asked.named).contains("leave --mmap out"), "{asked:?}");
    for (program, pages) in [(&redis, THP), (&program(ProgramFamily::Shell), HUGE)] {
        let recipe = plain(program, &LaunchRequest::of(pages));
        assert!(preloads(&recipe) && !said(&recipe.named).contains("at each fork"), "{recipe:?}");
    }
}

#[test]
fn a_script_named_like_a_program_is_known_to_start_it() {
    let shim = |name: &str| Program { script: Some(format!("/shims/{name}").into()), ..program(ProgramFamily::Shell) };
    let python = plain(&shim("python3.11"), &LaunchRequest::of(THP));
    assert!(said(&python.named).contains("PYTHONMALLOC=malloc"), "{python:?}");
    assert!(said(&python.named).contains("/shims/python3.11 is a script"), "{python:?}");
    // It is a shell until then.
    assert!(!plain(&shim("python3"), &heap(HUGE)).mechanisms()[0].is_reserved);
    let other = plain(&shim("start-server"), &LaunchRequest::of(THP));
    assert_eq!(said(&other.named), "");
    let smaller = plain(&shim("start-server"), &heap(PageKind::Smaller(Bytes(64 << 10))));
    assert_eq!(said(&smaller.named), "", "no pool was asked for");
    let shell = Program { script: None, ..shim("python3") };
    assert_eq!(said(&plain(&shell, &LaunchRequest::of(THP)).named), "");
}

#[test]
fn a_size_that_is_off_is_told_with_what_comes_instead() {
    let pages = PageKind::Smaller(Bytes(64 << 10));
    let told = |mode: &str, gives_2_mib| {
        let machine = MachineFacts { gives_2_mib, ..machine(mode, 0) };
        said(&recipe(&program(ProgramFamily::Other), &heap(pages), &machine, &given(&[], &[])).obstacles)
    };
    let instead = told("never", true);
    assert!(instead.contains("64K are switched off") && instead.contains("gets pages of 2 MiB"), "{instead}");
    assert!(!instead.contains("is refused") && !instead.contains("--pages thp"), "{instead}");
    assert!(told("never", false).contains("is refused"));
    assert!(told("madvise", true).contains("`--pages thp` gets both"));
    assert_eq!(told("madvise", false), "");
}

#[test]
fn who_starts_another_program_is_told_where_to_put_hugepilot() {
    let wrapper = Program { path: "/usr/bin/taskset".into(), ..program(ProgramFamily::Wrapper) };
    let recipe = plain(&wrapper, &LaunchRequest::of(THP));
    assert!(said(&recipe.named).contains("taskset .. hugepilot run"), "{recipe:?}");
    assert_eq!(variables(&recipe)[0].0, "GLIBC_TUNABLES", "which what it starts inherits");
    let shared = plain(&wrapper, &LaunchRequest::shared());
    assert_eq!((said(&shared.named).as_str(), variables(&shared)[0].0), ("", "LD_PRELOAD"), "that is all it needs");
}

#[test]
fn what_a_group_may_not_touch_is_not_promised() {
    let limit = |pages: u64, of_reservations| Limit {
        cgroup: "/system.slice/db".into(),
        page_size: Bytes(HUGE_PAGE),
        of_reservations,
        limit: Bytes(pages * HUGE_PAGE),
        usage: Bytes(0),
        refused: None,
    };
    let limited = |limit: Limit, program: &Program| {
        let machine = MachineFacts { limits: vec![limit], ..machine("madvise", 1000) };
        recipe(program, &LaunchRequest::of(HUGE), &machine, &given(&[], &[]))
    };
    let other = program(ProgramFamily::Other);
    let ends = limited(limit(128, false), &other);
    let told = said(&ends.obstacles);
    assert!(told.contains("could give out 1000, but control group /system.slice/db may have only 128"), "{told}");
    assert!(told.contains("SIGBUS") && told.contains("limit on use"), "{told}");
    assert!(variables(&ends)[0].1.starts_with("glibc.malloc.hugetlb=1:"), "{ends:?}");
    assert!(variables(&ends).contains(&("HUGEPILOT_PAGES", "2M")), "the library takes its pages at once: {ends:?}");
    let fails = limited(limit(0, true), &other);
    let told = said(&fails.obstacles);
    assert!(told.contains("may have only 0 more") && told.contains("limit on reservations"), "{told}");
    assert!(
        !told.contains("SIGBUS") && variables(&fails)[0].1.starts_with("glibc.malloc.hugetlb=2097152:"),
        "{fails:?}"
    );
    let server = with(program(ProgramFamily::Postgres), &[], &[POSTGRES_OPTION]);
    assert_eq!(limited(limit(128, false), &server).arguments, []);
    assert_eq!(limited(limit(128, true), &server).arguments.len(), 1);
}

#[test]
fn the_recipe_that_everybody_finds_is_said_to_do_nothing() {
    let given = given(&[("HUGETLB_MORECORE", "yes")], &[]);
    let says = |program: &Program| said(&recipe(program, &heap(HUGE), &machine("madvise", 7), &given).obstacles);
    assert!(says(&program(ProgramFamily::Other)).contains("HUGETLB_MORECORE does nothing"));
    let old = Program { has_tunable: Ok(false), ..program(ProgramFamily::Other) };
    assert!(!says(&old).contains("HUGETLB_MORECORE"), "there it may work");
}

#[test]
fn programs_whose_c_library_has_no_switch_are_left_to_the_pilot() {
    let old = Program { has_tunable: Ok(false), ..program(ProgramFamily::Other) };
    let silent = Program { has_tunable: Err("its loader did not say".to_owned()), ..program(ProgramFamily::Other) };
    let linked = |linking| Program { linking, ..static_program(false) };
    for (program, why) in [
        (old, "older than glibc 2.35"),
        (silent, "did not say"),
        (linked(Linking::Musl), "musl"),
        (linked(Linking::Go), "Go program"),
        (linked(Linking::Static), "statically"),
        (linked(Linking::Unknown), "not known"),
    ] {
        let recipe = plain(&program, &LaunchRequest::of(THP));
        assert!(recipe.left_to_pilot[0].contains(why), "{recipe:?}");
        let preloads = variables(&recipe).iter().any(|(name, _)| *name == "LD_PRELOAD");
        assert_eq!(preloads, program.linking == Linking::Glibc, "{recipe:?}");
    }
    let tuned = plain(&static_program(true), &LaunchRequest::of(THP));
    assert_eq!(variables(&tuned)[0].0, "GLIBC_TUNABLES", "a static glibc honours it, too");
    assert!(tuned.left_to_pilot[0].contains("nothing can be preloaded"), "{tuned:?}");
}

#[test]
fn nothing_is_tried_where_nothing_arrives() {
    for program in [
        Program { gains_rights: true, ..program(ProgramFamily::Other) },
        program(ProgramFamily::Elsewhere),
        Program { linking: Linking::ThirtyTwoBit, ..program(ProgramFamily::Other) },
    ] {
        let recipe = plain(&program, &LaunchRequest { shm: true, ..LaunchRequest::of(HUGE) });
        assert_eq!((variables(&recipe), recipe.arguments.len(), recipe.left_to_pilot.len()), (Vec::new(), 0, 1));
    }
}

#[test]
fn a_program_that_grows_gets_the_library_and_nothing_else() {
    for family in
        [ProgramFamily::Other, ProgramFamily::Redis, ProgramFamily::Postgres, ProgramFamily::Mysql, ProgramFamily::Java]
    {
        let recipe = plain(&program(family), &LaunchRequest::growing());
        let expected = [("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_MMAP", "after-filled")];
        assert_eq!((variables(&recipe)[1..].to_vec(), recipe.arguments.len()), (expected.to_vec(), 0), "{family:?}");
        assert_eq!(variables(&recipe)[0].0, "LD_PRELOAD");
    }
}

#[test]
fn other_allocators_have_their_own_settings() {
    let linked = |allocator| with(program(ProgramFamily::Other), &[allocator], &[]);
    let jemalloc = ("MALLOC_CONF", "thp:always,metadata_thp:auto");
    for pages in [THP, HUGE, GIANT] {
        let recipe = plain(&linked(Allocator::Jemalloc), &heap(pages));
        assert_eq!((variables(&recipe), recipe.mechanisms()[0].is_reserved), (vec![jemalloc], false));
    }
    let mimalloc = |pages| plain(&linked(Allocator::Mimalloc), &heap(pages));
    for (pages, value) in [(THP, "2"), (HUGE, "1")] {
        let both = [("MIMALLOC_ALLOW_LARGE_OS_PAGES", value), ("MIMALLOC_LARGE_OS_PAGES", value)];
        assert_eq!(variables(&mimalloc(pages)), both);
    }
    assert_eq!(variables(&mimalloc(GIANT)), [("MIMALLOC_RESERVE_HUGE_OS_PAGES", "7")]);
    let tcmalloc = linked(Allocator::Tcmalloc);
    assert!(plain(&tcmalloc, &heap(THP)).left_to_pilot[0].contains("tcmalloc"));
    let memfs = [("TCMALLOC_MEMFS_MALLOC_PATH", "/dev/hugepages/hugepilot"), ("TCMALLOC_MEMFS_MAP_PRIVATE", "1")];
    assert_eq!(variables(&plain(&tcmalloc, &heap(HUGE))), memfs);
    let bare = MachineFacts { mount: None, ..machine("madvise", 7) };
    let unmounted = recipe(&tcmalloc, &heap(HUGE), &bare, &given(&[], &[]));
    assert!(variables(&unmounted).is_empty() && said(&unmounted.named).contains("pool mount"), "{unmounted:?}");
}

#[test]
fn an_allocator_that_is_built_in_is_set_by_the_name_that_it_has_there() {
    for name in JEMALLOC_OPTIONS {
        let built_in = with(program(ProgramFamily::Other), &[], &[name]);
        let names: Vec<&str> = plain(&built_in, &heap(THP)).variables.iter().map(|variable| variable.name).collect();
        assert_eq!(names, [name, "GLIBC_TUNABLES", "LD_BIND_NOW"], "the C library's stays for the rest");
    }
    let built_in = with(program(ProgramFamily::Other), &[], &[TCMALLOC_OPTION]);
    assert_eq!(plain(&built_in, &heap(HUGE)).variables.len(), 3);
}

#[test]
fn java_gets_its_switch_and_nothing_else() {
    for (pages, options) in [
        (THP, "-Xmx1g -XX:+UseTransparentHugePages"),
        (HUGE, "-Xmx1g -XX:+UseLargePages -XX:LargePageSizeInBytes=2m"),
        (GIANT, "-Xmx1g -XX:+UseLargePages -XX:LargePageSizeInBytes=1g"),
    ] {
        let given = given(&[("JAVA_TOOL_OPTIONS", "-Xmx1g")], &[]);
        let recipe = recipe(&program(ProgramFamily::Java), &LaunchRequest::of(pages), &machine("madvise", 7), &given);
        assert_eq!(variables(&recipe), [("JAVA_TOOL_OPTIONS", options)]);
    }
    let request = LaunchRequest { mmap: Want::Asked, ..LaunchRequest::of(THP) };
    let names: Vec<&str> =
        plain(&program(ProgramFamily::Java), &request).variables.iter().map(|variable| variable.name).collect();
    assert!(names.contains(&"LD_PRELOAD"), "asked for is asked for: {names:?}");
}

#[test]
fn postgres_gets_its_switch_where_it_can_be_added() {
    let server = with(program(ProgramFamily::Postgres), &[], &[POSTGRES_OPTION]);
    let old = program(ProgramFamily::Postgres);
    let with = |program: &Program, pages, words: &[&str]| {
        let recipe = recipe(program, &LaunchRequest::of(pages), &machine("madvise", 7), &given(&[], words));
        (arguments(&recipe, words), recipe)
    };
    assert_eq!(with(&server, HUGE, &["-D", "x"]).0, "-D x -c huge_pages=try -c huge_page_size=2MB");
    assert_eq!(with(&server, GIANT, &[]).0, "-c huge_pages=try -c huge_page_size=1GB");
    assert_eq!(with(&old, HUGE, &[]).0, "-c huge_pages=try");
    for (program, pages, words) in
        [(&old, GIANT, ["-D", "x"]), (&server, HUGE, ["--single", "x"]), (&server, HUGE, ["-D", "--"])]
    {
        let (line, recipe) = with(program, pages, &words);
        assert!(line == words.join(" ") && said(&recipe.named).contains("postgresql.conf"), "{recipe:?}");
    }
    let (line, recipe) = with(&server, THP, &["-D", "x"]);
    assert!(line == "-D x" && said(&recipe.named).contains("placed where huge pages fit"), "{recipe:?}");
    let shared = crate::recipe::recipe(&server, &LaunchRequest::shared(), &machine("madvise", 7), &given(&[], &[]));
    let wanted = [("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_SHM", "1")];
    assert!(wanted.iter().all(|wanted| variables(&shared).contains(wanted)), "{shared:?}");
    assert!(variables(&shared).len() == 3 && said(&shared.named).contains("promotes them once"), "{shared:?}");
    let children = with(&server, HUGE, &[]).1;
    assert!(variables(&children)[0].1.starts_with("glibc.malloc.hugetlb=1:"), "its children write to its heap");
    assert!(said(&children.named).contains("SIGBUS"), "{children:?}");
}

#[test]
fn redis_keeps_huge_pages_if_it_knows_how_to() {
    let server = with(program(ProgramFamily::Redis), &[Allocator::Jemalloc], &[REDIS_OPTION]);
    let line = |program: &Program, words: &[&str]| {
        let recipe = recipe(program, &heap(THP), &machine("always", 0), &given(&[], words));
        assert_eq!(
            variables(&recipe)[0].0,
            if program.allocators.is_empty() { "GLIBC_TUNABLES" } else { "MALLOC_CONF" }
        );
        arguments(&recipe, words)
    };
    assert_eq!(line(&server, &["redis.conf", "--port", "0"]), "redis.conf --port 0 --disable-thp no");
    assert_eq!(line(&server, &["--disable-thp", "yes"]), "--disable-thp yes");
    assert_eq!(line(&server, &["--version"]), "--version");
    assert_eq!(line(&program(ProgramFamily::Redis), &[]), "", "before 6.2 it would not start");
}

#[test]
fn memcached_is_started_with_large_slabs_where_the_kernel_honours_it() {
    let line = |setting: &str, pages, words: &[&str]| {
        let recipe = recipe(&program(ProgramFamily::Memcached), &heap(pages), &machine(setting, 7), &given(&[], words));
        arguments(&recipe, words)
    };
    assert_eq!(line("madvise", THP, &["-m", "64"]), "-L -m 64");
    assert_eq!(line("always", THP, &["-L", "-m", "64"]), "-L -m 64");
    assert_eq!(line("never", THP, &["-m", "64"]), "-m 64", "it would end");
    assert_eq!(line("madvise", HUGE, &["-m", "64"]), "-m 64", "it knows no pool");
}

#[test]
fn code_that_is_not_aligned_is_named() {
    let request = |text| LaunchRequest { text, heap: false, mmap: Want::No, ..LaunchRequest::of(THP) };
    let told = |family, aligned: &[std::ops::Range<u64>], text| {
        let code = CodeFile { path: "/bin/x".into(), code: Bytes(8 << 20), aligned: aligned.to_vec() };
        plain(&Program { code: vec![code], ..program(family) }, &request(text)).named
    };
    let remarks = told(ProgramFamily::Other, &[], WantText::OfFile);
    assert!(said(&remarks).contains("/bin/x (8 MiB)") && said(&remarks).contains("--text=copy"), "{remarks:?}");
    let copied = told(ProgramFamily::Other, &[], WantText::OrCopied);
    assert!(said(&copied).contains("it is copied") && said(&copied).contains("perf, gdb"), "{copied:?}");
    assert_eq!(told(ProgramFamily::Other, &[0..2 << 20, 2 << 20..4 << 20], WantText::OfFile), []);
    assert!(!said(&told(ProgramFamily::Shell, &[], WantText::OfFile)).contains("/bin/x"), "it starts others");
}

#[test]
fn node_copies_its_own_code_where_its_file_gets_no_huge_pages() {
    let request = LaunchRequest { text: WantText::OfFile, heap: false, mmap: Want::No, ..LaunchRequest::of(THP) };
    let node = program(ProgramFamily::Node);
    let recipe = plain(&node, &request);
    assert_eq!(variables(&recipe), [("NODE_OPTIONS", "--use-largepages=silent")]);
    assert!(said(&recipe.named).contains("find no symbols there, and processes no longer share it"), "{recipe:?}");
    let code = CodeFile { path: node.path.clone(), code: Bytes(8 << 20), aligned: vec![0..2 << 20, 2 << 20..4 << 20] };
    let fits = Program { code: vec![code], ..node };
    let (machine, given) = (machine("madvise", 7), given(&[], &[]));
    let where_files = |get: bool| {
        let gets_huge_pages = |file: &CodeFile| get && file.path == fits.path;
        let gets_huge_pages: &dyn Fn(&CodeFile) -> bool = &gets_huge_pages;
        recipe_in(Context { program: &fits, request: &request, machine: &machine, given: &given, gets_huge_pages })
    };
    let kept = where_files(true);
    assert!(variables(&kept).contains(&("HUGEPILOT_TEXT", "1")) && kept.named.is_empty(), "{kept:?}");
    let base_pages = where_files(false);
    assert_eq!(base_pages, recipe, "with the same warning");
    assert_eq!(plain(&fits, &request), recipe, "a file that cannot be read gets none");
    assert!(
        !variables(&plain(&program(ProgramFamily::Node), &heap(THP))).iter().any(|(name, _)| *name == "NODE_OPTIONS")
    );
}

#[test]
fn mysql_takes_the_default_size_only() {
    let server = with(program(ProgramFamily::Mysql), &[], &[MYSQL_VARIABLE]);
    let line = |pages, words: &[&str]| {
        arguments(&recipe(&server, &LaunchRequest::of(pages), &machine("madvise", 7), &given(&[], words)), words)
    };
    assert_eq!(line(HUGE, &["--user=mysql"]), "--user=mysql --large-pages");
    assert_eq!(line(HUGE, &["--large-pages=0"]), "--large-pages=0");
    assert_eq!([line(THP, &[]), line(GIANT, &[])], ["", ""]);
    assert!(
        said(&plain(&server, &LaunchRequest::of(THP)).named).contains("MariaDB switches transparent huge pages off")
    );
}

#[test]
fn python_is_told_of_its_own_arenas() {
    assert!(said(&plain(&program(ProgramFamily::Python), &heap(THP)).named).contains("PYTHONMALLOC=malloc"));
}

#[test]
fn the_library_is_preloaded_before_all_others() {
    let request = LaunchRequest { shm: true, text: WantText::OfFile, ..LaunchRequest::of(HUGE) };
    let given = given(&[("LD_PRELOAD", "liba.so libb.so")], &[]);
    let done = recipe(&program(ProgramFamily::Other), &request, &machine("madvise", 7), &given);
    let preload = [
        ("LD_PRELOAD", "/usr/lib/hugepilot/libhugepilot_preload.so:liba.so libb.so"),
        ("HUGEPILOT_PAGES", "2M"),
        ("HUGEPILOT_MMAP", "1"),
        ("HUGEPILOT_SHM", "1"),
        ("HUGEPILOT_TEXT", "1"),
    ];
    assert_eq!(variables(&done)[1..], preload);
    let again = Given {
        environment: done.variables.iter().map(|each| (each.name.to_owned(), each.value.clone())).collect(),
        ..given.clone()
    };
    let twice = recipe(&program(ProgramFamily::Other), &request, &machine("madvise", 7), &again);
    assert!(variables(&twice).contains(&preload[0]), "once is enough: {twice:?}");
    for library in [None, Some("/opt/a b/libhugepilot_preload.so".into())] {
        let lost = Given { library, ..given.clone() };
        let recipe = recipe(&program(ProgramFamily::Other), &request, &machine("madvise", 7), &lost);
        assert_eq!((recipe.variables.len(), recipe.left_to_pilot.len()), (1, 1), "{recipe:?}");
    }
}

#[test]
fn what_the_machine_lacks_is_said_first() {
    let says = |pages, machine: &MachineFacts| {
        said(&recipe(&program(ProgramFamily::Other), &heap(pages), machine, &given(&[], &[])).obstacles)
    };
    assert!(says(THP, &machine("never", 0)).contains("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"));
    assert!(says(THP, &MachineFacts::default()).contains("CONFIG_TRANSPARENT_HUGEPAGE"));
    assert_eq!(says(THP, &machine("madvise", 0)), "");
    assert!(says(HUGE, &machine("never", 7)).contains("can give out 7 (14 MiB)"));
    let promised = says(HUGE, &machine("never", 0));
    assert!(
        promised.contains("3 free, all of them promised") && promised.contains("hugepilot pool set 2M=517"),
        "{promised}"
    );
    let mut empty = machine("never", 0);
    empty.pool.iter_mut().for_each(|pool| (pool.total, pool.free, pool.reserved) = (0, 0, 0));
    assert!(says(HUGE, &empty).contains("it is empty") && says(HUGE, &empty).contains("2M=512"));
    let says_of = |family, machine| said(&recipe(&program(family), &heap(HUGE), machine, &given(&[], &[])).obstacles);
    assert!(says_of(ProgramFamily::Java, &empty).contains("the JVM gets ordinary pages"));
    for there_is in [&empty, &machine("never", 7)] {
        let postgres = says_of(ProgramFamily::Postgres, there_is);
        assert!(postgres.contains("shared_memory_size_in_huge_pages") && !postgres.contains("2M=512"), "{postgres}");
    }
}

proptest! {
    #[test]
    fn every_line_has_its_reason_and_no_variable_comes_twice(
        (family, linking) in (0usize..11, 0usize..7),
        mentioned in proptest::collection::vec(any::<bool>(), OPTIONS.len()),
        (jemalloc, mimalloc, tcmalloc, gains_rights) in any::<(bool, bool, bool, bool)>(),
        has_tunable in any::<Result<bool, String>>(),
        (pages, want, heap, shm, text) in (0usize..3, 0usize..4, any::<bool>(), any::<bool>(), 0usize..3),
        setting in "always|madvise|never",
        available in 0u64..3,
        words in proptest::collection::vec("-L|--|-c|--single|x|--disable-thp", 0..3),
    ) {
        use ProgramFamily::*;
        let linkings = [
            Linking::Glibc, Linking::Musl, Linking::Static, Linking::Go, Linking::ThirtyTwoBit, Linking::Unknown,
            Linking::Other("/ld".into()),
        ];
        let allocators = [(jemalloc, Allocator::Jemalloc), (mimalloc, Allocator::Mimalloc), (tcmalloc, Allocator::Tcmalloc)];
        let program = Program {
            linking: linkings[linking].clone(),
            allocators: allocators.into_iter().filter(|(is, _)| *is).map(|(_, each)| each).collect(),
            mentions: OPTIONS.into_iter().zip(mentioned).filter(|(_, is)| *is).map(|(each, _)| each).collect(),
            gains_rights,
            has_tunable,
            ..program([Java, Postgres, Redis, Memcached, Node, Mysql, Python, Shell, Wrapper, Elsewhere, Other][family])
        };
        let request = LaunchRequest {
            pages: [THP, HUGE, GIANT][pages],
            heap,
            mmap: [Want::No, Want::ByDefault, Want::Asked, Want::AfterFilled][want],
            shm,
            text: [WantText::No, WantText::OfFile, WantText::OrCopied][text],
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let recipe = recipe(&program, &request, &machine(&setting, available), &given(&[], &words));
        let names: BTreeSet<&str> = recipe.variables.iter().map(|variable| variable.name).collect();
        prop_assert_eq!(names.len(), recipe.variables.len());
        prop_assert!(recipe.variables.iter().all(|variable| !variable.value.is_empty() && !variable.why.is_empty()));
        prop_assert!(recipe.arguments.iter().all(|insert| !insert.words.is_empty() && !insert.why.is_empty()));
        if heap && request.mmap == Want::Asked {
            let does = !recipe.variables.is_empty() || !recipe.arguments.is_empty();
            prop_assert!(does || !recipe.left_to_pilot.is_empty() || !recipe.named.is_empty(), "never silently nothing");
        }
        let preloads = recipe.variables.iter().any(|variable| variable.name == "LD_PRELOAD");
        prop_assert!(!preloads || program.linking == Linking::Glibc && !gains_rights);
    }
}
