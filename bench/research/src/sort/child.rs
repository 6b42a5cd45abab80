//! The child that sorts repeatedly in pages of one kind.
//!
//! Owns: the child's arguments, on both sides. Never touches: how numbers are sorted, or in what memory; that is `hugepilot_sort`.

use anyhow::Result;
use heat::units::Bytes;
use hugepilot_bench::workload::{OwnProcess, ReadyLine, Work, print_line};
use hugepilot_os::stop::Stop;
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::task::{PageChoice, SEED, Task};

/// The child of `sort`.
#[derive(Debug, clap::Args)]
pub struct SortChild {
    /// How is sorted.
    #[arg(long, value_enum)]
    algorithm: Algorithm,
    /// In which pages.
    #[arg(long, value_enum)]
    pages: PageChoice,
    /// Bytes of numbers.
    #[arg(long)]
    size: Bytes,
}

/// Starts the child, and waits until its memory is filled. One number sorted is one operation.
pub fn start_sort(task: Task, stop: &Stop) -> Result<OwnProcess> {
    let Task { algorithm, pages, bytes, .. } = task;
    let words =
        ["workload-sort", &format!("--algorithm={algorithm}"), &format!("--pages={pages}"), &format!("--size={bytes}")];
    OwnProcess::start(words.map(str::to_owned).to_vec(), stop)
}

impl SortChild {
    /// Sorts until the reader of the lines is gone.
    pub fn run(self) -> Result<()> {
        let Self { algorithm, pages, size } = self;
        let bytes = usize::try_from(size.0)?;
        let mut ready = Task { algorithm, pages, bytes }.prepare()?;
        let taken = Bytes(ready.got().bytes as u64);
        let line = ReadyLine::at(ready.address(), taken, &format!("{algorithm} {pages}"), u64::from(SEED));
        print_line(&ReadyLine { refusal: ready.refusal(), ..line })?;
        loop {
            let duration = ready.sort()?;
            let operations = ready.count() as u64;
            print_line(&Work { operations, duration, ..Work::default() })?;
        }
    }
}
