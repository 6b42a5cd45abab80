//! Words for actions on pools of huge pages.

use diffy::{DiffOptions, PatchFormatter};
use kernel::hugetlb::size_name;
use pool::{Edit, Ended, Hindrance, NextStep, Obstacles};

/// Why resizing ended, for people.
pub(super) fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Done => "as wanted",
        Ended::NoMore => "no more are to be had",
        Ended::TimeUp => "time was up (--time-limit)",
        Ended::Stopped => "stopped by a signal",
    }
}

/// What prevents more pages, and what to do next.
pub(super) fn hindrance(hindrance: Hindrance, of: &Obstacles) -> (&'static str, String) {
    match hindrance {
        Hindrance::TooLittleMemory => (
            "the memory is in use: less is to be had than is missing",
            match (of.change.node, of.made_room) {
                // How much dropping page cache would free is known for the whole machine only.
                (Some(_), false) => "try --make-room, which drops clean page cache; or end programs".to_owned(),
                _ => "end programs, or ask for fewer pages".to_owned(),
            },
        ),
        Hindrance::TimeUp => ("there was no time for more", "give it longer: --time-limit".to_owned()),
        Hindrance::Giant => {
            ("each page needs one piece of memory as large as itself, in which everything can be moved", at_boot(of))
        }
        Hindrance::BrokenUp if of.made_room => {
            ("enough memory is available, but in pieces smaller than a page", at_boot(of))
        }
        Hindrance::BrokenUp => (
            "enough memory is available, but in pieces smaller than a page",
            format!("try --make-room, which drops clean page cache; or {}", at_boot(of)),
        ),
    }
}

/// Reserving pages at boot, before memory is fragmented. The boot parameter knows no nodes.
fn at_boot(of: &Obstacles) -> String {
    let change = &of.change;
    match change.node {
        None => format!(
            "reserve them at boot: `hugepilot pool persist {}={}` shows how (on the kernel's command line: {})",
            size_name(change.page_size),
            change.to,
            change.boot_words()
        ),
        Some(_) => format!("reserve them at boot, with {} on the kernel's command line", change.boot_words()),
    }
}

const REBOOT: &str = "then reboot: pages that large are reserved at boot";

/// A command for a root shell, if there is one, and its purpose.
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
        NextStep::UpdateGrub => (Some("update-grub".to_owned()), REBOOT),
        NextStep::InstallKernel { image } => (Some(format!("kernel-install add \"$(uname -r)\" \"{image}\"")), REBOOT),
        NextStep::Grubby { words } => (Some(format!("grubby --update-kernel=ALL --args=\"{words}\"")), REBOOT),
        NextStep::ByHand { words } => (
            Some(words.clone()),
            "no boot loader was found that hugepilot knows: add these words to the kernel's command line",
        ),
        NextStep::TakeOut { words, grubby } => (
            Some(if *grubby { format!("grubby --update-kernel=ALL --remove-args=\"{words}\"") } else { words.clone() }),
            "the machine was booted with these words, which stand in no file that hugepilot knows: take them off the kernel's command line \
             if they are to go",
        ),
        NextStep::LogInAnew => (None, "the group's members may lock memory from their next login on"),
    }
}

/// The change to a file, as diff(1) shows it.
pub(super) fn diff(edit: &Edit) -> String {
    let text = |side: &Option<String>| side.clone().unwrap_or_default();
    let name = |side: &Option<String>| if side.is_some() { edit.path.as_str() } else { "/dev/null" };
    let (before, after) = (text(&edit.before), text(&edit.after));
    let patch = DiffOptions::new()
        .set_original_filename(name(&edit.before).to_owned())
        .set_modified_filename(name(&edit.after).to_owned())
        .create_patch(&before, &after);
    PatchFormatter::new().suppress_blank_empty(false).fmt_patch(&patch).to_string()
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
        assert!(diff(&edit(Some("\nb\n"), Some("\nc\n"))).ends_with("@@ -1,2 +1,2 @@\n \n-b\n+c\n"));
    }
}
