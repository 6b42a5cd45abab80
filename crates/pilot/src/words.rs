//! Words and numbers for people; the short names that JSON uses for the same things are derived.
//!
//! All reasons are worded here, so two reports never say the same thing in two ways.

use std::collections::BTreeMap;

use heat::units::Nanos;
use heat::{HeldBack, Meaning, Obstacle, RefusalReason};
use serde::Serialize;
use serde_json::Value;

use crate::decide::Reason;
use crate::engine::shared_state::{SlowedBy, TargetHeldBack};
use crate::explain::Why;
use crate::past_trials::EstimatedFrom;

/// A variant's name in JSON, as `Serialize` gives it.
pub fn name(variant: impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(Value::String(name)) => name,
        other => unreachable!("a variant without fields is a string, not {other:?}"),
    }
}

/// What the counts mean, for people.
pub fn meaning(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Walked => "bits mean walked: the CPU walked the page table, because the TLB did not hold the page",
        Meaning::Written => "bits mean written: pages that are only read are not seen",
        Meaning::Sampled => "bits mean sampled: few pages were scanned, and their neighbours are taken to be alike",
        Meaning::Accessed => {
            "bits mean accessed: page walks are at most this. The TLB was flushed and the pages were marked cold to \
             spare the program a long stall; --allow-stall observes page walks themselves"
        }
    }
}

/// How past trials correct a forecast; None if they do not.
pub fn corrected(from: EstimatedFrom) -> Option<&'static str> {
    match from {
        EstimatedFrom::Model => None,
        EstimatedFrom::OtherTrials => Some("corrected by trials of other programs here"),
        EstimatedFrom::ItsTrial => Some("corrected by its own trial"),
    }
}

/// That page faults take up to this share of a program's CPU time, and why promoting does not help.
pub fn many_page_faults(share: f64) -> String {
    format!(
        "page faults take up to {:.0} % of its CPU time: memory that it maps anew all the time cannot be promoted soon enough, but is on huge \
         pages at once where the program asks for them (which costs more than it saves where it touches little of that memory)",
        100.0 * share
    )
}

/// Why memory could not be observed, by what the counts mean, for people: only memory cleared in slices has a remedy.
pub fn unobserved(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Accessed => "locked, reserved, or mapped by several processes",
        Meaning::Walked | Meaning::Sampled | Meaning::Written => "reserved, or out of the tracker's sight",
    }
}

