//! All attacks for as long as SOAK_SECONDS, while the daemon is killed again and again. Ignored unless requested (`make soak`).

use std::time::{Duration, Instant};

use super::attackers::ATTACKS;
use super::{GAINED, Siege};
use crate::soak::asked_for;
use crate::support::Program;

/// How long a daemon lives.
const LIFE: Duration = Duration::from_secs(20);
/// Attacks at a time.
const AT_ONCE: usize = 3;

pub fn trials() -> Vec<libtest_mimic::Trial> {
    let soak = || {
        attacks_while_the_daemon_is_killed();
        Ok(())
    };
    vec![libtest_mimic::Trial::test("attack::soak::attacks_while_the_daemon_is_killed", soak).with_ignored_flag(true)]
}

/// What a daemon held at the end of its life.
#[derive(Clone, Copy, Debug)]
struct Held {
    rss: u64,
    descriptors: usize,
}

/// The largest of each.
fn most(lives: &[Held]) -> Held {
    let most = |of: fn(&Held) -> u64| lives.iter().map(of).max().expect("there was one");
    Held { rss: most(|held| held.rss), descriptors: most(|held| held.descriptors as u64) as usize }
}

fn attacks_while_the_daemon_is_killed() {
    let seconds = asked_for("SOAK_SECONDS", 600);
    let (began, mut siege) = (Instant::now(), Siege::lay());
    let mut lives = Vec::new();
    while began.elapsed() < Duration::from_secs(seconds) {
        let numbers = (0..AT_ONCE).map(|number| (lives.len() * AT_ONCE + number) % ATTACKS.len());
        let attackers: Vec<_> = numbers.map(|number| siege.begin(number, &ATTACKS[number])).collect();
        let seen = siege.watch(u64::MAX, LIFE);
        lives.push(Held { rss: siege.rss(), descriptors: siege.descriptors() });
        eprintln!("{:.0} s: {seen:?}, {:?}", began.elapsed().as_secs_f64(), lives[lives.len() - 1]);
        assert!(seen.scans > 0.0, "nobody was scanned: {seen:?}");
        for attackers in &attackers {
            let said = std::fs::read_to_string(&attackers.said).expect("what it says is text");
            assert!(!said.contains(GAINED), "{said}");
        }
        drop(attackers);
        siege = siege.with_a_new_daemon();
        // Every read checks what was written.
        siege.targets.iter_mut().for_each(Program::assert_unharmed);
        siege.client.assert_unharmed();
    }
    let third = (lives.len() / 3).max(1);
    let (early, late) = (most(&lives[..third]), most(&lives[lives.len() - third..]));
    eprintln!("{} daemons; at most in the first third {early:?}, in the last {late:?}", lives.len());
    assert!(late.rss as f64 <= early.rss as f64 * 1.1 && late.descriptors <= early.descriptors + 8, "{lives:?}");
}
