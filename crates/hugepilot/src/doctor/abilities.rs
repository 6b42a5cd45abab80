//! Checks of what the kernel and our own rights allow.
//!
//! Owns: their words. Never touches: settings, memory.

use heat::TrackerKind;
use heat::units::{BASE_PAGE, Bytes};
use kernel::capability::Capability;
use kernel::lockdown::Lockdown;
use kernel::probe::{Ability, Facts};
use observe::choice::TRACKERS;
use pilot::machine::require::CAPABILITIES;

use super::{Checked, Fix, HostCheck, known, named};

pub(super) fn checks(facts: &Facts) -> Vec<HostCheck> {
    vec![
        named("kernel", kernel(facts)),
        named("BTF", types(facts)),
        named("lockdown", lockdown(facts)),
        named("capabilities", capabilities(facts)),
        named("eBPF", bpf(facts)),
        named("process_madvise", process_madvise(facts)),
        named("clear_refs", clear_refs(facts)),
        named("page frame numbers", pagemap(facts)),
        named("page flags", page_flags(facts)),
        named("DAMON", damon(facts)),
        named("tracker", tracker(facts)),
        named("mapped files", mapped_files(facts)),
        reclaim(facts).named("reclaim"),
    ]
}

/// Which tracker `--tracker auto` selects here, and why not the others.
fn tracker(facts: &Facts) -> Checked {
    let trackers = TRACKERS.map(|kind| (kind, tracker_works(kind, facts)));
    let picked = trackers.iter().find(|(_, ability)| !matches!(ability, Ability::No(_)));
    let passed_over = trackers.iter().filter(|each| picked.is_none_or(|picked| picked.0 != each.0));
    let reasons = passed_over.map(|(kind, ability)| match ability {
        Ability::No(why) | Ability::Unknown(why) => format!("{kind}: {why}"),
        Ability::Yes => format!("{kind}: {}", drawback(*kind)),
    });
    let others = reasons.collect::<Vec<_>>().join("; ");
    Ok(match picked {
        None => HostCheck::missing("none", format!("No program can be observed. {others}.")),
        Some((_, Ability::Unknown(why))) => return Err(why.clone()),
        Some((kind @ TrackerKind::PageWalk, _)) => {
            let meaning = format!("Page walks are counted, region by region. Passed over: {others}.");
            HostCheck::ok(kind.to_string(), meaning)
        }
        Some((kind, _)) => {
            let meaning = format!("The best that can be had, but it {}. Passed over: {others}.", drawback(*kind));
            HostCheck::warning(kind.to_string(), meaning)
        }
    })
}

pub(super) fn if_damon_is_free(facts: &Facts, operations: &Ability) -> Ability {
    match &facts.damon_threads {
        Ok(None) => Ability::No("the kernel has no DAMON".to_owned()),
        Ok(Some(0)) => operations.clone(),
        Ok(Some(threads)) => Ability::No(format!("DAMON is in use by someone else ({threads} of its threads set up)")),
        Err(error) => Ability::Unknown(error.to_string()),
    }
}

pub(super) fn tracker_works(kind: TrackerKind, facts: &Facts) -> Ability {
    match kind {
        TrackerKind::PageWalk if facts.live.bpf == Ability::Yes => facts.clear_refs.clone(),
        TrackerKind::PageWalk => facts.live.bpf.clone(),
        TrackerKind::DamonVaddr => if_damon_is_free(facts, &facts.damon_vaddr),
        TrackerKind::IdlePage => facts.idle_pages.clone(),
        TrackerKind::DamonPaddr => if_damon_is_free(facts, &facts.damon_paddr),
        TrackerKind::PerfMem => match facts.pmu {
            Ok(None) => Ability::No("no PMU samples memory accesses (usual in virtual machines)".to_owned()),
            Ok(Some(_)) => Ability::Yes,
            Err(ref error) => Ability::Unknown(error.to_string()),
        },
        TrackerKind::WriteScan => Ability::No("it sees only the process that asks for it".to_owned()),
    }
}

/// How files that programs map come on huge pages here.
fn mapped_files(facts: &Facts) -> Checked {
    let live = &facts.live;
    let collapsed = "`hugepilot cache` puts files on huge pages, also beneath a program that runs.";
    let before = "`hugepilot cache` puts files on huge pages before a program maps them; this kernel does not replace pages beneath one that runs.";
    match (&live.huge_files, &live.collapsed_files) {
        (_, Ability::Yes) => Ok(HostCheck::ok("huge pages, at any time", collapsed)),
        (Ability::Yes, _) => Ok(HostCheck::ok("huge pages, before the start", before)),
        (Ability::No(_), Ability::No(_)) => Ok(HostCheck::warning(
            "base pages",
            "The file system of /var/tmp has no large folios, as XFS has and ext4 since Linux 6.16, or no 2 MiB were contiguous; and the kernel \
             collapses no files. Code can be copied: `hugepilot run --text=copy`.",
        )),
        (Ability::Unknown(why), _) | (_, Ability::Unknown(why)) => Err(why.clone()),
    }
}