/// Why a region is promoted or kept, for people; `meaning` is what the underlying counts mean.
pub fn reason(reason: Reason, meaning: Meaning) -> &'static str {
    match reason {
        Reason::Pays => "its page walks pay for the move",
        Reason::Populated => "guest memory that is populated; how often the guest walks it is not known",
        Reason::NotPopulated => {
            "not or hardly populated: never used by the guest, or taken by a balloon or virtio-mem (a larger --max-growth takes what is nearly full)"
        }
        Reason::Userfaultfd => {
            "userfaultfd serves it: a migration (postcopy) or a snapshot is under way; run the command again afterwards"
        }
        Reason::NotGuestMemory => "the monitor's own memory, not the guest's",
        Reason::Waste => "nothing uses it, and most of it is empty",
        Reason::Displaced => "a region that saves far more page walks takes its place within the limit on huge pages",
        Reason::OverQuota => "over the program's quota of huge pages; others share the limit",
        Reason::Requested => "somebody asked for it",
        Reason::CoolingDown => "given back, split or refused not long ago, so that it cools down before another try",
        Reason::KeptSplitting => {
            "too many huge pages of this mapping were split or released again, each time that it was tried, so that it is left alone for hours; the \
             program's allocator may have a setting for that, which `hugepilot explain` names"
        }
        Reason::Watched => {
            "the program's allocator may give memory back by the page, which splits huge pages; it is watched first: jemalloc for 45 s, mimalloc for \
             90 s, Go and tcmalloc for six minutes"
        }
        Reason::GivenBackByPage => {
            "the program's allocator gave memory back by the page within the last ten minutes, which splits huge pages; it may have a setting for \
             that, which `hugepilot explain` names"
        }
        Reason::AlreadyHuge => "on a huge page already",
        Reason::Obstacle(in_the_way) => obstacle(in_the_way),
        Reason::NotWalked => "no page walk was seen",
        Reason::NotObserved if meaning == Meaning::Accessed => {
            "locked or mapped by several processes, which only --allow-stall can observe"
        }
        Reason::NotObserved => "out of the tracker's sight, so that nobody knows whether it is walked",
        Reason::NotInSample => "not in the sample, because scanning everything would not be worth its cost",
        Reason::TooCold => "too few page walks to pay for the move",
        Reason::LivesInTlb => "the process gains next to nothing: the TLB holds the memory it uses",
        Reason::InOrder => {
            "next to nothing to gain: it is read in the order of addresses, for which processors prefetch page tables"
        }
        Reason::Covered => {
            "next to nothing is left to gain: the other page walks are in hotter regions, on huge pages, or where none can be"
        }
        Reason::GrowthLimit => "would grow memory beyond the limit (--max-growth)",
        Reason::HugeLimit => "the limit on huge pages is reached (--max-huge)",
        Reason::ThroughAnother => "promoted through another process that maps it",
        Reason::SpreadOverNodes => "its memory policy spreads it over memory nodes (--include-interleaved)",
        Reason::Shared => "shared by fork or merged by KSM, promoting would copy it (--include-shared)",
        Reason::LazilyFreed => "holds memory that the program gave back (MADV_FREE; --include-shared takes it)",
    }
}

/// Why most was kept, as part of a sentence: `most`, or the reason of most regions that are neither promoted nor huge already. None if there are none.
pub fn mostly_kept(reasons: &BTreeMap<Reason, u64>, most: Option<Reason>) -> Option<String> {
    let kept =
        reasons.iter().filter(|(reason, _)| !matches!(reason, Reason::Pays | Reason::Populated | Reason::AlreadyHuge));
    let known = most.and_then(|most| reasons.get_key_value(&most));
    let (&most, &regions) = known.or_else(|| kept.max_by_key(|&(_, &regions)| regions))?;
    let of_all: u64 = reasons.values().sum();
    let which = match reasons.get(&Reason::AlreadyHuge) {
        Some(huge) => {
            let regions = match count(regions) {
                all if huge + regions == of_all => format!("the other {all}"),
                some => format!("{some} of the others"),
            };
            format!("{} of {} are huge already; {regions}", count(*huge), count_of(of_all, "region"))
        }
        None => format!("{} of {}", count(regions), count_of(of_all, "region")),
    };
    Some(format!("{which}: {}", reason(most, Meaning::Walked)))
}

/// What is in the way of a region, for people.
fn obstacle(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Stack => "a stack, never promoted",
        Obstacle::NoHugePage => "the program switched huge pages off here (MADV_NOHUGEPAGE)",
        Obstacle::Hugetlb => "on reserved huge pages already (hugetlb)",
        Obstacle::Special => "a device or the kernel's own mapping, never promoted",
        Obstacle::File => "a file that the program may write to",
        Obstacle::FileOpenForWriting => "a file mapped only for reading, but opened for writing",
        Obstacle::FileMisaligned => "a file mapped where no huge page fits",
        Obstacle::ReadOnlyFile => "a file mapped only for reading; its pages come from the page cache",
        Obstacle::Misaligned => {
            "shared memory mapped where no huge page fits; restart its program with transparent_hugepage/shmem_enabled at advise, or \
             by `hugepilot run --shm`"
        }
        Obstacle::Split => "no single mapping covers the whole 2 MiB",
    }
}

