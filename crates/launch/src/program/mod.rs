//! What a program is: how it is linked, which allocator it uses, and which of the known servers it is.
//!
//! Owns: reading a program's file and the names of its libraries. Never touches: what follows for huge pages. Files are read with bounds,
//! and nothing is run except the program's own loader, which is asked for its tunables.

pub mod elf;
mod find;

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elf::Elf;
use heat::units::Bytes;
use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::{getgid, getuid};

/// Libraries of a program that are examined, including indirect ones.
const MOST_LIBRARIES: usize = 64;
/// Standard library directories on the common distributions, besides those that a program names (ld.so(8)).
const LIBRARY_DIRECTORIES: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib",
    "/lib",
];
/// The maximum output of a loader about its tunables.
const MOST_TUNABLES: u64 = 1 << 20;

/// The glibc tunable that puts malloc's memory on huge pages.
pub const TUNABLE: &str = "glibc.malloc.hugetlb";
/// jemalloc's options variable; its build determines which prefix it has.
pub const JEMALLOC_OPTIONS: [&str; 3] = ["MALLOC_CONF", "JE_MALLOC_CONF", "_RJEM_MALLOC_CONF"];
/// An option of mimalloc.
pub const MIMALLOC_OPTION: &str = "allow_large_os_pages";
/// The directory in which tcmalloc (gperftools) maps its memory.
pub const TCMALLOC_OPTION: &str = "TCMALLOC_MEMFS_MALLOC_PATH";
/// Redis uses huge pages if this is off.
pub const REDIS_OPTION: &str = "disable-thp";
/// Which pool's pages PostgreSQL uses.
pub const POSTGRES_OPTION: &str = "huge_page_size";
/// MySQL uses pool pages for its buffers.
pub const MYSQL_OPTION: &str = "large-pages";
/// The same as a variable, by which the option is recognised: a linker may merge the option's name into a longer string
/// (`super-large-pages`).
pub const MYSQL_VARIABLE: &str = "large_pages";

/// All option names that are searched for in programs.
pub const OPTIONS: [&str; 9] = [
    TUNABLE,
    JEMALLOC_OPTIONS[0],
    JEMALLOC_OPTIONS[1],
    JEMALLOC_OPTIONS[2],
    MIMALLOC_OPTION,
    TCMALLOC_OPTION,
    REDIS_OPTION,
    POSTGRES_OPTION,
    MYSQL_VARIABLE,
];

/// How a program gets its libraries, which determines what is possible from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linking {
    /// By glibc's loader, which honours LD_PRELOAD and GLIBC_TUNABLES.
    Glibc,
    /// By musl's loader, whose malloc has no huge pages.
    Musl,
    /// Statically: there is no loader.
    Static,
    /// Linked in any way, but it maps memory by its own system calls.
    Go,
    /// For 32-bit processors.
    ThirtyTwoBit,
    /// By another loader.
    Other(PathBuf),
    /// The file could not be read, or is not an ELF file.
    Unknown,
}

/// Programs that have their own setting for huge pages, or need special care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramFamily {
    /// A JVM.
    Java,
    /// A PostgreSQL server.
    Postgres,
    /// Redis, or Valkey.
    Redis,
    /// memcached.
    Memcached,
    /// Node.js.
    Node,
    /// MySQL, or MariaDB.
    Mysql,
    /// Python.
    Python,
    /// A shell, which starts other programs.
    Shell,
    /// Starts the program in its own place, or as its child: taskset, nice, env.
    Wrapper,
    /// Starts the program with another environment, or in another place.
    Elsewhere,
    /// Any other.
    Other,
}

/// An allocator that replaces the C library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allocator {
    /// jemalloc.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// tcmalloc, of gperftools.
    Tcmalloc,
}

/// The facts about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file; for a script, the interpreter.
    pub path: PathBuf,
    /// The script, if the program is only its interpreter.
    pub script: Option<PathBuf>,
    /// Which of the known programs it is.
    pub family: ProgramFamily,
    /// How it gets its libraries.
    pub linking: Linking,
    /// Allocators among its libraries, including preloaded ones.
    pub allocators: BTreeSet<Allocator>,
    /// Which of [`OPTIONS`] occur in its file.
    pub mentions: BTreeSet<&'static str>,
    /// Whether it gains rights that its caller lacks, so its loader ignores most of the environment.
    pub gains_rights: bool,
    /// Whether its C library has [`TUNABLE`] (glibc 2.35), or why that is not known.
    pub has_tunable: Result<bool, String>,
    /// Its file and those of its libraries, as far as they have code.
    pub code: Vec<CodeFile>,
}

