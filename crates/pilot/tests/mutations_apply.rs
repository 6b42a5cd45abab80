//! Each mutation of `make mutants` still finds the line that it breaks.
//!
//! Owns: nothing. Never touches: that line.

use std::fs;
use std::path::Path;

#[test]
fn every_mutation_breaks_one_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("crates/pilot/tests/mutations")).expect("the mutations");
    let field = |paragraph: &str, name: &str| {
        let line = paragraph.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no `{name}` in\n{paragraph}"))
    };
    let mutations: Vec<&str> = text.split("\n\n").filter(|paragraph| paragraph.contains("from: ")).collect();
    assert!(mutations.len() >= 12);
    for mutation in mutations {
        let (file, from) = (field(mutation, "file: "), field(mutation, "from: "));
        let source = fs::read_to_string(root.join(&file)).expect("a source file");
        assert_eq!(source.matches(&from).count(), 1, "{file}: {from}");
    }
}