/// Why the kernel has not put memory on huge pages by itself, for people.
pub fn why(why: Why) -> &'static str {
    match why {
        Why::NeverTouched => "never touched, so nothing is there",
        Why::Obstacle(in_the_way) => obstacle(in_the_way),
        Why::SwitchedOff => {
            "the process switched huge pages off for itself (PR_SET_THP_DISABLE), as Redis does unless told `disable-thp no`, and MariaDB always"
        }
        Why::Shared => "shared by fork or merged by KSM",
        Why::LazilyFreed => "holds memory that the program gave back (MADV_FREE)",
        Why::SettingNever => {
            "the kernel's setting for this kind of memory is `never` (transparent_hugepage/enabled; shmem_enabled for shared memory); `promote` works regardless"
        }
        Why::NotAskedFor => {
            "the program does not ask for huge pages, which their setting wants (transparent_hugepage/enabled at `madvise`; for shared memory shmem_enabled at `advise`)"
        }
        Why::Holes => "it was touched piece by piece, and not all of it",
        Why::NotYet => "nothing forbids it: khugepaged has not come by, or found no contiguous memory",
    }
}

/// Why nothing is promoted at present, for people.
pub fn held_back(why: HeldBack) -> &'static str {
    match why {
        HeldBack::Pressure => "programs wait for memory (/proc/pressure/memory)",
        HeldBack::LittleAvailable => "little memory is available (MemAvailable)",
        HeldBack::NoContiguousMemory => "the last collapse found no contiguous memory",
    }
}

/// What makes promoting slow at present, for people.
pub fn slowed_by(limit: SlowedBy) -> &'static str {
    match limit {
        SlowedBy::MaxSlowdown => {
            "by max-slowdown: regions that pay are promoted one by one, at the pace that it allows"
        }
        SlowedBy::BusyPrograms => {
            "by busy programs: they wait for processors, memory or locks, and regions are promoted more slowly than max-slowdown allows"
        }
        SlowedBy::MaxCpu => "by max-cpu: scans are late until observing and deciding may take CPU time again",
    }
}

/// Why nothing is promoted in one target, for people.
pub fn target_held_back(why: TargetHeldBack) -> &'static str {
    match why {
        TargetHeldBack::NearMemoryLimit => {
            "its control group is within 10 % of its memory limit; raise that (memory.max)"
        }
        TargetHeldBack::OomKilled => {
            "the kernel killed a process of its control group for lack of memory; raise the limit (memory.max) and restart it"
        }
    }
}

/// Why the kernel refused a region, and what to do next.
pub fn refusal(reason: RefusalReason) -> (&'static str, &'static str) {
    match reason {
        RefusalReason::NotEligible => (
            "the mapping changed, or huge pages are switched off for it or for the process",
            "see `hugepilot doctor` for processes that switch them off; Redis does where THP is `always`, unless told `disable-thp no`",
        ),
        RefusalReason::NoContiguousMemory => (
            "the kernel found no contiguous 2 MiB, or the mapping went away",
            "free or compact memory (`echo 1 > /proc/sys/vm/compact_memory`), then try again",
        ),
        RefusalReason::CgroupFullOrPinned => (
            "the memory cgroup is full, or something holds pages of the region",
            "raise the cgroup's memory limit, then try again",
        ),
        RefusalReason::Busy => ("pages of the region were busy at every try", "try again"),
        RefusalReason::MappedByOthers => (
            "other processes map the same huge page, or the kernel holds it for a moment; it does not split it then",
            "give back again, and where a child by fork maps it, such as a snapshot's, when that has ended; memory that a program's processes share goes back with their restart",
        ),
        RefusalReason::Changed => (
            "the program changed the memory after it was observed, so it was left alone",
            "run the command again, which observes anew",
        ),
        RefusalReason::Exited => ("the process ended", "run it again on the process that runs now"),
        RefusalReason::NotPermitted => (
            "a capability is missing",
            "it takes CAP_SYS_NICE and, for another user's process, CAP_SYS_PTRACE; `hugepilot doctor` says what is missing",
        ),
        RefusalReason::Other => ("the kernel gave an unexpected answer", "please report it with its errno"),
    }
}

