//! What the options of `promote`, `attach` and `run` ask of the pilot.
//!
//! Owns: that translation. Never touches: the options' form, or what they mean to the pilot.

use heat::units::CpuShare;
use observe::ObserveOptions;
use pilot::engine::Settings;
use pilot::machine::on_this_machine;

use super::args::{PaceOptions, SpendOptions, WatchOptions};

/// Errors: a share of the machine's memory was given, and how much that is cannot be read.
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
