//! What the command, the daemon and the agent log, and where.
//!
//! Owns: the form of a line, and the level. Never touches: what is said.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Logs warnings to standard error, or what `RUST_LOG` names. Call this once.
pub fn to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // Neither a time, which the journal has, nor colors, which a file would keep as escape sequences.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
}
