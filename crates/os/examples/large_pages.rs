//! Allocates a buffer on large pages, on Linux or Windows, and prints the result.
//!
//!     cargo run -p hugepilot-os --example large_pages -- 64
//!
//! takes 64 MiB as large pages if possible, otherwise as ordinary ones, and says which and why.

use hugepilot_os::large_pages::{LargePageOptions, LargePages, LargePagesError};

fn main() -> Result<(), LargePagesError> {
    let mebibytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(64);
    // Once, at the start: contiguous memory becomes scarce the longer a machine runs.
    let mut buffer = LargePages::allocate(mebibytes << 20, LargePageOptions::default())?;
    for (number, place) in buffer.numbers_mut().iter_mut().enumerate() {
        *place = number as u32;
    }
    let got = buffer.got();
    let (large, all) = (got.large_bytes >> 20, got.bytes >> 20);
    println!("{large} of {all} MiB on large pages ({:?}, pages of {} KiB)", got.backing, got.page_bytes >> 10);
    for refusal in buffer.refusals() {
        println!("not as asked for: {refusal}");
    }
    Ok(())
}
