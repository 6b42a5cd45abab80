//! Reads saved raw results: determines a file's kind, and which program can report it.
//!
//! Owns: reading files, their kinds and their versions. Never touches: what the numbers mean.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, ensure};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// A larger file is not one of our results.
const LARGEST: u64 = 1 << 30;
/// The version of all raw results of `hugepilot-bench`; a file with another number is rejected.
pub const VERSION: u32 = 1;
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// `report`, of either program.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArguments {
    /// Raw results, as `--json` or `--keep` wrote them.
    pub file: PathBuf,
    /// Draws the results to a file, FILE.svg or FILE.png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// The program that reports results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultsBinary {
    /// The one that measures real programs.
    Bench,
    /// The one that reproduces papers by models.
    Research,
}

/// What was measured or simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Configurations compared on workloads.
    Workloads,
    /// The effect of promotion on a running program.
    Felt,
    /// A server of many processes.
    Postgres,
    /// Other servers; no longer measured that way.
    Servers,
    /// Trials of real programs.
    Programs,
    /// Real programs in several setups, side by side.
    ProgramSetups,
    /// A command beside many programs.
    Crowd,
    /// A file that is mapped.
    Mapped,
    /// What another command printed.
    Printed,
    /// Reclaiming memory.
    Io,
    /// The pilot over time; its scenario `budget` is one of the workloads.
    Pilot,
    /// How much trackers find.
    Tracker,
    /// The cost of a tracker's pass.
    Cost,
    /// How much a tracker slows a program down.
    Slowdown,
    /// Page lists, simulated.
    Lists,
    /// Page coloring.
    Transpose,
    /// Sorting in huge and in base pages.
    Sort,
}

/// What identifies a file's kind: its name, or fields that only it has.
#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
    runs: Option<IgnoredAny>,
    scenario: Option<IgnoredAny>,
    /// Earlier results have another name for this field.
    #[serde(alias = "looks")]
    scans: Option<IgnoredAny>,
    passes: Option<IgnoredAny>,
    spans: Option<IgnoredAny>,
    outcomes: Option<IgnoredAny>,
    series: Option<IgnoredAny>,
    turns: Option<IgnoredAny>,
    description: Option<IgnoredAny>,
}

impl fmt::Display for ResultsBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ResultsBinary::Bench => "hugepilot-bench",
            ResultsBinary::Research => "hugepilot-research",
        })
    }
}

/// Each kind's name, and the program that reports it; None if none was ever needed, because the report is saved with the raw results.
const KINDS: [(ResultKind, &str, Option<ResultsBinary>); 17] = [
    (ResultKind::Workloads, "workloads", Some(ResultsBinary::Bench)),
    (ResultKind::Felt, "felt", Some(ResultsBinary::Bench)),
    (ResultKind::Postgres, "postgres", Some(ResultsBinary::Bench)),
    (ResultKind::Servers, "servers", None),
    (ResultKind::Programs, "programs", Some(ResultsBinary::Bench)),
    (ResultKind::ProgramSetups, "program-setups", Some(ResultsBinary::Bench)),
    (ResultKind::Crowd, "crowd", Some(ResultsBinary::Bench)),
    (ResultKind::Mapped, "mapped", Some(ResultsBinary::Bench)),
    (ResultKind::Printed, "record", Some(ResultsBinary::Bench)),
    (ResultKind::Io, "io", Some(ResultsBinary::Bench)),
    (ResultKind::Pilot, "pilot", None),
    (ResultKind::Tracker, "tracker", None),
    (ResultKind::Cost, "tracker --only cost", None),
    (ResultKind::Slowdown, "tracker --only slowdown", None),
    (ResultKind::Lists, "lists", Some(ResultsBinary::Research)),
    (ResultKind::Transpose, "transpose", Some(ResultsBinary::Research)),
    (ResultKind::Sort, "sort", Some(ResultsBinary::Research)),
];

impl fmt::Display for ResultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(KINDS[*self as usize].1)
    }
}

impl ResultKind {
    /// The kind of a file, from its text; None if it is no result.
    pub fn of(text: &str) -> Option<Self> {
        let head: Head = serde_json::from_str(text).ok()?;
        match head.kind.as_deref() {
            Some("felt") => Some(ResultKind::Felt),
            Some("postgres") => Some(ResultKind::Postgres),
            Some("servers") => Some(ResultKind::Servers),
            Some("programs") => Some(ResultKind::Programs),
            Some("program-setups") => Some(ResultKind::ProgramSetups),
            Some("crowd") => Some(ResultKind::Crowd),
            Some("mapped") => Some(ResultKind::Mapped),
            Some("printed") => Some(ResultKind::Printed),
            Some(_) => None,
            None => head.without_name(),
        }
    }

    /// The program that reports it, if there is one.
    pub fn teller(self) -> Option<ResultsBinary> {
        KINDS[self as usize].2
    }
}

