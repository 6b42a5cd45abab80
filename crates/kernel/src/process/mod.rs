//! What the kernel says about one process, from the files below `/proc/PID`.
//!
//! Owns: `status`, `stat`, `task`, `fd`, `exe`, `ns`, `schedstat`, `syscall` (Documentation/filesystems/proc.rst). Never touches: the process.

mod family;
mod schedstat;
mod stack;
mod stat;
mod status;

pub use family::{FamilyUsage, descendants, first_threads, holds_kvm, ipc_namespace, is_32_bit, program, threads};
pub use schedstat::{ThreadTime, thread_times};
pub use stack::stack_pointer;
pub use stat::{Stat, address_space, cpu_time, own_cpu_time, processor, reader, start_time, thread_cpu_time, time_of};
pub use status::ProcessStatus;
