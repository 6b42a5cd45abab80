//! Help, usage errors and a missing configuration, as the binary prints them. `TRYCMD=overwrite cargo test -p daemon --test cli` updates
//! them.

#[test]
fn help_and_usage_errors() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd");
}
