//! Checks of the settings of transparent huge pages, in terms of what they mean for hugepilot.
//!
//! Owns: their words. Never touches: the settings themselves.

use std::collections::BTreeMap;

use heat::units::{Bytes, HUGE_PAGE};
use kernel::probe::{Facts, ProcessName};
use kernel::thp::{DIRECTORY, Khugepaged, Thp};

use super::{Checked, Fix, HostCheck, known, named};

pub(super) fn checks(facts: &Facts) -> Vec<HostCheck> {
    let name = "transparent huge pages";
    let mut checks = match &facts.thp {
        Ok(Some(thp)) => vec![
            named(name, enabled(thp)),
            defrag(thp).named("defrag"),
            shared_memory(thp).named("shared memory"),
            khugepaged(thp).named("khugepaged"),
        ],
        Ok(None) => {
            let meaning = "Nothing can be promoted. Stock kernels of Debian, Ubuntu and Fedora have it: boot one.";
            vec![HostCheck::missing("the kernel was built without CONFIG_TRANSPARENT_HUGEPAGE", meaning).named(name)]
        }
        Err(error) => vec![HostCheck::unknown(name, error)],
    };
    if let Ok(Some(thp)) = &facts.thp {
        checks.extend(smaller_sizes(thp).map(|check| check.named("smaller huge pages")));
    }
    checks.push(named("THP-disabled processes", disabled(facts)));
    checks
}

fn enabled(thp: &Thp) -> Checked {
    let (chosen, file) = thp.of_huge_pages();
    Ok(match chosen {
        "always" => HostCheck::warning(
            "always: every program gets them, used or not",
            "hugepilot works, but the kernel fills huge pages that nobody walks: memory is wasted, and contiguous memory is gone when \
             a hot region needs it. With madvise only programs that ask get them, and hugepilot adds the hot rest.",
        )
        .fixed_by(Fix::write("madvise", &file)),
        "madvise" => HostCheck::ok(
            "madvise: programs that ask get them",
            "The best setting: hugepilot promotes the memory that pays, and nothing else grows.",
        ),
        "never" => HostCheck::ok(
            "never: no program gets them by itself",
            "hugepilot works all the same, because MADV_COLLAPSE ignores this setting. Programs that ask for huge pages get none.",
        ),
        other => return Err(format!("the setting '{other}' is new to this release")),
    })
}

fn defrag(thp: &Thp) -> HostCheck {
    let chosen = &thp.defrag.chosen;
    if thp.defrag.is("always") && thp.of_huge_pages().0 == "always" {
        return HostCheck::warning(
            "always: any program waits in a page fault while the kernel compacts memory",
            "Programs stall for memory that may never pay. hugepilot does not need it: its own promotions compact by themselves.",
        )
        .fixed_by(Fix::write("madvise", &format!("{DIRECTORY}/defrag")));
    }
    HostCheck::ok(chosen, "hugepilot's own promotions compact memory by themselves, whatever is set here.")
}

fn shared_memory(thp: &Thp) -> HostCheck {
    let file = format!("{DIRECTORY}/shmem_enabled");
    match &thp.shmem_enabled {
        None => HostCheck::ok(
            "no setting in this kernel",
            "Shared memory may not be promotable here; each try is reported.",
        ),
        Some(setting) if setting.is("deny") => HostCheck::warning(
            "deny: huge pages are ruled out",
            "Shared memory cannot be promoted. With advise nothing gets them by itself, but hugepilot can.",
        )
        .fixed_by(Fix::write("advise", &file)),
        Some(setting) if setting.is("never") => HostCheck::warning(
            "never: programs map it where no huge page fits",
            "What is started from now on (PostgreSQL, memfd and SysV users) cannot be promoted, unless `hugepilot run --shm` starts it. \
             With advise the kernel aligns new mappings of shared memory and changes nothing else; restart the programs after that.",
        )
        .fixed_by(Fix::write("advise", &file)),
        Some(setting) => HostCheck::ok(
            &setting.chosen,
            "Shared memory that was mapped under this setting can be promoted, once for all processes that map it.",
        ),
    }
}

