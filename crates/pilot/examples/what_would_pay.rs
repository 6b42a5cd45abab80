//! What would be promoted in a process, and why the rest would not, as root: `cargo run -p pilot --example what_would_pay PID`.

use std::error::Error;

use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use observe::{ObserveOptions, TrackerChoice};
use pilot::decide::{Allowance, Past, Spent, decide};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("give the id of a process")?.parse()?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let heat = observe::open(TrackerChoice::Auto)?.observe(&Target::open(pid)?, &ObserveOptions::default(), &stop)?;
    let limits = Allowance::default().limits(heat.rss, &Spent::default());
    for (reason, regions) in decide(&heat, &limits, &Past::default()).counts() {
        println!("{regions:6} regions: {}", pilot::words::reason(reason, heat.meaning));
    }
    Ok(())
}
