//! hugepilot on the real kernel: the built binary runs against programs whose memory use is known.
//!
//! Owns: one test binary with three roles: with the argument `program` it is a program to be observed ([`program`]), with `attack` one that attacks the
//! daemon ([`attack::attackers`]); otherwise it runs the tests. Never touches: processes that it did not start; it restores settings of the machine.
//!
//! Tests run one at a time, because they share the machine's huge pages, and the CPUs whose page walks they observe; only tests that mostly wait run
//! together ([`PATIENT`]). None of them measures speed. They need root, BTF and huge pages; if one of the three is missing, they are skipped and say
//! why.

mod attach;
#[path = "../../../../tests/attack/mod.rs"]
mod attack;
mod cache;
mod color;
mod daemon;
mod damon;
mod doctor;
mod errors;
mod explain;
mod give_back;
mod group;
mod guest;
mod guest_in_qemu;
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
mod scan;
#[path = "../schema/mod.rs"]
mod schema;
mod soak;
mod support;
mod survey;
mod tracking;
mod trial;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Lists a module's tests under its name.
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

/// Tests that mostly wait, the longest first, and whose programs may be short of CPU time for a while. The only setting that they change is the mode
/// of huge pages, to `madvise`. Running several at a time takes half as long as one by one.
const PATIENT: &[&str] = &[
    "daemon::fairness::a_late_starter_gets_its_share_and_more_once_the_other_rests",
    "daemon::fairness::sparse_memory_is_given_back_once_it_is_not_used",
    "daemon::trouble::hundreds_of_small_programs_beside_a_large_one",
    "daemon::cost::much_memory_is_watched_with_little",
    "daemon::cost::memory_and_file_descriptors_are_bounded",
    "attach::huge_pages_follow_the_hot_memory_within_their_limit",
    "promote::memory_that_changes_meanwhile_is_left_alone",
    "promote::a_target_that_calls_exec_midway_is_told",
    "daemon::fairness::sparse_memory_is_kept_if_told_so",
    "daemon::clients::who_rests_is_woken_when_its_walks_rise",
    "give_back::a_signal_stops_between_regions_and_the_rest_can_be_given_back_later",
    "run::memory_allocated_later_is_promoted_too",
    "run::children_of_the_program_are_piloted",
    "errors::signals_while_watching",
    "errors::a_process_that_execs_while_it_is_watched",
    "daemon::trouble::killed_in_the_middle_it_leaves_everything_well",
    "daemon::scope::a_new_configuration_changes_targets_and_limits",
    "daemon::clients::a_client_comes_back_to_a_daemon_that_does",
    "daemon::trouble::killed_and_started_anew_it_keeps_its_limits",
    "daemon::steering::a_pause_ends_what_goes_on",
    "attach::memory_is_promoted_until_time_is_up",
    "daemon::steering::what_is_given_back_stays_so",
    "daemon::steering::everything_is_paused_and_resumed",
    "daemon::trouble::many_short_lived_programs",
    "daemon::clients::a_signal_that_finds_no_room_is_not_needed",
    "daemon::clients::who_never_reads_is_told_once_and_holds_nobody_up",
    "daemon::steering::users_steer_their_own_processes_and_no_others",
    "daemon::trouble::a_program_that_execs_is_piloted_anew",
    "daemon::trouble::programs_that_end_are_forgotten",
    "daemon::scope::processes_by_name_unless_they_are_never_to_be",
    "daemon::clients::the_pilot_leaves_a_client_to_itself",
];
const PATIENT_AT_A_TIME: usize = 3;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "program").is_some() {
        return program::run(words);
    }
    if words.next_if(|word| word == "attack").is_some() {
        return if words.next_if(|word| word == "spy").is_some() {
            attack::attackers::spy()
        } else {
            attack::attackers::play(words)
        };
    }
    hugepilot_os::trial::obey_signals();
    let arguments = Arguments::from_args();
    let modules = [
        heat::trials(),
        group::trials(),
        promote::trials(),
        numa::trials(),
        give_back::trials(),
        guest::trials(),
        guest_in_qemu::trials(),
        trial::trials(),
        run::trials(),
        launch::trials(),
        attach::trials(),
        cache::trials(),
        reclaim::trials(),
        daemon::trials(),
        soak::trials(),
        attack::trials(),
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
        scan::trials(),
        survey::trials(),
        color::trials(),
    ];
    let mut trials: Vec<_> = modules.into_iter().flatten().collect();
    if let Some(missing) = support::missing() {
        eprintln!("live tests are skipped: {missing}");
        trials = trials.into_iter().map(|trial| trial.with_ignored_flag(true)).collect();
    }
    let _alone = (!arguments.list).then(support::machine_lock);
    // The mode of most machines; under `always` memory would be huge before it could be promoted. Tests that need another mode set it.
    let _madvise = (!arguments.list && support::missing().is_none()).then(|| support::Setting::huge_pages("madvise"));
    trials.retain(|trial| !arguments.is_filtered_out(trial));
    let rank = |trial: &Trial| PATIENT.iter().position(|name| *name == trial.name());
    let (mut patient, others): (Vec<_>, Vec<_>) = trials.into_iter().partition(|trial| rank(trial).is_some());
    patient.sort_by_key(rank);
    let run = |trials, at_a_time| {
        libtest_mimic::run(&Arguments { test_threads: Some(at_a_time), ..arguments.clone() }, trials).has_failed()
    };
    let has_others = patient.is_empty() || !others.is_empty();
    let failed = [!patient.is_empty() && run(patient, PATIENT_AT_A_TIME), has_others && run(others, 1)];
    if failed.contains(&true) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
