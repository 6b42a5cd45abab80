//! What another command printed, kept as raw results, so that a figure that no benchmark of ours measures has its source, too.
//!
//! Owns: running the command, and the format of that file, `"version": 1`. Never touches: what the command says.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::kept::VERSION;
use crate::machine::{MachineDescription, slug};
use crate::outputs::{Outputs, Results, json_lines};
use crate::settings::SavedSettings;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench record color-probe --keep -- hugepilot color probe --rounds 100
  hugepilot-bench record first-demo --keep -- scripts/demo

A table of a document shows what follows some words on a line of it.";

/// `record`
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// The name under which it is kept
    name: String,
    #[command(flatten)]
    outputs: Outputs,
    /// The command; what it prints on its standard error is shown, and not kept
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrintedRecord {
    kind: String,
    version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// How long the command took.
    seconds: f64,
    /// What it printed, line by line.
    lines: Vec<String>,
}

impl RecordArguments {
    /// Runs the command. Errors: it fails; nothing is kept then.
    pub fn run(&self) -> Result<()> {
        ensure!(slug(&self.name) == self.name, "'{}' is no name: use lower-case letters, digits and dashes", self.name);
        // The command may be one of ours, which locks the settings.
        let machine = MachineDescription::describe(&SavedSettings::of_this_machine()?)?;
        let began = Instant::now();
        let program = self.command[0].to_string_lossy();
        let output = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run '{program}'; give its path, or check PATH"))?;
        ensure!(output.status.success(), "'{program}' ended with {}", output.status);
        let lines = String::from_utf8(output.stdout).with_context(|| format!("'{program}' printed no text"))?;
        let record = PrintedRecord {
            kind: "printed".to_owned(),
            version: VERSION,
            machine,
            seconds: began.elapsed().as_secs_f64(),
            lines: lines.lines().map(str::to_owned).collect(),
        };
        let (text, json) = (record.text(), json_lines(&record, "kind")?);
        self.outputs.tell(&record.machine, &Results { name: &self.name, json, text: &text, draw: None })
    }
}

impl PrintedRecord {
    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine);
        if let Some(by) = &self.machine.measured_by {
            text += &format!("{}, {:.1} s\n", by.command, self.seconds);
        }
        text + "\n" + &self.lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{ResultKind, parse};

    #[test]
    fn a_file_is_read_as_it_was_written_and_told() {
        let record = PrintedRecord {
            kind: "printed".to_owned(),
            version: VERSION,
            machine: crate::machine::tests::machine(),
            seconds: 2.0,
            lines: vec!["peak: 20 MiB".to_owned(), "{\"runs\": 3}".to_owned()],
        };
        let text = json_lines(&record, "kind").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Printed));
        assert_eq!(parse::<PrintedRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        assert!(record.text().contains("\n\npeak: 20 MiB\n"), "{}", record.text());
    }
}
