//! A connection to a server of items over a Unix socket: bulk loading, then reads with many outstanding requests.
//!
//! Owns: one stream, and the requests on it. Never touches: the server process.
//!
//! Reads are sent in batches on several connections in turn: while this client reads one batch the server works on the others, so the server and not
//! the client is the limit. A request's latency is that of its batch: from writing the batch until all of it has been read.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::wire::{END_OF_VALUE, Wire, check_value};

/// Bytes written at once while loading.
const LOAD_CHUNK: usize = 256 << 10;
/// A server that is silent for this long has lost a request.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// One connection, with at most one outstanding batch.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    wire: Wire,
    value_size: usize,
    request: Vec<u8>,
    response: Vec<u8>,
    items: Vec<u64>,
    sent: Instant,
}

impl Connection {
    /// Connects to a server whose values all have the same size.
    pub fn open(socket: &Path, wire: Wire, value_size: usize) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::of(stream, wire, value_size))
    }

    fn of(stream: UnixStream, wire: Wire, value_size: usize) -> Self {
        let (request, response, items) = (Vec::new(), Vec::new(), Vec::new());
        Self { stream, wire, value_size, request, response, items, sent: Instant::now() }
    }

    /// Stores the given items; the server answers only once, at the end.
    pub fn load(&mut self, items: impl Iterator<Item = u64>, mut between: impl FnMut() -> Result<()>) -> Result<()> {
        let quiet = self.wire.quiet_load();
        let mut chunk = Vec::with_capacity(LOAD_CHUNK + self.value_size + 64);
        chunk.extend_from_slice(quiet.begin);
        for item in items {
            self.wire.append_set(&mut chunk, item, self.value_size);
            if chunk.len() >= LOAD_CHUNK {
                between()?;
                self.stream.write_all(&chunk).context("the server stopped taking items")?;
                chunk.clear();
            }
        }
        chunk.extend_from_slice(quiet.end);
        self.stream.write_all(&chunk)?;
        let mut answer = vec![0; quiet.answer.len()];
        self.stream.read_exact(&mut answer).context("the server did not finish loading")?;
        ensure!(answer == quiet.answer, "the server refused items: '{}..'", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Sends a batch of reads.
    pub fn send(&mut self, items: impl Iterator<Item = u64>) -> Result<()> {
        self.request.clear();
        self.items.clear();
        for item in items {
            self.wire.append_get(&mut self.request, item);
            self.items.push(item);
        }
        self.sent = Instant::now();
        self.stream.write_all(&self.request).context("the server stopped taking requests")
    }

    /// Receives the outstanding batch, checks each value, and returns the time that the batch took.
    pub fn receive(&mut self) -> Result<Duration> {
        let header = self.wire.header(self.value_size);
        let size = header.len() + self.value_size + END_OF_VALUE.len();
        self.response.resize(size * self.items.len(), 0);
        self.stream.read_exact(&mut self.response).context("the server did not answer: were items evicted?")?;
        let took = self.sent.elapsed();
        for (response, item) in self.response.chunks_exact(size).zip(&self.items) {
            check_value(response, &header, *item)?;
        }
        Ok(took)
    }

    /// A number from memcached's `stats`.
    pub fn statistic(&mut self, name: &str) -> Result<u64> {
        let text = self.ask(b"stats\r\n", b"END\r\n")?;
        let prefix = format!("STAT {name} ");
        let value =
            text.lines().find_map(|line| line.strip_prefix(&prefix)).and_then(|value| value.trim().parse().ok());
        value.with_context(|| format!("memcached has no statistic {name}"))
    }

    /// How many items Redis holds.
    pub fn database_size(&mut self) -> Result<u64> {
        let answer = self.ask(b"*1\r\n$6\r\nDBSIZE\r\n", b"\r\n")?;
        let number = answer.strip_prefix(':').and_then(|number| number.trim().parse().ok());
        number.with_context(|| format!("Redis answered DBSIZE with '{}'", answer.escape_debug()))
    }

    /// The answer to a command, up to its known end.
    fn ask(&mut self, command: &[u8], end: &[u8]) -> Result<String> {
        self.stream.write_all(command)?;
        let mut text = Vec::new();
        while !text.ends_with(end) {
            let mut part = [0; 4096];
            let length = self.stream.read(&mut part)?;
            ensure!(length > 0, "the server closed the connection");
            text.extend_from_slice(&part[..length]);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::zipfian;

    fn pair(wire: Wire) -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Connection::of(ours, wire, 8), theirs)
    }

    #[test]
    fn a_batch_is_answered_over_a_socket() {
        let (mut connection, mut theirs) = pair(Wire::Memcached);
        connection.send([1, 2].into_iter()).unwrap();
        let mut request = [0; 4096];
        let length = theirs.read(&mut request).unwrap();
        let expected = format!("mg user{} v\r\nmg user{} v\r\n", zipfian::hash(1), zipfian::hash(2));
        assert_eq!(&request[..length], expected.as_bytes());
        for item in [1u64, 2] {
            theirs.write_all(&[b"VA 8\r\n".as_slice(), &item.to_le_bytes(), b"\r\n"].concat()).unwrap();
        }
        connection.receive().unwrap();
    }

    #[test]
    fn redis_says_how_many_items_it_holds() {
        let (mut connection, mut theirs) = pair(Wire::Redis);
        theirs.write_all(b":800000\r\n").unwrap();
        assert_eq!(connection.database_size().unwrap(), 800_000);
        theirs.write_all(b"-NOAUTH\r\n").unwrap();
        assert!(connection.database_size().unwrap_err().to_string().contains("NOAUTH"));
    }

    #[test]
    fn items_that_are_refused_end_the_loading() {
        let (mut connection, mut theirs) = pair(Wire::Redis);
        theirs.write_all(b"-OOM command not allowed\r\n").unwrap();
        assert!(connection.load(0..3, || Ok(())).unwrap_err().to_string().contains("-OOM"));
    }
}
