//! The agent's binary: parses arguments and calls the library.

use std::process::ExitCode;

use clap::Parser;
use hugepilot_kube::agent;
use hugepilot_kube::args::AgentArgs;

// One thread suffices for two watches, and a node has many programs with more to do.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daemon::log::to_stderr();
    match agent::run(AgentArgs::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
