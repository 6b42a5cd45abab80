//! Every system call that hugepilot makes beyond plain file reads.
//!
//! Owns: large pages on Linux and Windows ([`large_pages`]); on Linux also pidfds, remote memory advice, private mappings, the page cache
//! of open files, memory nodes, BPF links and iterators, performance events, signals, fork, userfaultfd, and the counters of the preload
//! library. Never touches: policy, text in /proc (except how much memory is available), or anything that the caller did not name. Each
//! function states its preconditions and the errors that it passes on.
//!
//! Each operating system has modules of its own, chosen here and in `large_pages`; no code inside a module asks which system it runs on.

pub mod large_pages;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::*;

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