/// A file with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    /// Its path.
    pub path: PathBuf,
    /// How much that is.
    pub code: Bytes,
    /// What huge pages of the page cache can map of it: ranges of the file, multiples of 2 MiB.
    pub aligned: Vec<Range<u64>>,
}

/// Why a program cannot be started or examined.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ProgramError {
    #[error("cannot run '{command}': no such program; give its path, or check PATH")]
    NotFound { command: String },
    #[error("cannot run '{command}': it is not executable; `chmod +x` makes it so, or start its interpreter")]
    NotExecutable { command: String },
    #[error("cannot read {}: {cause}", path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("the first line of {} names its interpreter wrongly: {cause}", script.display())]
    Interpreter { script: PathBuf, cause: Box<ProgramError> },
    #[error("{} is a script that is run by scripts without end; correct its first line", program.display())]
    Loop { program: PathBuf },
}

impl Program {
    /// The program behind a command. `path` is the search path for commands, `preload` and `library_path` are LD_PRELOAD and
    /// LD_LIBRARY_PATH as the program will see them.
    ///
    /// Errors: no such program is found, it is not executable or cannot be read, the same is true of the interpreter in its first line, or
    /// scripts run each other without end.
    pub fn find(
        command: &OsStr,
        path: Option<&OsStr>,
        preload: &str,
        library_path: &str,
    ) -> Result<Self, ProgramError> {
        let found = find::find(command, path)?;
        let path = found.program;
        let elf = elf::read(&path).unwrap_or_else(|error| {
            tracing::debug!("{} may be run but not read: {error}", path.display());
            None
        });
        let linking = elf.as_ref().map_or(Linking::Unknown, linking);
        let elf = elf.unwrap_or_default();
        let preloaded = preload.split([':', ' ']).filter(|name| !name.is_empty()).map(str::to_owned);
        let libraries = libraries(&path, &elf, preloaded, library_path);
        let has_tunable = match (&linking, &elf.loader) {
            (Linking::Glibc, Some(loader)) => tunables(loader).map(|text| has_tunable(&text)),
            _ => Ok(elf.mentions.contains(TUNABLE)),
        };
        let allocators = libraries.iter().filter_map(|library| allocator(&library.name)).collect();
        let family = ProgramFamily::of(&path);
        let own_code = CodeFile { path: path.clone(), code: elf.code, aligned: elf.aligned_code };
        let loaded_later = (family == ProgramFamily::Java).then(|| jvm(&path)).flatten();
        let libraries = libraries.into_iter().filter_map(|library| library.code).chain(loaded_later);
        let code = std::iter::once(own_code).chain(libraries);
        Ok(Self {
            script: found.script,
            family,
            linking,
            allocators,
            code: code.filter(|file| file.code > Bytes(0)).collect(),
            mentions: elf.mentions,
            gains_rights: gains_rights(&path),
            has_tunable,
            path,
        })
    }

    /// The family of what a shell script starts, by the script's own name: `python3` may be a script (of pyenv) that ends as Python. None for other
    /// scripts, and for all that is no script of a shell.
    pub fn started_by_script(&self) -> Option<ProgramFamily> {
        let script = self.script.as_deref().filter(|_| self.family == ProgramFamily::Shell)?;
        let is_known = |family: &ProgramFamily| !matches!(family, ProgramFamily::Shell | ProgramFamily::Other);
        Some(ProgramFamily::of(script)).filter(is_known)
    }

    /// Whether this option's name occurs in its file.
    pub fn mentions(&self, option: &str) -> bool {
        self.mentions.contains(option)
    }
}

impl ProgramFamily {
    /// The family of a program, by the name of its file.
    pub fn of(program: &Path) -> Self {
        match file_name(program).as_str() {
            "java" => ProgramFamily::Java,
            "postgres" | "postmaster" => ProgramFamily::Postgres,
            "redis-server" | "valkey-server" => ProgramFamily::Redis,
            "memcached" => ProgramFamily::Memcached,
            "node" | "nodejs" => ProgramFamily::Node,
            "mysqld" | "mariadbd" => ProgramFamily::Mysql,
            "sh" | "bash" | "dash" | "zsh" | "ksh" => ProgramFamily::Shell,
            "taskset" | "numactl" | "nice" | "ionice" | "chrt" | "env" | "timeout" | "nohup" | "setsid" | "stdbuf"
            | "setpriv" | "prlimit" | "time" => ProgramFamily::Wrapper,
            "sudo" | "su" | "doas" | "systemd-run" | "docker" | "podman" => ProgramFamily::Elsewhere,
            name if name.strip_prefix("python").is_some_and(is_version) => ProgramFamily::Python,
            _ => ProgramFamily::Other,
        }
    }
}

