//! hugepilot on the real kernel: the built binary is run against programs whose memory use is known.
//!
//! Owns: one test binary, which plays both parts: with the argument `program` it is a program to be observed
//! ([`program`]), else it runs the tests. Never touches: what it did not start; settings of the machine are put back.
//!
//! Tests run one at a time, because they share the CPUs whose page walks they watch and the machine's huge pages. None of them
//! measures speed. They need root, BTF and huge pages, and are skipped, saying why, only where one of the three is missing.

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

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "program").is_some() {
        return program::run(words);
    }
    hugepilot_os::trial::obey_signals();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
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
    libtest_mimic::run(&arguments, trials).exit_code()
}
