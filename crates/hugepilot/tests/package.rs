//! Installation: the files that `make install` adds and `make uninstall` removes, and the Debian package. The real dpkg installs the package into a
//! separate directory, where the program runs, and removes it again. Nothing here touches what is installed on the machine itself.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use rustix::process::getuid;
use tempfile::TempDir;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CONFIGURATION: &str = "etc/hugepilot/hugepilot.toml";
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
    match Command::new(program).arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("skipped: {program} is not installed");
            false
        }
        tried => tried.expect("it starts").status.success(),
    }
}

fn make(target: &str, built: &Path, destination: &Path) {
    let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
    let variables = [variable("BUILT", built), variable("DESTDIR", destination), "PREFIX=/opt/pilot".to_owned()];
    run(Command::new("make").args(["-C", SOURCES, target]).args(variables));
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
    let (built, destination) = (built(), folder());
    let (built, prefix) = (built.path(), destination.path().join("opt/pilot"));
    // Other software's files, with names as similar as possible.
    for strange in ["bin/pilot", "lib/libhps-tools.so", "share/man/man1/huge.1", "share/zsh/site-functions/_huge"] {
        let strange = prefix.join(strange);
        fs::create_dir_all(strange.parent().unwrap()).unwrap();
        fs::write(strange, "").unwrap();
    }
    let before = tree(destination.path());

    make("install", built, destination.path());
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

    make("uninstall", built, destination.path());
    let after = tree(destination.path());
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "was somebody else's");
    // Directories that programs share may remain.
    let ours =
        |path: &&PathBuf| !destination.path().join(path).is_dir() || path.to_string_lossy().contains("hugepilot");
    assert_eq!(after.difference(&before).filter(ours).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "stays");
}

/// A system in a directory: a shell, the dynamic loader's files, and those of our package's dependencies that the machine has installed.
struct System {
    root: TempDir,
}

impl System {
    fn new(depends: &str) -> Self {
        let system = Self { root: folder() };
        // The package's scripts believe that systemd is running there.
        for directory in ["bin", "dev", "run/systemd/system", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
            fs::create_dir_all(system.path(directory)).unwrap();
        }
        for file in [SAID, "dev/null"] {
            fs::write(system.path(file), "").unwrap();
        }
        let systemctl = system.path("bin/systemctl");
        fs::write(&systemctl, format!("#!/bin/sh\necho \"$*\" >> /{SAID}\n")).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        for program in ["/bin/sh", "/bin/rm"] {
            system.bring(program);
            system.bring_libraries(program);
        }
        system.bring_libraries(env!("CARGO_BIN_EXE_hugepilot"));
        let names = depends.split(", ").filter_map(|package| package.split_whitespace().next());
        let there = run(Command::new("dpkg-query").arg("--status").args(names));
        fs::write(system.path("var/lib/dpkg/status"), there + "\n").unwrap();
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
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
    fn dpkg(&self, action: &str, package: &str) {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", self.root.path().display())).args(["--log=/dev/null", "--path-include=*"]);
        run(command.args([action, package]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
    }

    /// Runs a command in the system.
    fn run(&self, command: &[&str]) -> String {
        run(Command::new("chroot").arg(self.root.path()).args(command).env("PATH", "/usr/sbin:/usr/bin:/bin"))
    }

    /// The systemctl calls since the last query.
    fn said_to_systemd(&self) -> String {
        let said = fs::read_to_string(self.path(SAID)).unwrap();
        fs::write(self.path(SAID), "").unwrap();
        said
    }
}

/// Makes the package and returns its path; None, with a message, if Debian's tools for that are missing.
fn package(built: &Path) -> Option<String> {
    if !is_installed("dpkg-shlibdeps") || !is_installed("make") {
        return None;
    }
    // The package is thrown away, so it need not be small.
    let quick = [("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")];
    let said = run(Command::new(format!("{SOURCES}/scripts/deb")).arg(built).envs(quick));
    assert_eq!(said, format!("{}/hugepilot_{VERSION}_amd64.deb\n", built.display()), "it says where it is");
    Some(said.trim_end().to_owned())
}

#[test]
fn lintian_finds_no_errors() {
    if !is_installed("lintian") {
        return;
    }
    let built = built();
    let Some(package) = package(built.path()) else { return };
    run(Command::new("lintian").args(["--fail-on", "error", "--allow-root", &package]));
}

#[test]
fn the_debian_package_installs_runs_and_goes() {
    let built = built();
    let Some(package) = package(built.path()) else { return };
    let package = package.as_str();
    let depends = run(Command::new("dpkg-deb").args(["--field", package, "Depends"]));
    assert!(["libc6 (>= ", "libelf1", "zlib1g"].iter().all(|name| depends.contains(name)), "{depends}");
    if !getuid().is_root() {
        return eprintln!("skipped: installing the package needs root, although into a directory only");
    }
    let system = System::new(depends.trim_end());
    let before = tree(system.root.path());

    system.dpkg("--install", package);
    for program in ["hugepilot", "hugepilotd"] {
        assert_eq!(system.run(&[program, "--version"]), format!("{program} {VERSION}\n"));
    }
    let checked = system.run(&["hugepilot", "config", "--check", &format!("/{CONFIGURATION}")]);
    assert!(checked.contains("is right"), "{checked}");
    for file in [
        "usr/lib/systemd/system/hugepilot.service",
        "usr/lib/x86_64-linux-gnu/libhps.so.0",
        "usr/share/man/man1/hugepilot.1.gz",
        "usr/share/man/man1/hugepilot-heat.1.gz",
        "usr/share/man/man3/hps.3.gz",
        "usr/share/man/man8/hugepilotd.8.gz",
        "usr/share/bash-completion/completions/hugepilot",
        "usr/share/zsh/vendor-completions/_hugepilot",
        "usr/share/fish/vendor_completions.d/hugepilot.fish",
        "usr/share/doc/hugepilot/changelog.gz",
    ] {
        assert!(fs::metadata(system.path(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    let copyright = fs::read_to_string(system.path("usr/share/doc/hugepilot/copyright")).unwrap();
    for licence in ["Expat or Apache-2.0", "GPL-2.0-only", "Permission is hereby granted"] {
        assert!(copyright.contains(licence), "{copyright}");
    }
    assert_eq!(system.said_to_systemd(), "daemon-reload\n");

    // An update keeps the configuration, and the service continues.
    fs::write(system.path(CONFIGURATION), "[[target]]\nname = \"memcached\"\n").unwrap();
    system.dpkg("--install", package);
    assert!(fs::read_to_string(system.path(CONFIGURATION)).unwrap().contains("memcached"));
    assert_eq!(system.said_to_systemd(), "daemon-reload\ntry-restart hugepilot.service\n");

    fs::create_dir_all(system.path("run/hugepilot")).unwrap();
    fs::write(system.path("run/hugepilot/promoted"), "").unwrap();
    system.dpkg("--remove", "hugepilot");
    assert_eq!(system.said_to_systemd(), "disable hugepilot.service\nstop hugepilot.service\ndaemon-reload\n");
    let left = tree(system.root.path());
    let files: Vec<_> = left.difference(&before).filter(|path| system.root.path().join(path).is_file()).collect();
    assert_eq!(files, [Path::new(CONFIGURATION), Path::new("run/hugepilot/promoted")], "until they are purged");
    system.dpkg("--purge", "hugepilot");
    assert_eq!(tree(system.root.path()), before);
}
