//! Puts memory of unmodified programs on huge pages. `hugepilot run` loads it (`LD_PRELOAD`).
//!
//! Owns: the replacements for mmap, munmap, mprotect, mremap, madvise, shmget and shmat ([`hooks`]). Never touches: memory
//! that the C library maps for itself, such as its heap and thread stacks; those calls never pass through these. Only in a
//! forked child is such memory replaced, if it is from the pool ([`fork`]).
//!
//! The environment configures everything, once, when the library is loaded ([`settings`]). The library counts what it does
//! for the launcher ([`count`]). No program may fail because of it: if the kernel refuses, the call is made as the program
//! made it, and memory from the pool ([`pool`]) serves in parts and in children as far as huge pages allow ([`partial`],
//! [`fork`]).

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

/// Runs before the program begins.
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
