//! Cold and warm memory: whether the host of this virtual machine has taken back free memory by the time a promotion needs it.
//!
//! Owns: switching free page reporting, touching free memory, and waiting until free memory is reported. Never touches: memory in use.
//!
//! On a host that takes reported memory back, a collapse into such a page takes ten times as long, because the host must back the page first.
//! Reporting is a setting of the machine; `SavedSettings` restores it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use hugepilot_os::stop::Stop;
use serde::{Deserialize, Serialize};

use crate::sample::machine_memory;
use crate::settings::SavedSettings;
use crate::warm::{SPARE, WarmMemory};

/// The order of the smallest blocks that are reported; the path is relative to [`crate::settings::SETTINGS`].
const ORDER: &str = "../../../module/page_reporting/parameters/page_reporting_order";
const PARAMETERS: &str = "/sys/module/page_reporting/parameters";
/// Larger than the largest block of the kernel's allocator: nothing is reported.
const OFF: &str = "11";
/// Programs start on base pages.
const BASE_PAGES: (&str, &str) = ("enabled", "madvise");
/// The kernel reports freed memory within two seconds.
const REPORTED_AFTER: Duration = Duration::from_secs(3);
/// Waiting longer is useless, because other programs free memory all the time.
const PATIENCE: Duration = Duration::from_secs(120);
/// The amount that other programs keep freeing in the meantime.
const STILL_KIB: u64 = 16 << 10;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// Free memory has been reported, and is not backed.
    Cold,
    /// The same, but what a promotion frees is not reported: what of its effect is the host's work is left out.
    ColdKept,
    /// Free memory is backed.
    Warm,
}

shown_as_typed!(Host);

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostChoice {
    /// Free memory has been reported to the host, which has taken it back.
    Cold,
    /// The same, but nothing is reported while a promotion goes on.
    ColdKept,
    /// Free memory is backed: reporting is off, and free memory was touched.
    Warm,
    /// Cold, then warm.
    Both,
}

/// The hosts to measure on; by default cold, if free memory is reported.
pub fn hosts(choice: Option<HostChoice>) -> Result<Vec<Host>> {
    choose(choice, Path::new(PARAMETERS).join("page_reporting_order").exists())
}

fn choose(choice: Option<HostChoice>, reports: bool) -> Result<Vec<Host>> {
    match choice {
        None if reports => Ok(vec![Host::Cold]),
        None | Some(HostChoice::Warm) => Ok(vec![Host::Warm]),
        Some(_) if !reports => bail!(
            "this kernel reports no free memory ({PARAMETERS} is not there), so that memory is always backed: take --host warm"
        ),
        Some(HostChoice::Cold) => Ok(vec![Host::Cold]),
        Some(HostChoice::ColdKept) => Ok(vec![Host::ColdKept]),
        Some(HostChoice::Both) => Ok(vec![Host::Cold, Host::Warm]),
    }
}

impl Host {
    /// Sets up the machine: programs start on base pages, and free memory is cold or warm as requested. Touches at most `most` bytes.
    pub fn set_up(self, settings: &mut SavedSettings, most: u64, stop: &Stop) -> Result<()> {
        match self {
            Host::Cold | Host::ColdKept => settings.apply(&[BASE_PAGES]),
            Host::Warm => {
                let reports = Path::new(PARAMETERS).is_dir();
                let changes = [BASE_PAGES, (ORDER, OFF)];
                settings.apply(&changes[..if reports { 2 } else { 1 }])?;
                let free = machine_memory()?.available.0.saturating_sub(2 * SPARE);
                // The memory is freed at once: with reporting off, it stays backed.
                WarmMemory::touch(free.min(most), stop).map(drop)
            }
        }
    }

    /// Waits until free memory has been reported, if it must be.
    pub fn wait_until_ready(self, settings: &mut SavedSettings, stop: &Stop) -> Result<()> {
        let began = Instant::now();
        while self != Host::Warm && began.elapsed() < PATIENCE {
            let before = reported_kib();
            stop.sleep_until(Instant::now() + REPORTED_AFTER)?;
            match (before, reported_kib()) {
                (Some(before), Some(after)) if after > before + STILL_KIB => {}
                _ => break,
            }
        }
        if self == Host::ColdKept { settings.apply(&[BASE_PAGES, (ORDER, OFF)]) } else { Ok(()) }
    }

    /// Turns reporting on again if it was suspended.
    pub fn go_on(self, settings: &mut SavedSettings) -> Result<()> {
        if self == Host::ColdKept { settings.apply(&[BASE_PAGES]) } else { Ok(()) }
    }

    /// Whether each promotion needs a program that was never promoted before. Promoting such a program frees scattered pages. Promoting one that was
    /// promoted and split before frees whole, warm blocks, which the next collapse takes.
    pub fn needs_new_program(self) -> bool {
        self != Host::Warm
    }
}

/// All memory reported since boot; None if the kernel does not count it.
fn reported_kib() -> Option<u64> {
    fs::read_to_string(Path::new(PARAMETERS).join("reported_kib")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_is_the_default_where_memory_is_reported() {
        assert_eq!(choose(None, true).unwrap(), [Host::Cold]);
        assert_eq!(choose(None, false).unwrap(), [Host::Warm]);
        assert_eq!(choose(Some(HostChoice::Warm), true).unwrap(), [Host::Warm]);
        assert_eq!(choose(Some(HostChoice::ColdKept), true).unwrap(), [Host::ColdKept]);
        assert_eq!(choose(Some(HostChoice::Both), true).unwrap(), [Host::Cold, Host::Warm]);
        let error = choose(Some(HostChoice::Cold), false).unwrap_err().to_string();
        assert!(error.contains("--host warm"), "{error}");
    }
}