/// Which mechanisms `hugepilot reclaim` has here, and why the others are missing.
fn reclaim(facts: &Facts) -> HostCheck {
    let mechanisms = [
        ("damon", if_damon_is_free(facts, &facts.damon_paddr)),
        ("memory-reclaim", facts.memory_reclaim.clone()),
        ("drop-behind", facts.live.cachestat.clone()),
    ];
    let offered: Vec<&str> =
        mechanisms.iter().filter(|(_, ability)| *ability == Ability::Yes).map(|each| each.0).collect();
    let others = mechanisms.iter().filter_map(|(name, ability)| match ability {
        Ability::Yes => None,
        Ability::No(why) | Ability::Unknown(why) => Some(format!("{name}: {why}")),
    });
    let others: Vec<String> = others.collect();
    let others = if others.is_empty() { String::new() } else { format!(" Not here: {}.", others.join("; ")) };
    if offered.is_empty() {
        let meaning = format!("Cache that is not used stays, and breaks up memory.{others}");
        return HostCheck::warning("no mechanism", meaning);
    }
    HostCheck::ok(offered.join(", "), format!("`hugepilot reclaim` frees cache that is not used.{others}"))
}

/// The disadvantage of a tracker that works.
fn drawback(kind: TrackerKind) -> &'static str {
    match kind {
        TrackerKind::PageWalk => "needs eBPF",
        TrackerKind::DamonVaddr => "samples, where page-walk counts",
        TrackerKind::IdlePage => "takes longer, and counts what others do to memory that they share",
        TrackerKind::DamonPaddr => "samples the memory of the whole machine",
        TrackerKind::PerfMem => "meets only what is accessed often",
        TrackerKind::WriteScan => "sees writes only",
    }
}

fn kernel(facts: &Facts) -> Checked {
    let release = known(&facts.kernel_release)?;
    let cpu = match &facts.cpu {
        Ok(cpu) => format!(
            ", {} levels of page tables{}",
            if cpu.five_levels { "five" } else { "four" },
            if cpu.virtual_machine { ", in a virtual machine" } else { "" }
        ),
        Err(_) => String::new(),
    };
    let page_size = *known(&facts.page_size)?;
    if page_size != Bytes(BASE_PAGE) {
        let meaning = "hugepilot knows x86-64 page tables only, with base pages of 4 KiB.";
        return Ok(HostCheck::missing(format!("Linux {release}, base pages of {page_size}"), meaning));
    }
    let meaning = "What it can do is tried below, not guessed from its version.";
    Ok(HostCheck::ok(format!("Linux {release}, base pages of {page_size}{cpu}"), meaning))
}

fn types(facts: &Facts) -> Checked {
    tried(
        &facts.btf,
        "/sys/kernel/btf/vmlinux is there",
        "BPF programs fit this kernel's types.",
        "Page tables cannot be read without it. Stock kernels of Debian, Ubuntu and Fedora have it: boot one.",
    )
}

fn lockdown(facts: &Facts) -> Checked {
    let reads = "BPF programs may read the page tables.";
    Ok(match known(&facts.lockdown)? {
        None => HostCheck::ok("none, or not shown", reads),
        Some(Lockdown::None) => HostCheck::ok("none", reads),
        Some(Lockdown::Integrity) => HostCheck::ok("integrity", reads),
        Some(Lockdown::Confidentiality) => HostCheck::missing(
            "confidentiality",
            "The kernel refuses BPF programs that read its memory: page walks cannot be seen. It cannot be lowered while the system \
             runs, only booted otherwise; integrity is fine.",
        )
        .fixed_by(boot_with_integrity(facts)),
    })
}

/// Removing the boot parameter helps only where it enabled this; otherwise the kernel was built that way.
fn boot_with_integrity(facts: &Facts) -> Option<Fix> {
    let asked = facts.command_line.as_ref().is_ok_and(|line| line.contains("lockdown=confidentiality"));
    asked.then(|| {
        Fix::for_good(
            "sed -i 's/lockdown=confidentiality/lockdown=integrity/' /etc/default/grub && update-grub && reboot",
        )
    })
}

