//! The configurations under which a workload is measured: those that an operator could choose, and the ceiling.
//!
//! Owns: their names, the settings that each needs, and who acts on the running program. Never touches: the system.

use heat::units::{Bytes, GIANT_PAGE, HUGE_PAGE};
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
    /// The same once more: what the noise is among programs on huge pages.
    AlwaysAgain,
    /// As `always`, with khugepaged scanning without a pause.
    AlwaysKhugepaged,
    /// The program's own switch for huge pages (`memcached -L`; MADV_HUGEPAGE in sweep and chase).
    Own,
    /// `hugepilot promote` on the running program.
    Hugepilot,
    /// As `hugepilot`, with `--max-growth 0`.
    HugepilotNoGrowth,
    /// As `hugepilot`, with `--max-growth 6%`.
    #[serde(rename = "hugepilot-growth-6")]
    #[value(name = "hugepilot-growth-6")]
    HugepilotGrowth6,
    /// As `hugepilot`, with `--max-growth 50%`.
    #[serde(rename = "hugepilot-growth-50")]
    #[value(name = "hugepilot-growth-50")]
    HugepilotGrowth50,
    /// As `hugepilot`, with `--max-growth 1000%`.
    HugepilotAnyGrowth,
    /// `hugepilot heat --for` while the program is measured, at hugepilot's own pace; nothing is promoted.
    Observed,
    /// The program links libhps, is told by the daemon what is hot, and sees to it itself.
    Libhps,
    /// The same, with a tenth of its memory as the limit on huge pages.
    LibhpsTenth,
    /// As `libhps`, but it does nothing with what it is told: what being tracked costs.
    Tracked,
    /// The program that links libhps, which is not told to use it: what `libhps` gains on.
    LibhpsIdle,
    /// Every populated region collapsed by hand: the ceiling.
    Ideal,
    /// The default once more: what the machine's noise alone looks like.
    DefaultAgain,
    /// `hugepilot attach --fast` from then on, with a quarter of the program's memory as the limit on huge pages.
    Piloted,
    /// The same with a tenth.
    PilotedTenth,
    /// khugepaged, scanning without a pause until a quarter of the program's memory is on huge pages, and then stopped.
    KhugepagedQuarter,
    /// The quarter of its memory that the program reads most, collapsed by hand; only for programs that know it.
    Oracle,
    /// The three quarters that it reads least, collapsed by hand: what is out of the reach of any choice of the hottest quarter.
    AllButOracle,
    /// libhugetlbfs as every recipe on the web has it: `HUGETLB_MORECORE=yes LD_PRELOAD=libhugetlbfs.so`, and a pool of 2 MiB pages.
    Libhugetlbfs,
    /// `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`: malloc asks for transparent huge pages. Calls are bound at the start,
    /// because glibc 2.36 ignores `madvise` by chance otherwise.
    TunablesThp,
    /// `GLIBC_TUNABLES=glibc.malloc.hugetlb=2`: malloc takes them from the pool of 2 MiB pages.
    TunablesPool,
    /// The same from a pool of 1 GiB pages, with one arena for all threads, which serves all pieces that fit on a page, as who knows
    /// glibc sets it.
    #[serde(rename = "tunables-pool-1g")]
    #[value(name = "tunables-pool-1g")]
    TunablesPool1G,
    /// jemalloc in place of malloc, told to ask for transparent huge pages.
    Jemalloc,
    /// mimalloc in place of malloc, told to use large pages, with a pool of 2 MiB pages.
    Mimalloc,
    /// mimalloc in place of malloc, told to take all of a pool of 1 GiB pages when it starts.
    #[serde(rename = "mimalloc-1g")]
    #[value(name = "mimalloc-1g")]
    Mimalloc1G,
    /// Started by `hugepilot run --pages thp`.
    RunThp,
    /// Started by `hugepilot run --pages 2M`, with a pool of them.
    #[serde(rename = "run-2m")]
    #[value(name = "run-2m")]
    Run2M,
    /// Started by `hugepilot run --pages 1G`, with a pool of them.
    #[serde(rename = "run-1g")]
    #[value(name = "run-1g")]
    Run1G,
    /// `hugepilot explain` before the program is measured: whether it thinks that huge pages would help.
    Explained,
}