/// Sizes below 2 MiB (mTHP); None on a kernel without them.
fn smaller_sizes(thp: &Thp) -> Option<HostCheck> {
    let mut by_setting: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for each in thp.sizes.iter().filter(|each| each.size < Bytes(HUGE_PAGE)) {
        let chosen = if each.enabled.is("inherit") { &thp.enabled.chosen } else { &each.enabled.chosen };
        by_setting.entry(chosen).or_default().push(each.size.to_string());
    }
    let told = |(setting, sizes): (&&str, &Vec<String>)| format!("{setting}: {}", sizes.join(", "));
    let found = by_setting.iter().map(told).collect::<Vec<_>>().join("; ");
    let meaning = if by_setting.keys().all(|setting| *setting == "never") {
        "The kernel gives anonymous memory no pages between 4 KiB and 2 MiB. hugepilot promotes to 2 MiB."
    } else {
        "The kernel maps memory by these where 2 MiB do not fit or are not asked for; processors that join such pages in their TLB walk less. \
         `hugepilot explain` shows what is on them; hugepilot promotes to 2 MiB."
    };
    let switched_on = switched_on(thp).map_or(String::new(), |command| format!(" {command}"));
    (!by_setting.is_empty()).then(|| HostCheck::ok(found, format!("{meaning}{switched_on}")))
}

/// The command for pages of 64 KiB, where they are off.
fn switched_on(thp: &Thp) -> Option<String> {
    let (_, file) = thp.of_size(Bytes(64 << 10)).filter(|(chosen, _)| *chosen == "never")?;
    Some(format!("`echo madvise > /{file}` has `hugepilot run --pages 64K` give a program those of 64 KiB."))
}

fn khugepaged(thp: &Thp) -> HostCheck {
    let Khugepaged { pages_to_scan, sleep, collapsed, full_scans, max_unpopulated } = thp.khugepaged;
    let (chosen, _) = thp.of_huge_pages();
    let found = format!(
        "{collapsed} huge pages made in {full_scans} rounds, {} scanned every {} s, up to {} of 512 base pages filled in",
        pages_to_scan.bytes(),
        sleep.seconds(),
        max_unpopulated.0
    );
    match chosen {
        "never" => HostCheck::ok("not running", "Nothing but hugepilot makes huge pages of what is mapped already."),
        "always" if max_unpopulated.0 > 0 => HostCheck::warning(
            found,
            "It makes huge pages without asking whether they are walked, fills up what is sparse, and takes back what hugepilot \
             gives back.",
        )
        .fixed_by(Fix::write(0, &format!("{DIRECTORY}/khugepaged/max_ptes_none"))),
        _ => HostCheck::ok(found, "It works on memory that asked for huge pages, far more slowly than hugepilot."),
    }
}

/// Names shown before the list is cut off.
const SHOWN: usize = 8;

fn disabled(facts: &Facts) -> Checked {
    let processes = known(&facts.thp_disabled)?;
    if processes.is_empty() {
        return Ok(HostCheck::ok("none", "No process has ruled out huge pages for itself."));
    }
    let mut shown: Vec<String> =
        processes.iter().take(SHOWN).map(|ProcessName { pid, name }| format!("{name} ({pid})")).collect();
    if processes.len() > SHOWN {
        shown.push(format!("and {} more", processes.len() - SHOWN));
    }
    let meaning = "They, or what started them, have called prctl(PR_SET_THP_DISABLE): nothing of theirs can be promoted. It can only be \
                   lifted by starting them otherwise";
    if !processes.iter().any(|process| process.name.starts_with("redis-server")) {
        return Ok(HostCheck::warning(shown.join(", "), format!("{meaning}.")));
    }
    let meaning = format!("{meaning}; Redis does it where THP is 'always', unless told 'disable-thp no'.");
    let command = "echo 'disable-thp no' >> /etc/redis/redis.conf && systemctl restart redis-server";
    Ok(HostCheck::warning(shown.join(", "), meaning).fixed_by(Fix::for_good(command)))
}
