//! Redis: the distribution's own server, unmodified, writing nothing to disk.
//!
//! Owns: how Redis is started, and whether it holds all items. Never touches: requests.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, ensure};
use hugepilot_os::stop::Stop;

use super::requests::RequestLoad;
use super::server::Server;
use super::wire::Wire;

/// Redis' own bytes per item of 512 bytes, in addition to its value: key, entry, object, the tables, and jemalloc's rounding.
pub const ITEM_OVERHEAD: u64 = 260;
const ABSENT: &str = "redis-server did not start: is it installed (apt-get install redis-server)?";

/// Starts a server and fills it.
pub fn serve(clients: RequestLoad, stop: &Stop) -> Result<Server> {
    let clients = RequestLoad { wire: Wire::Redis, ..clients };
    let (server, mut connection) = Server::start(clients, command, ABSENT, stop)?;
    let held = connection.database_size()?;
    ensure!(held == clients.items, "Redis holds {held} of {} items", clients.items);
    Ok(server)
}

fn command(socket: &Path) -> Vec<OsString> {
    // Otherwise Redis would disable huge pages for itself even if all programs get them.
    let options = ["--port", "0", "--save", "", "--appendonly", "no", "--disable-thp", "no", "--loglevel", "warning"];
    let words = ["redis-server".into(), "--unixsocket".into(), socket.into()];
    words.into_iter().chain(options.map(OsString::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_not_refused_and_nothing_is_written() {
        let command = command("/tmp/x".as_ref());
        let told = |name: &str, value: &str| command.windows(2).any(|two| two == [name, value].map(OsString::from));
        assert!(told("--disable-thp", "no") && told("--save", "") && told("--unixsocket", "/tmp/x"), "{command:?}");
    }
}
