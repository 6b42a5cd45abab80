//! Prints a configuration file as parsed, or what is wrong with it: `cargo run -p daemon --example read_configuration
//! FILE`.

use std::error::Error;
use std::path::Path;

use daemon::config::Config;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(file) => println!("{:#?}", Config::read(Path::new(&file))?),
        None => println!("{}", Config::COMMENTED),
    }
    Ok(())
}
