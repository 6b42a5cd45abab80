//! `hugepilotd`: pilots all processes that the configuration names, for as long as the machine runs.
//!
//! Owns: start, reload and end. Never touches: rounds, which are [`Fleet`]'s.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heat::TrackerKind;
use hugepilot_os::namespaces::join_control_groups_of_init;
use hugepilot_os::run_directory::{self, RUN_DIRECTORY};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::{Root, privilege};
use pilot::engine::shared_state::{RecordsAtEnd, SharedState};
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::machine::{Machine, on_this_machine, require};
use pilot::words::{held_back, printable};
use reclaim::{MechanismState, ReclaimOptions, Reclaimer, STEP, Store};
use rustix::process::Signal;

use crate::args::DaemonArgs;
use crate::config::Config;
use crate::control::ControlServer;
use crate::lock::{self, MachineLock};
use crate::metrics_server::MetricsServer;
use crate::service;

/// Between two steps of the loop.
const PAUSE: Duration = Duration::from_millis(250);
/// How long an agent that ends with the daemon may take to say what becomes of records: it asks the API server.
const AGENT_ENDS: Duration = Duration::from_secs(20);
/// Between two attempts to serve metrics, two searches for another daemon, and two summaries for systemd.
const RETRY: Duration = Duration::from_secs(10);
/// Of why a configuration was refused, so many characters are told to whoever asks.
const LONGEST_REFUSAL: usize = 500;

/// Pilots until a signal ends it.
///
/// Errors: the configuration is wrong, rights are missing, another daemon runs, or this machine has no tracker.
pub fn pilot(args: &DaemonArgs) -> anyhow::Result<()> {
    let config = Config::read_or_observe(&args.config)?;
    require::acting(config.tracker)?;
    let only_one = lock::only_one(&args.daemon.socket)?;
    let stop = Stop::on(&[Signal::TERM, Signal::INT], SecondSignal::Waits)?;
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::HUP.as_raw(), Arc::clone(&reload))?;
    // A container has a namespace of its own, in which the groups of others have no names.
    match join_control_groups_of_init() {
        Ok(false) => {}
        Ok(true) => say("reading control groups as process 1 names them"),
        Err(error) => say(format_args!(
            "programs are not found by control group or container: {error}; the daemon needs CAP_SYS_ADMIN for that"
        )),
    }
    let shared_state = SharedState::default();
    shared_state.stepped();
    let machine = Machine::new(observe::open(config.tracker)?, config.max_slowdown);
    let mut machine = machine.serving(shared_state.serving_time().clone());
    let mut pilot = Pilot::lasting(&mut machine, settings(&config)?, stop);
    let mut daemon = Daemon {
        path: &args.config,
        fleet: Fleet::begin(config.scope.clone(), rules(&config), shared_state.clone(), &mut pilot),
        pilot,
        metrics: None,
        reclaim_work: None,
        shared_state: shared_state.clone(),
        machine_lock: MachineLock::within(Path::new(RUN_DIRECTORY), &args.daemon.socket),
        socket: &args.daemon.socket,
        config,
    };
    // Open everything that needs CAP_SYS_ADMIN before giving it up.
    daemon.begin_reclaim();
    give_up_sys_admin(daemon.pilot.world.tracker());
    daemon.fleet.show(&daemon.pilot);
    daemon.notice_another();
    // Start threads after that. The daemon can do without control socket and metrics, for example if /run is full or read-only.
    let control = ControlServer::start(shared_state.clone(), &args.daemon.socket).inspect_err(|error| say(error)).ok();
    daemon.serve_metrics();
    say(begun(&args.config, &daemon.config));
    service::ready(&daemon.summary());
    daemon.run(&reload);
    let has_promoted = daemon.shared_state.state().counts.promoted > 0;
    drop(daemon);
    service::stopping();
    let records = records_at_end(&shared_state, if args.ends_with_agent { AGENT_ENDS } else { Duration::ZERO });
    drop((control, only_one));
    if records == RecordsAtEnd::Remove {
        remove_records(Path::new(RUN_DIRECTORY));
    }
    say(match has_promoted {
        true => "stopped; what was promoted stays, and `hugepilot give-back PID` undoes it",
        false => "stopped; it had promoted nothing",
    });
    Ok(())
}