shown_as_typed!(Configuration);

/// mimalloc's library, under all its names.
const MIMALLOC: &[&str] = &["libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so.3", "libmimalloc.so"];

/// A placeholder in variables for the number of pages that the pool obtained.
pub const POOL_PAGES: &str = "<pool pages>";

/// What precedes the command that starts the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Nothing.
    Nothing,
    /// Environment variables, and a library to preload, under all its names.
    Environment { variables: &'static [&'static str], preload: &'static [&'static str] },
    /// `hugepilot run --pages`.
    Run { pages: &'static str },
}

/// Who acts on the running program before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nobody.
    Nothing,
    /// `hugepilot promote`, with these arguments after the process id.
    Promote(&'static [&'static str]),
    /// `hugepilot explain`.
    Explain,
    /// `hugepilot heat --for`, during the measurement.
    Observe,
    /// The harness collapses every populated region.
    CollapseAll,
    /// `hugepilot attach` until the measurement ends; the limit on huge pages is the program's memory divided by `one_in`.
    Pilot { one_in: u64 },
    /// khugepaged with these settings, until the limit is reached.
    Khugepaged(&'static [(&'static str, &'static str)]),
    /// The harness collapses the quarter of the regions with the most reads.
    CollapseHottest,
    /// The harness collapses the other regions.
    CollapseColdest,
}

/// khugepaged in steps of 16 MiB with hardly a pause, so that it can be stopped at a limit. It serves only memory for which the program requests huge
/// pages.
const EAGER: &[(&str, &str)] = &[
    ("enabled", "madvise"),
    ("khugepaged/pages_to_scan", "4096"),
    ("khugepaged/alloc_sleep_millisecs", "0"),
    // Last, because this write wakes khugepaged.
    ("khugepaged/scan_sleep_millisecs", "10"),
];

