//! Raw results of any kind: how they are reported, saved, and reported again.
//!
//! Owns: the order of these steps. Never touches: the contents.

use std::path::Path;

use anyhow::Result;
use hugepilot_bench::kept;
use hugepilot_bench::machine::MachineDescription;
use hugepilot_bench::outputs::{Outputs, Results, json_lines};
use hugepilot_bench::table::print;
use picture::{Picture, draw};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// All results of a run, from which every conclusion is drawn.
pub trait ResearchRecord: Picture + Serialize + DeserializeOwned {
    /// The name under which it is saved.
    const NAME: &'static str;
    /// The version of files written now.
    const VERSION: u32;
    /// The first field of each part that has its own line in the file.
    const FIRST_FIELD: &'static str;

    /// The report.
    fn text(&self) -> String;

    /// The file's text. Errors: a number has no representation in JSON.
    fn json(&self) -> Result<String> {
        json_lines(self, Self::FIRST_FIELD)
    }

    /// Prints the report, and writes the requested files. Errors: something cannot be written.
    fn report(&self, machine: Option<&MachineDescription>, outputs: &Outputs) -> Result<()> {
        let text = self.text();
        let printed = print(&text);
        let picture = |path: &Path| Ok(draw(self, path)?);
        let results = Results { name: Self::NAME, json: self.json()?, text: &text, draw: Some(&picture) };
        outputs.write(machine, &results)?;
        // Last, because a closed output must not cost us the files.
        printed
    }

    /// Shows the report of a file's text again. Errors: it is damaged, or of another version.
    fn retell(text: &str, file: &Path, plot_to: Option<&Path>) -> Result<()> {
        let record: Self = kept::parse(text, file, Self::VERSION)?;
        print(&record.text())?;
        plot_to.map_or(Ok(()), |path| Ok(draw(&record, path)?))
    }
}