/// What is to become of the records. An agent has so much time to say so; it is told to end at the same moment.
fn records_at_end(shared_state: &SharedState, patience: Duration) -> RecordsAtEnd {
    let until = Instant::now() + patience;
    loop {
        match shared_state.records_at_end() {
            Some(records) => return records,
            None if Instant::now() >= until => return RecordsAtEnd::Keep,
            None => thread::sleep(PAUSE),
        }
    }
}

fn remove_records(directory: &Path) {
    match run_directory::clear(directory) {
        Ok(()) => say(format_args!("{} is empty now, as the agent said", directory.display())),
        Err(error) => say(format_args!("records stay in {}: {error}", directory.display())),
    }
}

struct Daemon<'a> {
    path: &'a Path,
    socket: &'a Path,
    config: Config,
    fleet: Fleet,
    pilot: Pilot<'a>,
    shared_state: SharedState,
    metrics: Option<MetricsServer>,
    machine_lock: MachineLock,
    reclaim_work: Option<ReclaimWork>,
}

/// Reclaim, and the store for its state.
struct ReclaimWork {
    reclaimer: Reclaimer,
    store: Option<Store>,
    next: Instant,
}

impl Daemon<'_> {
    fn run(&mut self, reload: &AtomicBool) {
        let mut told = Instant::now();
        loop {
            let alive = || {
                service::watchdog();
                self.shared_state.stepped();
            };
            self.fleet.step(&mut self.pilot, &mut |_| alive());
            alive();
            self.reclaim();
            if reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            if told.elapsed() > RETRY {
                told = Instant::now();
                self.serve_metrics();
                self.notice_another();
                service::status(&self.summary());
            }
            if self.pilot.stop.sleep_until(Instant::now() + PAUSE).is_err() {
                return;
            }
        }
    }

    /// Reloads the configuration. An invalid one changes nothing.
    fn reload(&mut self) {
        service::reloading();
        // A file that is being replaced must not stop a daemon from promoting.
        let read = Config::read_anew(self.path).map_err(anyhow::Error::from).and_then(|config| self.change(config));
        match &read {
            Ok(()) => say(format_args!("read {} anew", self.path.display())),
            Err(error) => say(format_args!("the configuration stays as it was: {error:#}")),
        }
        self.shared_state.show_reload(read.err().map(|error| printable(&format!("{error:#}"), LONGEST_REFUSAL)));
        service::ready(&self.summary());
    }

    /// Goes on with another configuration. Whatever can fail comes first: an error changes nothing.
    fn change(&mut self, config: Config) -> anyhow::Result<()> {
        let settings = settings(&config)?;
        if self.config.metrics != config.metrics {
            MetricsServer::change(&mut self.metrics, &self.shared_state, config.metrics.as_ref())?;
        }
        self.pilot.change(settings);
        if self.config.tracker != config.tracker {
            say("another tracker is taken at the next start only");
        }
        self.fleet.change(config.scope.clone(), rules(&config), Instant::now());
        let reclaims_otherwise = self.config.reclaim != config.reclaim;
        self.config = config;
        if reclaims_otherwise {
            self.change_reclaim();
        }
        self.serve_metrics();
        Ok(())
    }

    /// Shows whether another daemon pilots this machine, too, and says so when that is new.
    fn notice_another(&mut self) {
        let other = self.machine_lock.take();
        if let Some(other) = other.as_ref().filter(|_| other != self.shared_state.state().other_daemon) {
            say(lock::beside(other, self.socket));
        }
        self.shared_state.show_other_daemon(other);
    }

    /// Serves metrics where they are to be served and are not yet: whoever had the place may have left it. Says what has changed.
    fn serve_metrics(&mut self) {
        let before = self.shared_state.state().metrics_not_served;
        let place = self.config.metrics.as_ref().filter(|_| self.metrics.is_none());
        let served =
            place.map_or(Ok(()), |place| MetricsServer::change(&mut self.metrics, &self.shared_state, Some(place)));
        let not_served = served.err().map(|error| printable(&error.to_string(), LONGEST_REFUSAL));
        match (&before, &not_served, place) {
            (_, Some(why), _) if before != not_served => say(why),
            (Some(_), None, Some(place)) => say(format_args!("metrics are served on {place} now")),
            _ => {}
        }
        self.shared_state.show_metrics(not_served);
    }

    /// Starts to reclaim memory if the configuration says so. If that fails, the daemon continues without.
    fn begin_reclaim(&mut self) {
        let Some(options) = self.config.reclaim.clone() else { return };
        let tracker = self.pilot.world.tracker();
        let uses_damon = matches!(tracker, TrackerKind::DamonVaddr | TrackerKind::DamonPaddr);
        let damon_taken = uses_damon.then_some("the daemon's tracker uses it");
        let begun = Store::take().and_then(|store| Ok((store, Reclaimer::begin(&Root::host(), options, damon_taken)?)));
        match begun {
            Ok((store, reclaimer)) => self.reclaim_work = Some(ReclaimWork { reclaimer, store, next: Instant::now() }),
            Err(error) => say(format_args!("memory is not reclaimed: {error}")),
        }
    }

    fn change_reclaim(&mut self) {
        let Some(options) = self.config.reclaim.clone() else { return self.end_reclaim() };
        if let Some(work) = &mut self.reclaim_work {
            return changed(&mut work.reclaimer, options).iter().for_each(say);
        }
        self.begin_reclaim();
        let begun = self.reclaim_work.as_ref().map(|work| work.reclaimer.state().mechanisms);
        begun.and_then(|mechanisms| without(&mechanisms)).iter().for_each(say);
    }

    /// Reclaims what is due.
    fn reclaim(&mut self) {
        let Some(work) = self.reclaim_work.as_mut().filter(|work| work.next <= Instant::now()) else { return };
        work.next = Instant::now() + STEP;
        if let Err(error) = work.reclaimer.step(&self.pilot.stop) {
            say(format_args!("memory is not reclaimed any more: {error}"));
            return self.end_reclaim();
        }
        if let Some(store) = &mut work.store {
            store.keep(|| work.reclaimer.state_with_history());
        }
        self.shared_state.show_reclaim(Some(work.reclaimer.state()));
    }

    fn end_reclaim(&mut self) {
        if let Some(mut work) = self.reclaim_work.take() {
            work.reclaimer.finish();
            let state = work.reclaimer.state_with_history();
            work.store.iter_mut().for_each(|store| store.write(&state));
        }
        self.shared_state.show_reclaim(None);
    }

    fn summary(&self) -> String {
        let state = self.shared_state.state();
        let because =
            state.held_back.map(|why| format!("; nothing is promoted: {}", held_back(why))).unwrap_or_default();
        format!("{} targets, {} on huge pages{because}", state.targets.len(), state.budget.huge_bytes)
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        self.end_reclaim();
    }
}

