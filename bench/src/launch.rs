//! What precedes a program's own command: variables, a preloaded library, `hugepilot run`.
//!
//! Owns: finding the libraries, and reporting what this machine lacks. Never touches: the program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::configuration::{Configuration, Launch, POOL_PAGES};
use crate::pool::{self, PoolUse};
use crate::tool::Tool;

/// Where distributions and `make install` install libraries.
const DIRECTORIES: &[&str] = &[
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/libhugetlbfs",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// The words that precede the command, if any. The pool must exist already.
pub fn words(configuration: Configuration, tool: Option<&Tool>, pool: Option<PoolUse>) -> Result<Vec<OsString>> {
    match configuration.launch() {
        Launch::Nothing => Ok(Vec::new()),
        Launch::Environment { variables, preload } => {
            let mut words = vec![OsString::from("env")];
            let pages = pool.map_or(0, |pool| pool.obtained).to_string();
            words.extend(variables.iter().map(|variable| variable.replace(POOL_PAGES, &pages).into()));
            if !preload.is_empty() {
                let library = library(preload).with_context(|| absent(preload))?;
                words.push(["LD_PRELOAD=".as_ref(), library.as_os_str()].into_iter().collect());
            }
            Ok(words)
        }
        Launch::Run { pages } => {
            let tool = tool.context("this configuration needs hugepilot")?;
            let words = [tool.path().as_os_str(), "run".as_ref(), "--pages".as_ref(), pages.as_ref(), "--".as_ref()];
            Ok(words.map(OsString::from).to_vec())
        }
    }
}

/// Why a configuration cannot be measured on this machine.
pub fn missing(configuration: Configuration) -> Option<String> {
    let no_library = match configuration.launch() {
        Launch::Environment { preload, .. } if !preload.is_empty() && library(preload).is_none() => {
            Some(absent(preload))
        }
        _ => None,
    };
    let no_pool = configuration.pool().filter(|&page| !pool::is_there(page));
    no_library.or(no_pool.map(|page| format!("this kernel has no pool of {page} pages")))
}

fn absent(names: &[&str]) -> String {
    format!("{} is not installed", names.first().copied().unwrap_or("a library"))
}

/// The path of the first of these names that exists.
fn library(names: &[&str]) -> Option<PathBuf> {
    names
        .iter()
        .flat_map(|name| DIRECTORIES.iter().map(move |place| Path::new(place).join(name)))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_before_the_command() {
        let words = |configuration| words(configuration, None, None).map_err(|error| error.to_string());
        assert_eq!(words(Configuration::Always), Ok(Vec::new()));
        let tunables = ["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=2"].map(OsString::from).to_vec();
        assert_eq!(words(Configuration::TunablesPool), Ok(tunables));
        assert!(words(Configuration::Run1G).is_err_and(|error| error.contains("needs hugepilot")));
    }

    #[test]
    fn a_library_is_preloaded_or_named_as_missing() {
        match (words(Configuration::Jemalloc, None, None), missing(Configuration::Jemalloc)) {
            (Ok(words), None) => {
                let last = words.last().unwrap().to_string_lossy().into_owned();
                assert!(last.starts_with("LD_PRELOAD=/") && last.contains("libjemalloc.so"), "{last}");
            }
            (Err(error), Some(missing)) => assert!(error.to_string().contains("libjemalloc.so.2"), "{error} {missing}"),
            (words, missing) => panic!("{words:?}, yet {missing:?}"),
        }
    }

    #[test]
    fn an_allocator_is_told_what_the_pool_has() {
        let pool = PoolUse { page_bytes: 1 << 30, wanted: 9, obtained: 5 };
        if let Ok(words) = words(Configuration::Mimalloc1G, None, Some(pool)) {
            assert!(words.contains(&"MIMALLOC_RESERVE_HUGE_OS_PAGES=5".into()), "{words:?}");
        } else {
            eprintln!("not tested: mimalloc is not installed");
        }
    }

    #[test]
    fn what_needs_nothing_is_never_missing() {
        assert_eq!(missing(Configuration::Default), None);
        assert_eq!(missing(Configuration::TunablesThp), None);
    }
}
