//! Makes pools last beyond a reboot: the files for that, as a pure function of what is wanted and what exists.
//!
//! Owns: which file does what, and its text (sysctl.d, tmpfiles.d, limits.d, mount units, the kernel's command line). Never touches: the
//! files themselves; [`crate::Edit`] writes them. All files belong to hugepilot as a whole except `/etc/kernel/cmdline`, where it owns only
//! the words recorded in a file next to it.

use std::collections::{BTreeMap, BTreeSet};

use heat::units::Bytes;
use kernel::hugetlb::{self, Pool};
use kernel::{KernelError, Root, optional};

use crate::{Edit, MountOptions, Owner, PoolError, UnixGroup, command_line, is_giant, place};

const SYSCTL: &str = "/etc/sysctl.d/60-hugepilot-pool.conf";
const TMPFILES: &str = "/etc/tmpfiles.d/hugepilot-pool.conf";
const LIMITS: &str = "/etc/security/limits.d/60-hugepilot-pool.conf";
const GRUB: &str = "/etc/default/grub.d/60-hugepilot-pool.cfg";
const COMMAND_LINE: &str = "/etc/kernel/cmdline";
/// Records which words in [`COMMAND_LINE`] are hugepilot's: others may reserve pages there, too.
const OWN_WORDS: &str = "/etc/kernel/cmdline.hugepilot-pool";
const UNITS: &str = "/etc/systemd/system";
/// Makes boot require the mount units, without a link that somebody would have to remove.
const WANTS: &str = "/etc/systemd/system/local-fs.target.d/60-hugepilot-pool.conf";

/// Where distributions install the running kernel, as a shell expression: Fedora and most others; Debian.
const KERNEL_IMAGES: [&str; 2] = ["/lib/modules/$(uname -r)/vmlinuz", "/boot/vmlinuz-$(uname -r)"];

/// The first line of each file that belongs to hugepilot.
const HEAD: &str =
    "# Written by `hugepilot pool persist`, which replaces it as a whole; `--remove --apply` takes it away.\n";

/// What should persist; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// The pools, each size once.
    pub pools: Vec<LastingPool>,
    /// The group that may have System V shared memory on huge pages, lock as much memory as the pools have, and use the mounts.
    pub group: Option<UnixGroup>,
    /// Whether each pool is mounted.
    pub mounts: bool,
}

/// One persistent pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastingPool {
    /// Bytes in each page.
    pub page_size: Bytes,
    /// Its pages.
    pub pages: u64,
    /// Pages that may be taken on demand.
    pub overcommit: u64,
}

/// What exists now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSurroundings {
    /// The page size that `vm.nr_hugepages` applies to.
    pub default_size: Option<Bytes>,
    /// Those of the relevant files that exist, with their contents.
    pub files: BTreeMap<String, String>,
    /// GRUB is installed, and reads drop-in files (Debian, Ubuntu).
    pub grub_reads_files: bool,
    /// Boot entries are changed with grubby (Fedora, RHEL).
    pub grubby: bool,
    /// The kernel parameters of the current boot that reserve giant pages.
    pub booted_with: String,
    /// The path of the running kernel, as a shell expression; `None` if it was not found.
    pub kernel_image: Option<&'static str>,
}

/// A step that remains once the files are written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextStep {
    /// Load the sysctl file now.
    LoadSysctl {
        /// The file.
        path: &'static str,
    },
    /// Apply the tmpfiles.d file now.
    CreateTmpfiles {
        /// The file.
        path: &'static str,
    },
    /// Reload systemd's units, and start these mounts.
    ReloadUnits {
        /// The units that exist now.
        units: Vec<String>,
    },
    /// Regenerate GRUB's configuration, and reboot.
    UpdateGrub,
    /// Regenerate the boot entries from `/etc/kernel/cmdline`, and reboot.
    InstallKernel {
        /// The kernel's file, for a shell.
        image: &'static str,
    },
    /// Remove these kernel parameters if they are no longer wanted: the machine was booted with them, and no file known to hugepilot
    /// contains them.
    TakeOut {
        /// What to remove.
        words: String,
        /// Whether grubby does it.
        grubby: bool,
    },
    /// Let grubby add these words to the boot entries, and reboot.
    Grubby {
        /// What to add to the command line.
        words: String,
    },
    /// Add these kernel parameters by hand: no known boot loader was found.
    ByHand {
        /// What to add.
        words: String,
    },
    /// Log in again: limits apply to new logins only.
    LogInAnew,
}