fn linking(elf: &Elf) -> Linking {
    let loader_name = elf.loader.as_ref().map(|loader| (loader, file_name(loader)));
    match loader_name {
        _ if elf.is_32_bit => Linking::ThirtyTwoBit,
        _ if elf.is_go => Linking::Go,
        None => Linking::Static,
        Some((_, name)) if name.starts_with("ld-linux") => Linking::Glibc,
        Some((_, name)) if name.starts_with("ld-musl") => Linking::Musl,
        Some((loader, _)) => Linking::Other(loader.clone()),
    }
}

/// `3.11`, or nothing.
fn is_version(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The allocator that a library is; None for any other.
pub(crate) fn allocator(library: &str) -> Option<Allocator> {
    let known = [
        ("libjemalloc", Allocator::Jemalloc),
        ("libmimalloc", Allocator::Mimalloc),
        ("libtcmalloc", Allocator::Tcmalloc),
    ];
    let name = file_name(Path::new(library));
    known.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, allocator)| allocator)
}

/// The last component of a path.
fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A library that a program loads.
struct Library {
    name: String,
    /// None if it was not found.
    code: Option<CodeFile>,
}

/// The libraries that a program loads, directly and indirectly.
fn libraries(program: &Path, elf: &Elf, preloaded: impl Iterator<Item = String>, library_path: &str) -> Vec<Library> {
    let origin = program.parent().map(|parent| parent.display().to_string()).unwrap_or_default();
    let own = elf.search.iter().map(|directory| directory.replace("$ORIGIN", &origin));
    let given = library_path.split(':').filter(|directory| !directory.is_empty()).map(str::to_owned);
    // As ld.so(8) has it for DT_RUNPATH, which linkers write today.
    let directories: Vec<String> = given.chain(own).chain(LIBRARY_DIRECTORIES.map(str::to_owned)).collect();
    let mut libraries: Vec<Library> = Vec::new();
    let mut waiting: VecDeque<String> = preloaded.chain(elf.needed.iter().cloned()).collect();
    while let Some(name) = waiting.pop_front() {
        if libraries.len() >= MOST_LIBRARIES || libraries.iter().any(|known| known.name == name) {
            continue;
        }
        // Joining an absolute path leaves it as it is.
        let file = directories.iter().map(|directory| Path::new(directory).join(&name)).find(|file| file.is_file());
        let read = file.and_then(|path| elf::read(&path).ok().flatten().map(|elf| (path, elf)));
        let code = read.map(|(path, elf)| {
            waiting.extend(elf.needed);
            CodeFile { path, code: elf.code, aligned: elf.aligned_as_library }
        });
        libraries.push(Library { name, code });
    }
    libraries
}

/// The library that is the JVM. `java` loads it once it runs (dlopen), from its own installation.
fn jvm(java: &Path) -> Option<CodeFile> {
    let java = java.canonicalize().ok()?;
    let path = java.parent()?.parent()?.join("lib/server/libjvm.so");
    let elf = elf::read(&path).ok().flatten()?;
    Some(CodeFile { path, code: elf.code, aligned: elf.aligned_as_library })
}

/// A loader's list of tunables, or why there is none.
fn tunables(loader: &Path) -> Result<String, String> {
    let not_asked = |error| format!("its loader {} cannot be asked for its settings: {error}", loader.display());
    let mut asked = Command::new(loader)
        .arg("--list-tunables")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(not_asked)?;
    let mut text = String::new();
    let output = asked.stdout.take().expect("it is a pipe");
    let read = output.take(MOST_TUNABLES).read_to_string(&mut text);
    // Its output is complete, whether it has ended or not.
    _ = asked.kill();
    read.and(asked.wait()).map_err(not_asked)?;
    if text.contains(": ") {
        Ok(text)
    } else {
        Err("its loader did not say which settings it knows (glibc does from 2.33 on)".to_owned())
    }
}

/// Lines are `glibc.malloc.hugetlb: 0x0 (min: 0x0, max: 0xffffffffffffffff)`.
fn has_tunable(list: &str) -> bool {
    list.lines().any(|line| line.split(':').next() == Some(TUNABLE))
}

