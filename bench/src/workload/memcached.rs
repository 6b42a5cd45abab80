//! The memcached workload: the distribution's own server, unmodified, under YCSB's workload C (read-only, scrambled zipfian).
//!
//! Owns: the server process, its socket, and the thread that makes the load. Never touches: other servers.
//!
//! One server thread on one processor, one client thread on another: on a small machine more threads would only share
//! the two, and it is the server's speed that the figure is about.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hugepilot::stop::Stop;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::memcached_client::Connection;
use super::open_loop::OpenLoop;
use super::progress::WorkInterval;
use super::zipfian::{Popularity, ScrambledZipfian};
use super::{Histogram, Progress, Role, Running, Start, Workload};
use crate::process::{BoundChild, Processors, bind_this_thread};

/// How finely progress is reported.
const INTERVAL: Duration = Duration::from_millis(100);
/// memcached's own bytes for each item, beside key and value: header, check-and-set number, and what slabs leave over.
const ITEM_OVERHEAD: u64 = 100;
const SOCKET: &str = "memcached";

/// How the server is loaded.
#[derive(Clone, Debug)]
pub struct Memcached {
    /// How many items it holds.
    pub items: u64,
    /// Bytes in each value.
    pub value_size: usize,
    /// Connections that take turns.
    pub connections: usize,
    /// Reads under way on each connection.
    pub depth: usize,
    /// Which items are read most.
    pub popularity: Popularity,
    /// Where the random numbers start.
    pub seed: u64,
    /// The memcached that compacts by libhps, as `integrations/memcached/build` makes it.
    pub compacting: OsString,
}

/// A server that holds all items.
pub struct Server {
    settings: Memcached,
    progress: Progress,
    load: Option<Load>,
    child: BoundChild,
    processors: Processors,
    directory: tempfile::TempDir,
}

/// A thread that sends requests until it is told to stop.
struct Load {
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Workload for Memcached {
    fn name(&self) -> String {
        "memcached".to_owned()
    }

    fn description(&self) -> String {
        let over = match self.popularity {
            Popularity::Ycsb => "",
            Popularity::Items => " over the items themselves",
        };
        format!(
            "{} items of {} bytes; reads, scrambled zipfian 0.99{over}, {} connections of {} outstanding requests",
            self.items, self.value_size, self.connections, self.depth
        )
    }

    fn unit(&self) -> &'static str {
        "reads"
    }

    fn memory_bytes(&self) -> u64 {
        self.items * (self.value_size as u64 + ITEM_OVERHEAD) + (8 << self.hash_power())
    }

    fn start_seconds(&self) -> f64 {
        1.0 + 1.5e-6 * self.items as f64
    }

    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>> {
        let mut server = self.serve(how, stop)?;
        server.begin_closed_loop();
        Ok(Box::new(server))
    }
}

impl Memcached {
    /// Starts a server and fills it.
    pub fn serve(&self, how: Start<'_>, stop: &Stop) -> Result<Server> {
        ensure!(how.launcher().is_empty(), "memcached is not measured with a launcher: choose other --configurations");
        let processors = Processors::of_this_process()?;
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join(SOCKET);
        let child = BoundChild::start(&self.command(&socket, how), processors.program, Stdio::null())?;
        let (settings, progress) = (self.clone(), Progress::default());
        let mut server = Server { settings, progress, load: None, child, processors, directory };
        let mut connection = self.connect(&socket, &mut server.child, stop)?;
        self.populate(&mut connection, processors, stop)?;
        Ok(server)
    }

    fn command(&self, socket: &Path, how: Start<'_>) -> Vec<OsString> {
        // A quarter more than the items need: with -L memcached reserves it, and evictions would spoil the reads.
        let megabytes = ((self.memory_bytes() * 5 / 4) >> 20) + 64;
        let mut options = format!("hashpower={}", self.hash_power());
        if let Start::Client { socket, role } = how {
            options += &format!(",hps={}", socket.display());
            match role {
                Role::Converts => {}
                Role::ConvertsWithin(limit) => options += &format!(",hps_budget={}", limit.0 >> 20),
                Role::KeepsAll => options += ",hps_observe",
            }
        }
        let program = match how {
            Start::Client { .. } | Start::IdleClient => self.compacting.clone(),
            Start::AsItIs | Start::OwnSwitch | Start::Launched { .. } => "memcached".into(),
        };
        let mut command: Vec<OsString> = vec![program, "-t".into(), "1".into(), "-s".into()];
        command.extend([socket.into(), "-m".into(), megabytes.to_string().into(), "-o".into(), options.into()]);
        if rustix::process::geteuid().is_root() {
            command.extend(["-u".into(), "root".into()]);
        }
        if how == Start::OwnSwitch {
            command.push("-L".into());
        }
        command
    }

    /// One bucket an item, as experts set it; growing the table while loading would leave a second table behind.
    fn hash_power(&self) -> u32 {
        self.items.next_power_of_two().ilog2().clamp(16, 32)
    }

    fn connect(&self, socket: &Path, child: &mut BoundChild, stop: &Stop) -> Result<Connection> {
        let patience = Instant::now() + Duration::from_secs(5);
        loop {
            stop.check()?;
            child.check().context(
                "memcached did not start: is it installed (apt-get install memcached, and for libhps integrations/memcached/build)?",
            )?;
            match Connection::open(socket, self.value_size) {
                Err(error) if Instant::now() > patience => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
                opened => return opened,
            }
        }
    }

