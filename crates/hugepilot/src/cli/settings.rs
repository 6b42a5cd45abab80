//! Translates the options of `promote`, `attach` and `run` into the pilot's settings.
//!
//! Owns: that translation. Never touches: the form of the options, or what the settings mean to the pilot.

use heat::units::CpuShare;
use observe::ObserveOptions;
use pilot::engine::Settings;
use pilot::machine::on_this_machine;

use super::args::{PaceOptions, SpendOptions, WatchOptions};

/// Errors: a share of the machine's memory was given, but the machine's memory cannot be read.
pub(super) fn settings(
    watch: &WatchOptions,
    spend: &SpendOptions,
    pace: &PaceOptions,
    max_cpu: CpuShare,
) -> anyhow::Result<Settings> {
    let max_slowdown = pace.max_slowdown();
    Ok(Settings {
        watch: ObserveOptions { max_slowdown: Some(max_slowdown), ..watch.options() },
        allowance: on_this_machine(spend.allowance())?,
        max_cpu,
        max_slowdown,
    })
}
