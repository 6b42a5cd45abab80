//! Workloads: programs under a steady load, and the progress that they report.
//!
//! Owns: which workloads there are, one file each. Never touches: configurations; a workload does not know under
//! which one it runs, except that its own switch for huge pages may be asked for.

mod chase;
mod client;
mod connection;
mod fingerprint;
mod histogram;
mod hot;
mod local;
mod memcached;
mod open_loop;
mod own_process;
mod pages;
mod progress;
mod reader;
mod redis;
mod requests;
mod server;
mod shape;
mod sort;
mod sweep;
mod third;
mod wire;
mod zipfian;

pub use chase::{Chase, ChaseChild, ChasePattern};
pub use fingerprint::{Fingerprint, FingerprintChild, MOST_SONGS, SearchWork};
pub use histogram::Histogram;
pub use hot::{Hot, HotChild, HotPattern, move_on};
pub use local::{Local, LocalChild, LocalPattern};
pub use memcached::Memcached;
pub use open_loop::WINDOW;
pub use own_process::{OwnProcess, ReadyLine, WorkLine, print_line, report_with_waits};
pub use pages::below;
pub use progress::{Progress, ThroughputPoint, Window, WorkInterval};
pub use reader::{Reader, ReaderChild};
pub use redis::{ITEM_OVERHEAD as REDIS_ITEM_OVERHEAD, serve as serve_redis};
pub use requests::Clients;
pub use server::Server;
pub use shape::{Role, Running, Start, Workload};
pub use sort::{SortChild, start_sort};
pub use sweep::{SWEEPS_PER_SAMPLE, Sweep, SweepChild, SweepPattern, SweepThread};
pub use third::{AliasesChild, MappingsChild, ResidentChild, ThirdChild, ThirdPattern, Truth, clock};
pub use wire::Wire;
pub use zipfian::{Popularity, ScrambledZipfian};
