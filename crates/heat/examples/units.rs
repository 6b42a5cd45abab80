//! Sizes and times as people write them: `cargo run -p hugepilot-heat --example units 512MiB 1.5s`.

use heat::units::{Bytes, HUGE_PAGE, Nanos};

fn main() {
    for text in std::env::args().skip(1) {
        match (text.parse::<Bytes>(), text.parse::<Nanos>()) {
            (Ok(size), _) => println!("{text}: {size}, {} huge pages", size.0.div_ceil(HUGE_PAGE)),
            (_, Ok(time)) => println!("{text}: {time}"),
            (Err(error), _) => println!("{error}"),
        }
    }
}
