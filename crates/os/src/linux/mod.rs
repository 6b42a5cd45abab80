//! The system calls of Linux, one file per subject.

pub mod advise;
pub(crate) mod answer;
pub mod bpf;
pub(crate) mod faults;
pub mod file_cache;
pub mod fork;
pub mod heap;
pub mod huge_file;
pub mod memory;
pub mod namespaces;
pub mod nodes;
pub mod page_move;
pub mod page_scan;
pub mod perf;
pub mod placement;
pub mod process;
pub mod rights;
pub mod run_directory;
pub mod signals;
pub mod socket;
pub mod stdout;
pub mod stop;
mod tlb;
pub mod trial;

pub use advise::Advice;
pub use process::PidFd;
pub use tlb::tlb_entries;
