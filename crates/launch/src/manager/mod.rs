//! Who manages the memory of a running program besides the kernel, and what that does with huge pages by itself.
//!
//! Owns: recognising allocators and runtimes by the program's file and by the names of mapped files. Never touches: the process's memory.

mod advice;
mod started_with;

mod version;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use heat::Mapping;
use kernel::Root;
use serde::Serialize;

pub use advice::{Managed, ManagerSetting, SettingEffect};
pub use started_with::{SettingState, StartedWith};
pub use version::ManagerVersion;

use crate::program::{Allocator, JEMALLOC_OPTIONS, MIMALLOC_OPTION, TCMALLOC_OPTION, allocator, elf};

/// An allocator or runtime that takes memory from the kernel, and gives it back, by rules of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryManager {
    /// jemalloc (jemalloc(3)).
    Jemalloc,
    /// mimalloc (its readme).
    Mimalloc,
    /// tcmalloc of gperftools (docs/tcmalloc.html).
    Tcmalloc,
    /// The Java virtual machine (java(1)).
    Java,
    /// Go's runtime (go.dev/doc/gc-guide).
    Go,
    /// malloc of glibc, where it was told to use huge pages (GNU libc manual, "Memory Allocation Tunables").
    Glibc,
}

impl MemoryManager {
    /// Those among these mapped files, by their names.
    pub fn mapped<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<Self> {
        names.filter_map(Self::of_library).collect()
    }

    /// Those that are part of a program. `executable`: where its file can be read.
    pub fn linked_into(executable: &Path) -> BTreeSet<Self> {
        // A file that cannot be read tells nothing.
        let elf = elf::read(executable).ok().flatten().unwrap_or_default();
        let mentions = |options: &[&str]| options.iter().any(|option| elf.mentions.contains(option));
        let linked_in = [
            (Self::Jemalloc, mentions(&JEMALLOC_OPTIONS)),
            (Self::Mimalloc, mentions(&[MIMALLOC_OPTION])),
            (Self::Tcmalloc, mentions(&[TCMALLOC_OPTION])),
            (Self::Go, elf.is_go),
        ];
        linked_in.into_iter().filter(|(_, is_there)| *is_there).map(|(manager, _)| manager).collect()
    }

    /// The same, and glibc, which nearly all have mapped.
    fn of_mapped(path: &str) -> Option<Self> {
        let is_glibc = path.ends_with("/libc.so.6") || path.ends_with(".so") && path.contains("/libc-2.");
        if is_glibc { Some(Self::Glibc) } else { Self::of_library(path) }
    }

    fn of_library(path: &str) -> Option<Self> {
        match allocator(path) {
            Some(Allocator::Jemalloc) => Some(Self::Jemalloc),
            Some(Allocator::Mimalloc) => Some(Self::Mimalloc),
            Some(Allocator::Tcmalloc) => Some(Self::Tcmalloc),
            None => path.ends_with("/libjvm.so").then_some(Self::Java),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Java => "the JVM",
            Self::Go => "Go's runtime",
            Self::Glibc => "glibc",
        }
    }
}

/// Those of a process, each with its version and settings. glibc is among them only where it was told to use huge pages.
pub fn managers_of(root: &Root, pid: u32, mappings: &[Mapping]) -> Vec<Managed> {
    let executable = root.path(&format!("proc/{pid}/exe"));
    let given = StartedWith::of(root, pid);
    let mapped = mappings.iter().filter_map(|mapping| Some((MemoryManager::of_mapped(&mapping.name)?, Some(mapping))));
    let linked = MemoryManager::linked_into(&executable).into_iter().map(|manager| (manager, None));
    let mut told = BTreeSet::new();
    let first_of_each = mapped.chain(linked).filter(|(manager, _)| told.insert(*manager));
    let of = |(manager, mapping): (MemoryManager, Option<&Mapping>)| {
        // This is what the process has mapped, even if another file has taken its name since, or it lies in a container.
        let file = mapping.map_or(executable.clone(), |mapping| map_file(root, pid, mapping));
        let version = version::version(manager, &file, mapping);
        let mentions = elf::read(&file).ok().flatten().map(|elf| elf.mentions);
        Managed::of(manager, version, mentions.as_ref(), &given)
    };
    let mut managers: Vec<Managed> = first_of_each.filter_map(of).collect();
    managers.sort_by_key(|managed| managed.manager);
    managers
}

