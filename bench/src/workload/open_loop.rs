//! An open loop of requests to a server: each is sent when it is due, whether or not earlier ones are answered.
//!
//! Owns: when requests are sent, and their latencies. Never touches: the server process.
//!
//! Requests arrive as a Poisson process. A latency counts from the time at which the request was due, so that a stall affects all requests that fell
//! into it and not only the first (no coordinated omission).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot_os::process::Punctual;
use hugepilot_os::stop::Stop;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::connection::PATIENCE;
use super::histogram::Histogram;
use super::progress::{Progress, Work};
use super::requests::RequestLoad;
use super::wire::{END_OF_VALUE, Wire, check_value};
use super::zipfian::ScrambledZipfian;

/// The length of a window; percentiles are computed for each.
pub const WINDOW: Duration = Duration::from_millis(250);
/// Higher than hugepilot's threads: clients stand for other machines, which hugepilot does not delay.
const PRIORITY: u8 = 3;
const READ_AT_ONCE: usize = 64 << 10;
/// The time between two turns of sending and receiving, which is part of each latency. Clients stand for other machines; handling each request
/// separately would take a whole processor from the server.
const TURN: Duration = Duration::from_micros(50);

/// The requests to be sent.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// Requests a second, over all connections.
    pub requests_per_second: f64,
    /// The items requested, and the number of connections.
    pub clients: RequestLoad,
}

/// One connection, with any number of outstanding requests.
struct Pipe {
    stream: UnixStream,
    wire: Wire,
    to_send: Vec<u8>,
    received: Vec<u8>,
    part: Box<[u8]>,
    /// When each outstanding request was due, and its item; the oldest first.
    waiting: VecDeque<(Instant, u64)>,
}

/// The times at which requests are due: a Poisson process.
#[derive(Debug)]
pub struct Arrivals {
    next: Instant,
    mean: f64,
}

impl OpenLoop {
    /// Sends until it is told to stop, and reports an interval of progress per window.
    pub fn run(&self, socket: &Path, progress: &Progress, stop: &Stop) -> Result<()> {
        let RequestLoad { wire, items, value_size, connections, popularity, seed, .. } = self.clients;
        let mut pipes = (0..connections).map(|_| Pipe::open(socket, wire)).collect::<Result<Vec<_>>>()?;
        let (mut random, zipfian) = (Xoshiro256PlusPlus::seed_from_u64(seed), ScrambledZipfian::of(popularity, items));
        let _punctual = Punctual::begin(PRIORITY);
        let mut start = Instant::now();
        let mut arrivals = Arrivals::from(start, self.requests_per_second);
        let (mut turn, mut latencies, mut operations) = (0, Box::<Histogram>::default(), 0);
        while !stop.requested() {
            while let Some(due) = arrivals.due(Instant::now(), &mut random) {
                pipes[turn].ask(due, zipfian.next(&mut random));
                turn = (turn + 1) % pipes.len();
            }
            for pipe in &mut pipes {
                pipe.send()?;
                operations += pipe.receive(value_size, |latency| latencies.add(latency.as_nanos() as u64, 1))?;
            }
            let duration = start.elapsed();
            if duration >= WINDOW {
                let (end, latencies) = (start + duration, Some(std::mem::take(&mut latencies)));
                progress.add(end, Work { operations, duration, latencies, ..Work::default() });
                (start, operations) = (end, 0);
            }
            thread::sleep(TURN);
        }
        Ok(())
    }
}

impl Arrivals {
    /// Starts at `start`.
    pub fn from(start: Instant, requests_per_second: f64) -> Self {
        Self { next: start, mean: 1.0 / requests_per_second }
    }

    /// When the next request is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The time of the next request, if it is due; advances to the one after it.
    pub fn due(&mut self, now: Instant, random: &mut Xoshiro256PlusPlus) -> Option<Instant> {
        let due = self.next;
        (due <= now).then(|| {
            let gap = -self.mean * (1.0 - random.random::<f64>()).ln();
            self.next = due + Duration::from_secs_f64(gap);
            due
        })
    }
}

