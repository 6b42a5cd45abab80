//! Starting a program on huge pages: what it is, what works for it, and afterwards what came of that.
//!
//! Owns: the path from a command and a request to a recipe ([`recipe`]), and to a verification ([`verify`]). Never touches: the machine's
//! settings and pools, or the running program, which is the pilot's.
//!
//! Facts come first ([`program`], [`machine`]), then pure functions of them, so the choice of what to do can be tested without any program.
#![forbid(unsafe_code)]

pub mod cached_code;
pub mod cached_file;
pub mod counts;
pub mod machine;
pub mod manager;
pub mod program;
pub mod recipe;
pub mod request;
pub mod verify;
pub mod watch;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use kernel::thp::Thp;
use kernel::{KernelError, Root, hugetlb};
use machine::MachineFacts;
use program::{Program, ProgramError, ProgramFamily};
use recipe::{Given, Recipe, recipe};
use request::{LaunchRequest, PageKind};

/// The file name of the preload library.
pub const LIBRARY: &str = "libhugepilot_preload.so";
/// Names the file with the preload library's counters.
pub const COUNTS_VARIABLE: &str = "HUGEPILOT_COUNTS";
/// Where the library is, relative to the directory of hugepilot's own binary.
const LIBRARY_DIRECTORIES: [&str; 3] = ["", "../lib", "../lib/hugepilot"];

/// A program that is ready to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// What was requested.
    pub request: LaunchRequest,
    /// What the program is.
    pub program: Program,
    /// What the machine offers.
    pub machine: MachineFacts,
    /// What to start it with.
    pub recipe: Recipe,
    /// Whether the preload library counts.
    pub counts: bool,
}

impl Prepared {
    /// Reads the program's code into the page cache on huge pages, if that was requested, and adds remarks on what came of it.
    pub fn cache_code(&mut self, stop: &Stop) {
        if self.recipe.places_text() {
            self.recipe.named.extend(cached_code::cache_code(&self.program.code, self.request.text, stop));
        }
    }

    /// Whether the program can be promoted only if its shared memory is aligned, and this kernel does not align it.
    pub fn needs_aligning(&self) -> bool {
        self.program.family == ProgramFamily::Postgres && !self.machine.aligns_shared_memory
    }
}

/// Why a program cannot be started as requested.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum LaunchError {
    #[error("no program was given")]
    NoProgram,
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(
        "this machine has no huge pages of {pages} (its processor or kernel does not know them){others}; transparent ones of 2 MiB \
         are --pages thp"
    )]
    NoSuchPages { pages: PageKind, others: String },
    #[error(
        "--mmap, --shm and --text need hugepilot's preload library, and {} is neither in {} nor in ../lib beside it: `make install` \
         puts it there; or leave these options out",
        LIBRARY,
        directory.display()
    )]
    NoLibrary { directory: PathBuf },
}

