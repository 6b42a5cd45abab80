//! The ways in which a program is set up to be compared with itself.
//!
//! Owns: their names, and how each is started. Never touches: what is measured.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use heat::units::{Bytes, HUGE_PAGE, Nanos};
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::{FamilyUsage, ProcessStatus, descendants};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use trial::meter::{CommandMeter, Meter};

use super::definition::ProgramDefinition;
use super::running::{HowStarted, LoadedProgram};
use crate::ideal::collapse_all;
use crate::pool::FilledPool;
use crate::sample::{huge_memory, machine_memory};
use crate::settings::SavedSettings;
use crate::tool::{Tool, ToolProcess};

/// hugepilot has done what it will when nothing more became huge for so long. It watches an allocator for 45 s first.
const STILL: Duration = Duration::from_secs(50);
/// It gets no more time than that.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_secs(1);
/// What must be left of the machine's memory.
const LEFT: Bytes = Bytes(3 << 30);

/// How a program is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramSetup {
    /// As it is.
    Default,
    /// The same once more: the machine's noise.
    DefaultAgain,
    /// Filled, and measured, under THP=always.
    Always,
    /// As its own experts put it on huge pages; left out where they do not.
    Experts,
    /// Started by `hugepilot run --pages thp`.
    RunPages,
    /// `hugepilot promote` with its defaults, once.
    Promote,
    /// `hugepilot attach` with its defaults, once it has done what it will.
    Attach,
    /// Every populated region collapsed: the ceiling.
    Ideal,
}

shown_as_typed!(ProgramSetup);

/// One that runs, stopped except during its turns.
pub(super) struct ProgramInSetup {
    pub(super) setup: ProgramSetup,
    program: LoadedProgram,
    work: CommandMeter,
    /// Ends after everything is measured.
    attached: Option<ToolProcess>,
}

/// What it has done so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetupReading {
    pub(super) at: Instant,
    pub(super) work: f64,
    pub(super) cpu: Nanos,
}

/// The memory of a program's processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FamilyMemory {
    /// Private memory of all, and shared memory and a pool's pages once.
    pub(super) own: Bytes,
    /// What the process that has most of it has on huge pages.
    pub(super) huge: Bytes,
}

impl ProgramInSetup {
    /// Starts it, the `number`th of its program, and stops it unless hugepilot is attached to it, which takes minutes: others can be started
    /// meanwhile. Errors: it does not start in this setup, or there is no memory left for it.
    pub(super) fn start(
        definition: &ProgramDefinition,
        (setup, number): (ProgramSetup, u16),
        tool: &Tool,
        settings: &mut SavedSettings,
        stop: &Stop,
    ) -> Result<Self> {
        let how = how_started(definition, setup, number, tool, settings)?;
        let program = under(setup, settings, || {
            let program = LoadedProgram::start(definition, &how, stop)?;
            stop.sleep_until(Instant::now() + definition.warming())?;
            Ok(program)
        })?;
        let work = CommandMeter(program.rate().to_owned());
        let mut started = Self { setup, program, work, attached: None };
        started.program.check()?;
        match setup {
            ProgramSetup::Attach => started.attached = Some(started.attach(definition.children, tool)?),
            ProgramSetup::Promote => started.promote(definition.children, tool, stop)?,
            ProgramSetup::Ideal => {
                started.family()?.try_for_each(|pid| collapse_all(pid, stop).map(|_| ()))?;
            }
            _ => {}
        }
        ensure!(machine_memory()?.available >= LEFT, "less than {LEFT} of memory are left; name fewer --setups");
        if started.attached.is_none() {
            started.program.signal(Signal::STOP)?;
        }
        Ok(started)
    }

    /// Lets it run for so long, and returns its readings at both ends; the first moments do not count.
    pub(super) fn turn(
        &mut self,
        (settling, lasting): (Duration, Duration),
        settings: &mut SavedSettings,
        stop: &Stop,
    ) -> Result<[SetupReading; 2]> {
        under(self.setup, settings, || {
            self.program.signal(Signal::CONT)?;
            stop.sleep_until(Instant::now() + settling)?;
            self.program.check()?;
            let before = self.read()?;
            stop.sleep_until(Instant::now() + lasting)?;
            let after = self.read()?;
            self.program.signal(Signal::STOP)?;
            Ok([before, after])
        })
    }

