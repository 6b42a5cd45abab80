//! The commands in groups, as `hugepilot --help` lists them.
//!
//! Owns: which group a command belongs to. Never touches: what commands are for; each says that itself.

use std::fmt::Write;

use clap::Subcommand;

use super::Command;

/// The groups, each with its commands by name.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Inspect, and change nothing", &["scan", "explain", "heat", "record", "replay", "fleet"]),
    ("Act on programs", &["trial", "promote", "give-back", "run", "attach"]),
    ("The service (hugepilotd)", &["status", "pause", "resume", "config"]),
    ("This host", &["doctor", "pool", "cache", "reclaim", "color"]),
];

/// The template of the help, in which clap replaces what stands in braces.
pub(super) fn template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("hugepilot"));
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        _ = writeln!(template, "\n{group}:");
        for name in names {
            let about = commands.find_subcommand(name).and_then(clap::Command::get_about);
            _ = writeln!(template, "  {name:<9}  {}", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    template + "\nOptions:\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let commands = Command::augment_subcommands(clap::Command::new("hugepilot"));
        let all: BTreeSet<&str> = commands.get_subcommands().map(clap::Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len(), "each once");
        assert!(template().contains("\n  give-back  Undo a promotion"), "{}", template());
    }
}
