//! Whether this process was started with standard output open.
//!
//! Owns: one check, made before Rust's runtime opens `/dev/null` in place of a closed descriptor and so hides it. Never
//! touches: the descriptor.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// The C library calls the functions in this section before `main`; the runtime starts in `main`.
#[used]
// SAFETY: the section holds pointers to functions of this type, and `check` needs nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    // SAFETY: queries the flags of a descriptor, and passes no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed (`>&-`) when this process started: nobody will read what is written there.
pub fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
