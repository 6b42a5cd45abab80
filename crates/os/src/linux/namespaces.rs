//! The namespace of control groups.
//!
//! Owns: joining that of the machine's first process. Never touches: other namespaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Joins the namespace of control groups of process 1, so that `/proc/PID/cgroup` names groups from their top. In a container that shares the
/// machine's processes but not this namespace, the names would begin with `/..`. To be called before threads start: it holds for this thread and
/// those that it starts. Returns whether it joined; false if it is there already.
///
/// Errors: CAP_SYS_ADMIN is missing, or process 1 cannot be read.
pub fn join_control_groups_of_init() -> io::Result<bool> {
    if !is_elsewhere()? {
        return Ok(false);
    }
    let namespace = File::open("/proc/1/ns/cgroup")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup))?;
    Ok(true)
}

/// Whether groups of process 1 lie outside of our namespace, which anybody may see.
fn is_elsewhere() -> io::Result<bool> {
    let groups = fs::read_to_string("/proc/1/cgroup")?;
    Ok(groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| path.starts_with("/..")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in the process that runs in a namespace of its own.
    const APART: &str = "HUGEPILOT_TEST_APART";

    #[test]
    fn a_process_in_a_namespace_of_its_own_joins_that_of_init() {
        if std::env::var_os(APART).is_some() {
            let was_elsewhere = is_elsewhere().unwrap();
            assert_eq!(join_control_groups_of_init().unwrap(), was_elsewhere);
            return assert!(!join_control_groups_of_init().unwrap(), "it is there now");
        }
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root may join a namespace");
        }
        if let Err(error) = fs::read_link("/proc/1/ns/cgroup") {
            return eprintln!("skipped: process 1 has rights that root here lacks: {error}");
        }
        let mut command = Command::new("unshare");
        command.arg("--cgroup").arg(std::env::current_exe().unwrap()).env(APART, "1");
        let test = "linux::namespaces::tests::a_process_in_a_namespace_of_its_own_joins_that_of_init";
        let output = command.args(["--exact", test, "--nocapture", "--test-threads=1"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
