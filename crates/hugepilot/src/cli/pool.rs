//! `hugepilot pool`: shows the pools of reserved huge pages, resizes and mounts them, and makes them survive a reboot.

use std::path::Path;

use anyhow::{Context, bail};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::cpu::Cpu;
use kernel::hugetlb::{self, FileSystem, Pool};
use kernel::memory::Meminfo;
use pool::{
    self, Edit, Ended, Lasting, LastingPool, MountOptions, NextStep, PoolError, PoolSurroundings, Resized, SizeRequest,
    View,
};

use super::args::{PoolArgs, PoolCommand, PoolMountArgs, PoolPersistArgs, PoolSetArgs, PoolUnmountArgs};
use super::terminal;
use crate::report::{PersistReport, PoolPlanReport, json, text};

pub(super) fn pool(args: &PoolArgs) -> anyhow::Result<()> {
    match &args.command {
        None => show(args.json),
        Some(PoolCommand::Set(args)) => set(args),
        Some(PoolCommand::Persist(args)) => persist(args),
        Some(PoolCommand::Mount(args)) => mount(args),
        Some(PoolCommand::Unmount(args)) => unmount(args),
    }
}

fn show(as_json: bool) -> anyhow::Result<()> {
    let view = View::read(&Root::host())?;
    terminal::print(&if as_json { json::pools(&view) } else { text::pools(&view) })
}

fn set(args: &PoolSetArgs) -> anyhow::Result<()> {
    let root = Root::host();
    let (pools, nodes) = (hugetlb::pools(&root)?, hugetlb::node_pools(&root)?);
    let changes = pool::changes(&args.requests, args.bound(), args.node, &pools, &nodes, giant_pages(&root))?;
    if args.dry_run {
        let available = args.node.is_none().then(|| Meminfo::read(&root)).transpose()?.map(|memory| memory.available);
        let plan = PoolPlanReport { changes: &changes, available };
        return terminal::print(&if args.json { json::pool_plan(&plan) } else { text::pool_plan(&plan) });
    }
    terminal::ensure_read()?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let (mut resized, mut refused) = (Vec::new(), None);
    for change in &changes {
        let progress = terminal::progress(change.to.abs_diff(change.from), "pages");
        match pool::resize(&root, change, &args.effort(), &stop, |pages| {
            progress.set_position(pages.abs_diff(change.from))
        }) {
            Ok(done) => resized.push(done),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    // Reports what was done even if something failed.
    if !resized.is_empty() {
        terminal::print(&if args.json { json::resized(&resized) } else { text::resized(&resized) })?;
    }
    match refused {
        Some(error) => Err(error.into()),
        None => ensure_done(&resized),
    }
}

fn ensure_done(resized: &[Resized]) -> anyhow::Result<()> {
    let short: Vec<&Resized> = resized.iter().filter(|each| each.ended != Ended::Done).collect();
    let Some(first) = short.first() else { return ensure_overcommit(resized) };
    if short.iter().any(|each| each.ended == Ended::Stopped) {
        bail!("stopped by a signal; what was reached stays, run the command again to go on");
    }
    bail!(
        "the pool of {} has {} of the {} pages wanted; what stands in the way, and what to do, is told above",
        hugetlb::size_name(first.change.page_size),
        first.pages,
        first.change.to
    );
}

fn ensure_overcommit(resized: &[Resized]) -> anyhow::Result<()> {
    match resized.iter().find(|each| each.overcommit_refused.is_some()) {
        Some(each) => bail!(
            "the pool of {} has its pages, but what may be taken on demand is not as wanted; why is told above",
            hugetlb::size_name(each.change.page_size)
        ),
        None => Ok(()),
    }
}

fn persist(args: &PoolPersistArgs) -> anyhow::Result<()> {
    let root = Root::host();
    let lasting = if args.remove { Lasting::default() } else { wanted(args, &root)? };
    let (edits, next_steps) = pool::persist(&lasting, &PoolSurroundings::read(&root)?)?;
    let tell = |edits: &[Edit], next_steps: &[NextStep]| {
        let report = PersistReport { edits, next_steps, applied: args.apply, removes: args.remove };
        terminal::print(&if args.json { json::persist(&report) } else { text::persist(&report) })
    };
    if args.apply {
        terminal::ensure_read()?;
        for (written, edit) in edits.iter().enumerate() {
            if let Err(refused) = edit.apply(&root) {
                // Reports what was done even if something failed.
                if written > 0 {
                    tell(&edits[..written], &[])?;
                }
                return Err(refused)
                    .context("not all files were written, and the same command goes on once this is fixed");
            }
        }
    }
    tell(&edits, &next_steps)
}

/// The named pools, or all that exist.
fn wanted(args: &PoolPersistArgs, root: &Root) -> anyhow::Result<Lasting> {
    let there = hugetlb::pools(root)?;
    let pools: Vec<LastingPool> = match args.requests.as_slice() {
        [] => there.iter().map(|pool| lasting(pool, pool.persistent())).collect(),
        requests => named(requests, &there, root)?,
    };
    let group = args.group.as_deref().map(|name| pool::group(root, name)).transpose()?;
    if group.is_none() && pools.iter().all(|pool| pool.pages == 0 && pool.overcommit == 0) {
        bail!(
            "no pool has pages, so nothing would last: name what should, such as `hugepilot pool persist 2M=1000`; \
             `--remove` takes away what was written before"
        );
    }
    Ok(Lasting { pools, group, mounts: args.mount })
}

fn named(requests: &[SizeRequest], there: &[Pool], root: &Root) -> Result<Vec<LastingPool>, PoolError> {
    let changes = pool::changes(requests, pool::PoolSetting::Size, None, there, &[], giant_pages(root))?;
    changes.iter().map(|change| Ok(lasting(pool::find(there, change.page_size, None)?, change.to))).collect()
}

fn lasting(pool: &Pool, pages: u64) -> LastingPool {
    LastingPool { page_size: pool.page_size, pages, overcommit: pool.overcommit }
}

fn mount(args: &PoolMountArgs) -> anyhow::Result<()> {
    let root = Root::host();
    let page_size = args.page_size;
    pool::find(&hugetlb::pools(&root)?, page_size, giant_pages(&root))?;
    let options = MountOptions {
        page_size,
        limit: args.size,
        files: args.files,
        owner: args.owner.as_deref().map(|owner| pool::owner(&root, owner)).transpose()?,
        mode: args.mode,
    };
    let point = match &args.directory {
        Some(directory) => absolute(directory)?,
        None => pool::place(page_size),
    };
    tell_mount(&pool::mount(&point, &options)?, args.json, "mounted")
}

fn unmount(args: &PoolUnmountArgs) -> anyhow::Result<()> {
    let point = match pool::parse_page_size(&args.directory) {
        Ok(page_size) => pool::place(page_size),
        Err(_) => absolute(Path::new(&args.directory))?,
    };
    tell_mount(&pool::unmount(&point)?, args.json, "unmounted")
}

fn tell_mount(file_system: &FileSystem, as_json: bool, done: &str) -> anyhow::Result<()> {
    terminal::print(&if as_json { json::mount(file_system) } else { text::mount(file_system, done) })
}

fn absolute(directory: &Path) -> anyhow::Result<String> {
    Ok(std::path::absolute(directory)?.to_string_lossy().into_owned())
}

/// Whether the processor has pages of 1 GiB; None if unknown.
fn giant_pages(root: &Root) -> Option<bool> {
    Cpu::read(root).ok().map(|cpu| cpu.giant_pages)
}
