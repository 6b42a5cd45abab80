//! The memcached workload: the distribution's own server, unmodified, under YCSB's workload C (read-only, scrambled zipfian).
//!
//! Owns: how memcached is started, and whether it holds all items. Never touches: requests.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hugepilot_os::stop::Stop;

use super::connection::Connection;
use super::requests::RequestLoad;
use super::server::Server;
use super::shape::{POLL, Role, Running, Start, Workload};
use super::zipfian::Popularity;

/// memcached's own bytes per item, in addition to key and value: header, check-and-set number, and unused space in slabs.
const ITEM_OVERHEAD: u64 = 100;
/// memcached's own default.
const DEFAULT_HASH_POWER: u32 = 16;
/// The time limit for its hash table to grow.
const PATIENCE: Duration = Duration::from_secs(10);
const ABSENT: &str = "memcached did not start: is it installed (apt-get install memcached, and for libhps integrations/memcached/build)?";

/// The setup and load of the server.
#[derive(Clone, Debug)]
pub struct Memcached {
    /// The items and the requests.
    pub load: RequestLoad,
    /// Whether its hash table grows while it is filled.
    pub growing_hash_table: bool,
    /// The memcached that compacts through libhps, built by `integrations/memcached/build`.
    pub compacting: OsString,
}

impl Workload for Memcached {
    fn name(&self) -> String {
        "memcached".to_owned()
    }

    fn description(&self) -> String {
        let over = match self.load.popularity {
            Popularity::Ycsb => "",
            Popularity::Items => " over the items themselves",
        };
        let grown = if self.growing_hash_table { ", hash table grown while filled" } else { "" };
        let RequestLoad { items, value_size, connections, depth, .. } = self.load;
        format!(
            "{items} items of {value_size} bytes{grown}; reads, scrambled zipfian 0.99{over}, {connections} connections of {depth} outstanding requests"
        )
    }

    fn unit(&self) -> &'static str {
        "reads"
    }

    fn memory_bytes(&self) -> u64 {
        self.load.items * (self.load.value_size as u64 + ITEM_OVERHEAD) + (8 << self.hash_power())
    }

    fn start_seconds(&self) -> f64 {
        1.0 + 1.5e-6 * self.load.items as f64
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
        let command = |socket: &Path| self.command(socket, how);
        let (server, mut connection) = Server::start(self.load, command, ABSENT, stop)?;
        self.check(&mut connection)?;
        Ok(server)
    }

    fn check(&self, connection: &mut Connection) -> Result<()> {
        let (held, evicted) = (connection.statistic("curr_items")?, connection.statistic("evictions")?);
        let items = self.load.items;
        ensure!(held == items && evicted == 0, "memcached holds {held} of {items} items, {evicted} evicted");
        let patience = Instant::now() + PATIENCE;
        while connection.statistic("hash_is_expanding")? != 0 {
            ensure!(Instant::now() < patience, "memcached is still growing its hash table");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn command(&self, socket: &Path, how: Start<'_>) -> Vec<OsString> {
        // A quarter more than the items need: with -L memcached reserves it, and evictions would spoil the reads.
        let megabytes = ((self.memory_bytes() * 5 / 4) >> 20) + 64;
        let mut options = format!("hashpower={}", self.initial_hash_power());
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

    fn initial_hash_power(&self) -> u32 {
        if self.growing_hash_table { DEFAULT_HASH_POWER } else { self.hash_power() }
    }

    /// One bucket per item, as experts set it; growing the table during the load would leave a second table behind.
    fn hash_power(&self) -> u32 {
        self.load.items.next_power_of_two().ilog2().clamp(16, 32)
    }
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;

    use super::*;
    use crate::workload::wire::Wire;

    fn command(how: Start<'_>) -> Vec<OsString> {
        let compacting = "compacting".into();
        let (wire, value_size, popularity) = (Wire::Memcached, 512, Popularity::Ycsb);
        let load = RequestLoad { wire, items: 800_000, value_size, connections: 4, depth: 16, popularity, seed: 1 };
        Memcached { load, growing_hash_table: false, compacting }.command("/tmp/x".as_ref(), how)
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