fn map_file(root: &Root, pid: u32, mapping: &Mapping) -> PathBuf {
    root.path(&format!("proc/{pid}/map_files/{:x}-{:x}", mapping.range.start.0, mapping.range.end.0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Stdio};

    use super::*;

    #[test]
    fn allocators_are_known_by_the_libraries_that_are_mapped() {
        let of = |mapped: &[&str]| MemoryManager::mapped(mapped.iter().copied());
        assert_eq!(of(&["", "[heap]", "/usr/lib/libc.so.6"]), BTreeSet::new());
        assert_eq!(of(&["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"]), [MemoryManager::Jemalloc].into());
        assert_eq!(of(&["/usr/lib/jvm/java-17/lib/server/libjvm.so"]), [MemoryManager::Java].into());
        let both = of(&["/opt/libmimalloc.so.2.1", "/usr/lib/libtcmalloc_minimal.so.4"]);
        assert_eq!(both, [MemoryManager::Mimalloc, MemoryManager::Tcmalloc].into());
    }

    #[test]
    fn an_allocator_that_is_linked_in_is_known_by_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&source, "const char option[] = \"MALLOC_CONF\"; int main(void) { return option[0]; }").unwrap();
        let compiled = std::process::Command::new("cc").arg("-O0").arg("-o").arg(&program).arg(&source).status();
        assert!(compiled.expect("a C compiler").success());
        assert_eq!(MemoryManager::linked_into(&program), [MemoryManager::Jemalloc].into());
        assert_eq!(MemoryManager::linked_into(Path::new("/nonexistent")), BTreeSet::new());
        let own = std::env::current_exe().unwrap();
        assert!(!MemoryManager::linked_into(&own).contains(&MemoryManager::Go));
    }

    #[test]
    fn a_running_program_tells_version_and_settings() {
        if !has_tunable() {
            return eprintln!("skipped: the C library here is not glibc 2.35 or later");
        }
        let cat = Cat::start("glibc.malloc.hugetlb=1");
        let mappings = cat.mappings();
        let is_libc = |mapping: &&Mapping| mapping.name.ends_with("/libc.so.6");
        let Some(libc) = mappings.iter().find(is_libc) else {
            return eprintln!("skipped: cat is linked with another C library");
        };
        let opened = std::fs::File::open(map_file(&Root::host(), cat.0.id(), libc));
        if let Err(error) = opened {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            return eprintln!("skipped: what a process has mapped is opened only with CAP_CHECKPOINT_RESTORE");
        }
        let managers = managers_of(&Root::host(), cat.0.id(), &mappings);
        let [glibc] = managers.as_slice() else { panic!("{managers:?}") };
        assert_eq!(glibc.manager, MemoryManager::Glibc);
        assert_eq!(glibc.settings.first().unwrap().state, SettingState::Set);
        assert!(glibc.version.as_ref().is_some_and(|version| version.is_from(&[2, 35])), "{glibc:?}");
    }

    /// Whether glibc knows the tunable for huge pages.
    fn has_tunable() -> bool {
        let told = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output();
        let version = told.ok().and_then(|told| ManagerVersion::at_start(told.stdout.strip_prefix(b"glibc ")?));
        version.is_some_and(|version| version.is_from(&[2, 35]))
    }

    /// A running `cat`, killed on drop.
    struct Cat(Child);

    impl Cat {
        fn start(tunables: &str) -> Self {
            let mut program = std::process::Command::new("cat");
            program.env("GLIBC_TUNABLES", tunables).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut cat = Self(program.spawn().unwrap());
            // Once it answers, the loader has finished with its mappings.
            cat.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            cat.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            cat
        }

        fn mappings(&self) -> Vec<Mapping> {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap();
            maps.lines().map(mapping_of).collect()
        }
    }

    impl Drop for Cat {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn mapping_of(line: &str) -> Mapping {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let address = |text| heat::units::Address(u64::from_str_radix(text, 16).unwrap());
        let name = rest.split_ascii_whitespace().nth(4).unwrap_or_default().to_owned();
        let range = heat::units::AddressRange { start: address(start), end: address(end) };
        Mapping { range, name, ..Mapping::default() }
    }
}
