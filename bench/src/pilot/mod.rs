//! What the pilot achieves over time: with too few huge pages, against a second program, after a change, and when idle.
//!
//! Owns: the order of scenarios, and saving their results. Never touches: how the pilot achieves them.
//!
//! Programs start on base pages, and the pilot does not know what the harness knows about them. Every scenario saves its raw results, prints its
//! table, and compares it with the figure to reach.

mod arguments;
mod budget;
mod late_starter;
mod moved;
mod scenario;
mod steady;
mod timeline;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

pub use self::arguments::PilotArguments;
use self::arguments::Scene;
use self::scenario::{Scenario, Stage};
use crate::machine::MachineDescription;
use crate::outputs::Results;
use crate::rounds;
use crate::settings::SavedSettings;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench pilot --quick                         all scenarios, a first result in some ten minutes
  hugepilot-bench pilot --only moved,steady --keep      two of them, raw results kept
  hugepilot-bench pilot --only budget --rounds 30       until the intervals are narrow enough

Run as root, with up to 7 GiB of free memory, on a machine that does nothing else.";

/// One file of raw results.
#[derive(Serialize)]
struct Record<'a, T> {
    version: u32,
    scenario: &'a str,
    description: String,
    machine: &'a MachineDescription,
    rounds: &'a [T],
}

impl PilotArguments {
    /// Measures the scenarios one after the other.
    pub fn run(&self) -> Result<()> {
        let wanted = |scene: &Scene| self.only.is_empty() || self.only.contains(scene);
        for &scene in Scene::value_variants().iter().filter(|scene| wanted(scene)) {
            ensure_base_pages()?;
            match scene {
                Scene::Budget => budget::measure(self)?,
                Scene::LateStarter => self.perform(&late_starter::LateStarter::new(self))?,
                Scene::Moved => self.perform(&moved::Moved::new(self))?,
                Scene::Steady => self.perform(&steady::Steady::new(self))?,
            }
        }
        Ok(())
    }

    fn perform<S: Scenario>(&self, scenario: &S) -> Result<()> {
        let stage = Stage::open(self)?;
        let minutes = (scenario.expected_time().as_secs_f64() / 60.0).ceil();
        eprintln!(
            "pilot {}: {}\nabout {minutes} min; Ctrl-C ends early and reports what there is",
            S::NAME,
            scenario.description()
        );
        let mut rounds = Vec::new();
        let ended = scenario.measure(&stage, &mut rounds);
        if !rounds.is_empty() {
            let text = format!("pilot {}: {}\n\n{}\n", S::NAME, scenario.description(), scenario.text(&rounds));
            let record = Record {
                version: 1,
                scenario: S::NAME,
                description: scenario.description(),
                machine: &stage.machine,
                rounds: &rounds,
            };
            let json = serde_json::to_string(&record)? + "\n";
            let results = Results { name: &format!("pilot-{}", S::NAME), json, text: &text, draw: None };
            results.show(self.keep.as_deref(), &stage.machine)?;
        }
        rounds::ended(ended, &stage.stop, "kept")
    }
}

/// Programs that are huge from the start leave the pilot nothing to do.
fn ensure_base_pages() -> Result<()> {
    let enabled = SavedSettings::of_this_machine()?.read("enabled")?;
    ensure!(
        enabled != "always",
        "transparent_hugepage/enabled is always here, so that programs start on huge pages: \
         `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` first"
    );
    Ok(())
}
