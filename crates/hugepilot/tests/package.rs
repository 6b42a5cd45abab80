//! Installation: the files that `make install` adds and `make uninstall` removes, and the Debian packages. The real dpkg installs these into a
//! separate directory, where the programs run, and removes them again. Nothing here touches what is installed on the machine itself.
//! tests/package/chroot does the same with apt in a whole Debian.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::getuid;
use tempfile::TempDir;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CONFIGURATION: &str = "etc/hugepilot/hugepilot.toml";
/// The Debian packages, those first that others depend on.
const PACKAGES: [&str; 4] = ["libhps0", "libhps-dev", "hugepilot", "hugepilotd"];
/// Where calls of systemctl are recorded instead of reaching systemd.
const SAID: &str = "said-to-systemd";

fn folder() -> TempDir {
    tempfile::tempdir().expect("there is room")
}

/// Everything to be installed, in one directory: for this test, cargo builds it in two.
fn built() -> TempDir {
    let folder = folder();
    let programs = Path::new(env!("CARGO_BIN_EXE_hugepilot")).parent().expect("it is in a directory").to_owned();
    let test = std::env::current_exe().expect("it runs");
    let libraries = test.parent().expect("it is in a directory").to_owned();
    let of_programs = ["hugepilot", "hugepilotd", "hugepilot-manual"].as_slice();
    let of_libraries = ["libhps.so", "libhps.a", "libhugepilot_preload.so"].as_slice();
    for (directory, names) in [(programs, of_programs), (libraries, of_libraries)] {
        for name in names {
            let file = directory.join(name);
            assert!(file.exists(), "{} is missing; `cargo build --workspace` builds it", file.display());
            symlink(file, folder.path().join(name)).expect("the directory is new");
        }
    }
    folder
}

/// The output of a program that must succeed.
fn run(command: &mut Command) -> String {
    // make may run this test; its options are not meant for the make that the test runs.
    let output = command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

fn make(target: &str, built: &Path, destination: &Path) {
    let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
    let variables = [variable("BUILT", built), variable("DESTDIR", destination), "PREFIX=/opt/pilot".to_owned()];
    run(Command::new("make").args(["-C", SOURCES, target]).args(variables));
}

/// Whether a static library has debug information. None of it is of use to whoever links: the sources are elsewhere.
fn has_debug_information(library: &Path) -> bool {
    run(Command::new("readelf").args(["--section-headers", "--wide"]).arg(library)).contains(" .debug_info ")
}

/// The relative paths of everything below a directory, except dpkg's own files.
fn tree(top: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = entry.path().strip_prefix(top).expect("it is below").to_owned();
            if path == Path::new("var/lib/dpkg") {
                continue;
            }
            if entry.file_type().expect("it has a type").is_dir() {
                directories.push(entry.path());
            }
            found.insert(path);
        }
    }
    found
}

