//! The tables `[[target]]` and `[[never]]`: which processes are meant, and what is done with them.
//!
//! Owns: their keys and values. Never touches: settings of the daemon itself.

use pilot::scope::{Matcher, Pattern, Pid, PilotMode, Rule};

use crate::config::Mistake;
use crate::config::section::Section;

/// Bytes of a name of a file (`NAME_MAX`), which a process is named after, and of a unit.
pub(super) const LONGEST_NAME: usize = 255;

/// The `[[target]]` tables. The first rule that matches a process counts, so that one for the same processes again would do nothing.
pub(super) fn rules(targets: Vec<Section<'_>>, for_all: PilotMode) -> Result<Vec<Rule>, Mistake> {
    let lines: Vec<usize> = targets.iter().map(Section::line).collect();
    let mut rules: Vec<Rule> = Vec::new();
    for (target, &line) in targets.into_iter().zip(&lines) {
        let rule = rule(target, for_all)?;
        let covers = |earlier: &Rule| earlier.matcher == rule.matcher && (earlier.children || !rule.children);
        if let Some(place) = rules.iter().position(covers) {
            return Err(Mistake::SameTarget { line, first: lines[place] });
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// `for_all`: the mode of rules that name none.
fn rule(mut section: Section<'_>, for_all: PilotMode) -> Result<Rule, Mistake> {
    let children = section.flag("children")?.unwrap_or(false);
    let weight = section.value("weight", parse_weight)?.unwrap_or(1.0);
    let mode = section.value("mode", parse_piloting_mode)?.unwrap_or(for_all);
    let mode = match (mode, section.flag("guest")?) {
        (PilotMode::Promote, Some(true)) => PilotMode::Guest,
        (mode, _) => mode,
    };
    Ok(Rule { matcher: matcher(section, "target")?, children, weight, mode })
}

/// One of the `[[never]]` tables.
pub(super) fn never_rule(section: Section<'_>) -> Result<Matcher, Mistake> {
    matcher(section, "never")
}

/// The remaining keys of a rule say which processes it matches.
fn matcher(mut section: Section<'_>, name: &'static str) -> Result<Matcher, Mistake> {
    let matcher = Matcher {
        pid: section.value("pid", parse_pid)?,
        name: section.value("name", parse_name)?,
        exe: section.value("exe", str::parse)?,
        cgroup: section.value("cgroup", parse_cgroup)?,
        unit: section.value("unit", parse_name)?,
        container: section.value("container", str::parse)?,
        user: section.value("user", str::parse)?,
    };
    let nobody = matcher.is_empty().then(|| Mistake::Nobody { section: name, line: section.line() });
    section.finish()?;
    nobody.map_or(Ok(matcher), Err)
}

/// What is done with processes.
pub(super) fn parse_piloting_mode(text: &str) -> Result<PilotMode, String> {
    match text {
        "observe" => Ok(PilotMode::Observe),
        "promote" => Ok(PilotMode::Promote),
        "off" => Err("'off' is not a mode: leave the [[target]] out, or name the program below [[never]]".to_owned()),
        _ => Err(format!("'{text}' is not a mode: write observe or promote")),
    }
}

/// A weight against other targets. Errors: `text` is no number from 0.001 to 1000.
pub fn parse_weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok().filter(|weight| (0.001..=1000.0).contains(weight));
    weight.ok_or_else(|| format!("'{text}' is not a weight: write a number from 0.001 to 1000, such as 2"))
}

fn parse_name(text: &str) -> Result<Pattern, String> {
    match text.len() {
        0..=LONGEST_NAME => text.parse(),
        length => Err(format!("{length} bytes are no name: the longest of a file or a unit has {LONGEST_NAME}")),
    }
}

fn parse_pid(text: &str) -> Result<Pid, String> {
    let pid = text.parse().ok().filter(|pid: &u32| *pid > 0);
    pid.map(Pid::Number).ok_or_else(|| format!("'{text}' is not a process id: write a number, such as 4242"))
}

fn parse_cgroup(text: &str) -> Result<String, String> {
    let right = text.starts_with('/') && !text.split('/').any(|part| part == "..");
    right.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "'{text}' is not a control group: write its path as in /proc/PID/cgroup, such as /system.slice/db.service"
        )
    })
}
