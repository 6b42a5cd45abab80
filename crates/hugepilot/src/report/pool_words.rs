//! Words for what is done with pools of huge pages, and the short names that JSON uses for the same things.

use similar::TextDiff;

use crate::pool::{Edit, Ended, Hindrance, NextStep};

/// The name that JSON uses for why resizing ended.
pub(super) fn ended_name(ended: Ended) -> &'static str {
    match ended {
        Ended::Done => "done",
        Ended::NoMore => "no_more",
        Ended::TimeUp => "time_up",
        Ended::Stopped => "stopped",
    }
}

/// Why resizing ended, for people.
pub(super) fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Done => "as wanted",
        Ended::NoMore => "no more are to be had",
        Ended::TimeUp => "time was up (--time-limit)",
        Ended::Stopped => "stopped by a signal",
    }
}

/// The name that JSON uses for what stands in the way.
pub(super) fn hindrance_name(hindrance: Hindrance) -> &'static str {
    match hindrance {
        Hindrance::TooLittleMemory => "too_little_memory",
        Hindrance::Giant => "giant",
        Hindrance::BrokenUp => "broken_up",
    }
}

/// What stands in the way, and what to do next.
pub(super) fn hindrance(hindrance: Hindrance) -> (&'static str, &'static str) {
    match hindrance {
        Hindrance::TooLittleMemory => {
            ("programs use the memory: less is available than is missing", "end programs, or ask for fewer pages")
        }
        Hindrance::Giant => (
            "each page needs one piece of memory as large as itself, in which everything can be moved",
            "have them reserved while the machine boots: `hugepilot pool persist` writes what that takes",
        ),
        Hindrance::BrokenUp => (
            "enough memory is available, but in pieces smaller than a page",
            "try --make-room, which drops clean page cache; or reserve them at boot: `hugepilot pool persist`",
        ),
    }
}

/// A command for a root shell, where there is one, and what for.
pub(super) fn next_step(step: &NextStep) -> (Option<String>, &'static str) {
    match step {
        NextStep::LoadSysctl { path } => (Some(format!("sysctl --load={path}")), "to have it now, too"),
        NextStep::CreateTmpfiles { path } => (Some(format!("systemd-tmpfiles --create {path}")), "to have it now, too"),
        NextStep::ReloadUnits { units } if units.is_empty() => {
            (Some("systemctl daemon-reload".to_owned()), "mounts that are there stay until they are unmounted")
        }
        NextStep::ReloadUnits { units } => {
            let units: Vec<String> = units.iter().map(|unit| format!("'{unit}'")).collect();
            (Some(format!("systemctl daemon-reload && systemctl start {}", units.join(" "))), "to mount them now, too")
        }
        NextStep::UpdateGrub => (Some("update-grub".to_owned()), "then reboot: pages that large are reserved at boot"),
        NextStep::InstallKernel => (
            Some("kernel-install add \"$(uname -r)\" \"/lib/modules/$(uname -r)/vmlinuz\"".to_owned()),
            "then reboot: pages that large are reserved at boot",
        ),
        NextStep::Grubby { words } => (
            Some(format!("grubby --update-kernel=ALL --args=\"{words}\"")),
            "then reboot: pages that large are reserved at boot",
        ),
        NextStep::ByHand { words } => (
            Some(words.clone()),
            "no boot loader was found that hugepilot knows: add these words to the kernel's command line",
        ),
        NextStep::LogInAnew => (None, "the group's members may lock memory from their next login on"),
    }
}

/// What becomes of a file, as diff(1) shows it.
pub(super) fn diff(edit: &Edit) -> String {
    let text = |side: &Option<String>| side.clone().unwrap_or_default();
    let name = |side: &Option<String>| if side.is_some() { edit.path.as_str() } else { "/dev/null" };
    let (before, after) = (text(&edit.before), text(&edit.after));
    let lines = TextDiff::from_lines(before.as_str(), after.as_str());
    lines.unified_diff().context_radius(3).header(name(&edit.before), name(&edit.after)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_what_is_not_there() {
        let edit = |before: Option<&str>, after: Option<&str>| Edit {
            path: "/etc/a".into(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        assert_eq!(diff(&edit(None, Some("one\n"))), "--- /dev/null\n+++ /etc/a\n@@ -0,0 +1 @@\n+one\n");
        assert_eq!(diff(&edit(Some("one\n"), None)), "--- /etc/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n");
        assert!(diff(&edit(Some("a\nb\n"), Some("a\nc\n"))).ends_with(" a\n-b\n+c\n"));
    }
}
