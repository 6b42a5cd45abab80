//! How programs are named on the command line.

use clap::{ArgGroup, Args};
use clap_complete::engine::ArgValueCandidates;
use pilot::scope::{ContainerId, Matcher, PathPattern, Pattern, PilotMode, Rule, UserChoice};

use super::{Command, parse_pid};
use crate::cli::completion;

/// Programs: by process ids, or by what finds them, all of which a process must meet.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct TargetOptions {
    /// Processes
    #[arg(value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid, conflicts_with_all = FINDING)]
    #[arg(add = ArgValueCandidates::new(completion::pids))]
    pub pids: Vec<u32>,
    /// Find them by name, as `ps -o comm` shows it; a pattern such as 'postgres*' will do
    #[arg(long, value_name = "NAME", help_heading = HEADING, add = ArgValueCandidates::new(completion::names))]
    pub name: Option<Pattern>,
    /// Find them by their executable file; a pattern such as '/usr/lib/**/mysqld' will do
    #[arg(long, value_name = "PATH", help_heading = HEADING, add = ArgValueCandidates::new(completion::executables))]
    pub exe: Option<PathPattern>,
    /// Find them by their systemd unit; .service may be left out, and a pattern such as 'postgresql@*' will do
    #[arg(long, value_name = "UNIT", help_heading = HEADING, add = ArgValueCandidates::new(completion::units))]
    pub unit: Option<Pattern>,
    /// Find them in a control group and below it: its path as in /proc/PID/cgroup, or its directory
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    pub cgroup: Option<String>,
    /// Find them in a container: its id, or the first 6 digits of it or more
    #[arg(long, value_name = "ID", help_heading = HEADING, add = ArgValueCandidates::new(completion::containers))]
    pub container: Option<ContainerId>,
    /// Find them by their user, by name or number
    #[arg(long, value_name = "USER", help_heading = HEADING)]
    pub user: Option<UserChoice>,
    /// Include their descendants, and what those lose on shared memory
    #[arg(long, help_heading = HEADING)]
    pub children: bool,
}

/// Where the help lists them.
const HEADING: &str = "Which processes";
/// What finds processes.
const FINDING: [&str; 6] = ["name", "exe", "unit", "cgroup", "container", "user"];

impl TargetOptions {
    /// The group of arguments of which a command needs one.
    pub fn required() -> ArgGroup {
        ArgGroup::new("target").args(["pids"]).args(FINDING).required(true).multiple(true)
    }

    /// Whether nothing names a program.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.rule(PilotMode::Observe).matcher.is_empty()
    }

    /// What finds programs, as it was written.
    pub fn told(&self) -> String {
        let told = |option: &str, given: Option<String>| given.map(|given| format!("--{option} {given}"));
        let all = [
            told("name", self.name.as_ref().map(ToString::to_string)),
            told("exe", self.exe.as_ref().map(ToString::to_string)),
            told("unit", self.unit.as_ref().map(ToString::to_string)),
            told("cgroup", self.cgroup.clone()),
            told("container", self.container.as_ref().map(ToString::to_string)),
            told("user", self.user.as_ref().map(ToString::to_string)),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// What finds programs that are not named by process ids, and what is done to them.
    pub fn rule(&self, mode: PilotMode) -> Rule {
        let Self { name, exe, unit, cgroup, container, user, .. } = self.clone();
        let matcher = Matcher { pid: None, name, exe, cgroup, unit, container, user };
        Rule { matcher, children: self.children, weight: 1.0, mode }
    }
}

impl Command {
    /// The programs that it names; None for a command that names none.
    pub fn target(&self) -> Option<&TargetOptions> {
        match self {
            Command::Heat(args) => Some(&args.target),
            Command::Explain(args) => Some(&args.target),
            Command::Promote(args) => Some(&args.target),
            Command::Trial(args) => Some(&args.target),
            Command::GiveBack(args) => Some(&args.target),
            Command::Attach(args) => Some(&args.target),
            Command::Pause(args) | Command::Resume(args) => Some(&args.target),
            Command::Record(args) => Some(&args.target),
            Command::Scan(_) | Command::Run(_) | Command::Status(_) | Command::Fleet(_) | Command::Replay(_) => None,
            Command::Pool(_) | Command::Reclaim(_) | Command::Cache(_) | Command::Color(_) => None,
            Command::Doctor(_) | Command::Config(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::args::Cli;

    fn parse(line: &str) -> Result<TargetOptions, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| match cli.command {
            Command::Explain(args) => args.target,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_finds_nobody_is_told_as_it_was_written() {
        let target = parse("hugepilot explain --name redis* --user 7 --container 012345abcdef").unwrap();
        assert_eq!(target.told(), "--name redis* --container 012345abcdef --user 7");
    }

    #[test]
    fn every_command_that_takes_programs_tells_them() {
        let defined = Cli::command();
        let takes = |command: &&clap::Command| command.get_arguments().any(|argument| argument.get_id() == "pids");
        let tells = |command: &clap::Command| {
            let needed: &[&str] = if command.get_name() == "record" { &["-o", "file"] } else { &[] };
            let line = [&["hugepilot", command.get_name(), "7"], needed].concat();
            Cli::try_parse_from(line).unwrap().command.target().is_some_and(|target| target.pids == [7])
        };
        let (tell, silent): (Vec<_>, Vec<_>) = defined.get_subcommands().filter(takes).partition(|each| tells(each));
        let silent: Vec<&str> = silent.iter().map(|command| command.get_name()).collect();
        assert!(!tell.is_empty() && silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn every_way_to_name_programs_arrives() {
        let target = parse("hugepilot explain 7 8 --children").unwrap();
        assert_eq!((target.pids, target.children), (vec![7, 8], true));
        let line = "hugepilot explain --name a* --exe /b --unit c --cgroup /d --container 0123456789ab --user 104";
        let target = parse(line).unwrap();
        let expected = Matcher {
            pid: None,
            name: Some("a*".parse().unwrap()),
            exe: Some("/b".parse().unwrap()),
            cgroup: Some("/d".to_owned()),
            unit: Some("c".parse().unwrap()),
            container: Some("0123456789ab".parse().unwrap()),
            user: Some(UserChoice::Id(104)),
        };
        assert_eq!(target.rule(PilotMode::Observe).matcher, expected);
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        for line in ["", " --children", " 7 --name a", " --container web", " --user a:b", " --name a["] {
            let line = format!("hugepilot explain{line}");
            assert_eq!(parse(&line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
