//! The ways of reclaiming memory that are compared.
//!
//! Owns: their names, and hugepilot's arguments in each. Never touches: their results.

use clap::ValueEnum;
use reclaim::policy::{Preset, Stock};
use serde::{Deserialize, Serialize};

/// Who reclaims memory, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// The kernel alone.
    Default,
    /// `hugepilot reclaim --preset backup-server`.
    BackupServer,
    /// `hugepilot reclaim --mapped-page-cost 100`: mapped pages are not reclaimed at all, and unmapped cache at once, with the same marks.
    #[value(name = "mapped-page-cost-100")]
    #[serde(rename = "mapped-page-cost-100")]
    MappedPageCost100,
    /// The kernel alone once more: what the machine's noise looks like.
    DefaultAgain,
}

shown_as_typed!(Way);

impl Way {
    /// Whether the hugepilot binary is needed.
    pub(super) fn needs_hugepilot(self) -> bool {
        !matches!(self, Way::Default | Way::DefaultAgain)
    }

    /// hugepilot's arguments, except the directory of the files; None if it does not run. The watermarks are those of the preset on a machine as
    /// large as the memory left here: shares would refer to the whole machine.
    pub(super) fn words(self, left: &Stock) -> Option<Vec<String>> {
        let how: &[&str] = match self {
            Way::Default | Way::DefaultAgain => return None,
            Way::BackupServer => &["--preset=backup-server"],
            Way::MappedPageCost100 => &["--mapped-page-cost=100", "--class=unmapped-cache=1024G", "--idle=0s"],
        };
        let (free, huge) = Preset::BackupServer.policies().marks(left);
        let marks = [("--when-free-below", free), ("--when-huge-below", huge)];
        let marks = marks.into_iter().filter_map(|(name, mark)| Some(format!("{name}={}", mark?.0)));
        Some(how.iter().map(|&word| word.to_owned()).chain(marks).collect())
    }
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;

    use super::*;

    #[test]
    fn marks_are_those_of_a_machine_of_the_size_that_is_left() {
        let left = |host_takes_free| Stock { total: Bytes(4 << 30), host_takes_free, ..Stock::default() };
        let mark = |stock: &Stock, way: Way| way.words(stock).unwrap().pop().unwrap();
        let share = Bytes(4 << 30).share(0.75).0;
        for way in [Way::BackupServer, Way::MappedPageCost100] {
            assert_eq!(mark(&left(false), way), format!("--when-huge-below={share}"));
            assert_eq!(mark(&left(true), way), format!("--when-huge-below={}", 2u64 << 30));
        }
        assert!(Way::value_variants().iter().all(|way| way.words(&left(true)).is_some() == way.needs_hugepilot()));
    }
}
