//! hugepilot on the real kernel: the built binary is run against programs whose memory use is known.
//!
//! Owns: one test binary, which plays both parts: with the argument `program` it is a program to be observed
//! ([`program`]), else it runs the tests. Never touches: what it did not start; settings of the machine are put back.
//!
//! Tests run one at a time, because they share the CPUs whose page walks they watch and the machine's huge pages; only those that wait most
//! of their time wait together ([`PATIENT`]). None of them measures speed. They need root, BTF and huge pages, and are skipped, saying
//! why, only where one of the three is missing.

mod attach;
mod color;
mod daemon;
mod damon;
mod doctor;
mod errors;
mod explain;
mod give_back;
mod group;
mod heat;
mod idle_page;
mod launch;
mod live_view;
mod numa;
mod page;
mod perf;
mod pool;
mod program;
mod promote;
mod reclaim;
mod recording;
mod run;
mod soak;
mod support;
mod survey;
mod tracking;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// Lists the tests of a module under its name.
macro_rules! trials {
    ($($test:ident),* $(,)?) => {
        /// Every test of this module.
        pub fn trials() -> Vec<libtest_mimic::Trial> {
            let (_, module) = module_path!().split_once("::").expect("a module of this test");
            vec![$(libtest_mimic::Trial::test(format!("{module}::{}", stringify!($test)), || {
                $test();
                Ok(())
            })),*]
        }
    };
}
use trials;

/// Tests that mostly wait, and whose programs may be short of CPU time for a while; they change no setting but the mode of huge pages, to
/// `madvise`. So many of them at a time take a third of the time that they would take one by one.
const PATIENT: &[&str] = &[
    "daemon::fairness::a_late_starter_gets_its_share_and_more_once_the_other_rests",
    "daemon::fairness::sparse_memory_is_given_back_once_it_is_not_used",
    "daemon::fairness::sparse_memory_is_kept_if_told_so",
    "daemon::trouble::hundreds_of_small_programs_beside_a_large_one",
    "daemon::cost::memory_and_file_descriptors_are_bounded",
    "daemon::cost::much_memory_is_watched_with_little",
    "attach::huge_pages_follow_the_hot_memory_within_their_limit",
    "promote::memory_that_changes_meanwhile_is_left_alone",
    "promote::a_target_that_calls_exec_midway_is_told",
    "give_back::a_signal_stops_between_regions_and_the_rest_can_be_given_back_later",
    "daemon::clients::who_rests_is_woken_when_its_walks_rise",
    "recording::a_program_that_ends_while_it_is_watched",
    "live_view::the_end_of_the_program_is_said",
];
const PATIENT_AT_A_TIME: usize = 3;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "program").is_some() {
        return program::run(words);
    }
    hugepilot_os::trial::obey_signals();
    let arguments = Arguments::from_args();
    let modules = [
        heat::trials(),
        group::trials(),
        promote::trials(),
        numa::trials(),
        give_back::trials(),
        run::trials(),
        launch::trials(),
        attach::trials(),
        reclaim::trials(),
        daemon::trials(),
        soak::trials(),
        doctor::trials(),
        errors::trials(),
        damon::trials(),
        idle_page::trials(),
        perf::trials(),
        pool::trials(),
        recording::trials(),
        page::trials(),
        live_view::trials(),
        explain::trials(),
        survey::trials(),
        color::trials(),
    ];
    let mut trials: Vec<_> = modules.into_iter().flatten().collect();
    if let Some(missing) = support::missing() {
        eprintln!("live tests are skipped: {missing}");
        trials = trials.into_iter().map(|trial| trial.with_ignored_flag(true)).collect();
    }
    let _alone = (!arguments.list).then(support::machine_lock);
    // The mode most machines have: under `always` memory would be huge before anyone promotes it. Tests that want another set it.
    let _madvise = (!arguments.list && support::missing().is_none()).then(|| support::Setting::huge_pages("madvise"));
    trials.retain(|trial| !arguments.is_filtered_out(trial));
    let (patient, others): (Vec<_>, Vec<_>) = trials.into_iter().partition(|trial| PATIENT.contains(&trial.name()));
    let run = |trials, at_a_time| {
        libtest_mimic::run(&Arguments { test_threads: Some(at_a_time), ..arguments.clone() }, trials).has_failed()
    };
    let has_others = patient.is_empty() || !others.is_empty();
    let failed = [!patient.is_empty() && run(patient, PATIENT_AT_A_TIME), has_others && run(others, 1)];
    if failed.contains(&true) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