fn capabilities(facts: &Facts) -> Checked {
    let held = *known(&facts.capabilities)?;
    if let Ok(false) = facts.initial_user_namespace {
        let meaning = "Root inside an unprivileged container has no rights over the kernel: run hugepilot on the host.";
        return Ok(HostCheck::missing("this is not the machine's own user namespace", meaning));
    }
    let lacking: Vec<_> = CAPABILITIES.into_iter().filter(|(_, needed, _)| !held.permits(*needed)).collect();
    if lacking.is_empty() {
        return Ok(HostCheck::ok("all that are needed", "Other users' processes can be watched and promoted."));
    }
    let missing: Vec<Capability> = lacking.iter().map(|each| each.1).collect();
    let finding = format!("missing: {}", names(&missing, ", "));
    let needs = lacking.chunk_by(|one, next| one.0 == next.0).map(|of_one| {
        let uses: Vec<String> = of_one.iter().map(|(_, needed, purpose)| format!("{needed} ({purpose})")).collect();
        format!("by {}: {}", of_one[0].0, uses.join(", "))
    });
    let meaning = format!("Needed {}.", needs.collect::<Vec<_>>().join("; "));
    let check = match missing[..] {
        [Capability::Kill] => HostCheck::warning(finding, meaning),
        _ => HostCheck::missing(finding, meaning),
    };
    Ok(check.fixed_by(more_rights(facts, &missing)))
}

fn more_rights(facts: &Facts, missing: &[Capability]) -> Fix {
    match facts.uid {
        // Root lacks a capability only if its parent process withheld it; a systemd service gets it back.
        Ok(0) => Fix::once(
            "systemd-run --pty hugepilot COMMAND",
            format!(
                "CapabilityBoundingSet={} in its unit, or --privileged --pid=host for its container",
                names(missing, " ")
            ),
        ),
        _ => {
            let all = CAPABILITIES.map(|each| each.1);
            Fix::once("sudo hugepilot COMMAND", format!("AmbientCapabilities={} in its unit", names(&all, " ")))
        }
    }
}

fn names(capabilities: &[Capability], between: &str) -> String {
    capabilities.iter().map(Capability::to_string).collect::<Vec<_>>().join(between)
}

fn bpf(facts: &Facts) -> Checked {
    tried(
        &facts.live.bpf,
        "a program that reads page tables runs",
        "Page walks are seen at 0.5 ms a GiB.",
        "Page walks cannot be seen. The checks of BTF, lockdown and capabilities tell the usual reasons (--all shows them, too).",
    )
}

fn process_madvise(facts: &Facts) -> Checked {
    tried(
        &facts.live.process_madvise,
        "a huge page was made by MADV_COLLAPSE",
        "Memory of running programs can be promoted.",
        "Memory cannot be promoted. It needs CAP_SYS_NICE, a kernel with transparent huge pages, and MADV_COLLAPSE (6.1).",
    )
}

fn pagemap(facts: &Facts) -> Checked {
    tried(
        &facts.live.pagemap,
        "/proc/PID/pagemap shows them",
        "The place of the page tables in memory can be proven before a bit is believed.",
        "The place of the page tables cannot be proven, so no bit would be believed. It needs CAP_SYS_ADMIN.",
    )
}

fn clear_refs(facts: &Facts) -> Checked {
    tried(
        &facts.clear_refs,
        "/proc/PID/clear_refs is there",
        "Accessed bits can be cleared for a whole process at once.",
        "Accessed bits are cleared by remote MADV_COLD instead, which also makes the pages seem old to the kernel.",
    )
}

fn page_flags(facts: &Facts) -> Checked {
    match (&facts.kpageflags, &facts.kpagecount) {
        (Ability::Yes, Ability::Yes) => Ok(HostCheck::ok(
            "/proc/kpageflags and /proc/kpagecount can be read",
            "Memory that promoting would newly take (shared by fork or KSM, lazily freed) is told before it is taken.",
        )),
        (Ability::No(why), _) | (_, Ability::No(why)) => Ok(HostCheck::warning(
            why,
            "Memory shared by fork or KSM, or lazily freed, cannot be told from other memory: growth may be more than foreseen.",
        )),
        (Ability::Unknown(why), _) | (_, Ability::Unknown(why)) => Err(why.clone()),
    }
}

fn damon(facts: &Facts) -> Checked {
    let (finding, meaning) = match known(&facts.damon_threads)? {
        None => ("not in this kernel".to_owned(), "hugepilot does not need it."),
        Some(0) => (
            "not in use".to_owned(),
            "hugepilot does not need it, nor its action `collapse` where the kernel knows that: it collapses by itself.",
        ),
        Some(threads) => (
            format!("in use by something else ({threads} of its threads set up)"),
            "hugepilot leaves it alone. While it runs, it clears a few accessed bits too, so a few walks may be missed.",
        ),
    };
    Ok(HostCheck::ok(finding, meaning))
}

fn tried(ability: &Ability, found: &str, meaning: &str, without: &str) -> Checked {
    match ability {
        Ability::Yes => Ok(HostCheck::ok(found, meaning)),
        Ability::No(why) => Ok(HostCheck::missing(why, without)),
        Ability::Unknown(why) => Err(why.clone()),
    }
}
