//! Builds the example programs in C and C++, and the corner cases of the C interface (`tests/c`), with gcc and clang against the
//! shared and the static library, and runs them with AddressSanitizer and under valgrind. It reports tools that are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts the libraries for this test.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("it runs").parent().expect("it is in a directory").to_owned()
}

struct Built {
    program: PathBuf,
    _folder: tempfile::TempDir,
}

/// None if that compiler is missing, which is reported.
fn build(source: &str, compiler: &str, flags: &[&str]) -> Option<Built> {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join("program");
    let linked_statically = flags.contains(&"-static-libhps");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg("-I").arg(root().join("include"));
    command
        .args(flags.iter().filter(|flag| **flag != "-static-libhps"))
        .arg("-o")
        .arg(&program)
        .arg(root().join(source));
    if linked_statically {
        command.arg(libraries().join("libhps.a")).args(["-lm", "-ldl"]);
    } else {
        // Under the soname that programs search for, like an installed library.
        std::fs::copy(libraries().join("libhps.so"), folder.path().join("libhps.so.0")).expect("cargo has built it");
        command.arg(folder.path().join("libhps.so.0")).arg(format!("-Wl,-rpath,{}", folder.path().display()));
    }
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {compiler} is not installed");
            None
        }
        built => {
            let built = built.expect("it starts");
            assert!(built.status.success(), "{compiler} {source}: {}", text(&built));
            Some(Built { program, _folder: folder })
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether this kernel lets a process track its own writes; without that no list comes unless there is a daemon.
fn sees_own_writes() -> bool {
    hugepilot_os::page_scan::WriteWatch::new().is_ok()
}

fn run(built: &Built, wrapper: &[&str], arguments: &[&str]) -> Output {
    let mut words = wrapper.iter().map(Path::new).chain([built.program.as_path()]);
    let mut command = Command::new(words.next().expect("there is one"));
    command.args(words).args(arguments).env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0");
    command.output().expect("it starts")
}

fn passes(source: &str, compiler: &str, flags: &[&str], arguments: &[&str]) -> Option<String> {
    let built = build(source, compiler, flags)?;
    let ran = run(&built, &[], arguments);
    assert!(ran.status.success(), "{source} by {compiler} {flags:?}: {:?}\n{}", ran.status, text(&ran));
    Some(text(&ran))
}

const NOBODY: &str = "/nonexistent/control.sock";

#[test]
fn the_examples_work_without_a_daemon() {
    if !sees_own_writes() {
        return eprintln!("skipped: this kernel shows no process its own writes");
    }
    for (compiler, flags) in [("clang", &[][..]), ("gcc", &["-fsanitize=address"])] {
        let said = passes("examples/c/convert.c", compiler, flags, &[NOBODY]);
        assert!(said.is_none_or(|said| said.contains("32 of 32 regions are on huge pages")));
    }
    for (compiler, flags) in [("clang++", &["-static-libhps"][..]), ("g++", &["-fsanitize=address"])] {
        let said = passes("examples/c/compact.cpp", compiler, flags, &[NOBODY]);
        assert!(said.is_none_or(|said| said.contains("1000 of 1000 hot records moved together")));
    }
}

#[test]
fn the_corners_of_the_interface_hold() {
    for (compiler, flags) in [("gcc", &["-fsanitize=address"][..]), ("clang", &[])] {
        passes("tests/c/corners.c", compiler, flags, &[]);
    }
}

#[test]
fn colored_memory_is_made_and_verified() {
    for (compiler, flags) in [("gcc", &["-fsanitize=address"][..]), ("clang", &["-static-libhps"])] {
        let said = passes("tests/c/color.c", compiler, flags, &[]);
        assert!(said.is_none_or(|said| said.contains("made") || said.contains("skipped")));
    }
}

#[test]
fn the_example_of_colored_memory_works_for_who_sees_page_frames() {
    let Some(built) = build("examples/c/color.c", "gcc", &["-fsanitize=address"]) else { return };
    let ran = run(&built, &[], &["32"]);
    if text(&ran).contains("CAP_SYS_ADMIN") {
        return eprintln!("skipped: page frames are hidden from this process");
    }
    assert!(ran.status.success() && text(&ran).contains("75 of 75 pages have their color"), "{}", text(&ran));
    let refused = run(&built, &[], &["0"]);
    assert!(refused.status.code() == Some(1) && text(&refused).contains("color probe"), "{}", text(&refused));
}

#[test]
fn without_the_capability_the_error_names_it() {
    let Some(built) = build("tests/c/color.c", "gcc", &[]) else { return };
    let without = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"];
    if !Command::new(without[0]).args(&without[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: rights can be given up by root only, with setpriv");
    }
    let ran = run(&built, &without, &[]);
    assert!(ran.status.success() && text(&ran).contains("skipped: page frames are hidden"), "{}", text(&ran));
}

#[test]
fn large_pages_are_had_or_refused_with_a_reason() {
    for (compiler, flags) in [("gcc", &["-fsanitize=address"][..]), ("clang", &["-static-libhps"])] {
        let said = passes("tests/c/large.c", compiler, flags, &[]);
        assert!(said.is_none_or(|said| said.contains("made") || said.contains("refused: ")));
        let said = passes("examples/c/large.c", compiler, flags, &[]);
        assert!(said.is_none_or(|said| said.contains("of 64 MiB on large pages")));
    }
}

#[test]
fn children_get_no_lock_that_is_held() {
    for compiler in ["gcc", "clang"] {
        passes("tests/c/forks.c", compiler, &[], &[]);
    }
}

#[test]
fn a_signal_after_the_library_was_unloaded_ends_nobody() {
    if !sees_own_writes() {
        return eprintln!("skipped: this kernel shows no process its own writes");
    }
    // Not linked, or linking alone would keep the library loaded.
    let Some(built) = build("tests/c/plugin.c", "gcc", &["-Wl,--as-needed", "-ldl"]) else { return };
    let library = libraries().join("libhps.so");
    let ran = run(&built, &[], &[library.to_str().expect("a path")]);
    assert!(ran.status.success() && text(&ran).contains("alive"), "{:?}\n{}", ran.status, text(&ran));
}

#[test]
fn valgrind_finds_nothing() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return eprintln!("skipped: valgrind is not installed");
    }
    let Some(built) = build("tests/c/corners.c", "gcc", &[]) else { return };
    let ran = run(
        &built,
        &["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"],
        &[],
    );
    assert!(ran.status.success(), "{:?}\n{}", ran.status, text(&ran));
}

#[test]
fn the_library_needs_nothing_but_the_c_library() {
    let Ok(said) = Command::new("ldd").arg(libraries().join("libhps.so")).output() else {
        return eprintln!("skipped: ldd is not installed");
    };
    let said = text(&said);
    for library in said.lines().filter_map(|line| line.split_ascii_whitespace().next()) {
        let known = ["linux-vdso", "libgcc_s", "libc.so", "libm.so", "/lib64/ld-linux", "libdl", "libpthread"];
        assert!(known.iter().any(|known| library.starts_with(known)), "{said}");
    }
}
