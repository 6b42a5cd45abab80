//! A daemon that runs for minutes among programs that start, end, fork, share memory and change their hot memory.
//!
//! Ignored unless requested (`make soak`), for SOAK_SECONDS. SOAK_SEED determines what happens, but not exactly when.

use std::env;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use kernel::Root;
use kernel::process::ProcessStatus;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::daemon::{Daemon, named, settings};
use crate::support::{Program, number};

/// The number of programs at a time.
const MOST: usize = 8;
/// By then a daemon has met all kinds of programs, and has allocated what it needs.
const SETTLED: Duration = Duration::from_secs(60);

/// Tests that take minutes.
pub fn trials() -> Vec<libtest_mimic::Trial> {
    let soak = || {
        a_daemon_among_changing_programs();
        Ok(())
    };
    vec![libtest_mimic::Trial::test("soak::a_daemon_among_changing_programs", soak).with_ignored_flag(true)]
}

/// A number from the environment.
pub fn asked_for(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Pseudo-random numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// The steps of a program. Each ends by itself, so that an interrupted soak leaves nothing behind.
    fn steps(&mut self, shared: &str) -> String {
        let mib = 16 + self.below(80);
        match self.below(7) {
            0 => format!("map={mib}M fill ready read=all,300s"),
            1 => format!("map={mib}M fill ready read=third,5s read=last,5s read=all,300s"),
            2 => format!("map={mib}M fill=sparse ready read=sparse,8s sleep=300s"),
            3 => format!("map={mib}M fill fork ready read=scattered,300s"),
            4 => format!("shmem={mib}M fill fork-reader ready read=all,300s"),
            5 => format!("file={shared} fill ready read=all,300s"),
            _ => format!("map={mib}M fill ready read=all,3s exec map={mib}M fill read=all,300s"),
        }
    }
}

/// The daemon's resident memory and file descriptors.
fn held(daemon: &Daemon) -> (u64, usize) {
    let rss = ProcessStatus::read(&Root::host(), daemon.pid()).expect("it lives").vm_rss.0;
    (rss, fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it lives").count())
}

fn a_daemon_among_changing_programs() {
    let (seconds, seed) = (asked_for("SOAK_SECONDS", 600), asked_for("SOAK_SEED", 1));
    eprintln!("{seconds} seconds, SOAK_SEED={seed}");
    let before = settings();
    let folder = tempfile::tempdir().expect("a folder");
    let memfd = File::from(memfd_create("hugepilot-soak", MemfdFlags::CLOEXEC).expect("a memfd"));
    memfd.set_len(32 << 20).expect("room");
    let shared = format!("/proc/{}/fd/{}", std::process::id(), memfd.as_raw_fd());
    let rules =
        "max-huge = '256M'\nmax-growth = '200M'\nfairness = 'share'\n[[target]]\nname = 'hpt-soak'\nchildren = true\n";
    let mut daemon = Daemon::start(rules);
    let (mut dice, mut programs) = (Dice(seed.max(1)), Vec::<Program>::new());
    let (begin, mut settled) = (Instant::now(), None);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let place = dice.below(MOST as u64) as usize;
        if place < programs.len() {
            programs.swap_remove(place).assert_unharmed();
        } else {
            programs.push(Program::command(&mut named(folder.path(), "hpt-soak", &dice.steps(&shared))));
        }
        std::thread::sleep(Duration::from_millis(200 + dice.below(2000)));
        programs.iter_mut().for_each(Program::assert_unharmed);
        if begin.elapsed() > SETTLED.min(Duration::from_secs(seconds / 2)) {
            settled.get_or_insert_with(|| held(&daemon));
        }
    }
    programs.iter_mut().for_each(Program::assert_unharmed);
    let (rss, descriptors) = settled.expect("it was longer than a step");
    let (rss_at_last, descriptors_at_last) = held(&daemon);
    let status = daemon.status();
    eprintln!("{rss} bytes resident after the first minute, {rss_at_last} at last; {}", status["counts"]);
    assert!(number(&status["counts"], "promoted") > 0, "{status}");
    assert!(rss_at_last as f64 <= rss as f64 * 1.05, "{rss} bytes resident became {rss_at_last}");
    assert!(descriptors_at_last <= descriptors, "{descriptors} file descriptors became {descriptors_at_last}");
    assert!(daemon.end().success(), "{}", daemon.said());
    assert_eq!(settings(), before);
    programs.iter_mut().for_each(Program::assert_unharmed);
}
