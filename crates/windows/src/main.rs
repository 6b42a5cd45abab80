//! The program: it checks this Windows, or gives the right to large pages, and prints what the library makes of it.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use hugepilot_checks::to_json;
use hugepilot_os::large_pages::{
    LargePageOptions, LargePagePolicy, LargePages, LargePagesError, LockRightChange, PageSize, change_lock_right,
    standing,
};
use hugepilot_windows::args::{WindowsCli, WindowsCommand};
use hugepilot_windows::doctor::{WindowsFacts, check};
use hugepilot_windows::grant::said;
use hugepilot_windows::render;

fn main() -> ExitCode {
    match WindowsCli::parse().command {
        WindowsCommand::Doctor { json } => doctor(json),
        WindowsCommand::Grant { account, undo } => grant(account.as_deref(), undo),
        WindowsCommand::Run { .. } => {
            eprintln!(
                "error: run is for Linux only: Windows lets nobody choose the pages of another program. A program asks for large pages \
                 itself, by VirtualAlloc, hugepilot_os::large_pages or hps_large_alloc of libhps; `hugepilot doctor` says whether it gets any"
            );
            ExitCode::FAILURE
        }
    }
}

fn doctor(json: bool) -> ExitCode {
    let checks = check(&WindowsFacts::gather(standing(), take));
    let said = if json { to_json::<_, ()>(&checks, &[]).map(|json| json + "\n") } else { Ok(render::text(&checks)) };
    let printed = said.map_err(std::io::Error::other).and_then(|said| std::io::stdout().write_all(said.as_bytes()));
    ended(printed.map_err(|error| format!("cannot print the report: {error}")))
}

fn grant(account: Option<&str>, undo: bool) -> ExitCode {
    let change = if undo { LockRightChange::Revoke } else { LockRightChange::Grant };
    ended(change_lock_right(account, change).map(|outcome| print!("{}", render::paragraph(&said(change, &outcome)))))
}

fn ended(done: Result<(), impl Display>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{}", render::paragraph(&format!("error: {error}")));
            ExitCode::FAILURE
        }
    }
}

/// Takes memory on this kind of page only, and gives it back at once.
fn take(bytes: usize, page_size: PageSize) -> Result<(), LargePagesError> {
    let options = LargePageOptions { policy: LargePagePolicy::Required, page_size, smaller_pages: false };
    LargePages::allocate(bytes, options).map(drop)
}