fn rules(config: &Config) -> Rules {
    let min_size = config.min_size.unwrap_or(Rules::default().min_size);
    Rules { min_size, fairness: config.fairness, give_back: config.give_back }
}

fn settings(config: &Config) -> anyhow::Result<Settings> {
    Ok(Settings {
        watch: config.watch,
        allowance: on_this_machine(config.allowance)?,
        max_cpu: config.max_cpu,
        max_slowdown: config.max_slowdown,
    })
}

fn begun(path: &Path, config: &Config) -> String {
    let names_none = if path.exists() { "names no program to promote" } else { "does not exist" };
    let path = path.display();
    if config.only_observes() {
        format!(
            "observing, and promoting nothing: {path} {names_none}; `hugepilot status` shows what programs would gain"
        )
    } else {
        format!("piloting, as {path} says")
    }
}

/// The tracker that reads page tables no longer needs it; other trackers still need it for page frame numbers.
fn give_up_sys_admin(tracker: TrackerKind) {
    if tracker == TrackerKind::PageWalk
        && let Err(error) = privilege::drop_sys_admin()
    {
        say(format_args!("CAP_SYS_ADMIN is kept: {error}"));
    }
}

/// Changes what is reclaimed; returns what to say about it, for a change may end the use of a mechanism.
fn changed(reclaimer: &mut Reclaimer, options: ReclaimOptions) -> Vec<String> {
    let failed = reclaimer.change(options).err().map(|error| format!("memory is reclaimed as before: {error}"));
    failed.into_iter().chain(without(&reclaimer.state().mechanisms)).collect()
}

/// What to say after a reload about mechanisms that are not used; None if all are. Whatever begins after the start finds CAP_SYS_ADMIN given up,
/// and what was once given up is not taken up again.
fn without(mechanisms: &[MechanismState]) -> Option<String> {
    let reason = |mechanism: &MechanismState| Some(format!("{}: {}", mechanism.name, mechanism.refused.as_ref()?));
    let reasons: Vec<String> = mechanisms.iter().filter_map(reason).collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "memory is reclaimed, but not by every mechanism ({}). CAP_SYS_ADMIN was given up at the start, and a reload takes up no \
             mechanism that was given up; a restart begins with both (systemctl restart hugepilot)",
            reasons.join("; ")
        )
    })
}

