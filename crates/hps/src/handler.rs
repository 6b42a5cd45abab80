//! The handlers of the signals by which the daemon tells of lists.
//!
//! Owns: installing them, and which signals are ours. Never touches: what a signal means.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use signal_hook::SigId;

use crate::fork;

/// One bit for each signal that this library has handled before; its handler stays, also in children.
static OURS: AtomicU64 = AtomicU64::new(0);

/// Makes a signal write to `ring` from now on.
///
/// Errors: the handler cannot be installed.
pub(crate) fn handle(signal: i32, ring: UnixStream) -> io::Result<SigId> {
    // Installing handlers takes a lock, and a child must not inherit it held.
    let _no_fork = fork::hold_off();
    let handler = signal_hook::low_level::pipe::register(signal, ring)?;
    OURS.fetch_or(bit(signal), Ordering::Relaxed);
    Ok(handler)
}

/// Whether this library has handled that signal before.
pub(crate) fn is_ours(signal: i32) -> bool {
    OURS.load(Ordering::Relaxed) & bit(signal) != 0
}

/// The bit for a real-time signal; they end at 64.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
