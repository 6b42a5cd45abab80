//! Giving up CAP_SYS_ADMIN, in separate processes: capabilities belong to threads, so a process that gives one up must have only one thread, which no
//! ordinary test harness guarantees.
//!
//! With the argument `child` this binary is the process that gives it up. Needs root, and BTF for the tracker; skipped tests say so.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use heat::TrackerKind;
use heat::units::Nanos;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::privilege::{PrivilegeError, drop_sys_admin};
use kernel::target::Target;
use libtest_mimic::{Arguments, Failed, Trial};
use observe::{ObserveOptions, TrackerChoice};
use rustix::process::{getppid, getuid};

const UNIT: &str = include_str!("../../../integrations/systemd/hugepilot.service");
const SYS_ADMIN: u64 = 1 << 21;
const ALL_SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, child, part] = words.as_slice()
        && child == "child"
    {
        play(part);
        return ExitCode::SUCCESS;
    }
    let missing = (!getuid().is_root()).then_some("not root");
    let no_btf = (!Path::new("/sys/kernel/btf/vmlinux").exists()).then_some("the kernel has no BTF");
    let trials = vec![
        trial("it_leaves_every_set_of_every_thread_and_program", missing, || child(&[], "gives-up")),
        trial("without_setpcap_no_program_gets_it_back", missing, || {
            child(&["--bounding-set", "-setpcap"], "keeps-bound")
        }),
        trial("with_another_thread_it_is_refused", None, || child(&[], "is-refused")),
        trial("a_tracker_scans_with_what_the_unit_leaves_it", missing.or(no_btf), || {
            child(&["--bounding-set", &capabilities_of_the_unit()], "scans")
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &'static str, missing: Option<&str>, test: fn() -> Result<(), Failed>) -> Trial {
    if let Some(missing) = missing {
        eprintln!("skipped: {name} ({missing})");
    }
    Trial::test(name, test).with_ignored_flag(missing.is_some())
}

/// Runs this binary in this role, with the capabilities that `setpriv` leaves it.
fn child(restrictions: &[&str], part: &str) -> Result<(), Failed> {
    let own = std::env::current_exe()?;
    let output = Command::new("setpriv").args(restrictions).arg("--").arg(own).args(["child", part]).output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned().into()) }
}

fn play(part: &str) {
    match part {
        "gives-up" => {
            assert!(held(&own_status(), "CapBnd"));
            drop_sys_admin().unwrap();
            let programs = program_status();
            let threads =
                std::thread::spawn(|| fs::read_to_string("/proc/thread-self/status").unwrap()).join().unwrap();
            for (who, status) in [("itself", own_status()), ("a thread", threads), ("a program", programs)] {
                let kept: Vec<_> = ALL_SETS.into_iter().filter(|set| held(&status, set)).collect();
                assert!(kept.is_empty(), "{who} keeps it in {kept:?}");
                assert!(status.contains("\nNoNewPrivs:\t1\n"), "{who}");
            }
        }
        "keeps-bound" => {
            drop_sys_admin().unwrap();
            assert!(held(&own_status(), "CapBnd"), "the case that is tested");
            let status = program_status();
            assert!(!held(&status, "CapEff") && !held(&status, "CapPrm"), "{status}");
        }
        "is-refused" => {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let other = std::thread::spawn(move || ended.recv());
            let before = own_status();
            assert!(matches!(drop_sys_admin(), Err(PrivilegeError::MoreThreads { threads: 2, .. })));
            assert_eq!(capabilities_in(&before), capabilities_in(&own_status()), "nothing changed");
            drop(end);
            let _ = other.join();
        }
        "scans" => {
            let mut tracker = observe::open(TrackerChoice::Only(TrackerKind::PageWalk)).unwrap();
            drop_sys_admin().unwrap();
            let parent = getppid().expect("whoever tests").as_raw_pid() as u32;
            let target = Target::open(parent).unwrap();
            let options = ObserveOptions { window: Nanos(200_000_000), ..ObserveOptions::default() };
            let heat = tracker.observe(&target, &options, &Stop::default()).unwrap();
            assert!(!heat.regions.is_empty() && heat.rss.0 > 0);
        }
        other => panic!("no part {other}"),
    }
}

/// In the format of `setpriv`.
fn capabilities_of_the_unit() -> String {
    let mut settings = UNIT.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = settings.next().expect("it has one").to_lowercase();
    format!("-all,{}", names.replace("cap_", "+").replace(' ', ","))
}

fn own_status() -> String {
    Root::host().text("proc/self/status").unwrap()
}

fn program_status() -> String {
    let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn held(status: &str, set: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t")).expect(set);
    u64::from_str_radix(line, 16).expect("a mask") & SYS_ADMIN != 0
}

fn capabilities_in(status: &str) -> Vec<&str> {
    status.lines().filter(|line| line.starts_with("Cap")).collect()
}
