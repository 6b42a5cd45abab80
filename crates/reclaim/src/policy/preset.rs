//! Named policies for kinds of machines.

use std::fmt;
use std::str::FromStr;

use heat::memory_use::{ByUse, MemoryUse, Uses};
use heat::names::named;
use heat::units::{Bytes, Nanos, SizeOrShare};
use serde::{Deserialize, Serialize};

use crate::policy::{ClassPolicy, MappedPageCost, Policies};

/// A kind of machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// One-time data fills memory: unmapped cache is reclaimed first and aggressively, mapped memory not at all.
    BackupServer,
    /// Shared memory and mapped files are the working set, and evicting them is costly; unmapped cache is reclaimed slowly.
    Database,
    /// Unmapped cache is reclaimed slowly and down to a tenth of memory; mapped files ten times as slowly, including code, so that
    /// mechanisms that cannot tell code apart may work.
    #[default]
    Balanced,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::BackupServer, Self::Database, Self::Balanced];

    /// Its settings. No preset swaps processes out: large machines hardly swap, and it costs most.
    pub fn policies(self) -> Policies {
        let stays = ClassPolicy { rate: SizeOrShare::Size(Bytes(0)), floor: SizeOrShare::Size(Bytes(0)) };
        let mut classes = ByUse::of(|_| stays);
        let mut request = |class, rate, floor| {
            let floor = if floor > 0.0 { SizeOrShare::ShareOfRam(floor) } else { stays.floor };
            classes[class] = ClassPolicy { rate: SizeOrShare::Share(rate), floor };
        };
        let (cost, free, huge) = match self {
            Self::BackupServer => {
                request(MemoryUse::UnmappedCache, 240.0, 0.0);
                (MappedPageCost::FORBIDS, 0.9, 0.75)
            }
            Self::Database => {
                request(MemoryUse::UnmappedCache, 0.2, 0.05);
                (MappedPageCost::FORBIDS, 0.2, 0.1)
            }
            Self::Balanced => {
                request(MemoryUse::UnmappedCache, 0.2, 0.1);
                Uses::MAPPED_FILES.iter().for_each(|class| request(class, 0.2, 0.0));
                (MappedPageCost(90), 0.2, 0.1)
            }
        };
        Policies {
            classes,
            mapped_page_cost: cost,
            free_below: Some(SizeOrShare::ShareOfRam(free)),
            huge_below: Some(SizeOrShare::ShareOfRam(huge)),
            marks_are_presets: true,
        }
    }
}

impl Preset {
    /// How long a file of a named directory must be unused before it is dropped.
    pub fn idle(self) -> Nanos {
        match self {
            // Data written once is dropped soon, because it fills memory within a second on a fast disk.
            Self::BackupServer => Nanos(250_000_000),
            Self::Database | Self::Balanced => Nanos(10_000_000_000),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text).ok_or_else(|| {
            let names = Self::ALL.map(|preset| preset.to_string()).join(", ");
            format!("'{text}' is not a preset: write one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ReclaimReason, Stock, plan};

    #[test]
    fn names_lead_back_to_presets() {
        Preset::ALL.iter().for_each(|preset| assert_eq!(preset.to_string().parse(), Ok(*preset)));
        assert!("fast".parse::<Preset>().unwrap_err().contains("backup-server, database, balanced"));
    }

    #[test]
    fn no_preset_swaps_programs_out() {
        for preset in Preset::ALL {
            let held = ByUse::of(|_| Bytes(1 << 30));
            let stock = Stock { total: Bytes(16 << 30), held, swap: true, ..Stock::default() };
            let policies = preset.policies();
            let alone: Vec<Uses> = MemoryUse::ALL.iter().map(|&class| [class].into_iter().collect()).collect();
            let made = plan(&policies, &stock, &policies.due(&stock, Nanos(1_000_000_000)), &alone);
            for class in [MemoryUse::Anonymous, MemoryUse::Shared] {
                assert_eq!(made.decisions[class].reason, ReclaimReason::NotRequested, "{preset} {class}");
            }
        }
    }
}
