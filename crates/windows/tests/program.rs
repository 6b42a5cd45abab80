//! hugepilot.exe as a user runs it, on Windows or under Wine.

use std::process::{Command, Output};

fn hugepilot(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hugepilot")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn doctor_tells_of_pages_and_of_the_privilege() {
    let told = hugepilot(&["doctor"]);
    let said = text(&told.stdout);
    assert!(told.status.success(), "{said}{}", text(&told.stderr));
    assert!(said.contains("OK       large pages") && said.contains("privilege") && said.contains("1 GiB"), "{said}");
    if said.contains("missing  privilege") {
        assert!(said.contains("Lock pages in memory") && said.contains("  hugepilot grant\n"), "{said}");
    }
}

#[test]
fn doctor_has_json() {
    let told = hugepilot(&["doctor", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&told.stdout).expect("it is JSON");
    let names: Vec<&str> =
        document["checks"].as_array().unwrap().iter().filter_map(|each| each["name"].as_str()).collect();
    assert_eq!(names, ["large pages", "privilege", "contiguous memory", "pages of 1 GiB"]);
    assert_eq!(document["version"], 1);
}

/// More would change the rights of whoever runs the tests.
#[test]
fn grant_knows_who_is_not_there() {
    for arguments in [&["grant", "nobody is called that"][..], &["grant", "--undo", "nobody is called that"]] {
        let told = hugepilot(arguments);
        assert_eq!(told.status.code(), Some(1));
        assert!(text(&told.stderr).contains("no account is called nobody") && told.stdout.is_empty(), "{told:?}");
    }
    assert!(text(&hugepilot(&["grant", "--help"]).stdout).contains("Local Policies"));
}

#[test]
fn run_says_that_it_is_linuxs() {
    let told = hugepilot(&["run", "--", "notepad.exe"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told.stderr).contains("Linux only") && told.stdout.is_empty());
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [&[][..], &["heat", "7"], &["doctor", "now"], &["grant", "one", "two"]] {
        assert_eq!(hugepilot(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
