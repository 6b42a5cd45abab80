//! Page walks over time, from a file: `cargo run -p recording --example over_time cache.hugepilot`.

use std::error::Error;
use std::path::Path;

use recording::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("give a file that `hugepilot record` wrote")?;
    for moment in Recording::open(Path::new(&path))? {
        let moment = moment?;
        println!("{:>10}  {:12.0} page walks a second", moment.at.to_string(), moment.heat.walks_per_second());
    }
    Ok(())
}
