//! `doctor` on this machine; tests/doctor.rs tests other machines with captured trees.

use crate::support::{Program, hugepilot, list};

crate::trials!(
    what_these_tests_need_is_found_here,
    every_check_that_is_not_ok_says_more,
    a_process_that_switched_huge_pages_off_is_named,
);

fn what_these_tests_need_is_found_here() {
    let json = hugepilot("doctor --json").json();
    let status = |name: &str| {
        let check = list(&json, "checks").iter().find(|check| check["name"] == name);
        check.unwrap_or_else(|| panic!("no check '{name}' in {json}"))["status"].as_str().expect("a word").to_owned()
    };
    for name in ["BTF", "capabilities", "eBPF", "process_madvise", "clear_refs", "page frame numbers", "page flags"] {
        assert_eq!(status(name), "ok", "{name}: {json}");
    }
}

fn every_check_that_is_not_ok_says_more() {
    let text = hugepilot("doctor --all");
    assert!(text.status.success() && text.stderr.is_empty(), "{text:?}");
    for check in list(&hugepilot("doctor --json").json(), "checks") {
        for field in ["name", "finding", "meaning"] {
            assert!(check[field].as_str().is_some_and(|words| !words.is_empty()), "{check}");
        }
        assert!(text.stdout.contains(check["name"].as_str().expect("a name")), "{check}");
    }
}

fn a_process_that_switched_huge_pages_off_is_named() {
    let program = Program::start("thp-disable map=4M fill ready sleep=60s");
    let ran = hugepilot("doctor");
    assert!(ran.stdout.contains(&program.pid.to_string()), "{}", ran.stdout);
}
