//! Workloads: programs under a steady load, and the progress that they report.
//!
//! Owns: the list of workloads, one file each, and what other harnesses may use of them: programs of their own that report progress, and random
//! choices. Never touches: configurations; a workload does not know under which one it runs, except that its own option for huge pages may be
//! requested.

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
mod packing;
mod pages;
mod progress;
mod reader;
mod redis;
mod requests;
mod search_work;
mod server;
mod shape;
mod sweep;
mod third;
mod wire;
mod zipfian;

pub use own_process::{OwnProcess, ReadyLine, print_line};
pub use pages::{FrontierPoint, below};
pub use progress::{Progress, Work};
pub use shape::Running;
pub use zipfian::{Popularity, ScrambledZipfian};

pub(crate) use chase::{Chase, ChaseChild, ChasePattern};
pub(crate) use fingerprint::{Fingerprint, MOST_SONGS, song_length};
pub(crate) use histogram::Histogram;
pub(crate) use hot::{Hot, HotChild, HotPattern, move_on};
pub(crate) use local::{Local, LocalPattern};
pub(crate) use memcached::Memcached;
pub(crate) use open_loop::WINDOW;
pub(crate) use own_process::{end_child, report_every, report_with_waits, words, work_for};
pub(crate) use progress::{ThroughputPoint, WorkInterval};
pub(crate) use reader::{Reader, ReaderChild};
pub(crate) use redis::{ITEM_OVERHEAD as REDIS_ITEM_OVERHEAD, serve as serve_redis};
pub(crate) use requests::RequestLoad;
pub(crate) use search_work::SearchWork;
pub(crate) use server::Server;
pub(crate) use shape::{POLL, Role, Start, Workload, leave_alone};
pub(crate) use sweep::{SWEEPS_PER_SAMPLE, Sweep, SweepChild, SweepPattern, SweepThread};
pub(crate) use third::{AliasesChild, MappingsChild, ResidentChild, ThirdChild, ThirdPattern, Truth, clock};
pub(crate) use wire::Wire;
