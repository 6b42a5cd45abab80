//! Finds the programs that are named on the command line.
//!
//! Owns: which processes are meant, and going on where one of several fails. Never touches: the programs.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{bail, ensure};
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use kernel::process::{ProcessStatus, descendants};
use kernel::target::{Target, TargetError};
use kernel::{Root, cgroup};
use pilot::scope::{PilotMode, Scope};

use super::args::TargetOptions;
use super::terminal;

/// A program, and whether its descendants belong to it.
pub(super) struct Named {
    pub(super) target: Target,
    pub(super) has_children: bool,
}

/// How a process is opened: for observing or, what virtual machines allow, too, for acting only.
pub(super) type Open = fn(u32) -> Result<Target, TargetError>;

/// All processes that are meant, ascending; with `--children` their descendants, too.
///
/// Errors: there is none, or what finds them names nothing here.
pub(super) fn processes(options: &TargetOptions) -> anyhow::Result<Vec<u32>> {
    let root = Root::host();
    if options.pids.is_empty() {
        return found(&root, options, options.children);
    }
    let mut processes: BTreeSet<u32> = options.pids.iter().copied().collect();
    if options.children {
        for &pid in &options.pids {
            processes.extend(descendants(&root, pid)?);
        }
    }
    Ok(processes.into_iter().collect())
}

/// Checks what needs no rights: that the processes named by their ids are there, and are programs.
///
/// Errors: one of them is not.
pub(super) fn ensure_there(options: &TargetOptions) -> anyhow::Result<()> {
    for &pid in &options.pids {
        match Target::open_to_act(pid) {
            // What the kernel refuses to tell is a matter of rights.
            Ok(_) | Err(TargetError::Open { .. } | TargetError::Kernel(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Each program that is meant: of processes that were found, those that started the others.
///
/// Errors: there is none, what finds them names nothing here, or a process that was named by its id cannot be worked on.
pub(super) fn find_all(options: &TargetOptions, open: Open) -> anyhow::Result<Vec<Named>> {
    if !options.pids.is_empty() {
        let named = |&pid| Ok(Named { target: open(pid)?, has_children: options.children });
        return options.pids.iter().map(named).collect();
    }
    let root = Root::host();
    let found = found(&root, options, false)?;
    let below: Vec<Vec<u32>> = found.iter().map(|&pid| descendants(&root, pid)).collect::<Result<_, _>>()?;
    let starts_itself = |pid: &u32| !below.iter().any(|below| below.contains(pid));
    let (mut named, mut refused) = (Vec::new(), Vec::new());
    for (pid, below) in found.iter().zip(&below).filter(|(pid, _)| starts_itself(pid)) {
        let has_children = options.children || below.iter().any(|each| found.contains(each));
        match open(*pid) {
            Ok(target) => named.push(Named { target, has_children }),
            Err(error) => refused.push(error),
        }
    }
    match refused.pop() {
        Some(error) if named.is_empty() => Err(error.into()),
        error => {
            error.iter().chain(&refused).for_each(|error| terminal::note(&format!("left out: {error}")));
            Ok(named)
        }
    }
}

/// The one program that is meant; of several the one with most memory, which is said.
///
/// Errors: as [`find_all`].
pub(super) fn find_one(options: &TargetOptions) -> anyhow::Result<Named> {
    let mut named = find_all(options, Target::open)?;
    ensure!(
        options.pids.len() <= 1,
        "this works on one program at a time: name one process, not {}",
        options.pids.len()
    );
    let memory = |pid: u32| ProcessStatus::read(&Root::host(), pid).map_or(Bytes(0), |status| status.vm_rss);
    named.sort_by_key(|each| memory(each.target.pid()));
    let count = named.len();
    let Some(largest) = named.pop() else { bail!("all programs that were found have ended") };
    if count > 1 {
        let pid = largest.target.pid();
        terminal::note(&format!("{count} programs are found; process {pid} has the most memory ({})", memory(pid)));
    }
    Ok(largest)
}

/// Does something to each program that is meant. Of several, those for which it fails are told, and the others go on.
///
/// Errors: as [`find_all`]; it failed for one of them.
pub(super) fn for_each(
    options: &TargetOptions,
    open: Open,
    stop: &Stop,
    mut act: impl FnMut(Named) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut named = find_all(options, open)?;
    if named.len() == 1 {
        return act(named.pop().expect("there is one"));
    }
    let (count, mut failed) = (named.len(), 0);
    for (index, each) in named.into_iter().enumerate() {
        stop.check()?;
        let (name, pid) = (each.target.name.clone(), each.target.pid());
        terminal::note(&format!("{name} (process {pid}), {} of {count}", index + 1));
        if let Err(error) = act(each) {
            terminal::say_error(&error.context(format!("process {pid}")));
            failed += 1;
        }
    }
    ensure!(failed == 0, "{failed} of {count} programs failed, for the reasons above");
    Ok(())
}

/// The processes that the options find, ascending.
fn found(root: &Root, options: &TargetOptions, children: bool) -> anyhow::Result<Vec<u32>> {
    let mut rule = options.rule(PilotMode::Observe);
    rule.children = children;
    if let Some(user) = &mut rule.matcher.user {
        user.bind(root)?;
    }
    if let Some(path) = &options.cgroup {
        match cgroup::processes(root, path)? {
            None => bail!(
                "no control group '{path}' here: give its path as the last part of a line in /proc/PID/cgroup, such as \
                 /system.slice/postgresql.service, or its directory below /sys/fs/cgroup"
            ),
            Some(processes) if processes.is_empty() => {
                bail!("the control group '{path}' holds no process; start its program, or choose a group above it")
            }
            Some(_) => {}
        }
    }
    let found = Scope::new(vec![rule], Vec::new()).census(root, Instant::now());
    ensure!(
        !found.is_empty(),
        "no running program matches {}; `hugepilot scan` lists programs, `--name 'redis*'` takes a pattern, and a process id is taken, too",
        options.told()
    );
    Ok(found.into_iter().map(|each| each.process.pid).collect())
}
