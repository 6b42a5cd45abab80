//! What all scenarios have in common: their shape, their inputs, and how figures are printed.
//!
//! Owns: these. Never touches: what is measured in any of them.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use hugepilot_os::stop::{SecondSignal, Stop};
use serde::Serialize;

use super::arguments::PilotArguments;
use crate::machine::MachineDescription;
use crate::settings::SavedSettings;
use crate::tool::Tool;
use crate::verdict::FigureVerdict;
use crate::workload::{Running, leave_alone};

/// The approximate time for warming memory, starting a program and ending it.
pub(super) const AROUND: Duration = Duration::from_secs(12);

/// Something measured in rounds.
pub(super) trait Scenario {
    /// The result of a round, or of a part of it.
    type Round: Serialize;
    /// The name of its results.
    const NAME: &'static str;

    /// A description of its setup.
    fn description(&self) -> String;
    /// Its approximate duration.
    fn expected_time(&self) -> Duration;
    /// Measures; the contents of `rounds` count even if this ends with an error.
    fn measure(&self, stage: &Stage, rounds: &mut Vec<Self::Round>) -> Result<()>;
    /// The tables, with verdicts.
    fn text(&self, rounds: &[Self::Round]) -> String;
}

/// Everything that scenarios need.
pub(super) struct Stage {
    pub(super) machine: MachineDescription,
    pub(super) tool: Tool,
    pub(super) stop: Stop,
    /// Excludes a second harness, and restores the settings of one that was killed.
    _settings: SavedSettings,
}

impl Stage {
    /// Takes the machine's lock and settings.
    pub(super) fn open(arguments: &PilotArguments) -> Result<Self> {
        let tool = Tool::find(arguments.hugepilot.clone())?;
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let settings = SavedSettings::of_this_machine()?;
        Ok(Self { machine: MachineDescription::describe(&settings)?, tool, stop, _settings: settings })
    }

    /// Lets programs run on for a while. Errors: one of them ends.
    pub(super) fn leave_alone(&self, programs: &mut [&mut dyn Running], time: Duration) -> Result<()> {
        leave_alone(programs, Instant::now() + time, &self.stop)
    }
}

/// A line of the figures, in the form of the other benchmarks.
pub(super) fn figure(text: &str, numbers: &str, verdict: impl fmt::Display) -> String {
    format!("  {text:<42} {numbers:<28} {verdict}\n")
}

/// The verdict on numbers that must all keep a bound.
pub(super) fn all_within(values: &[Option<f64>], at_most: f64) -> FigureVerdict {
    match values {
        [] => FigureVerdict::NotMeasured,
        _ if values.iter().all(|value| value.is_some_and(|value| value <= at_most)) => FigureVerdict::Met,
        _ => FigureVerdict::NotMet,
    }
}

/// Seconds; or a note that it took longer than the observation.
pub(super) fn seconds(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_must_keep_the_bound() {
        assert_eq!(all_within(&[], 10.0), FigureVerdict::NotMeasured);
        assert_eq!(all_within(&[Some(3.0), Some(10.0)], 10.0), FigureVerdict::Met);
        assert_eq!(all_within(&[Some(3.0), Some(10.1)], 10.0), FigureVerdict::NotMet);
        assert_eq!(all_within(&[Some(3.0), None], 10.0), FigureVerdict::NotMet);
    }
}
