//! Whether DAMON could be claimed; this changes nothing: `cargo run -p hugepilot-damon --example is_it_free`.

use kernel::Root;
use kernel::damon::Purpose;

fn main() {
    match damon::ensure_free(&Root::host(), Purpose::Watch) {
        Ok(()) => println!("DAMON is there, and nobody uses it"),
        Err(error) => println!("{error}"),
    }
}
