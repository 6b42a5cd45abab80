//! A memcached client over a Unix socket: bulk loading, then reads with many outstanding requests.
//!
//! Owns: the wire (memcached's meta protocol) and keys. Never touches: the server process.
//!
//! Reads are sent in batches on several connections in turn: while one batch is read here the server works on the
//! others, so the server and not the client is what limits. A request's latency is its batch's: from writing the batch to having read
//! all of it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::zipfian;

/// Bytes written at once while loading.
const LOAD_CHUNK: usize = 256 << 10;
/// A server that is silent for so long has lost a request.
pub const PATIENCE: Duration = Duration::from_secs(10);
pub const END_OF_VALUE: &[u8] = b"\r\n";

/// One connection, with at most one batch under way.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    value_size: usize,
    request: Vec<u8>,
    response: Vec<u8>,
    items: Vec<u64>,
    sent: Instant,
}

impl Connection {
    /// Connects to a server whose values all have one size.
    pub fn open(socket: &Path, value_size: usize) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (request, response, items) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { stream, value_size, request, response, items, sent: Instant::now() })
    }

    /// Stores the given items. Quiet requests are answered only when they fail; the last one is answered always.
    pub fn load(&mut self, items: impl Iterator<Item = u64>, mut between: impl FnMut() -> Result<()>) -> Result<()> {
        let mut chunk = Vec::with_capacity(LOAD_CHUNK + self.value_size + 64);
        for item in items {
            append_set(&mut chunk, item, self.value_size);
            if chunk.len() >= LOAD_CHUNK {
                between()?;
                self.stream.write_all(&chunk).context("the server stopped taking items")?;
                chunk.clear();
            }
        }
        chunk.extend_from_slice(b"mn\r\n");
        self.stream.write_all(&chunk)?;
        let mut answer = [0; 4];
        self.stream.read_exact(&mut answer).context("the server did not finish loading")?;
        ensure!(&answer == b"MN\r\n", "the server refused items: '{}..'", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Sends a batch of reads.
    pub fn send(&mut self, items: impl Iterator<Item = u64>) -> Result<()> {
        self.request.clear();
        self.items.clear();
        for item in items {
            append_get(&mut self.request, item);
            self.items.push(item);
        }
        self.sent = Instant::now();
        self.stream.write_all(&self.request).context("the server stopped taking requests")
    }

    /// Receives the batch under way, checks each value, and tells how long the batch took.
    pub fn receive(&mut self) -> Result<Duration> {
        let header = format!("VA {}\r\n", self.value_size);
        let size = header.len() + self.value_size + END_OF_VALUE.len();
        self.response.resize(size * self.items.len(), 0);
        self.stream.read_exact(&mut self.response).context("the server did not answer: were items evicted?")?;
        let took = self.sent.elapsed();
        for (response, item) in self.response.chunks_exact(size).zip(&self.items) {
            check_value(response, header.as_bytes(), *item)?;
        }
        Ok(took)
    }

    /// A number from `stats`.
    pub fn statistic(&mut self, name: &str) -> Result<u64> {
        self.stream.write_all(b"stats\r\n")?;
        let mut text = Vec::new();
        while !text.ends_with(b"END\r\n") {
            let mut part = [0; 4096];
            let length = self.stream.read(&mut part)?;
            ensure!(length > 0, "the server closed the connection");
            text.extend_from_slice(&part[..length]);
        }
        let text = String::from_utf8_lossy(&text);
        let prefix = format!("STAT {name} ");
        let value =
            text.lines().find_map(|line| line.strip_prefix(&prefix)).and_then(|value| value.trim().parse().ok());
        value.with_context(|| format!("memcached has no statistic {name}"))
    }
}

pub fn check_value(response: &[u8], header: &[u8], item: u64) -> Result<()> {
    let whole = response.starts_with(header) && response.ends_with(END_OF_VALUE);
    let value = response.get(header.len()..).unwrap_or_default();
    if !whole || value.len() >= 8 && value[..8] != item.to_le_bytes() {
        let seen = String::from_utf8_lossy(&response[..response.len().min(40)]);
        bail!("item {item} came back as '{}..': were items evicted?", seen.escape_debug());
    }
    Ok(())
}

/// `mg KEY v`
pub fn append_get(request: &mut Vec<u8>, item: u64) {
    request.extend_from_slice(b"mg ");
    append_key(request, item);
    request.extend_from_slice(b" v\r\n");
}

/// `ms KEY SIZE q`: YCSB's key, and a value that begins with the item's number so that it can be checked.
fn append_set(chunk: &mut Vec<u8>, item: u64, value_size: usize) {
    chunk.extend_from_slice(b"ms ");
    append_key(chunk, item);
    chunk.push(b' ');
    append_number(chunk, value_size as u64);
    chunk.extend_from_slice(b" q\r\n");
    let value_end = chunk.len() + value_size;
    chunk.extend_from_slice(&item.to_le_bytes()[..value_size.min(8)]);
    chunk.resize(value_end, b'v');
    chunk.extend_from_slice(END_OF_VALUE);
}

/// YCSB's key: `user` and the hash of the item's number.
fn append_key(text: &mut Vec<u8>, item: u64) {
    text.extend_from_slice(b"user");
    append_number(text, zipfian::hash(item));
}

/// Decimal digits, without the machinery of `format!`: the client must stay faster than the server.
fn append_number(text: &mut Vec<u8>, mut number: u64) {
    let start = text.len();
    loop {
        text.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_format_writes_them() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            let mut text = Vec::new();
            append_number(&mut text, number);
            assert_eq!(text, number.to_string().into_bytes());
        }
    }

    #[test]
    fn a_set_carries_key_size_and_value() {
        let mut chunk = Vec::new();
        append_set(&mut chunk, 5, 16);
        let head = format!("ms user{} 16 q\r\n", zipfian::hash(5)).into_bytes();
        assert_eq!(chunk, [&head[..], &5u64.to_le_bytes(), b"vvvvvvvv\r\n"].concat());
    }

    #[test]
    fn wrong_values_are_noticed() {
        let value = [b"VA 8\r\n".as_slice(), &3u64.to_le_bytes(), b"\r\n"].concat();
        assert!(check_value(&value, b"VA 8\r\n", 3).is_ok());
        assert!(check_value(&value, b"VA 8\r\n", 4).is_err());
        assert!(check_value(b"EN\r\nEN\r\nEN\r\nEN\r\n", b"VA 8\r\n", 3).is_err());
    }

    #[test]
    fn a_batch_is_answered_over_a_socket() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection {
            stream: ours,
            value_size: 8,
            request: Vec::new(),
            response: Vec::new(),
            items: Vec::new(),
            sent: Instant::now(),
        };
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
}