impl PoolSurroundings {
    /// Reads what exists.
    ///
    /// Errors: `/proc/meminfo`, or an existing configuration file or unit, cannot be read.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        let mut names = [SYSCTL, TMPFILES, LIMITS, GRUB, COMMAND_LINE, OWN_WORDS, WANTS].map(str::to_owned).to_vec();
        let units = optional(root.entries(UNITS))?.unwrap_or_default();
        let own_units = units.iter().filter(|name| name.starts_with("dev-hugepages\\x2d") && name.ends_with(".mount"));
        names.extend(own_units.map(|name| format!("{UNITS}/{name}")));
        let mut files = BTreeMap::new();
        for name in names {
            if let Some(text) = optional(root.text(&name))? {
                files.insert(name, text);
            }
        }
        Ok(Self {
            default_size: hugetlb::default_size(root)?,
            files,
            grub_reads_files: root.exists("etc/default/grub.d")? || root.exists("usr/sbin/update-grub")?,
            grubby: root.exists("usr/sbin/grubby")? || root.exists("usr/bin/grubby")?,
            booted_with: command_line::giants(&optional(root.text("proc/cmdline"))?.unwrap_or_default()),
            kernel_image: kernel_image(root)?,
        })
    }
}

fn kernel_image(root: &Root) -> Result<Option<&'static str>, KernelError> {
    let release = optional(root.text("proc/sys/kernel/osrelease"))?.unwrap_or_default();
    for image in KERNEL_IMAGES {
        if root.exists(&image.replace("$(uname -r)", release.trim()))? {
            return Ok(Some(image));
        }
    }
    Ok(None)
}

/// The edits that persist exactly this, removing what hugepilot persisted before; then the remaining steps.
///
/// Errors: a file that must be written, or words in it, belong to somebody else.
pub fn persist(lasting: &Lasting, around: &PoolSurroundings) -> Result<(Vec<Edit>, Vec<NextStep>), PoolError> {
    let giants: Vec<(Bytes, u64)> = reserved(lasting).filter(|(size, _)| is_giant(*size)).collect();
    let line = on_command_line(around, &giants)?;
    let own_words = line.as_ref().map_or("", |line| line.own_words.as_str());
    let wanted = own_files(lasting, around, &giants, own_words)?;
    let mut edits = Vec::new();
    let paths: BTreeSet<&String> =
        wanted.keys().chain(around.files.keys().filter(|path| *path != COMMAND_LINE)).collect();
    for path in paths {
        let (before, after) = (around.files.get(path), wanted.get(path));
        let is_foreign = before.is_some_and(|text| !text.starts_with(HEAD));
        match after {
            Some(_) if is_foreign => return Err(PoolError::Foreign { path: path.into() }),
            None if is_foreign => {}
            _ => edits.push(Edit { path: path.clone(), before: before.cloned(), after: after.cloned() }),
        }
    }
    if let Some(OnCommandLine { before, after, .. }) = line {
        edits.push(Edit { path: COMMAND_LINE.to_owned(), before: Some(before), after: Some(after) });
    }
    edits.retain(|edit| edit.before != edit.after);
    // Record which words are ours before writing them, and forget that only after removing them.
    edits.sort_by_key(|edit| edit.after.is_none());
    let steps = next_steps(&edits, &giants, around);
    Ok((edits, steps))
}

