//! libhugepilot_preload: puts memory of a program that knows nothing of it on huge pages. `hugepilot run` loads it
//! (`LD_PRELOAD`).
//!
//! Owns: what stands in for mmap, munmap, mprotect, mremap, madvise, shmget and shmat ([`hooks`]). Never touches: memory that
//! the C library maps for itself, its heap and the stacks of its threads among it; they never pass through these.
//!
//! Everything is said by the environment, once, when the library is loaded ([`settings`]). What it does is counted for the
//! launcher ([`count`]). No program is to fail because of it: whatever the kernel refuses is done as the program asked for it
//! in the first place, and memory from the pool ([`pool`]) goes on behaving like any other ([`partial`], [`fork`]).

mod count;
mod filled;
mod fork;
mod hooks;
mod lines;
mod lock;
mod maps;
mod ordinary;
mod pages;
mod partial;
mod place;
mod pool;
mod room;
mod settings;
mod shared;
mod shm;
mod system;
mod text;

use std::ffi::CStr;

/// Before the program begins.
fn begin<'a>(variable: impl Fn(&str) -> Option<&'a CStr>) {
    let Some(asked) = settings::PreloadSettings::read(|name| variable(name).map(CStr::to_bytes)) else { return };
    if let Some(path) = variable("HUGEPILOT_COUNTS") {
        count::into_file(path);
    }
    count::add(|counts| &counts.processes, 1);
    if asked.pool.is_some() {
        fork::watch();
    }
    text::place(asked.text);
    settings::set(asked);
}
