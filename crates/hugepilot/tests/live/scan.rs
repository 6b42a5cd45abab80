//! `scan`: which programs of this machine would gain, and what to do next.

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::named;
use crate::support::{Program, hugepilot, list, wait_until};

crate::trials!(who_would_gain_is_told_before_who_is_idle, the_page_for_a_browser_is_written);

/// A program of this name that uses 128 MiB.
fn program(folder: &TempDir, name: &str, then: &str) -> Program {
    Program::command(&mut named(folder.path(), name, &format!("map=128M fill ready {then}")))
}

fn who_would_gain_is_told_before_who_is_idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let idle = program(&folder, "hpt-idle", "sleep=600s");
    let (busy, other) = (program(&folder, "hpt-busy", "read=scattered"), program(&folder, "hpt-busy", "sleep=600s"));
    let mut told = (Value::Null, Value::Null);
    let found = || {
        let json = hugepilot("scan --json").json();
        let programs = list(&json, "programs");
        let place = |name: &str| programs.iter().position(|each| each["name"] == name);
        let (Some(first), Some(second)) = (place("hpt-busy"), place("hpt-idle")) else { return false };
        told = (programs[first].clone(), programs[second].clone());
        first < second && told.0["expected_gain_percent"]["high"].as_f64() > Some(0.5)
    };
    wait_until("the busy program is told first", found);
    let (of_busy, of_idle) = told;
    assert_eq!((of_busy["pid"].as_u64(), of_busy["processes"].as_u64()), (Some(busy.pid.into()), Some(2)), "{of_busy}");
    assert!(of_busy["busy_cpus"].as_f64() > Some(0.1) && of_busy["walk_share"].as_f64() > Some(0.0), "{of_busy}");
    assert_eq!((of_idle["pid"].as_u64(), &of_idle["idle"]), (Some(idle.pid.into()), &Value::Bool(true)), "{of_idle}");
    assert_eq!((busy.huge_bytes(), other.huge_bytes()), (0, 0), "nothing was changed");
}

fn the_page_for_a_browser_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let _program = program(&folder, "hpt-page", "sleep=600s");
    let page = folder.path().join("scan.html");
    let ran = hugepilot(&format!("scan --by user --min 100M --html {}", page.display()));
    assert!(ran.status.success() && !ran.stdout.is_empty(), "{ran:?}");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("<td class=\"name\">root</td>") && page.ends_with("</html>\n"), "{page}");
}
