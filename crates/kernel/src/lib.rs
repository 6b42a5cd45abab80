//! The kernel's text interfaces: pure parsers, and the bounded reads that feed them.
//!
//! Owns: paths below /proc and /sys, the format of each file there, and [`probe::Facts`], gathered once. Never touches: system calls beyond plain
//! file reads, and never writes. Every parser is a function of text alone; every read goes through a [`Root`], which is the real system or a captured
//! tree of fixtures.
#![forbid(unsafe_code)]

pub mod accounts;
pub mod balloon;
pub mod buddy;
pub mod cache;
pub mod capability;
pub mod cgroup;
pub mod cpu;
pub mod damon;
mod error;
pub mod group_memory;
pub mod hugetlb;
pub mod hugetlb_limits;
pub mod iomem;
pub mod kallsyms;
mod lines;
pub mod lockdown;
pub mod maps;
pub mod memory;
pub mod mounts;
pub mod nodes;
pub mod numa_maps;
pub mod page_types;
pub mod page_use;
pub mod pagemap;
pub mod pmu;
pub mod pressure;
pub mod privilege;
pub mod probe;
pub mod process;
pub mod rollup;
mod root;
pub mod smaps;
pub mod target;
pub mod thp;
pub mod vm_flags;
pub mod zones;

pub use error::{KernelError, Malformed};
pub use root::{Root, optional, unless_ended};

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