/// A number with thousands separators: `1,204`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 region`, `1,204 regions`.
pub fn count_of(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A rate to three digits: `0.25 /s`, `120 /s`, `4.50 k/s`, `12.3 M/s`.
pub fn rate(per_second: f64) -> String {
    let (number, unit) = three_digits(per_second);
    format!("{number} {unit}/s")
}

/// A number to three digits: `120`, `4.50 k`, `12.3 M`.
pub fn about(number: f64) -> String {
    let (number, unit) = three_digits(number);
    format!("{number} {unit}").trim_end().to_owned()
}

fn three_digits(number: f64) -> (String, &'static str) {
    let (scaled, unit) = match number {
        number if number >= 999.5e6 => (number / 1e9, "G"),
        number if number >= 999.5e3 => (number / 1e6, "M"),
        number if number >= 999.5 => (number / 1e3, "k"),
        number => (number, ""),
    };
    let decimals = match scaled {
        whole if whole == 0.0 || whole >= 99.95 => 0,
        tens if tens >= 9.995 => 1,
        _ => 2,
    };
    (format!("{scaled:.decimals$}"), unit)
}

/// A length of time in its largest whole unit: `12 s`, `3 min`, `5 h`, `2 d`.
pub fn duration(time: Nanos) -> String {
    match time.0 / 1_000_000_000 {
        seconds if seconds < 60 => format!("{seconds} s"),
        seconds if seconds < 3600 => format!("{} min", seconds / 60),
        seconds if seconds < 24 * 3600 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / (24 * 3600)),
    }
}

/// A part as percent of the whole; a dash if there is no whole.
pub fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "-".to_owned() }
}

/// A name from another process, safe to print: without control characters, and cut at the front to at most `limit` characters, since the end of a
/// path tells more.
pub fn printable(name: &str, limit: usize) -> String {
    let clean: Vec<char> = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match clean.len() {
        len if len > limit => std::iter::once('…').chain(clean[len - limit + 1..].iter().copied()).collect(),
        _ => clean.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count_of(1, "region"), count_of(0, "region")), ("1 region".to_owned(), "0 regions".to_owned()));
        let rates = [0.0, 0.25, 9.999, 99.99, 999.4, 999.6, 4500.0, 12.34e6, 5e9];
        let expected =
            ["0 /s", "0.25 /s", "10.0 /s", "100 /s", "999 /s", "1.00 k/s", "4.50 k/s", "12.3 M/s", "5.00 G/s"];
        assert_eq!(rates.map(rate), expected);
        assert_eq!((percent(1.0, 3.0), percent(1.0, 0.0)), ("33.3 %".to_owned(), "-".to_owned()));
    }

    #[test]
    fn times_are_told_in_their_largest_unit() {
        let durations =
            [0, 59, 60, 3599, 3600, 86_399, 172_800].map(|seconds| duration(Nanos(seconds * 1_000_000_000)));
        assert_eq!(durations, ["0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "2 d"]);
    }

    #[test]
    fn only_what_was_cleared_in_slices_has_a_remedy() {
        let told = |meaning| reason(Reason::NotObserved, meaning).contains("--allow-stall");
        assert!(told(Meaning::Accessed));
        assert!(![Meaning::Walked, Meaning::Sampled, Meaning::Written].into_iter().any(told));
        assert!(unobserved(Meaning::Accessed).contains("locked") && !unobserved(Meaning::Walked).contains("locked"));
    }

    #[test]
    fn foreign_names_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[31mb", 60), "a?[31mb");
        assert_eq!(printable("/usr/lib/some.so", 8), "…some.so");
        assert_eq!(printable("12345678", 8), "12345678");
    }
}
