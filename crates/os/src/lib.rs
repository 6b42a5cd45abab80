//! Every system call that hugepilot makes beyond plain file reads.
//!
//! Owns: pidfds, remote memory advice, private mappings, the page cache of open files, BPF links and iterators, performance
//! events, signals, fork, userfaultfd, the counters of the preload library.
//! Never touches: policy, text of /proc, anything a caller did not name. Nothing here allocates behind the
//! caller's back; each function states its preconditions and the errors it passes on.

pub mod advise;
pub mod bpf;
mod faults;
pub mod file_cache;
pub mod fork;
pub mod heap;
pub mod memory;
pub mod page_move;
pub mod page_scan;
pub mod perf;
pub mod placement;
pub mod process;
pub mod signals;
pub mod socket;
pub mod stdout;
pub mod trial;

pub use advise::Advice;
pub use process::PidFd;
