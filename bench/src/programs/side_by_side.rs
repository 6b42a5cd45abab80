//! Programs that run side by side in several setups, each stopped except during its turns.
//!
//! Owns: the order of turns. Never touches: how a program is started, or how its work is counted.
//!
//! All processes live through the same minutes of a noisy machine, and a turn follows within seconds the ones that it is compared with. What the
//! machine does not even out is where a process's memory lies, which lasts as long as the process: several starts tell that.

use std::time::Duration;

use anyhow::Result;
use hugepilot_os::stop::Stop;

use super::definition::ProgramDefinition;
use super::setup::{ProgramInSetup, ProgramSetup};
use super::setups_record::{ProgramTurns, SetupTurn};
use crate::rounds::{order_of_round, progress_bar, turns_done};
use crate::settings::SavedSettings;
use crate::tool::Tool;

/// What was stopped has cold caches at first.
const SETTLING: Duration = Duration::from_millis(200);

/// How programs are compared.
#[derive(Clone, Debug)]
pub(super) struct SideBySide<'a> {
    pub(super) setups: &'a [ProgramSetup],
    pub(super) starts: u32,
    pub(super) rounds: u32,
    pub(super) lasting: Duration,
    pub(super) tool: &'a Tool,
    pub(super) stop: &'a Stop,
}

impl SideBySide<'_> {
    /// Measures one program; `turns` has what was measured even if it ends early.
    pub(super) fn measure(
        &self,
        definition: &ProgramDefinition,
        settings: &mut SavedSettings,
        turns: &mut ProgramTurns,
    ) -> Result<()> {
        (0..self.starts).try_for_each(|start| self.measure_once(definition, start, settings, turns))
    }

    fn measure_once(
        &self,
        definition: &ProgramDefinition,
        start: u32,
        settings: &mut SavedSettings,
        turns: &mut ProgramTurns,
    ) -> Result<()> {
        let mut running = self.start(definition, settings, turns)?;
        let bar = progress_bar(u64::from(self.rounds) * running.len() as u64);
        let all: Vec<usize> = (0..running.len()).collect();
        for round in start * self.rounds..(start + 1) * self.rounds {
            for index in order_of_round(&all, 1, round) {
                let program = &mut running[index];
                bar.set_message(format!("{} round {}: {}", turns.program, round + 1, program.setup));
                turns.turns.push(SetupTurn { start, ..self.turn(program, round, settings)? });
                turns_done(&bar, 1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Starts it in each setup in which that is possible. THP=always holds for whatever runs meanwhile, so that one comes first. `promote` keeps to a
    /// pace that others would slow down, so that it comes before the one to which hugepilot is attached, which takes longest.
    fn start(
        &self,
        definition: &ProgramDefinition,
        settings: &mut SavedSettings,
        turns: &mut ProgramTurns,
    ) -> Result<Vec<ProgramInSetup>> {
        let mut running = Vec::new();
        let mut setups: Vec<(u16, ProgramSetup)> = (0..).zip(self.setups.iter().copied()).collect();
        let first = [ProgramSetup::Always, ProgramSetup::Promote, ProgramSetup::Attach];
        setups.sort_by_key(|(_, setup)| first.iter().position(|of_first| of_first == setup).unwrap_or(first.len()));
        for (number, setup) in setups {
            eprintln!("{}: starting {setup}", turns.program);
            let started = ProgramInSetup::start(definition, (setup, number), self.tool, settings, self.stop);
            running.extend(self.unless_missing(setup, started, turns)?);
        }
        let mut ready = Vec::new();
        for program in running {
            let setup = program.setup;
            ready.extend(self.unless_missing(setup, program.when_at_rest(self.stop), turns)?);
        }
        Ok(ready)
    }

    /// Leaves out the setup in which it could not be started. Errors: the run is to end.
    fn unless_missing(
        &self,
        setup: ProgramSetup,
        started: Result<ProgramInSetup>,
        turns: &mut ProgramTurns,
    ) -> Result<Option<ProgramInSetup>> {
        let error = match started {
            Ok(program) => return Ok(Some(program)),
            Err(error) => error,
        };
        self.stop.check()?;
        if !turns.missing.iter().any(|(missing, _)| *missing == setup) {
            turns.missing.push((setup, format!("{error:#}")));
        }
        Ok(None)
    }

    fn turn(&self, program: &mut ProgramInSetup, round: u32, settings: &mut SavedSettings) -> Result<SetupTurn> {
        let [before, after] = program.turn((SETTLING, self.lasting), settings, self.stop)?;
        let memory = program.memory()?;
        let work = after.work - before.work;
        Ok(SetupTurn {
            start: 0,
            round,
            setup: program.setup,
            work_per_cpu_second: work / after.cpu.saturating_sub(before.cpu).seconds().max(1e-3),
            work_per_second: work / after.at.duration_since(before.at).as_secs_f64(),
            own_bytes: memory.own,
            huge_bytes: memory.huge,
        })
    }
}