/// The change of [`COMMAND_LINE`].
struct OnCommandLine {
    before: String,
    after: String,
    /// The words in it that will be hugepilot's.
    own_words: String,
}

/// `None` if there is no such file. Reservations by others in it count, and stay.
fn on_command_line(around: &PoolSurroundings, giants: &[(Bytes, u64)]) -> Result<Option<OnCommandLine>, PoolError> {
    let Some(before) = around.files.get(COMMAND_LINE).cloned() else { return Ok(None) };
    let remembered = around.files.get(OWN_WORDS).and_then(|text| text.strip_prefix(HEAD)).map_or("", str::trim);
    let theirs = command_line::giants(&command_line::replaced(&before, remembered, ""));
    let wanted = command_line::words(giants);
    let own_words = if theirs.is_empty() {
        wanted
    } else if wanted.is_empty() || wanted == theirs {
        String::new()
    } else {
        return Err(PoolError::ForeignWords { path: COMMAND_LINE.into(), words: theirs });
    };
    let after = command_line::replaced(&before, remembered, &own_words);
    Ok(Some(OnCommandLine { before, after, own_words }))
}

fn reserved(lasting: &Lasting) -> impl Iterator<Item = (Bytes, u64)> {
    lasting.pools.iter().filter(|pool| pool.pages > 0).map(|pool| (pool.page_size, pool.pages))
}

/// Files that belong to hugepilot as a whole, by path.
fn own_files(
    lasting: &Lasting,
    around: &PoolSurroundings,
    giants: &[(Bytes, u64)],
    own_words: &str,
) -> Result<BTreeMap<String, String>, PoolError> {
    let mut files = BTreeMap::new();
    let (mut sysctl, mut tmpfiles) = (Vec::new(), Vec::new());
    for pool in lasting.pools.iter().filter(|pool| !is_giant(pool.page_size)) {
        let settings = [("nr_hugepages", pool.pages), ("nr_overcommit_hugepages", pool.overcommit)];
        for (name, value) in settings.into_iter().filter(|(_, value)| *value > 0) {
            match around.default_size == Some(pool.page_size) {
                true => sysctl.push(format!("vm.{name} = {value}")),
                false => tmpfiles.push(format!("w /{}/{name} - - - - {value}", Pool::directory(pool.page_size))),
            }
        }
    }
    if let Some(group) = &lasting.group {
        sysctl.push(format!("vm.hugetlb_shm_group = {}", group.gid));
        files.insert(LIMITS, memory_lock(group, reserved(lasting)).into_iter().collect());
    }
    files.insert(SYSCTL, sysctl);
    files.insert(TMPFILES, tmpfiles);
    files.insert(OWN_WORDS, Some(own_words.to_owned()).filter(|words| !words.is_empty()).into_iter().collect());
    if around.grub_reads_files && !giants.is_empty() {
        let words = command_line::words(giants);
        files.insert(GRUB, vec![format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"")]);
    }
    let text = |lines: Vec<String>| lines.into_iter().fold(HEAD.to_owned(), |text, line| text + &line + "\n");
    let filled = files.into_iter().filter(|(_, lines)| !lines.is_empty());
    let mut files: BTreeMap<String, String> = filled.map(|(path, lines)| (path.to_owned(), text(lines))).collect();
    if lasting.mounts {
        let sizes: Vec<Bytes> = reserved(lasting).map(|(size, _)| size).collect();
        for &size in &sizes {
            files.insert(format!("{UNITS}/{}", unit_name(&place(size))), mount_unit(size, lasting.group.as_ref())?);
        }
        if !sizes.is_empty() {
            let units: Vec<String> = sizes.iter().map(|&size| unit_name(&place(size))).collect();
            files.insert(WANTS.to_owned(), format!("{HEAD}[Unit]\nWants={}\n", units.join(" ")));
        }
    }
    Ok(files)
}

