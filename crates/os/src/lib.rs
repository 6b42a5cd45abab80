//! Every system call that hugepilot makes beyond plain file reads.
//!
//! Owns: large pages on Linux and Windows ([`large_pages`]); on Linux also pidfds, remote memory advice, private mappings, the page cache
//! of open files, memory nodes, BPF links and iterators, performance events, signals, fork, userfaultfd, the counters of the preload library.
//! Never touches: policy, text of /proc (but for how much memory is available), anything a caller did not name. Nothing here allocates
//! behind the caller's back; each function states its preconditions and the errors it passes on.
//!
//! A system has whole modules, which are chosen here and in `large_pages`; nothing inside a module asks which system it is.

pub mod large_pages;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::*;
