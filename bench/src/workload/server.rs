//! A server of items: a separate process, filled over a Unix socket, and the thread that generates the load.
//!
//! Owns: the server process, its socket, and its clients. Never touches: other servers.
//!
//! One server thread runs on one processor, one client thread on another. On a small machine more threads would only share the two, and the figure is
//! about the server's speed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hugepilot_os::stop::Stop;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::connection::Connection;
use super::histogram::Histogram;
use super::open_loop::OpenLoop;
use super::progress::{Progress, Work};
use super::requests::RequestLoad;
use super::shape::Running;
use super::zipfian::ScrambledZipfian;
use crate::process::{BoundChild, Pinning, bind_this_thread};

/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// The time limit for a server to listen.
const PATIENCE: Duration = Duration::from_secs(5);
const SOCKET: &str = "socket";

/// A server process.
pub struct Server {
    clients: RequestLoad,
    progress: Progress,
    load: Option<Load>,
    child: BoundChild,
    processors: Pinning,
    directory: tempfile::TempDir,
}

/// A thread that sends requests until it is told to stop.
struct Load {
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Server {
    /// Starts the command that `command` makes from the socket's path, and fills the server. The connection is for queries about its items. `absent`
    /// says what is missing if it does not start.
    pub fn start(
        clients: RequestLoad,
        command: impl FnOnce(&Path) -> Vec<OsString>,
        absent: &'static str,
        stop: &Stop,
    ) -> Result<(Self, Connection)> {
        let processors = Pinning::of_this_process()?;
        let directory = tempfile::tempdir()?;
        let command = command(&directory.path().join(SOCKET));
        let child = BoundChild::start(&command, processors.program, Stdio::null())?;
        let progress = Progress::default();
        let mut server = Self { clients, progress, load: None, child, processors, directory };
        let mut connection = server.connect(absent, stop)?;
        server.populate(&mut connection, stop)?;
        Ok((server, connection))
    }

    fn connect(&mut self, absent: &'static str, stop: &Stop) -> Result<Connection> {
        let patience = Instant::now() + PATIENCE;
        let RequestLoad { wire, value_size, .. } = self.clients;
        loop {
            stop.check()?;
            self.child.check().context(absent)?;
            match Connection::open(&self.socket(), wire, value_size) {
                Err(error) if Instant::now() > patience => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
                opened => return opened,
            }
        }
    }

    fn populate(&self, connection: &mut Connection, stop: &Stop) -> Result<()> {
        let loading = std::thread::scope(|scope| {
            let loader = scope.spawn(|| {
                bind_this_thread(self.processors.load)?;
                connection.load(0..self.clients.items, || Ok(stop.check()?))
            });
            loader.join()
        });
        loading.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).context("cannot load items")
    }

    /// From the next load on, its clients run on the server's processor, so that the other one stays idle.
    pub fn share_processor(&mut self) {
        self.processors.load = self.processors.program;
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// Its clients send the next requests as soon as the last ones are answered.
    pub fn begin_closed_loop(&mut self) {
        let clients = self.clients;
        self.begin(move |socket, progress, stop| clients.read_until(socket, progress, stop));
    }

    /// Its clients send this many requests a second, whether or not the last ones are answered.
    pub fn begin_open_loop(&mut self, requests_per_second: f64) {
        let open_loop = OpenLoop { requests_per_second, clients: self.clients };
        self.begin(move |socket, progress, stop| open_loop.run(socket, progress, stop));
    }

    fn begin(&mut self, load: impl FnOnce(&Path, &Progress, &Stop) -> Result<()> + Send + 'static) {
        self.end_load();
        let (stop, socket) = (Stop::default(), self.socket());
        let (progress, until, processor) = (self.progress.clone(), stop.clone(), self.processors.load);
        let thread = std::thread::spawn(move || {
            let bound = bind_this_thread(processor).context("cannot bind the load to its processor");
            let ended = bound.and_then(|()| load(&socket, &progress, &until));
            if let Err(error) = ended.context("the load on the server ended") {
                progress.fail(&error);
            }
        });
        self.load = Some(Load { stop, thread });
    }

    /// Ends the load, if there is one.
    pub fn end_load(&mut self) {
        if let Some(load) = self.load.take() {
            load.stop.request();
            let _ = load.thread.join();
        }
    }
}

impl RequestLoad {
    fn read_until(&self, socket: &Path, progress: &Progress, stop: &Stop) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let zipfian = ScrambledZipfian::of(self.popularity, self.items);
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            let mut connection = Connection::open(socket, self.wire, self.value_size)?;
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
                let (end, latencies) = (start + duration, Some(std::mem::take(&mut latencies)));
                progress.add(end, Work { operations, duration, latencies, ..Work::default() });
                (start, operations) = (end, 0);
                if stop.requested() {
                    break;
                }
            }
        }
        Ok(())
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
        self.child.check().and_then(|()| self.progress.check())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end_load();
    }
}