    fn read(&mut self) -> Result<SetupReading> {
        let work = self.work.read()?;
        let cpu = FamilyUsage::read(&Root::host(), self.program.pid()?)?.cpu_time;
        Ok(SetupReading { at: Instant::now(), work, cpu })
    }

    /// What its processes take.
    pub(super) fn memory(&self) -> Result<FamilyMemory> {
        let each = self.family()?.filter_map(|pid| Some((pid, ProcessStatus::read(&Root::host(), pid).ok()?)));
        let (mut private, mut shared, mut huge) = (Bytes(0), Bytes(0), Bytes(0));
        for (pid, status) in each {
            private += status.rss_anon;
            shared = shared.max(status.rss_shmem + status.hugetlb);
            huge = huge.max(huge_memory(pid).unwrap_or_default());
        }
        Ok(FamilyMemory { own: private + shared, huge })
    }

    fn family(&self) -> Result<impl Iterator<Item = u32> + use<>> {
        let pid = self.program.pid()?;
        Ok(descendants(&Root::host(), pid)?.into_iter().chain([pid]))
    }

    /// Promotes under load, once.
    fn promote(&mut self, with_children: bool, tool: &Tool, stop: &Stop) -> Result<()> {
        let words: &[&str] = if with_children { &["--children"] } else { &[] };
        let promoting = tool.start_on("promote", self.program.pid()?, words)?;
        while !promoting.has_ended()? {
            stop.sleep_until(Instant::now() + POLL)?;
            self.program.check()?;
        }
        promoting.finish().map(|_| ())
    }

    /// Attaches hugepilot under load.
    fn attach(&self, with_children: bool, tool: &Tool) -> Result<ToolProcess> {
        let pid = self.program.pid()?;
        if with_children { tool.attach_family(pid, false) } else { tool.attach(pid, false, None) }
    }

    /// Waits until nothing more becomes huge if hugepilot is attached to it, and stops it.
    pub(super) fn when_at_rest(mut self, stop: &Stop) -> Result<Self> {
        let (began, mut largest, mut grown) = (Instant::now(), Bytes(0), Instant::now());
        while self.attached.is_some() && grown.elapsed() < STILL && began.elapsed() < PATIENCE {
            stop.sleep_until(Instant::now() + POLL)?;
            self.attached.as_mut().map_or(Ok(()), ToolProcess::check)?;
            self.program.check()?;
            let now = self.memory()?.huge;
            if now.0 > largest.0 + largest.0 / 50 {
                (largest, grown) = (now, Instant::now());
            }
        }
        self.program.signal(Signal::STOP)?;
        Ok(self)
    }
}

/// What its setup needs before it is started.
fn how_started(
    definition: &ProgramDefinition,
    setup: ProgramSetup,
    number: u16,
    tool: &Tool,
    settings: &mut SavedSettings,
) -> Result<HowStarted> {
    let mut how = HowStarted { number, ..HowStarted::default() };
    match setup {
        // No other program stands between them, because hugepilot knows settings of many programs by their names.
        ProgramSetup::RunPages => how.with = format!("{} run --pages thp --", tool.path().display()),
        ProgramSetup::Experts => {
            let experts = definition.experts.as_ref().context("its experts leave it on base pages")?;
            how.experts.clone_from(&experts.words);
            if let Some(memory) = experts.pool {
                let pool = FilledPool::for_program(settings, Bytes(HUGE_PAGE), memory)?.fill(settings)?;
                ensure!(pool.obtained == pool.wanted, "the pool has {} of {} pages", pool.obtained, pool.wanted);
            }
        }
        _ => {}
    }
    Ok(how)
}

/// Works with the machine's settings as the setup has them.
fn under<T>(setup: ProgramSetup, settings: &mut SavedSettings, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if setup != ProgramSetup::Always {
        return work();
    }
    let before = settings.change("enabled", "always")?;
    let done = work();
    settings.change("enabled", &before)?;
    done
}
