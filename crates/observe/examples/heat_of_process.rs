//! The hottest regions of a process, as root: `cargo run -p hugepilot-observe --example heat_of_process PID`.

use std::error::Error;

use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use observe::{ObserveOptions, TrackerChoice};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("give the id of a process")?.parse()?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut heat =
        observe::open(TrackerChoice::Auto)?.observe(&Target::open(pid)?, &ObserveOptions::default(), &stop)?;
    println!("{:.0} page walks a second in {} regions", heat.walks_per_second(), heat.regions.len());
    heat.regions.sort_by(|one, other| other.walks_per_second.total_cmp(&one.walks_per_second));
    for region in heat.regions.iter().take(10) {
        let size = if region.huge { "2 MiB" } else { "4 KiB" };
        println!("{:#x}  {size}  {:10.0} walks/s", region.start.0, region.walks_per_second);
    }
    Ok(())
}
