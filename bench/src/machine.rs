//! The machine on which figures were measured, described well enough to judge them later.
//!
//! Owns: reading that description, and the date. Never touches: settings.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use heat::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::settings::SavedSettings;

/// A description of one machine on one day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineDescription {
    /// The day, `2026-01-31`.
    pub date: String,
    /// The processor's name.
    pub processor: String,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
    /// All memory.
    pub memory_bytes: u64,
    /// `transparent_hugepage/enabled` as found.
    pub huge_pages_enabled: String,
    /// `transparent_hugepage/defrag` as found.
    pub huge_pages_defrag: String,
    /// The program that measured; None in results from before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<MeasuredBy>,
}

/// The code that measured, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredBy {
    /// The command line, without the directories of the program and of what is kept.
    pub command: String,
    /// The commit that the program was built from, followed by "with changes" if something was not committed; "unknown" if git was missing.
    pub commit: String,
}

impl MeasuredBy {
    /// This program.
    fn this_program() -> Self {
        Self { command: portable_command(std::env::args()), commit: env!("HUGEPILOT_COMMIT").to_owned() }
    }
}

/// A command line as another machine would have it.
fn portable_command(mut words: impl Iterator<Item = String>) -> String {
    let program = words.next().unwrap_or_default();
    let mut told = vec![program.rsplit('/').next().unwrap_or_default().to_owned()];
    for word in words {
        let is_directory = told.last().is_some_and(|last| last == "--keep") && !word.starts_with('-');
        if !is_directory {
            told.push(word);
        }
    }
    told.join(" ")
}

/// The first line of a report.
impl fmt::Display for MachineDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, processor, processors, kernel, .. } = self;
        write!(f, "{processor}, {processors} processors, {} memory, Linux {kernel}, {date}", Bytes(self.memory_bytes))
    }
}

impl MachineDescription {
    /// Describes this machine.
    pub fn describe(settings: &SavedSettings) -> Result<Self> {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Ok(Self {
            date: civil_date(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400),
            processor: processor_name(&processors),
            processors: std::thread::available_parallelism()?.get(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_bytes: crate::sample::machine_memory()?.total.0,
            huge_pages_enabled: settings.read("enabled")?,
            huge_pages_defrag: settings.read("defrag")?,
            measured_by: Some(MeasuredBy::this_program()),
        })
    }

    /// The path for results of this name below a directory, without extension, with the first free number: results of a real run are never
    /// overwritten.
    pub fn free_path(&self, directory: &Path, name: &str) -> Result<PathBuf> {
        let directory = directory.join(self.directory_name());
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let taken = |name: String| directory.join(name).exists();
        let free = |number: &u32| !taken(format!("{name}-{number}.json.zst"));
        let number = (1..).find(free).context("no name is free")?;
        Ok(directory.join(format!("{name}-{number}")))
    }

    /// A directory name for saved results: date, processor and kernel.
    fn directory_name(&self) -> String {
        format!("{}-{}-{}", self.date, slug(&self.processor), slug(&self.kernel))
    }
}

/// The processor's name in `/proc/cpuinfo` with its family and model, because the name in a virtual machine may say nothing ("AMD EPYC").
fn processor_name(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim() == name).map_or("unknown", |(_, value)| value.trim())
    };
    format!("{} (family {}, model {})", field("model name"), field("cpu family"), field("model"))
}

/// Lower-case words joined by single dashes, for file names; dots stay, because version numbers have them.
pub fn slug(text: &str) -> String {
    let kept = text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', " ");
    kept.split_whitespace().collect::<Vec<_>>().join("-")
}

/// The date that many days after 1970-01-01; years begin in March here, so that leap days come last.
fn civil_date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A fictitious machine.
    pub fn machine() -> MachineDescription {
        MachineDescription {
            date: "2026-01-31".to_owned(),
            processor: "a processor".to_owned(),
            processors: 2,
            kernel: "6.18".to_owned(),
            memory_bytes: 1 << 34,
            huge_pages_enabled: "madvise".to_owned(),
            huge_pages_defrag: "madvise".to_owned(),
            measured_by: None,
        }
    }

    #[test]
    fn a_command_is_told_without_directories_of_this_machine() {
        let told = |line: &str| portable_command(line.split(' ').map(str::to_owned));
        assert_eq!(told("/a/hugepilot-bench io --keep /b/c --rounds 6"), "hugepilot-bench io --keep --rounds 6");
        assert_eq!(told("hugepilot-bench io --keep --rounds 6"), "hugepilot-bench io --keep --rounds 6");
    }

    #[test]
    fn dates_of_known_days() {
        for (days, date) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_453, "2025-12-31")]
        {
            assert_eq!(civil_date(days), date);
        }
    }

    #[test]
    fn a_processor_is_told_from_others_of_its_name() {
        let text =
            "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\ncpu family\t: 7";
        assert_eq!(processor_name(text), "AMD EPYC (family 26, model 2)");
        assert_eq!(processor_name(""), "unknown (family unknown, model unknown)");
        assert!(machine().to_string().starts_with("a processor, 2 processors, 16 GiB memory, Linux 6.18"));
    }

    #[test]
    fn slugs_hold_nothing_that_a_shell_minds() {
        assert_eq!(slug("Intel(R) Xeon(R) CPU @ 3.40GHz"), "intel-r-xeon-r-cpu-3.40ghz");
        assert_eq!(slug("6.18.44-fc_v669"), "6.18.44-fc-v669");
    }
}
