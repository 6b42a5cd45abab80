//! The programs that are promoted: real servers and a random reader, each under constant load.
//!
//! Owns: their sizes, names, and load. Never touches: how requests are made.
//!
//! Clients that wait for each answer measure a server's capacity; the load is a share of that.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use serde::{Deserialize, Serialize};

use crate::sample::machine_memory;
use crate::warm::SPARE;
use crate::workload::{
    Memcached, Popularity, REDIS_ITEM_OVERHEAD, Reader, RequestLoad, Running, Server, Start, Wire, Workload,
    serve_redis,
};

const VALUE_SIZE: usize = 512;
/// Clients that measure capacity; each waits for its answer.
const CONNECTIONS: usize = 8;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FeltProgram {
    /// memcached, asked for items.
    Memcached,
    /// Redis, asked for items.
    Redis,
    /// Reads a large memory at random, in requests that come by themselves.
    Reader,
    /// The same as fast as it can: an open loop at a part of the capacity makes up for stalls.
    ReaderBusy,
}

shown_as_typed!(FeltProgram);

/// The setup of a program.
#[derive(Clone, Debug)]
pub struct FeltSetup {
    /// The program.
    pub program: FeltProgram,
    /// Its approximate memory.
    pub size: Bytes,
    /// The load as a share of its capacity.
    pub load: f64,
    /// How long its capacity is measured.
    pub capacity: Duration,
    /// Whether one of the two processors stays idle, so that clients run on the program's.
    pub spare_processor: bool,
    /// The seed of random numbers.
    pub seed: u64,
}

/// A program under load.
pub struct Loaded {
    /// The running program.
    pub running: Box<dyn Running>,
    /// Its name, as in a configuration file.
    pub name: String,
    /// Requests a second that it can answer.
    pub capacity_per_second: Option<f64>,
    /// Requests that arrive per second.
    pub requests_per_second: Option<f64>,
}

impl FeltProgram {
    /// Whether requests arrive on their own schedule, so that latencies exist.
    pub fn has_requests(self) -> bool {
        self != FeltProgram::ReaderBusy
    }

    /// Whether it only reads memory.
    pub fn is_reader(self) -> bool {
        matches!(self, FeltProgram::Reader | FeltProgram::ReaderBusy)
    }
}

impl FeltSetup {
    /// A description of the setup.
    pub fn description(&self) -> String {
        let what = match self.program {
            FeltProgram::Memcached => format!("memcached, {} items of {VALUE_SIZE} bytes", self.memcached().load.items),
            FeltProgram::Redis => format!("Redis, {} items of {VALUE_SIZE} bytes", self.redis().items),
            FeltProgram::Reader | FeltProgram::ReaderBusy => {
                format!("random reads of cache lines over {}, 200 in each request", self.size)
            }
        };
        let clients = if self.program.is_reader() {
            ""
        } else if self.spare_processor {
            ", which come from its own processor"
        } else {
            ", which come from the other processor"
        };
        match self.program.has_requests() {
            true => format!("{what}; an open loop of requests at {:.0} % of its capacity{clients}", self.load * 100.0),
            false => format!("{what}, as fast as it can"),
        }
    }

    /// The approximate time until it is under load.
    pub fn start_time(&self) -> Duration {
        self.capacity + Duration::from_secs_f64(1.0 + 3e-9 * self.size.0 as f64)
    }

    /// Starts it and puts it under load.
    pub fn start(&self, stop: &Stop) -> Result<Loaded> {
        let available = machine_memory()?.available;
        ensure!(
            available.0 > self.size.0 + self.size.0 / 8 + SPARE,
            "{} takes {} and {available} are available: make it smaller with --gib",
            self.program,
            self.size
        );
        match self.program {
            FeltProgram::Memcached => self.load(self.memcached().serve(Start::AsItIs, stop)?, "memcached", stop),
            FeltProgram::Redis => self.load(serve_redis(self.redis(), stop)?, "redis-server", stop),
            FeltProgram::Reader | FeltProgram::ReaderBusy => self.reader(stop),
        }
    }

    fn load(&self, mut server: Server, name: &str, stop: &Stop) -> Result<Loaded> {
        if self.spare_processor {
            server.share_processor();
        }
        server.begin_closed_loop();
        let start = Instant::now();
        stop.sleep_until(start + self.capacity)?;
        server.check()?;
        let capacity = server.progress().window(start, Instant::now()).throughput();
        ensure!(capacity > 0.0, "{name} answered nothing within {:?}", self.capacity);
        server.begin_open_loop(self.load * capacity);
        Ok(Loaded {
            running: Box::new(server),
            name: name.to_owned(),
            capacity_per_second: Some(capacity),
            requests_per_second: Some(self.load * capacity),
        })
    }

    fn reader(&self, stop: &Stop) -> Result<Loaded> {
        // A unique name.
        let name = format!("felt-{}", std::process::id());
        let load = self.program.has_requests().then_some(self.load);
        let reader = Reader { size: self.size, load, capacity: self.capacity, seed: self.seed };
        let process = reader.start(&name, stop).context("cannot start the reader")?;
        let load = process.ready().load;
        Ok(Loaded {
            running: Box::new(process),
            name,
            capacity_per_second: load.map(|load| load.capacity_per_second),
            requests_per_second: load.map(|load| load.requests_per_second),
        })
    }

    fn memcached(&self) -> Memcached {
        let of = |items| Memcached {
            load: self.requests(Wire::Memcached, items),
            growing_hash_table: false,
            compacting: "memcached".into(),
        };
        let item = of(1 << 20).memory_bytes() >> 20;
        of((self.size.0 / item).max(1))
    }

    fn redis(&self) -> RequestLoad {
        // With 3 GiB these are just fewer than 2^22, so that Redis does not grow its hash table during the measurement.
        self.requests(Wire::Redis, (self.size.0 / (VALUE_SIZE as u64 + REDIS_ITEM_OVERHEAD)).max(1))
    }

    fn requests(&self, wire: Wire, items: u64) -> RequestLoad {
        let (connections, popularity, seed) = (CONNECTIONS, Popularity::Ycsb, self.seed);
        RequestLoad { wire, items, value_size: VALUE_SIZE, connections, depth: 1, popularity, seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(program: FeltProgram) -> FeltSetup {
        let capacity = Duration::from_secs(10);
        FeltSetup { program, size: Bytes(3 << 30), load: 0.3, capacity, spare_processor: true, seed: 1 }
    }

    #[test]
    fn servers_hold_what_was_asked_for() {
        let memcached = setup(FeltProgram::Memcached).memcached();
        assert!((memcached.memory_bytes() as f64 / (3u64 << 30) as f64 - 1.0).abs() < 0.03, "{}", memcached.load.items);
        let redis = setup(FeltProgram::Redis).redis().items;
        assert!((4_000_000..1 << 22).contains(&redis), "{redis}");
    }

    #[test]
    fn one_that_does_what_it_can_has_no_requests() {
        assert!(setup(FeltProgram::ReaderBusy).description().ends_with("as fast as it can"));
        assert!(setup(FeltProgram::Redis).description().contains("30 %"));
    }
}
