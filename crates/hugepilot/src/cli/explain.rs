//! `hugepilot explain`: which memory is on huge pages, why the rest is not, and whether more would help.

use heat::Heat;
use heat::units::{Bytes, HUGE_PAGE, Slowdown};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::target::Target;
use kernel::thp::Thp;
use observe::walk_cycles::WalkCycles;
use observe::{ObserveError, calibrate};
use pilot::decide::{Allowance, Past, Plan, Spent, decide, expected_gain};
use pilot::engine::{FamilyWatch, add_family};
use pilot::explain::{self, Surroundings};
use pilot::machine::{Machine, require};
use pilot::world::World;

use super::args::ExplainArgs;
use super::terminal;
use crate::report::{AfterRestart, ExplainReport, json, text};

pub(super) fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    let target = Target::open(args.pid)?;
    let _elsewhere = observe::keep_away_from(target.pid());
    require::observing(args.watch.tracker)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut machine = Machine::new(observe::open(args.watch.tracker)?, Slowdown::UNASKED);
    let (machine, process): (&mut dyn World, _) = (&mut machine, target.process());
    let mut walking = WalkCycles::start(&Root::host(), target.pid());
    let family = FamilyWatch::begin(machine, process, args.children)?;
    let options = args.watch.options();
    let mut heat = machine.observe(process, &options, &stop)?;
    machine.complete(&mut heat);
    let family = add_family(&mut heat, process, args.children, machine, &options, family, &stop)?;
    let walk_share = walking.as_mut().and_then(WalkCycles::share);
    let decided =
        |heat: &Heat| decide(heat, &Allowance::default().limits(heat.rss, &Spent::default()), &Past::default());
    let plan = decided(&heat);
    let smaller = match observe::on_smaller_huge_pages(&Root::host(), &heat) {
        Err(ObserveError::FrameTable { .. }) => None,
        told => Some(told?),
    };
    let explanation = explain::explain(&heat, &plan, smaller.as_deref(), &surroundings(&target)?);
    let (cost, cost_from) = calibrate::walk_cost(family.footprint, terminal::say_measuring);
    let cost = cost.with_unmapping(family.unmapped_share);
    let gain = expected_gain(&plan, &cost, heat.busy_cpus);
    let would_pay = |plan: &Plan| Bytes(plan.promotions().count() as u64 * HUGE_PAGE);
    let after_restart = heat.as_if_aligned().map(|aligned| {
        let plan = decided(&aligned);
        AfterRestart { would_pay: would_pay(&plan), gain: expected_gain(&plan, &cost, heat.busy_cpus) }
    });
    let report = ExplainReport {
        heat: &heat,
        explanation: &explanation,
        family,
        gain: walk_share.map_or(gain, |share| gain.map(|gain| gain.within(share, &plan))),
        after_restart: after_restart.filter(|restarted| restarted.would_pay > would_pay(&plan)),
        cost,
        cost_from,
        walk_share,
    };
    terminal::print(&if args.json { json::explain(&report) } else { text::explain(&report) })
}

fn surroundings(target: &Target) -> anyhow::Result<Surroundings> {
    let settings = Thp::read(&Root::host())?;
    Ok(Surroundings {
        enabled: settings.as_ref().map(|settings| settings.enabled.chosen.clone()),
        shmem_enabled: settings.and_then(|settings| settings.shmem_enabled).map(|setting| setting.chosen),
        switched_off: target.huge_pages_enabled == Some(false),
    })
}
