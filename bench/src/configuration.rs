//! The configurations that a workload is measured under: what an operator could choose, and the ceiling.
//!
//! Owns: their names, which settings each wants, and who acts on the running program. Never touches: the system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One way to run a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// Transparent huge pages as found on this machine.
    Default,
    /// Transparent huge pages switched off.
    Never,
    /// Transparent huge pages wherever they fit.
    Always,
    /// As `always`, with khugepaged scanning without a pause.
    AlwaysKhugepaged,
    /// The program's own switch for huge pages (`memcached -L`; MADV_HUGEPAGE in sweep and chase).
    Own,
    /// `hugepilot promote` on the running program.
    Hugepilot,
    /// As `hugepilot`, with `--max-growth 0`.
    HugepilotNoGrowth,
    /// `hugepilot promote --dry-run` before the program is measured: what it expects to gain.
    Estimated,
    /// `hugepilot heat --for` while the program is measured, at hugepilot's own pace; nothing is promoted.
    Observed,
    /// Every populated region collapsed by hand: the ceiling.
    Ideal,
    /// The default once more: what the machine's noise alone looks like.
    DefaultAgain,
    /// `hugepilot attach --fast` from then on, with a quarter of the program's memory as the limit on huge pages.
    Piloted,
    /// khugepaged, scanning without a pause until a quarter of the program's memory is on huge pages, and then stopped.
    KhugepagedQuarter,
    /// The quarter of its memory that the program reads most, collapsed by hand; only for programs that know it.
    Oracle,
}

/// Who acts on the running program before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nobody.
    Nothing,
    /// `hugepilot promote`, with these arguments after the process id.
    Promote(&'static [&'static str]),
    /// `hugepilot promote --dry-run`.
    Estimate,
    /// `hugepilot heat --for`, while it is measured.
    Observe,
    /// The harness collapses every populated region.
    CollapseAll,
    /// `hugepilot attach`, until it has been measured.
    Pilot,
    /// khugepaged with these settings, until the limit is reached.
    Khugepaged(&'static [(&'static str, &'static str)]),
    /// The harness collapses the regions that are read most.
    CollapseHottest,
}

/// khugepaged in steps of 16 MiB with hardly a pause, so that it can be stopped at a limit. It serves only memory for which the program
/// asks for huge pages.
const EAGER: &[(&str, &str)] = &[
    ("enabled", "madvise"),
    ("khugepaged/pages_to_scan", "4096"),
    ("khugepaged/alloc_sleep_millisecs", "0"),
    // Last, because writing it is what wakes khugepaged from its sleep.
    ("khugepaged/scan_sleep_millisecs", "10"),
];

impl Configuration {
    /// The settings to write, as names below `transparent_hugepage` and values; all others stay as found.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Configuration::Never => &[("enabled", "never")],
            Configuration::Always => &[("enabled", "always")],
            Configuration::AlwaysKhugepaged => &[
                ("enabled", "always"),
                ("khugepaged/pages_to_scan", "1048576"),
                ("khugepaged/alloc_sleep_millisecs", "0"),
                // Last, because writing it is what wakes khugepaged from its sleep.
                ("khugepaged/scan_sleep_millisecs", "0"),
            ],
            Configuration::KhugepagedQuarter => &[("enabled", "madvise")],
            _ => &[],
        }
    }

    /// Who acts.
    pub fn act(self) -> Act {
        match self {
            Configuration::Hugepilot => Act::Promote(&[]),
            Configuration::HugepilotNoGrowth => Act::Promote(&["--max-growth", "0"]),
            Configuration::Estimated => Act::Estimate,
            Configuration::Observed => Act::Observe,
            Configuration::Ideal => Act::CollapseAll,
            Configuration::Piloted => Act::Pilot,
            Configuration::KhugepagedQuarter => Act::Khugepaged(EAGER),
            Configuration::Oracle => Act::CollapseHottest,
            _ => Act::Nothing,
        }
    }

    /// How far it changes a process that others have had before: none of them undoes what an earlier one did.
    pub fn degree_of_change(self) -> u8 {
        match self.act() {
            Act::Nothing | Act::Estimate | Act::Observe => 0,
            Act::Promote(arguments) => 2 - u8::from(!arguments.is_empty()),
            Act::Pilot | Act::Khugepaged(_) | Act::CollapseHottest => 2,
            Act::CollapseAll => 3,
        }
    }

    /// Whether it can be measured in a process that others are measured in as well: it needs no setting from the start on.
    pub fn fits_any_process(self) -> bool {
        let leaves_more_to_others = !matches!(self.act(), Act::Pilot | Act::CollapseHottest);
        self.settings().is_empty() && !self.uses_own_switch() && leaves_more_to_others
    }

    /// Whether the program is started with its own switch.
    pub fn uses_own_switch(self) -> bool {
        matches!(self, Configuration::Own | Configuration::KhugepagedQuarter)
    }

    /// Whether the hugepilot binary is needed.
    pub fn needs_hugepilot(self) -> bool {
        matches!(self.act(), Act::Promote(_) | Act::Estimate | Act::Observe | Act::Pilot)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Configuration::Default => "default",
            Configuration::Never => "never",
            Configuration::Always => "always",
            Configuration::AlwaysKhugepaged => "always-khugepaged",
            Configuration::Own => "own",
            Configuration::Hugepilot => "hugepilot",
            Configuration::HugepilotNoGrowth => "hugepilot-no-growth",
            Configuration::Estimated => "estimated",
            Configuration::Observed => "observed",
            Configuration::Ideal => "ideal",
            Configuration::DefaultAgain => "default-again",
            Configuration::Piloted => "piloted",
            Configuration::KhugepagedQuarter => "khugepaged-quarter",
            Configuration::Oracle => "oracle",
        };
        f.pad(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_configuration_is_printed_as_it_is_typed() {
        for configuration in Configuration::value_variants() {
            let typed = configuration.to_possible_value().unwrap();
            assert_eq!(typed.get_name(), configuration.to_string());
            assert_eq!(serde_json::to_value(configuration).unwrap(), configuration.to_string());
        }
    }

    #[test]
    fn the_two_defaults_differ_in_name_only() {
        assert_eq!(Configuration::Default.settings(), Configuration::DefaultAgain.settings());
        assert_eq!(Configuration::Default.act(), Configuration::DefaultAgain.act());
    }
}