impl Pipe {
    fn open(socket: &Path, wire: Wire) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
        Self::of(stream, wire)
    }

    fn of(stream: UnixStream, wire: Wire) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            wire,
            to_send: Vec::new(),
            received: Vec::new(),
            part: vec![0; READ_AT_ONCE].into(),
            waiting: VecDeque::new(),
        })
    }

    fn ask(&mut self, due: Instant, item: u64) {
        self.wire.append_get(&mut self.to_send, item);
        self.waiting.push_back((due, item));
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) -> Result<()> {
        while !self.to_send.is_empty() {
            match self.stream.write(&self.to_send) {
                Ok(sent) => drop(self.to_send.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("the server stopped taking requests"),
            }
        }
        Ok(())
    }

    /// Receives the available answers, checks them, and passes on their latencies; returns their number.
    fn receive(&mut self, value_size: usize, mut latency: impl FnMut(Duration)) -> Result<u64> {
        let Some(&(oldest, _)) = self.waiting.front() else { return Ok(0) };
        ensure!(oldest.elapsed() < PATIENCE, "no answer for {} s: were items evicted?", PATIENCE.as_secs());
        self.read()?;
        let header = self.wire.header(value_size);
        let size = header.len() + value_size + END_OF_VALUE.len();
        let (now, mut answers) = (Instant::now(), 0);
        for response in self.received.chunks_exact(size) {
            let (due, item) = self.waiting.pop_front().context("the server answered more than was asked")?;
            check_value(response, &header, item)?;
            latency(now.saturating_duration_since(due));
            answers += 1;
        }
        self.received.drain(..answers * size);
        Ok(answers as u64)
    }

    fn read(&mut self) -> Result<()> {
        match self.stream.read(&mut self.part) {
            Ok(0) => ensure!(self.waiting.is_empty(), "the server closed the connection"),
            Ok(length) => self.received.extend_from_slice(&self.part[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("the server did not answer"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: usize = 8;

    fn answer(wire: Wire, item: u64) -> Vec<u8> {
        [&wire.header(VALUE)[..], &item.to_le_bytes(), END_OF_VALUE].concat()
    }

    fn pair(wire: Wire) -> (Pipe, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Pipe::of(ours, wire).unwrap(), theirs)
    }

    #[test]
    fn latency_counts_from_when_a_request_was_to_be_sent() {
        let (mut pipe, mut theirs) = pair(Wire::Memcached);
        let due = Instant::now().checked_sub(Duration::from_secs(2)).expect("the machine runs longer");
        pipe.ask(due, 7);
        pipe.send().unwrap();
        theirs.write_all(&answer(Wire::Memcached, 7)).unwrap();
        let mut latencies = Vec::new();
        assert_eq!(pipe.receive(VALUE, |latency| latencies.push(latency)).unwrap(), 1);
        assert!(latencies[0] >= Duration::from_secs(2));
    }

    #[test]
    fn answers_may_come_in_pieces_and_must_be_in_order() {
        for wire in [Wire::Memcached, Wire::Redis] {
            let (mut pipe, mut theirs) = pair(wire);
            [1, 2, 3].into_iter().for_each(|item| pipe.ask(Instant::now(), item));
            let bytes = [answer(wire, 1), answer(wire, 2)].concat();
            theirs.write_all(&bytes[..20]).unwrap();
            assert_eq!(pipe.receive(VALUE, |_| {}).unwrap(), 1);
            theirs.write_all(&bytes[20..]).unwrap();
            assert_eq!(pipe.receive(VALUE, |_| {}).unwrap(), 1);
            theirs.write_all(&answer(wire, 9)).unwrap();
            assert!(pipe.receive(VALUE, |_| {}).is_err(), "item 3 was asked for");
        }
    }

    #[test]
    fn a_server_that_does_not_read_delays_nothing_but_its_own() {
        let (mut pipe, _theirs) = pair(Wire::Memcached);
        (0..100_000).for_each(|item| pipe.ask(Instant::now(), item));
        pipe.send().unwrap();
        assert!(!pipe.to_send.is_empty(), "the socket took everything");
        assert_eq!(pipe.receive(VALUE, |_| {}).unwrap(), 0);
    }

    #[test]
    fn arrivals_come_at_the_rate_asked_for_and_are_never_dropped() {
        let start = Instant::now();
        let mut arrivals = Arrivals::from(start, 1e4);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let late = start + Duration::from_secs(10);
        let times: Vec<Instant> = std::iter::from_fn(|| arrivals.due(late, &mut random)).collect();
        assert!((times.len() as f64 / 100_000.0 - 1.0).abs() < 0.02, "{}", times.len());
        assert!(times.is_sorted() && arrivals.next() > late);
    }
}
