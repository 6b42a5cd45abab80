//! The agent's binary: parses arguments and calls the library.

use std::process::ExitCode;

use clap::Parser;
use hugepilot_kube::agent;
use hugepilot_kube::args::AgentArgs;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

// One thread suffices for two watches, and a node has many programs with more to do.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // Without colors: what it says is read in logs, too.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    match agent::run(AgentArgs::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
