//! Whether this process was started with standard output open.
//!
//! Owns: one test, before Rust's runtime opens `/dev/null` in place of what is closed and so hides it. Never touches: the
//! descriptor.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// The C library calls what stands in this section before `main`, and the runtime starts in `main`.
#[used]
// SAFETY: the section holds pointers to functions of this type, and `check` needs nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    // SAFETY: asks for the flags of a descriptor, and passes no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed (`>&-`) when this process started: nobody will read what is written there.
pub fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