impl Head {
    fn without_name(&self) -> Option<ResultKind> {
        let told = [
            (self.runs.is_some(), ResultKind::Workloads),
            (self.scenario.is_some(), ResultKind::Pilot),
            (self.scans.is_some(), ResultKind::Tracker),
            (self.passes.is_some(), ResultKind::Cost),
            (self.spans.is_some(), ResultKind::Slowdown),
            (self.outcomes.is_some(), ResultKind::Lists),
            (self.series.is_some(), ResultKind::Transpose),
            (self.turns.is_some() && self.description.is_some(), ResultKind::Io),
            (self.turns.is_some(), ResultKind::Sort),
        ];
        told.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
    }
}

impl ResultsBinary {
    /// The other one.
    fn other(self) -> Self {
        match self {
            ResultsBinary::Bench => ResultsBinary::Research,
            ResultsBinary::Research => ResultsBinary::Bench,
        }
    }

    /// Why this program does not report a file of that kind, and which one does.
    pub fn refusal(self, file: &Path, kind: Option<ResultKind>) -> Error {
        let file = file.display();
        let Some(kind) = kind else {
            let other = self.other();
            let theirs: Vec<&str> =
                KINDS.iter().filter(|(.., teller)| *teller == Some(other)).map(|(_, name, _)| *name).collect();
            return anyhow!(
                "{file} holds no results that {self} knows; those of {} are told by `{other} report`",
                theirs.join(", ")
            );
        };
        match kind.teller() {
            Some(teller) => anyhow!("{file} holds results of `{kind}`: `{teller} report {file}` tells them"),
            None => anyhow!("{file} holds results of `{kind}`: their report is the .txt that was kept beside them"),
        }
    }
}

/// A file's contents, uncompressed.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !bytes.starts_with(ZSTD_MAGIC) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let read = zstd::Decoder::new(&bytes[..])?.take(LARGEST).read_to_end(&mut unpacked);
    read.with_context(|| format!("{} is damaged", path.display()))?;
    ensure!((unpacked.len() as u64) < LARGEST, "{} holds more than {LARGEST} bytes", path.display());
    Ok(unpacked)
}

/// The text of a file of raw results, compressed or not.
pub fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read_bytes(path)?).with_context(|| format!("{} holds no text", path.display()))
}

/// The results in a file whose kind is known. Errors: they are damaged, or of another version.
pub fn parse<T: DeserializeOwned>(text: &str, file: &Path, version: u32) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = || format!("{} is damaged: measure again", file.display());
    let found = serde_json::from_str::<Version>(text).with_context(damaged)?.version;
    ensure!(found == version, "{} has version {found}, this program reads version {version}", file.display());
    serde_json::from_str(text).with_context(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_names_or_by_what_only_they_have() {
        for (text, kind) in [
            (r#"{"kind":"felt","version":1,"turns":[]}"#, Some(ResultKind::Felt)),
            (r#"{"version":1,"runs":[]}"#, Some(ResultKind::Workloads)),
            (r#"{"version":1,"description":"a test","turns":[]}"#, Some(ResultKind::Io)),
            (r#"{"version":1,"machine":null,"turns":[]}"#, Some(ResultKind::Sort)),
            (r#"{"version":1,"outcomes":[]}"#, Some(ResultKind::Lists)),
            (r#"{"version":1,"series":[]}"#, Some(ResultKind::Transpose)),
            (r#"{"kind":"of tomorrow","runs":[]}"#, None),
            ("{}", None),
            ("no JSON", None),
        ] {
            assert_eq!(ResultKind::of(text), kind, "{text}");
        }
    }

    #[test]
    fn whoever_does_not_tell_a_kind_names_who_does() {
        let refusal = |program: ResultsBinary, kind| program.refusal("a.json".as_ref(), kind).to_string();
        let lists = refusal(ResultsBinary::Bench, Some(ResultKind::Lists));
        assert_eq!(lists, "a.json holds results of `lists`: `hugepilot-research report a.json` tells them");
        assert!(refusal(ResultsBinary::Research, Some(ResultKind::Felt)).contains("`hugepilot-bench report a.json`"));
        assert!(
            refusal(ResultsBinary::Bench, None)
                .contains("lists, transpose, sort are told by `hugepilot-research report`")
        );
        assert!(refusal(ResultsBinary::Research, None).contains("`hugepilot-bench report`"));
        assert!(refusal(ResultsBinary::Bench, Some(ResultKind::Pilot)).contains(".txt"));
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let error = |text: &str| parse::<IgnoredAny>(text, "a.json".as_ref(), 1).unwrap_err().to_string();
        assert!(error(r#"{"version":2}"#).contains("has version 2"));
        assert!(error("{").contains("is damaged") && error("{}").contains("is damaged"));
        assert!(parse::<IgnoredAny>(r#"{"version":1}"#, "a.json".as_ref(), 1).is_ok());
    }
}
