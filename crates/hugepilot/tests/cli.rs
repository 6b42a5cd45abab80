//! Help texts and usage errors, as the binary prints them. `TRYCMD=overwrite cargo test --test cli` updates them.

#[test]
fn help_and_usage_errors() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd");
}
