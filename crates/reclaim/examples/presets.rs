//! Prints what each preset requests: `cargo run -p reclaim --example presets`.

use reclaim::policy::Preset;

fn main() {
    for preset in Preset::ALL {
        println!("{preset}:\n{:#?}", preset.policies());
    }
}