#[test]
fn what_make_installs_it_removes_and_nothing_else() {
    if !is_installed("make") {
        return;
    }
    let (built, folder) = (built(), folder());
    let (built, destination) = (built.path(), folder.path().join("with a space"));
    let prefix = destination.join("opt/pilot");
    make("uninstall", built, &destination);
    assert!(!destination.exists(), "there was nothing to remove");
    // Other software's files, with names as similar as possible.
    for strange in ["bin/pilot", "lib/libhps-tools.so", "share/man/man1/huge.1", "share/zsh/site-functions/_huge"] {
        let strange = prefix.join(strange);
        fs::create_dir_all(strange.parent().unwrap()).unwrap();
        fs::write(strange, "").unwrap();
    }
    let before = tree(&destination);

    make("install", built, &destination);
    let version = run(Command::new(prefix.join("bin/hugepilot")).arg("--version"));
    assert_eq!(version, format!("hugepilot {VERSION}\n"));
    let version = run(Command::new(prefix.join("sbin/hugepilotd")).arg("--version"));
    assert_eq!(version, format!("hugepilotd {VERSION}\n"));
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/hugepilot.service")).unwrap();
    assert!(unit.contains("\nExecStart=/opt/pilot/sbin/hugepilotd\n"), "{unit}");
    let hps = fs::read_to_string(prefix.join("lib/pkgconfig/hps.pc")).unwrap();
    assert!(hps.contains("prefix=/opt/pilot\nlibdir=${prefix}/lib\n"), "{hps}");
    for file in [
        "lib/libhps.so",
        "lib/libhps.a",
        "lib/hugepilot/libhugepilot_preload.so",
        "include/hps.h",
        "share/man/man1/hugepilot.1",
        "share/man/man1/hugepilot-give-back.1",
        "share/man/man3/hps.3",
        "share/man/man3/hps_arena_alloc.3",
        "share/man/man5/hugepilot.toml.5",
        "share/man/man8/hugepilotd.8",
        "share/hugepilot/report.schema.json",
        "share/bash-completion/completions/hugepilot",
        "share/zsh/site-functions/_hugepilot",
        "share/fish/vendor_completions.d/hugepilot.fish",
        "share/bash-completion/completions/hugepilotd",
        "share/zsh/site-functions/_hugepilotd",
        "share/fish/vendor_completions.d/hugepilotd.fish",
    ] {
        assert!(fs::metadata(prefix.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    assert!(has_debug_information(&built.join("libhps.a")) && !has_debug_information(&prefix.join("lib/libhps.a")));

    make("uninstall", built, &destination);
    let after = tree(&destination);
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "was somebody else's");
    // Directories that programs share may remain.
    let ours = |path: &&PathBuf| !destination.join(path).is_dir() || path.to_string_lossy().contains("hugepilot");
    assert_eq!(after.difference(&before).filter(ours).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "stays");
}

/// A system in a directory: a shell, the dynamic loader's files, and those of our packages' dependencies that the machine has installed.
struct System {
    root: TempDir,
}

impl System {
    fn new(depends: &BTreeSet<String>) -> Self {
        let system = Self { root: folder() };
        // The packages' scripts believe that systemd is running there.
        for directory in ["bin", "dev", "usr/bin", "run/systemd/system", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
            fs::create_dir_all(system.path(directory)).unwrap();
        }
        for file in [SAID, "dev/null"] {
            fs::write(system.path(file), "").unwrap();
        }
        // Debian's helpers, which ask systemctl in turn.
        for helper in ["bin/systemctl", "usr/bin/deb-systemd-invoke", "usr/bin/deb-systemd-helper"] {
            let helper = system.path(helper);
            fs::write(&helper, format!("#!/bin/sh\necho \"$*\" >> /{SAID}\n")).unwrap();
            fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for program in ["/bin/sh", "/bin/rm"] {
            system.bring(program);
            system.bring_libraries(program);
        }
        system.bring_libraries(env!("CARGO_BIN_EXE_hugepilot"));
        let there = run(Command::new("dpkg-query").arg("--status").args(depends));
        fs::write(system.path("var/lib/dpkg/status"), there + "\n").unwrap();
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    fn has(&self, file: &str) -> bool {
        fs::metadata(self.path(file)).is_ok_and(|file| file.len() > 0)
    }

    /// Copies one of the machine's files to the same path.
    fn bring(&self, file: &str) {
        let place = self.path(file);
        fs::create_dir_all(place.parent().expect("it is below the root")).unwrap();
        fs::copy(file, place).unwrap();
    }

    fn bring_libraries(&self, program: &str) {
        let libraries = run(Command::new("ldd").arg(program));
        libraries.split_whitespace().filter(|word| word.starts_with('/')).for_each(|library| self.bring(library));
    }

    /// Runs the machine's dpkg. Overrides its settings, which might exclude manuals, and writes nothing to its log.
    fn dpkg(&self, action: &str, packages: &[impl AsRef<OsStr>]) {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", self.root.path().display())).args(["--log=/dev/null", "--path-include=*"]);
        run(command.arg(action).args(packages).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
    }

    /// Runs a command in the system.
    fn run(&self, command: &[&str]) -> String {
        run(Command::new("chroot").arg(self.root.path()).args(command).env("PATH", "/usr/sbin:/usr/bin:/bin"))
    }

    /// Whether packages told systemd this since the last query.
    fn was_told_to_systemd(&self, words: &str) -> bool {
        let said = fs::read_to_string(self.path(SAID)).unwrap();
        fs::write(self.path(SAID), "").unwrap();
        said.lines().any(|line| line == words)
    }
}

/// Makes the packages and returns their paths, in the order of [`PACKAGES`]; None, with a message, if Debian's tools for that are missing.
fn packages(built: &Path) -> Option<Vec<String>> {
    if !is_installed("dh") || !is_installed("make") || !is_installed("python3") {
        return None;
    }
    // The packages are thrown away, so they need not be small.
    let quick = [("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")];
    // As root, cargo and the compiler might not be in the path.
    let cargo = Path::new(env!("CARGO"));
    let path =
        format!("{}:{}", cargo.parent().expect("a directory").display(), std::env::var("PATH").unwrap_or_default());
    let mut deb = Command::new(format!("{SOURCES}/scripts/deb"));
    let said = run(deb.arg(built).env_remove("DEB_BUILD_OPTIONS").envs(quick).env("PATH", path).env("CARGO", cargo));
    let made: BTreeSet<&str> = said.lines().collect();
    let expected = PACKAGES.map(|name| format!("{}/{name}_{VERSION}_amd64.deb", built.display()));
    assert_eq!(made, expected.iter().map(String::as_str).collect(), "it says where they are");
    Some(expected.to_vec())
}

#[test]
fn building_a_package_installs_nothing() {
    if !is_installed("dpkg-architecture") || !is_installed("make") {
        return;
    }
    let rules = format!("{SOURCES}/debian/rules");
    let mut dry_run = Command::new("make");
    dry_run.args(["-C", SOURCES, "--dry-run", "--file", &rules, "override_dh_auto_build", "override_dh_auto_install"]);
    let commands = run(&mut dry_run);
    let built = commands.contains("cargo build --locked --profile dist");
    let installed = commands.contains(r#"install -D  -m 755 "target/dist"/hugepilot"#);
    assert!(built && installed, "what is built is installed: {commands}");
    assert!(!commands.contains("scripts/need"), "{commands}");
}

/// The names of what a package depends on.
fn depends(package: &str) -> Vec<String> {
    let depends = run(Command::new("dpkg-deb").args(["--field", package, "Depends"]));
    depends.trim_end().split(", ").filter_map(|each| Some(each.split_whitespace().next()?.to_owned())).collect()
}

/// Packs what git tracks, and the files that are new, as Debian's source package.
const PACK_SOURCE: &str = r#"mkdir source && git -C "$1" -c "safe.directory=*" ls-files -z --cached --others --exclude-standard \
    | tar --create --directory "$1" --null --files-from - | tar --extract --directory source
    dpkg-source -Zgzip -z1 --build source"#;

#[test]
fn lintian_accepts_the_source() {
    if !["lintian", "dpkg-source", "git"].into_iter().all(is_installed) {
        return;
    }
    let folder = folder();
    let mut pack = Command::new("bash");
    pack.args(["-o", "errexit", "-o", "pipefail", "-c", PACK_SOURCE, "bash", SOURCES]).current_dir(folder.path());
    run(&mut pack);
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--allow-root"]);
    run(lintian.arg(folder.path().join(format!("hugepilot_{VERSION}.dsc"))));
}

#[test]
fn lintian_finds_no_errors() {
    if !is_installed("lintian") {
        return;
    }
    let built = built();
    let Some(packages) = packages(built.path()) else { return };
    run(Command::new("lintian").args(["--fail-on", "error", "--allow-root"]).args(packages));
}

#[test]
fn the_debian_packages_install_run_and_go() {
    let built = built();
    let Some(packages) = packages(built.path()) else { return };
    let needs = packages.iter().map(|package| depends(package)).collect::<Vec<_>>();
    let [library, headers, command, daemon] = &needs[..] else { panic!("{needs:?}") };
    assert_eq!(headers, &["libhps0"]);
    assert!(library.contains(&"libc6".to_owned()) && !library.contains(&"libelf1".to_owned()), "{library:?}");
    for needs in [command, daemon] {
        assert!(["libc6", "libelf1", "zlib1g"].iter().all(|name| needs.contains(&(*name).to_owned())), "{needs:?}");
    }
    if !getuid().is_root() {
        return eprintln!("skipped: installing the packages needs root, although into a directory only");
    }
    let system = System::new(&needs.into_iter().flatten().filter(|name| !PACKAGES.contains(&name.as_str())).collect());
    let before = tree(system.root.path());

    system.dpkg("--install", &packages);
    for program in ["hugepilot", "hugepilotd"] {
        assert_eq!(system.run(&[program, "--version"]), format!("{program} {VERSION}\n"));
    }
    let checked = system.run(&["hugepilot", "config", "--check", &format!("/{CONFIGURATION}")]);
    assert!(checked.contains("is right"), "{checked}");
    for file in [
        "usr/lib/x86_64-linux-gnu/libhps.so.0",
        "usr/lib/x86_64-linux-gnu/libhps.so",
        "usr/lib/x86_64-linux-gnu/libhps.a",
        "usr/lib/x86_64-linux-gnu/pkgconfig/hps.pc",
        "usr/include/hps.h",
        "usr/lib/hugepilot/libhugepilot_preload.so",
        "usr/share/man/man1/hugepilot.1.gz",
        "usr/share/man/man1/hugepilot-heat.1.gz",
        "usr/share/man/man3/hps.3.gz",
        "usr/share/man/man3/hps_arena_alloc.3.gz",
        "usr/share/doc/libhps-dev/examples/convert.c",
        "usr/share/man/man5/hugepilot.toml.5.gz",
        "usr/share/man/man8/hugepilotd.8.gz",
        "usr/share/bash-completion/completions/hugepilot",
        "usr/share/zsh/vendor-completions/_hugepilot",
        "usr/share/fish/vendor_completions.d/hugepilot.fish",
        "usr/share/doc/hugepilot/changelog.gz",
    ] {
        assert!(system.has(file), "{file}");
    }
    assert!(!has_debug_information(&system.path("usr/lib/x86_64-linux-gnu/libhps.a")));
    assert!(
        system.has("lib/systemd/system/hugepilot.service") || system.has("usr/lib/systemd/system/hugepilot.service")
    );
    for (package, licences) in [
        ("hugepilot", ["vendor/libbpf-sys/libbpf/*", "GPL-2.0-only", "License: Zlib\n"].as_slice()),
        ("hugepilotd", &["vendor/libbpf-rs/*", "License: LGPL-2.1-only\n", "License: BSD-2-Clause\n"]),
        ("libhps0", &["vendor/serde/*", "Permission is hereby granted"]),
    ] {
        let copyright = fs::read_to_string(system.path(&format!("usr/share/doc/{package}/copyright"))).unwrap();
        assert!(licences.iter().all(|licence| copyright.contains(licence)), "{package}: {copyright}");
    }
    assert!(system.was_told_to_systemd("--system daemon-reload"));

    // An update keeps the configuration, and the service continues.
    fs::write(system.path(CONFIGURATION), "[[target]]\nname = \"memcached\"\n").unwrap();
    system.dpkg("--install", &packages);
    assert!(fs::read_to_string(system.path(CONFIGURATION)).unwrap().contains("memcached"));
    assert!(system.was_told_to_systemd("try-restart hugepilot.service"));

    for file in ["run/hugepilot/promoted", "var/lib/hugepilot/trials.json"] {
        fs::create_dir_all(system.path(file).parent().expect("a directory")).unwrap();
        fs::write(system.path(file), "").unwrap();
    }
    system.dpkg("--remove", &PACKAGES.map(str::to_owned));
    assert!(system.was_told_to_systemd("stop hugepilot.service"));
    let left = tree(system.root.path());
    let files: Vec<_> = left.difference(&before).filter(|path| system.root.path().join(path).is_file()).collect();
    let expected = [CONFIGURATION, "run/hugepilot/promoted", "var/lib/hugepilot/trials.json"];
    assert_eq!(files, expected.map(Path::new), "until they are purged");
    system.dpkg("--purge", &PACKAGES.map(str::to_owned));
    assert_eq!(tree(system.root.path()), before);

    // The same without removing them first.
    system.dpkg("--install", &packages);
    fs::create_dir_all(system.path("var/lib/hugepilot")).unwrap();
    fs::write(system.path("var/lib/hugepilot/trials.json"), "").unwrap();
    system.dpkg("--purge", &PACKAGES.map(str::to_owned));
    assert_eq!(tree(system.root.path()), before);
}

#[test]
fn programs_find_the_library_by_pkg_config() {
    if !is_installed("pkg-config") || !is_installed("cc") || !is_installed("make") {
        return;
    }
    let (built, destination) = (built(), folder());
    make("install", built.path(), destination.path());
    let prefix = destination.path().join("opt/pilot");
    let mut asked = Command::new("pkg-config");
    asked.args(["--cflags", "--libs", "hps"]).env("PKG_CONFIG_SYSROOT_DIR", destination.path());
    let flags = run(asked.env("PKG_CONFIG_LIBDIR", prefix.join("lib/pkgconfig")));
    let program = destination.path().join("large");
    let source = format!("{SOURCES}/crates/hps/examples/c/large.c");
    run(Command::new("cc").arg("-o").arg(&program).arg(source).args(flags.split_whitespace()));
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert!(said.contains("of 64 MiB on large pages"), "{said}");
}
