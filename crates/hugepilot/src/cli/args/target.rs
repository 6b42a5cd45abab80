//! How a program is named on the command line.

use clap::Args;
use pilot::scope::{ContainerId, Matcher, Pattern};

use super::parse_pid;

/// A running program: by its process id, or by something that finds it.
#[derive(Args, Clone, Debug, PartialEq)]
#[group(required = true, multiple = true, id = "target")]
pub struct TargetOptions {
    /// Process
    #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
    pub pid: Option<u32>,
    /// Find it by its name, as `ps -o comm` shows it; a pattern such as 'postgres*' will do
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    pub name: Option<Pattern>,
    /// Find it by its executable file; a pattern such as '/usr/lib/**/mysqld' will do
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub exe: Option<Pattern>,
    /// Find it in a control group and below it: its path as in /proc/PID/cgroup, or its directory
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// Find it in a container: its id, or the first 6 digits of it or more
    #[arg(long, value_name = "ID", conflicts_with = "pid")]
    pub container: Option<ContainerId>,
}

impl TargetOptions {
    /// What finds it, if it is not named by its process id.
    pub fn matcher(&self) -> Matcher {
        let Self { name, exe, cgroup, container, .. } = self.clone();
        Matcher { pid: None, name, exe, cgroup, container }
    }
}
