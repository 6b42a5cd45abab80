//! Where results go besides the terminal: named files, and a directory for saved results.
//!
//! Owns: the options for that, file names, and how files are written. Never touches: their contents.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use picture::check_name;
use serde::Serialize;

use crate::machine::MachineDescription;
use crate::settings::SavedSettings;
use crate::table::print;

/// A hundred runs are in the repository, so files must be as small as possible, however long that takes.
const ZSTD_LEVEL: i32 = 22;

/// Files that are wanted.
#[derive(Clone, Debug, Default, Args)]
pub struct Outputs {
    /// Writes the raw results to a file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draws the results to a file, FILE.svg or FILE.png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Keeps raw results and report below a directory, in one named after day and machine; `report` draws them
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    pub keep: Option<PathBuf>,
}

/// Draws a picture to a file.
type Draw<'a> = dyn Fn(&Path) -> Result<()> + 'a;

/// Results in all their forms.
pub struct Results<'a> {
    /// The name under which they are saved.
    pub name: &'a str,
    /// The raw results.
    pub json: String,
    /// The report.
    pub text: &'a str,
    /// Draws the picture; None if there is none.
    pub draw: Option<&'a Draw<'a>>,
}

impl Outputs {
    /// Errors: the plot cannot be drawn. Call this before hours of measuring.
    pub fn check(&self) -> Result<()> {
        Ok(self.plot.as_deref().map_or(Ok(()), check_name)?)
    }

    /// The machine that names the saved results, if they are to be saved. Call this before minutes of simulating, because it may fail.
    pub fn machine(&self) -> Result<Option<MachineDescription>> {
        self.keep.is_some().then(|| MachineDescription::describe(&SavedSettings::of_this_machine()?)).transpose()
    }

    /// Prints the report and writes the requested files.
    pub fn tell(&self, machine: &MachineDescription, results: &Results<'_>) -> Result<()> {
        let printed = print(results.text);
        self.write(Some(machine), results)?;
        // Last, as in `show`.
        printed
    }

    /// Writes the requested files. Without a machine to name the directory after, nothing is saved.
    pub fn write(&self, machine: Option<&MachineDescription>, results: &Results<'_>) -> Result<()> {
        self.json.as_deref().map_or(Ok(()), |path| write(path, &results.json))?;
        self.keep.as_deref().zip(machine).map_or(Ok(()), |(directory, machine)| results.keep(directory, machine))?;
        self.plot.as_deref().zip(results.draw).map_or(Ok(()), |(path, draw)| draw(path))
    }
}

impl Results<'_> {
    /// Prints the report, and saves everything below a directory if one is given.
    pub fn show(&self, keep: Option<&Path>, machine: &MachineDescription) -> Result<()> {
        let printed = print(self.text);
        keep.map_or(Ok(()), |directory| self.keep(directory, machine))?;
        // Last, because a closed output must not cost us the files.
        printed
    }

    /// Saves them below a directory under an unused name, with the raw results compressed.
    pub fn keep(&self, directory: &Path, machine: &MachineDescription) -> Result<()> {
        let path = machine.free_path(directory, self.name)?;
        write(&path.with_extension("json.zst"), zstd::encode_all(self.json.as_bytes(), ZSTD_LEVEL)?)?;
        write(&path.with_extension("txt"), self.text)?;
        eprintln!("kept in {}.*", path.display());
        Ok(())
    }
}

/// A file's text: each part that begins with this field gets its own line, so that files can be compared.
pub fn json_lines(value: &impl Serialize, first_field: &str) -> Result<String> {
    let begins = format!("{{\"{first_field}\":");
    Ok(serde_json::to_string(value)?.replace(&begins, &format!("\n{begins}")) + "\n")
}

fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::read_text;
    use crate::machine::tests::machine;

    #[test]
    fn results_are_written_where_they_are_wanted_and_never_over_others() {
        let folder = tempfile::tempdir().unwrap();
        let draw = |path: &Path| write(path, "a picture");
        let results = Results { name: "run", json: "{}\n".to_owned(), text: "a report", draw: Some(&draw) };
        let keep = Some(folder.path().join("runs"));
        let [json, plot] = ["a.json", "a.svg"].map(|name| folder.path().join(name));
        let outputs = Outputs { json: Some(json.clone()), plot: Some(plot.clone()), keep };
        outputs.write(None, &results).unwrap();
        assert!(!folder.path().join("runs").exists(), "named after nothing");
        outputs.write(Some(&machine()), &results).unwrap();
        outputs.write(Some(&machine()), &results).unwrap();
        assert_eq!([json, plot].map(|path| fs::read_to_string(path).unwrap()), ["{}\n", "a picture"]);
        let kept = fs::read_dir(folder.path().join("runs")).unwrap().next().unwrap().unwrap().path();
        let mut names: Vec<_> = fs::read_dir(kept).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["run-1.json.zst", "run-1.txt", "run-2.json.zst", "run-2.txt"]);
    }

    #[test]
    fn compressed_results_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let json = "[1, 2]\n".repeat(1000);
        let results = Results { name: "run", json: json.clone(), text: "a report", draw: None };
        results.keep(folder.path(), &machine()).unwrap();
        results.keep(folder.path(), &machine()).unwrap();
        let kept = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        for name in ["run-1.json.zst", "run-2.json.zst"] {
            assert!(fs::metadata(kept.join(name)).unwrap().len() < 200, "{name}");
            assert_eq!(read_text(&kept.join(name)).unwrap(), json);
        }
        let plain = folder.path().join("plain.json");
        write(&plain, &json).unwrap();
        assert_eq!(read_text(&plain).unwrap(), json);
        // It begins like a compressed file.
        write(&plain, [0x28, 0xb5, 0x2f, 0xfd, 0, 0]).unwrap();
        assert!(read_text(&plain).is_err(), "damaged");
    }

    #[test]
    fn each_part_has_a_line_of_its_own() {
        let value = serde_json::json!({ "turns": [{ "round": 0 }, { "round": 1 }] });
        assert_eq!(json_lines(&value, "round").unwrap(), "{\"turns\":[\n{\"round\":0},\n{\"round\":1}]}\n");
    }
}
