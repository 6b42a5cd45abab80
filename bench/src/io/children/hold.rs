//! Makes memory scarce: holds so much of it that only the requested size is left.

use anyhow::{Context, Result};
use heat::units::Bytes;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use rustix::mm::{MlockAllFlags, mlockall};

use super::common::use_up_first;
use crate::workload::{ReadyLine, print_line, words};

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct HoldChild {
    /// Memory to hold.
    #[arg(long)]
    size: Bytes,
}

impl HoldChild {
    /// Its command line, after the program's name.
    pub fn words(size: Bytes) -> Vec<String> {
        words("workload-hold", &[("size", &size.0)])
    }

    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        use_up_first()?;
        let mut mapping = AlignedMemory::anonymous(self.size.0 as usize).context("cannot map the memory to hold")?;
        // Huge pages are quick to take, and leave the rest contiguous, as large programs do that started early.
        mapping.advise(0, mapping.len(), OwnAdvice::HugePage).context("MADV_HUGEPAGE is refused here")?;
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).context("cannot lock the memory to hold")?;
        mapping.advise(0, mapping.len(), OwnAdvice::Populate).context("cannot populate the memory to hold")?;
        print_line(&ReadyLine::of(&mapping, self.size, "hold", 0))?;
        loop {
            std::thread::park();
        }
    }
}
