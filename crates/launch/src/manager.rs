//! Who manages the memory of a running program besides the kernel, and what that does with huge pages by itself.
//!
//! Owns: recognising allocators and runtimes by the program's file and by the names of mapped files; what their manuals say of huge pages. Never
//! touches: the process's memory, or its environment, which is part of it.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

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
        }
    }

    /// What it does with huge pages by itself, and the setting by which it asks for them or keeps them.
    pub fn habit(self) -> &'static str {
        match self {
            Self::Jemalloc => {
                "gives unused pages back one by one, which splits huge pages; MALLOC_CONF=thp:always (by its build JE_MALLOC_CONF or \
                 _RJEM_MALLOC_CONF) has it ask for huge pages, dirty_decay_ms:-1 keep what is unused"
            }
            Self::Mimalloc => {
                "gives unused memory back soon, which splits huge pages; MIMALLOC_ALLOW_LARGE_OS_PAGES=2 has it ask for huge pages, \
                 MIMALLOC_PURGE_DELAY=-1 keep what is unused"
            }
            Self::Tcmalloc => {
                "gives unused spans back, which splits huge pages; TCMALLOC_RELEASE_RATE=0 has it keep them"
            }
            Self::Java => {
                "returns what its collector has emptied; -XX:+UseTransparentHugePages has it ask for huge pages, -XX:+AlwaysPreTouch populate \
                 its heap at the start"
            }
            Self::Go => {
                "its scavenger returns unused pages in pieces, which splits huge pages; a higher GOGC or GOMEMLIMIT has it return less"
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
