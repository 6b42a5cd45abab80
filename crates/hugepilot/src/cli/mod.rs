//! The command line: an edge that translates and decides nothing.
//!
//! Owns: arguments ([`args`]) and one file per command. Never touches: how anything is observed, decided or done.

pub mod args;
mod attach;
mod cache;
mod color;
mod completion;
mod config;
mod doctor;
mod explain;
mod fleet;
mod forecast;
mod give_back;
mod guest;
mod heat;
mod launch;
mod live;
mod pause;
mod pilot_summary;
mod piloted;
mod pool;
mod promote;
mod reclaim;
mod record;
mod replay;
mod run;
mod scan;
mod settings;
mod status;
mod target;
mod terminal;
mod triable;
mod trial;

use std::process::ExitCode;

use args::{Cli, Command};
use pilot::machine::require::RightsError;

/// Runs one command. The status is 0 for success and 1 for an error; usage errors (2) end the process in parsing.
pub fn run(cli: Cli) -> ExitCode {
    terminal::set_verbosity(cli.verbosity);
    run_command(&cli.command).unwrap_or_else(|error| {
        // Rights do not help where there is no such process.
        let absent = error.is::<RightsError>().then(|| cli.command.target().map(target::ensure_there)).flatten();
        terminal::say_error(&absent.and_then(Result::err).unwrap_or(error));
        ExitCode::FAILURE
    })
}

fn run_command(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => return run::run(args),
        Command::Scan(args) => scan::scan(args)?,
        Command::Heat(args) => heat::heat(args)?,
        Command::Explain(args) => explain::explain(args)?,
        Command::Promote(args) => promote::promote(args)?,
        Command::Trial(args) => trial::trial(args)?,
        Command::GiveBack(args) => give_back::give_back(args)?,
        Command::Attach(args) => attach::attach(args)?,
        Command::Status(args) => status::status(args)?,
        Command::Pause(args) => pause::pause(args)?,
        Command::Resume(args) => pause::resume(args)?,
        Command::Fleet(args) => fleet::fleet(args)?,
        Command::Pool(args) => pool::pool(args)?,
        Command::Reclaim(args) => reclaim::reclaim(args)?,
        Command::Record(args) => record::record(args)?,
        Command::Replay(args) => replay::replay(args)?,
        Command::Cache(args) => cache::cache(args)?,
        Command::Color(args) => color::color(args)?,
        Command::Doctor(args) => doctor::doctor(args)?,
        Command::Config(args) => config::config(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