/// Whether a program runs with rights that its caller lacks, which the kernel signals to its loader (`AT_SECURE`).
fn gains_rights(program: &Path) -> bool {
    let Ok(file) = fs::metadata(program) else { return false };
    let has_capabilities = match getxattr(program, "security.capability", &mut [0u8; 64]) {
        Ok(len) => len > 0,
        Err(error) => error == Errno::RANGE,
    };
    let becomes = |bit: u32, owner: u32, own: u32| file.mode() & bit != 0 && owner != own;
    let (user, group) = (getuid(), getgid());
    becomes(0o4000, file.uid(), user.as_raw())
        || becomes(0o2000, file.gid(), group.as_raw())
        || has_capabilities && !user.is_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn found(command: &str) -> Program {
        let path = std::env::var_os("PATH");
        Program::find(OsStr::new(command), path.as_deref(), "", "").unwrap()
    }

    #[test]
    fn a_dynamic_program_is_known_by_its_loader() {
        let shell = found("sh");
        assert_eq!((shell.linking, shell.family, shell.gains_rights), (Linking::Glibc, ProgramFamily::Shell, false));
        assert_eq!(shell.allocators, BTreeSet::new());
        let names: Vec<String> = shell.code.iter().map(|file| file_name(&file.path)).collect();
        assert!(names.iter().any(|name| name.starts_with("libc.so")), "its library has code, too: {names:?}");
    }

    #[test]
    fn our_own_file_is_inspected_as_any_other() {
        let own = std::env::current_exe().unwrap();
        let program = Program::find(own.as_os_str(), None, "/opt/lib/libjemalloc.so.2 libother.so", "").unwrap();
        assert_eq!((program.linking, program.family, program.script), (Linking::Glibc, ProgramFamily::Other, None));
        assert_eq!(program.allocators, BTreeSet::from([Allocator::Jemalloc]), "preloaded");
        assert!(program.has_tunable.is_ok(), "its loader answers");
    }

    #[test]
    fn linking_follows_from_the_loader() {
        let with = |loader: &str| Elf { loader: Some(loader.into()), ..Elf::default() };
        assert_eq!(linking(&with("/lib64/ld-linux-x86-64.so.2")), Linking::Glibc);
        assert_eq!(linking(&with("/lib/ld-musl-x86_64.so.1")), Linking::Musl);
        assert_eq!(linking(&with("/system/bin/linker64")), Linking::Other("/system/bin/linker64".into()));
        assert_eq!(linking(&Elf::default()), Linking::Static);
        assert_eq!(linking(&Elf { is_go: true, ..with("/lib64/ld-linux-x86-64.so.2") }), Linking::Go);
        assert_eq!(linking(&Elf { is_32_bit: true, ..Elf::default() }), Linking::ThirtyTwoBit);
    }

    #[test]
    fn families_are_known_by_name() {
        for (path, known) in [
            ("/usr/bin/python3.11", ProgramFamily::Python),
            ("/usr/bin/python", ProgramFamily::Python),
            ("/usr/bin/python-config", ProgramFamily::Other),
            ("/usr/lib/jvm/17/bin/java", ProgramFamily::Java),
            ("/usr/lib/postgresql/15/bin/postgres", ProgramFamily::Postgres),
            ("/usr/bin/redis-server", ProgramFamily::Redis),
            ("/usr/bin/taskset", ProgramFamily::Wrapper),
            ("/", ProgramFamily::Other),
        ] {
            assert_eq!(ProgramFamily::of(Path::new(path)), known, "{path}");
        }
    }

    #[test]
    fn allocators_are_known_by_their_library() {
        assert_eq!(allocator("libjemalloc.so.2"), Some(Allocator::Jemalloc));
        assert_eq!(allocator("/usr/lib/libtcmalloc_minimal.so.4"), Some(Allocator::Tcmalloc));
        assert_eq!(allocator("libmimalloc-secure.so"), Some(Allocator::Mimalloc));
        assert_eq!(allocator("libc.so.6"), None);
    }

    #[test]
    fn a_list_of_tunables_is_searched_by_whole_names() {
        assert!(has_tunable("glibc.rtld.nns: 0x4\nglibc.malloc.hugetlb: 0x0 (min: 0x0, max: 0xff)\n"));
        assert!(!has_tunable("glibc.malloc.hugetlb_more: 0x0\n"));
        assert!(!has_tunable(""));
        let why = tunables(Path::new("/no/such/loader")).unwrap_err();
        assert!(why.contains("/no/such/loader cannot be asked") && why.contains("No such file"), "{why}");
        assert!(tunables(Path::new("/bin/true")).unwrap_err().contains("did not say"));
    }

    #[test]
    fn rights_are_gained_only_from_someone_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        fs::write(&file, "").unwrap();
        for mode in [0o755, 0o4755, 0o2755] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert!(!gains_rights(&file), "our own file: {mode:o}");
        }
        if getuid().is_root() {
            std::os::unix::fs::chown(&file, Some(1234), None).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
            assert!(gains_rights(&file));
        }
    }
}