/// One line for the journal.
pub(crate) fn say(what: impl std::fmt::Display) {
    eprintln!("hugepilotd: {what}");
}

#[cfg(test)]
mod tests {
    use heat::memory_use::MemoryUse;
    use heat::units::{Bytes, SizeOrShare};
    use reclaim::mechanism::DropBehindOptions;
    use reclaim::policy::Preset;

    use super::*;

    /// A machine with half a GiB of unmapped cache, and a control group with `memory.reclaim`.
    fn machine() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let meminfo = "MemTotal: 1000000 kB\nMemFree: 100 kB\nActive(file): 0 kB\nInactive(file): 500000 kB\nShmem: 20 kB\nMapped: 0 kB\n\
                       AnonPages: 70 kB\nSwapFree: 1 kB\n";
        for (name, text) in [
            ("proc/meminfo", meminfo),
            ("proc/buddyinfo", "Node 0, zone DMA 1 0 0 0 0 0 0 0 0 3\n"),
            ("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/a/memory.stat", "inactive_file 512000000\n"),
            ("sys/fs/cgroup/a/memory.reclaim", ""),
        ] {
            let path = tree.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    #[test]
    fn records_go_only_where_an_agent_says_so_and_its_word_is_waited_for() {
        let state = SharedState::default();
        assert_eq!(records_at_end(&state, Duration::ZERO), RecordsAtEnd::Keep);
        let agent = thread::spawn({
            let state = state.clone();
            move || {
                thread::sleep(2 * PAUSE);
                state.set_records_at_end(RecordsAtEnd::Remove);
            }
        });
        assert_eq!(records_at_end(&state, Duration::from_secs(60)), RecordsAtEnd::Remove);
        agent.join().unwrap();
        state.set_records_at_end(RecordsAtEnd::Keep);
        assert_eq!(records_at_end(&state, Duration::from_secs(60)), RecordsAtEnd::Keep);
        state.set_records_at_end(RecordsAtEnd::Remove);
        assert!(state.assign("kubernetes", Vec::new()), "the next agent");
        assert_eq!(records_at_end(&state, Duration::ZERO), RecordsAtEnd::Keep, "what the former one said is void");
    }

    #[test]
    fn a_change_that_ends_the_use_of_a_mechanism_says_so() {
        let tree = machine();
        let mut policies = Preset::Balanced.policies();
        (policies.free_below, policies.huge_below) = (None, None);
        policies.classes[MemoryUse::UnmappedCache].floor = SizeOrShare::Size(Bytes(0));
        let options = ReclaimOptions { policies, drop_behind: DropBehindOptions::default() };
        let mut reclaimer = Reclaimer::begin(&Root::at(tree.path()), options.clone(), Some("taken")).unwrap();
        let drop_behind = DropBehindOptions {
            paths: vec![tree.path().to_owned()],
            except: vec![tree.path().join("proc")],
            ..DropBehindOptions::default()
        };
        let said = changed(&mut reclaimer, ReclaimOptions { drop_behind: drop_behind.clone(), ..options.clone() });
        assert!(said.len() == 1 && said[0].contains("not by every mechanism"), "{said:?}");
        assert!(said[0].contains("it tells no file from another"), "{said:?}");
        let nowhere = DropBehindOptions { paths: vec![tree.path().join("none")], ..drop_behind };
        let said = changed(&mut reclaimer, ReclaimOptions { drop_behind: nowhere, ..options });
        assert!(said[0].starts_with("memory is reclaimed as before: "), "{said:?}");
    }

    #[test]
    fn mechanisms_that_are_not_used_are_named_with_the_reason() {
        let mechanism = |name: &str, refused: Option<&str>| MechanismState {
            name: name.to_owned(),
            refused: refused.map(str::to_owned),
            counts: Default::default(),
        };
        assert_eq!(without(&[mechanism("drop-behind", None), mechanism("damon", None)]), None);
        let said =
            without(&[mechanism("drop-behind", None), mechanism("damon", Some("it may not"))]).expect("one is not");
        assert!(said.contains("(damon: it may not)") && said.contains("systemctl restart hugepilot"), "{said}");
    }
}
