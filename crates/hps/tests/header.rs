//! `include/hps.h` is up to date with what cbindgen generates from the C interface, and the manual with the header.

use std::collections::BTreeSet;
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

/// `man hps_arena_alloc` finds the page by that list, and `make install` links to the page by it.
#[test]
fn the_manual_names_each_function() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("it is in the repository");
    let (header, page) = (read("include/hps.h"), read("man/hps.3"));
    let names = page.lines().skip_while(|line| *line != ".SH NAME").nth(1).expect("the section has a line");
    let named: BTreeSet<&str> = names.split(" \\-").next().unwrap_or_default().split(", ").skip(1).collect();
    let before_parenthesis = header.split('(').filter_map(|text| text.rsplit([' ', '*', '\n']).next());
    let declared: BTreeSet<&str> = before_parenthesis.filter(|word| word.starts_with("hps_")).collect();
    assert_eq!(named, declared);
}
