//! What each preset asks for: `cargo run -p reclaim --example presets`.

use reclaim::policy::Preset;

fn main() {
    for preset in Preset::ALL {
        println!("{preset}:\n{:#?}", preset.policies());
    }
}
