//! The systemd unit: its capabilities are known and documented, and systemd itself accepts it.

use std::collections::BTreeSet;
use std::process::Command;
use std::{fs, io};

use kernel::capability::Capability;
use pilot::clients::MOST_CLIENTS;

const UNIT: &str = include_str!("../../../integrations/systemd/hugepilot.service");
/// Where the Makefile installs it.
const PROGRAM: &str = "/usr/local/sbin/hugepilotd";

/// The values of a setting, split into words.
fn words(setting: &str) -> Vec<&'static str> {
    let values = UNIT.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    values.flat_map(str::split_whitespace).collect()
}

#[test]
fn every_capability_is_known_and_has_its_reason() {
    let named: BTreeSet<&str> = words("CapabilityBoundingSet").into_iter().collect();
    let known = Capability::ALL.map(|capability| capability.to_string());
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    let reasons = UNIT.lines().filter_map(|line| line.strip_prefix("# CAP_")?.split_once(": "));
    let explained: BTreeSet<String> =
        reasons.filter(|(_, why)| !why.is_empty()).map(|(name, _)| format!("CAP_{name}")).collect();
    assert!(!named.is_empty() && named.is_subset(&known), "not known: {:?}", named.difference(&known));
    assert_eq!(named.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), explained);
}

#[test]
fn records_of_promotions_outlive_a_restart() {
    assert_eq!(words("RuntimeDirectory"), ["hugepilot"]);
    assert_eq!(words("RuntimeDirectoryPreserve"), ["yes"]);
}

#[test]
fn descriptors_are_enough_for_everybody_at_once() {
    let limit: usize = words("LimitNOFILE")[0].parse().expect("a number");
    let connections = 64 + 16;
    assert!(limit >= 2 * (3 * MOST_CLIENTS + connections), "{limit} leave too few for scans");
}

#[test]
fn what_it_starts_can_be_put_elsewhere() {
    assert_eq!(UNIT.matches(PROGRAM).count(), 1, "what `make install` replaces");
    assert_eq!(words("ExecStart"), [PROGRAM]);
}

#[test]
fn systemd_understands_it() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("hugepilot.service");
    fs::write(&unit, UNIT.replace(PROGRAM, env!("CARGO_BIN_EXE_hugepilotd"))).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("hugepilot.service"), "{said}");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => eprintln!("skipped: there is no systemd-analyze here"),
        Err(error) => panic!("systemd-analyze: {error}"),
    }
}