/// Finds out what a command is, and what to start it with, without starting anything. `environment` is what the program will have.
///
/// Errors: no program is named, it or its interpreter cannot be run, the machine has no pages of that size, the preload library is missing,
/// or the machine's settings cannot be read.
pub fn prepare(
    root: &Root,
    command: &[OsString],
    request: LaunchRequest,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Prepared, LaunchError> {
    let own = std::env::current_exe().unwrap_or_default();
    prepare_beside(own.parent().unwrap_or(Path::new("")), root, command, request, environment)
}

/// The same for a hugepilot installed in this directory.
fn prepare_beside(
    directory: &Path,
    root: &Root,
    command: &[OsString],
    request: LaunchRequest,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Prepared, LaunchError> {
    let (name, arguments) = command.split_first().ok_or(LaunchError::NoProgram)?;
    let machine = MachineFacts::read(root, request.pages)?;
    ensure_pages(root, request.pages, &machine)?;
    let library = library(directory);
    if library.is_none() && request.insists_on_preload() {
        return Err(LaunchError::NoLibrary { directory: directory.to_owned() });
    }
    let lossy = |text: &OsStr| text.to_string_lossy().into_owned();
    let environment: BTreeMap<String, String> =
        environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
    let arguments = arguments.iter().map(|word| lossy(word)).collect();
    let value = |name: &str| environment.get(name).map_or("", String::as_str);
    let path = environment.get("PATH").map(OsStr::new);
    let program = Program::find(name, path, value("LD_PRELOAD"), value("LD_LIBRARY_PATH"))?;
    let recipe = recipe(&program, &request, &machine, &Given { environment, arguments, library });
    let counts = recipe.mechanisms().iter().any(|mechanism| mechanism.name == recipe::MemoryMechanism::PRELOAD);
    Ok(Prepared { request, program, machine, recipe, counts })
}

fn ensure_pages(root: &Root, pages: PageKind, machine: &MachineFacts) -> Result<(), LaunchError> {
    let (is_there, sizes): (bool, Vec<Bytes>) = match pages {
        PageKind::Transparent => return Ok(()),
        PageKind::Smaller(_) => {
            let sizes = Thp::read(root)?.map_or_else(Vec::new, |thp| thp.sizes.iter().map(|each| each.size).collect());
            (machine.transparent.is_some(), sizes)
        }
        PageKind::Huge | PageKind::Giant => {
            (machine.pool.is_some(), hugetlb::pools(root)?.iter().map(|pool| pool.page_size).collect())
        }
    };
    if is_there {
        return Ok(());
    }
    let sizes: Vec<String> = sizes.iter().map(Bytes::to_string).collect();
    let others = match sizes.as_slice() {
        [] => String::new(),
        sizes => format!(", only such of {}", sizes.join(", ")),
    };
    Err(LaunchError::NoSuchPages { pages, others })
}

/// The preload library that belongs to a binary in this directory.
fn library(directory: &Path) -> Option<PathBuf> {
    let mut files = LIBRARY_DIRECTORIES.iter().map(|place| directory.join(place).join(LIBRARY));
    // An absolute path, because the loader resolves it from wherever the program starts another one.
    files.find(|file| file.is_file()).map(|file| file.canonicalize().unwrap_or(file))
}

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::request::WantText;

    /// A machine with a pool of 2 MiB pages, this many of them free.
    fn machine_with(free: u64) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let pool = tree.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        fs::create_dir_all(&pool).unwrap();
        let counts = [("nr_", free), ("free_", free), ("resv_", 0), ("surplus_", 0), ("nr_overcommit_", 0)];
        for (name, count) in counts {
            fs::write(pool.join(format!("{name}hugepages")), count.to_string()).unwrap();
        }
        tree
    }

    fn prepared(tree: &Path, request: LaunchRequest) -> Result<Prepared, LaunchError> {
        let own = std::env::current_exe().unwrap();
        prepare_beside(tree, &Root::at(tree), &[own.into(), "argument".into()], request, std::iter::empty())
    }

    #[test]
    fn a_size_that_the_machine_does_not_have_is_an_error() {
        let tree = machine_with(9);
        let error = prepared(tree.path(), LaunchRequest::of(PageKind::Giant)).unwrap_err().to_string();
        assert!(error.contains("no huge pages of 1G") && error.contains("only such of 2 MiB"), "{error}");
        let prepared = prepared(tree.path(), LaunchRequest::of(PageKind::Huge)).unwrap();
        assert_eq!((prepared.machine.available(), prepared.counts), (9, false));
    }

    #[test]
    fn the_library_is_needed_only_by_those_who_insist() {
        let tree = machine_with(0);
        let request = LaunchRequest { text: WantText::OfFile, ..LaunchRequest::of(PageKind::Transparent) };
        assert!(matches!(prepared(tree.path(), request), Err(LaunchError::NoLibrary { .. })));
        assert!(prepared(tree.path(), LaunchRequest::of(PageKind::Transparent)).is_ok());
    }

    #[test]
    fn the_library_is_found_beside_the_binary_and_in_lib() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let binaries = top.join("bin");
        for place in ["bin", "lib/hugepilot"] {
            fs::create_dir_all(top.join(place)).unwrap();
        }
        assert_eq!(library(&binaries), None);
        for place in ["lib/hugepilot", "lib", "bin"] {
            let file = top.join(place).join(LIBRARY);
            fs::write(&file, "").unwrap();
            assert_eq!(library(&binaries), Some(file));
        }
    }

    #[test]
    fn only_postgres_needs_its_shared_memory_aligned_and_only_where_the_kernel_does_not() {
        let needs = |family, aligns_shared_memory| {
            let program = recipe::samples::program(family);
            let machine = MachineFacts { aligns_shared_memory, ..MachineFacts::default() };
            Prepared { request: LaunchRequest::shared(), program, machine, recipe: Recipe::default(), counts: false }
                .needs_aligning()
        };
        assert!(needs(ProgramFamily::Postgres, false));
        assert!(!needs(ProgramFamily::Postgres, true) && !needs(ProgramFamily::Redis, false));
    }

    #[test]
    fn no_command_is_an_error() {
        let tree = machine_with(0);
        let none = prepare(&Root::at(tree.path()), &[], LaunchRequest::of(PageKind::Transparent), std::iter::empty());
        assert!(matches!(none, Err(LaunchError::NoProgram)));
    }
}