    fn populate(&self, connection: &mut Connection, processors: Processors, stop: &Stop) -> Result<()> {
        let loading = std::thread::scope(|scope| {
            let loader = scope.spawn(|| {
                bind_this_thread(processors.load)?;
                connection.load(0..self.items, || Ok(stop.check()?))
            });
            loader.join()
        });
        loading.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).context("cannot load memcached")?;
        let (held, evicted) = (connection.statistic("curr_items")?, connection.statistic("evictions")?);
        ensure!(
            held == self.items && evicted == 0,
            "memcached holds {held} of {} items, {evicted} evicted",
            self.items
        );
        ensure!(connection.statistic("hash_is_expanding")? == 0, "memcached is still growing its hash table");
        Ok(())
    }

    fn read_until(&self, socket: &Path, progress: &Progress, stop: &Stop) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let zipfian = ScrambledZipfian::of(self.popularity, self.items);
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            let mut connection = Connection::open(socket, self.value_size)?;
            connection.send((0..self.depth).map(|_| zipfian.next(&mut random)))?;
            connections.push(connection);
        }
        let mut start = Instant::now();
        let (mut operations, mut latencies) = (0, Box::<Histogram>::default());
        for turn in (0..connections.len()).cycle() {
            let connection = &mut connections[turn];
            latencies.add(connection.receive()?.as_nanos() as u64, self.depth as u32);
            operations += self.depth as u64;
            connection.send((0..self.depth).map(|_| zipfian.next(&mut random)))?;
            let duration = start.elapsed();
            if duration >= INTERVAL {
                let latencies = Some(std::mem::take(&mut latencies));
                progress.add(WorkInterval {
                    end: start + duration,
                    duration,
                    operations,
                    latencies,
                    longest_wait: None,
                    search: None,
                });
                (start, operations) = (start + duration, 0);
                if stop.requested() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Server {
    /// Its clients send the next requests as soon as the last ones are answered.
    pub fn begin_closed_loop(&mut self) {
        let settings = self.settings.clone();
        self.begin(move |socket, progress, stop| settings.read_until(socket, progress, stop));
    }

    /// Its clients send so many requests a second, whether the last ones are answered or not.
    pub fn begin_open_loop(&mut self, requests_per_second: f64) {
        let Memcached { items, value_size, connections, seed, .. } = self.settings;
        let open_loop = OpenLoop { requests_per_second, items, value_size, connections, seed };
        self.begin(move |socket, progress, stop| open_loop.run(socket, progress, stop));
    }

    fn begin(&mut self, load: impl FnOnce(&Path, &Progress, &Stop) -> Result<()> + Send + 'static) {
        self.end_load();
        let (stop, socket) = (Stop::default(), self.directory.path().join(SOCKET));
        let (progress, until, processor) = (self.progress.clone(), stop.clone(), self.processors.load);
        let thread = std::thread::spawn(move || {
            let bound = bind_this_thread(processor).context("cannot bind the load to its processor");
            let ended = bound.and_then(|()| load(&socket, &progress, &until));
            if let Err(error) = ended.context("the load on memcached ended") {
                progress.fail(&error);
            }
        });
        self.load = Some(Load { stop, thread });
    }

    /// Ends the load, if there is any.
    pub fn end_load(&mut self) {
        if let Some(load) = self.load.take() {
            load.stop.request();
            let _ = load.thread.join();
        }
    }
}

impl Running for Server {
    fn pid(&self) -> u32 {
        self.child.pid()
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn check(&mut self) -> Result<()> {
        self.child.check()?;
        match self.progress.failure() {
            Some(failure) => bail!(failure),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end_load();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot::units::Bytes;

    fn command(how: Start<'_>) -> Vec<OsString> {
        let compacting = "compacting".into();
        let (value_size, popularity) = (512, Popularity::Ycsb);
        let workload =
            Memcached { items: 800_000, value_size, connections: 4, depth: 16, popularity, seed: 1, compacting };
        workload.command("/tmp/x".as_ref(), how)
    }

    #[test]
    fn the_command_names_the_switch_only_when_asked() {
        assert!(!command(Start::AsItIs).contains(&"-L".into()));
        assert!(command(Start::OwnSwitch).contains(&"-L".into()));
        assert!(command(Start::OwnSwitch).contains(&"hashpower=20".into()));
    }

    #[test]
    fn a_client_is_told_what_to_do() {
        let client = |role| command(Start::Client { socket: "/tmp/y".as_ref(), role });
        for (role, options) in [
            (Role::Converts, "hashpower=20,hps=/tmp/y"),
            (Role::ConvertsWithin(Bytes(5 << 20)), "hashpower=20,hps=/tmp/y,hps_budget=5"),
            (Role::KeepsAll, "hashpower=20,hps=/tmp/y,hps_observe"),
        ] {
            assert_eq!((&client(role)[0], client(role).contains(&options.into())), (&"compacting".into(), true));
        }
        let idle = command(Start::IdleClient);
        assert_eq!((&idle[0], idle.contains(&"hashpower=20".into())), (&"compacting".into(), true));
    }
}