impl Configuration {
    /// The settings to write: names below `transparent_hugepage`, and values. All others stay as found.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Configuration::Never => &[("enabled", "never")],
            Configuration::Always | Configuration::AlwaysAgain => &[("enabled", "always")],
            Configuration::AlwaysKhugepaged => &[
                ("enabled", "always"),
                ("khugepaged/pages_to_scan", "1048576"),
                ("khugepaged/alloc_sleep_millisecs", "0"),
                // Last, because this write wakes khugepaged.
                ("khugepaged/scan_sleep_millisecs", "0"),
            ],
            // Under this setting allocators that request huge pages get them; `hugepilot run` needs no setting for that.
            Configuration::KhugepagedQuarter | Configuration::TunablesThp | Configuration::Jemalloc => {
                &[("enabled", "madvise")]
            }
            _ => &[],
        }
    }

    /// Who acts.
    pub fn act(self) -> Act {
        match self {
            Configuration::Hugepilot => Act::Promote(&[]),
            Configuration::HugepilotNoGrowth => Act::Promote(&["--max-growth", "0"]),
            Configuration::HugepilotGrowth6 => Act::Promote(&["--max-growth", "6%"]),
            Configuration::HugepilotGrowth50 => Act::Promote(&["--max-growth", "50%"]),
            Configuration::HugepilotAnyGrowth => Act::Promote(&["--max-growth", "1000%"]),
            Configuration::Explained => Act::Explain,
            Configuration::Observed => Act::Observe,
            Configuration::Ideal => Act::CollapseAll,
            Configuration::Piloted => Act::Pilot { one_in: 4 },
            Configuration::PilotedTenth => Act::Pilot { one_in: 10 },
            Configuration::KhugepagedQuarter => Act::Khugepaged(EAGER),
            Configuration::Oracle => Act::CollapseHottest,
            Configuration::AllButOracle => Act::CollapseColdest,
            _ => Act::Nothing,
        }
    }

    /// How the program is started.
    pub fn launch(self) -> Launch {
        let environment = |variables, preload| Launch::Environment { variables, preload };
        match self {
            Configuration::Libhugetlbfs => {
                environment(&["HUGETLB_MORECORE=yes"], &["libhugetlbfs.so", "libhugetlbfs.so.0"])
            }
            Configuration::TunablesThp => environment(&["GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "LD_BIND_NOW=1"], &[]),
            Configuration::TunablesPool => environment(&["GLIBC_TUNABLES=glibc.malloc.hugetlb=2"], &[]),
            Configuration::Jemalloc => {
                environment(&["MALLOC_CONF=thp:always,metadata_thp:always"], &["libjemalloc.so.2", "libjemalloc.so"])
            }
            Configuration::TunablesPool1G => environment(
                &[
                    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1073741824:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.arena_max=1",
                ],
                &[],
            ),
            // The old name and the new one: versions differ.
            Configuration::Mimalloc => {
                environment(&["MIMALLOC_LARGE_OS_PAGES=1", "MIMALLOC_ALLOW_LARGE_OS_PAGES=1"], MIMALLOC)
            }
            Configuration::Mimalloc1G => environment(&["MIMALLOC_RESERVE_HUGE_OS_PAGES=<pool pages>"], MIMALLOC),
            Configuration::RunThp => Launch::Run { pages: "thp" },
            Configuration::Run2M => Launch::Run { pages: "2M" },
            Configuration::Run1G => Launch::Run { pages: "1G" },
            _ => Launch::Nothing,
        }
    }

    /// The page size of the pool that must exist when the program starts.
    pub fn pool(self) -> Option<Bytes> {
        match self {
            Configuration::Libhugetlbfs
            | Configuration::TunablesPool
            | Configuration::Mimalloc
            | Configuration::Run2M => Some(Bytes(HUGE_PAGE)),
            Configuration::TunablesPool1G | Configuration::Mimalloc1G | Configuration::Run1G => Some(Bytes(GIANT_PAGE)),
            _ => None,
        }
    }

    /// How much it changes a process that is measured under several configurations; none of them undoes what an earlier one did.
    pub fn degree_of_change(self) -> u8 {
        match self.act() {
            Act::Nothing | Act::Explain | Act::Observe => 0,
            Act::Promote(_) => match self {
                Configuration::HugepilotNoGrowth => 1,
                Configuration::HugepilotGrowth6 => 3,
                Configuration::HugepilotGrowth50 => 4,
                Configuration::HugepilotAnyGrowth => 5,
                _ => 2,
            },
            Act::Pilot { .. } | Act::Khugepaged(_) | Act::CollapseHottest | Act::CollapseColdest => 2,
            Act::CollapseAll => 6,
        }
    }

    /// Whether it can share a process with other configurations, because it needs no setting from the start.
    pub fn fits_any_process(self) -> bool {
        let leaves_more_to_others =
            !matches!(self.act(), Act::Pilot { .. } | Act::CollapseHottest | Act::CollapseColdest);
        let is_the_program = !self.is_client() && self != Configuration::LibhpsIdle;
        let starts_as_others = is_the_program && !self.uses_own_switch() && self.launch() == Launch::Nothing;
        self.settings().is_empty() && starts_as_others && leaves_more_to_others
    }

    /// Whether the program is started with its own huge page option.
    pub fn uses_own_switch(self) -> bool {
        matches!(self, Configuration::Own | Configuration::KhugepagedQuarter)
    }

    /// Whether the program is started as a client of the daemon.
    pub fn is_client(self) -> bool {
        matches!(self, Configuration::Libhps | Configuration::LibhpsTenth | Configuration::Tracked)
    }

    /// Whether the hugepilot binary is needed.
    pub fn needs_hugepilot(self) -> bool {
        let acts = matches!(self.act(), Act::Promote(_) | Act::Explain | Act::Observe | Act::Pilot { .. });
        acts || self.is_client() || matches!(self.launch(), Launch::Run { .. })
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
    fn what_is_started_differently_has_a_process_of_its_own() {
        for configuration in Configuration::value_variants().iter().filter(|each| each.launch() != Launch::Nothing) {
            assert!(!configuration.fits_any_process(), "{configuration}");
        }
        assert!(Configuration::value_variants().iter().all(|each| each.pool().is_none() || !each.fits_any_process()));
        assert!(!Configuration::LibhpsIdle.fits_any_process(), "it may be another program");
    }

    #[test]
    fn what_is_measured_again_differs_in_name_only() {
        use Configuration::*;
        for (once, again) in [(Default, DefaultAgain), (Always, AlwaysAgain)] {
            assert_eq!((once.settings(), once.act()), (again.settings(), again.act()));
        }
    }
}