/// A line of limits.d: members may lock as much memory as the pools have; `None` without pools, because that would lower the default limit.
/// A group given by number is written as a number.
fn memory_lock(group: &UnixGroup, pools: impl Iterator<Item = (Bytes, u64)>) -> Option<String> {
    let all: Bytes = pools.map(|(size, pages)| Bytes(size.0.saturating_mul(pages))).sum();
    let colon = if group.name.bytes().all(|byte| byte.is_ascii_digit()) { ":" } else { "" };
    (all > Bytes(0)).then(|| format!("@{colon}{} - memlock {}", group.name, all.0 >> 10))
}

fn mount_unit(size: Bytes, group: Option<&UnixGroup>) -> Result<String, PoolError> {
    let owner = group.map(|group| Owner { uid: 0, gid: group.gid });
    let options = MountOptions { owner, mode: owner.map(|_| 0o1770), ..MountOptions::plain(size) }.text()?;
    Ok(format!(
        "{HEAD}\
         [Unit]\n\
         Description=Huge pages of {size}\n\
         Documentation=https://docs.kernel.org/admin-guide/mm/hugetlbpage.html\n\
         ConditionPathExists=/{}\n\
         ConditionCapability=CAP_SYS_ADMIN\n\
         \n\
         [Mount]\n\
         What=hugetlbfs\n\
         Where={}\n\
         Type=hugetlbfs\n\
         Options=nosuid,nodev,{options}\n",
        Pool::directory(size),
        place(size)
    ))
}

/// The unit name that systemd expects for a mount point (systemd.unit(5), "String Escaping for Inclusion in Unit Names").
fn unit_name(point: &str) -> String {
    let mut name = String::new();
    for (index, byte) in point.trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if index == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(char::from(byte)),
            _ => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    name + ".mount"
}

fn next_steps(edits: &[Edit], giants: &[(Bytes, u64)], around: &PoolSurroundings) -> Vec<NextStep> {
    let edit = |path: &str| edits.iter().find(|edit| edit.path == path);
    let is_written = |path: &str| edit(path).is_some_and(|edit| edit.after.is_some());
    let mut steps = Vec::new();
    if is_written(SYSCTL) {
        steps.push(NextStep::LoadSysctl { path: SYSCTL });
    }
    if is_written(TMPFILES) {
        steps.push(NextStep::CreateTmpfiles { path: TMPFILES });
    }
    if edits.iter().any(|edit| edit.path.starts_with(UNITS)) {
        let is_unit = |edit: &&Edit| edit.path.ends_with(".mount") && edit.after.is_some();
        let names = edits.iter().filter(is_unit).filter_map(|edit| edit.path.rsplit_once('/'));
        steps.push(NextStep::ReloadUnits { units: names.map(|(_, name)| name.to_owned()).collect() });
    }
    if edit(GRUB).is_some() {
        steps.push(NextStep::UpdateGrub);
    }
    if edit(COMMAND_LINE).is_some() {
        steps.push(NextStep::InstallKernel { image: around.kernel_image.unwrap_or(KERNEL_IMAGES[0]) });
    }
    if is_written(LIMITS) {
        steps.push(NextStep::LogInAnew);
    }
    steps.extend(take_out(giants, around));
    let is_in_a_file = around.grub_reads_files || around.files.contains_key(COMMAND_LINE);
    if !giants.is_empty() && !is_in_a_file {
        let words = command_line::words(giants);
        steps.push(if around.grubby { NextStep::Grubby { words } } else { NextStep::ByHand { words } });
    }
    steps
}

/// Words that somebody added by grubby or by hand, as told, are in no file that could be removed.
fn take_out(giants: &[(Bytes, u64)], around: &PoolSurroundings) -> Option<NextStep> {
    let words = &around.booted_with;
    let in_a_file = |text: &String| text.contains(words) || command_line::giants(text) == *words;
    let is_left = !words.is_empty() && *words != command_line::words(giants) && !around.files.values().any(in_a_file);
    is_left.then(|| NextStep::TakeOut { words: words.clone(), grubby: around.grubby })
}

#[cfg(test)]
mod tests;
