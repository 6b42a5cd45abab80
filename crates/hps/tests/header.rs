//! `include/hps.h` is up to date with what cbindgen generates from the C interface.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    cbindgen::generate(root).expect("the C interface can be read").write(&mut made);
    // What rustdoc calls safety is what a caller in C must see to.
    let made = String::from_utf8(made).expect("it is text").replace("# Safety", "Requires:");
    let path = root.join("include/hps.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/hps.h is not what cbindgen makes; UPDATE_HEADER=1 cargo test -p hps --test header");
}
