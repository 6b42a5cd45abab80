//! An open loop of requests to memcached: they are sent when their time has come, whether or not earlier ones are answered.
//!
//! Owns: when requests are sent, and their latencies. Never touches: the server process.
//!
//! Requests come as a Poisson process. A latency counts from the time at which the request was to be sent, so that a stall is felt by
//! all requests that fell into it and not only by the first (no coordinated omission).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot::stop::Stop;
use hugepilot_os::process::Punctual;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::memcached_client::{END_OF_VALUE, PATIENCE, append_get, check_value};
use super::progress::WorkInterval;
use super::zipfian::ScrambledZipfian;
use super::{Histogram, Progress};

/// A window: percentiles are taken in each.
const INTERVAL: Duration = Duration::from_secs(1);
/// Before hugepilot's threads: clients stand for other machines, which hugepilot does not delay.
const PRIORITY: u8 = 3;
const READ_AT_ONCE: usize = 64 << 10;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// Requests a second, over all connections.
    pub requests_per_second: f64,
    /// Items that the server holds.
    pub items: u64,
    /// Bytes in each value.
    pub value_size: usize,
    /// Connections that take turns.
    pub connections: usize,
    /// Where the random numbers start.
    pub seed: u64,
}

/// One connection, with any number of requests under way.
struct Pipe {
    stream: UnixStream,
    to_send: Vec<u8>,
    received: Vec<u8>,
    /// When each was to be sent, and what it asks for; the oldest first.
    waiting: VecDeque<(Instant, u64)>,
}

/// The times at which requests are to be sent.
struct Arrivals {
    next: Instant,
    mean: f64,
}

impl OpenLoop {
    /// Sends until it is told to stop, a line of progress each second.
    pub fn run(&self, socket: &Path, progress: &Progress, stop: &Stop) -> Result<()> {
        let mut pipes = (0..self.connections).map(|_| Pipe::open(socket)).collect::<Result<Vec<_>>>()?;
        let (mut random, zipfian) = (Xoshiro256PlusPlus::seed_from_u64(self.seed), ScrambledZipfian::new(self.items));
        let _punctual = Punctual::begin(PRIORITY);
        let mut start = Instant::now();
        let mut arrivals = Arrivals { next: start, mean: 1.0 / self.requests_per_second };
        let (mut turn, mut latencies, mut operations) = (0, Box::<Histogram>::default(), 0);
        while !stop.requested() {
            while let Some(due) = arrivals.due(Instant::now(), &mut random) {
                pipes[turn].ask(due, zipfian.next(&mut random));
                turn = (turn + 1) % pipes.len();
            }
            for pipe in &mut pipes {
                pipe.send()?;
                operations += pipe.receive(self.value_size, |latency| latencies.add(latency.as_nanos() as u64, 1))?;
            }
            let duration = start.elapsed();
            if duration >= INTERVAL {
                let (end, latencies) = (start + duration, Some(std::mem::take(&mut latencies)));
                progress.add(WorkInterval { end, duration, operations, latencies, longest_wait: None, search: None });
                (start, operations) = (end, 0);
            }
            wait(&pipes, arrivals.next)?;
        }
        Ok(())
    }
}

impl Arrivals {
    /// The next time, if it has come.
    fn due(&mut self, now: Instant, random: &mut Xoshiro256PlusPlus) -> Option<Instant> {
        let due = self.next;
        (due <= now).then(|| {
            let gap = -self.mean * (1.0 - random.random::<f64>()).ln();
            self.next = due + Duration::from_secs_f64(gap);
            due
        })
    }
}

impl Pipe {
    fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
        Self::of(stream)
    }

    fn of(stream: UnixStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, to_send: Vec::new(), received: Vec::new(), waiting: VecDeque::new() })
    }

    fn ask(&mut self, due: Instant, item: u64) {
        append_get(&mut self.to_send, item);
        self.waiting.push_back((due, item));
    }

    /// Sends what the socket takes.
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

    /// Takes the answers that have come, checks them, and hands over their latencies; how many there were.
    fn receive(&mut self, value_size: usize, mut latency: impl FnMut(Duration)) -> Result<u64> {
        let Some(&(oldest, _)) = self.waiting.front() else { return Ok(0) };
        ensure!(oldest.elapsed() < PATIENCE, "no answer for {} s: were items evicted?", PATIENCE.as_secs());
        self.read()?;
        let header = format!("VA {value_size}\r\n");
        let size = header.len() + value_size + END_OF_VALUE.len();
        let (now, mut answers) = (Instant::now(), 0);
        for response in self.received.chunks_exact(size) {
            let (due, item) = self.waiting.pop_front().context("the server answered more than was asked")?;
            check_value(response, header.as_bytes(), item)?;
            latency(now.saturating_duration_since(due));
            answers += 1;
        }
        self.received.drain(..answers * size);
        Ok(answers as u64)
    }

    fn read(&mut self) -> Result<()> {
        let mut part = [0; READ_AT_ONCE];
        match self.stream.read(&mut part) {
            Ok(0) => ensure!(self.waiting.is_empty(), "the server closed the connection"),
            Ok(length) => self.received.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("the server did not answer"),
        }
        Ok(())
    }
}

/// Sleeps until something has come, can be sent, or is due.
fn wait(pipes: &[Pipe], due: Instant) -> Result<()> {
    let interest = |pipe: &Pipe| match pipe.to_send.is_empty() {
        true => PollFlags::IN,
        false => PollFlags::IN | PollFlags::OUT,
    };
    let mut polled: Vec<PollFd> = pipes.iter().map(|pipe| PollFd::new(&pipe.stream, interest(pipe))).collect();
    let left = due.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut polled, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: usize = 8;

    fn answer(item: u64) -> Vec<u8> {
        [b"VA 8\r\n".as_slice(), &item.to_le_bytes(), b"\r\n"].concat()
    }

    fn pair() -> (Pipe, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Pipe::of(ours).unwrap(), theirs)
    }

    #[test]
    fn latency_counts_from_when_a_request_was_to_be_sent() {
        let (mut pipe, mut theirs) = pair();
        let due = Instant::now().checked_sub(Duration::from_secs(2)).expect("the machine runs longer");
        pipe.ask(due, 7);
        pipe.send().unwrap();
        theirs.write_all(&answer(7)).unwrap();
        let mut latencies = Vec::new();
        assert_eq!(pipe.receive(VALUE, |latency| latencies.push(latency)).unwrap(), 1);
        assert!(latencies[0] >= Duration::from_secs(2));
    }

    #[test]
    fn answers_may_come_in_pieces_and_must_be_in_order() {
        let (mut pipe, mut theirs) = pair();
        [1, 2, 3].into_iter().for_each(|item| pipe.ask(Instant::now(), item));
        let bytes = [answer(1), answer(2)].concat();
        theirs.write_all(&bytes[..20]).unwrap();
        assert_eq!(pipe.receive(VALUE, |_| {}).unwrap(), 1);
        theirs.write_all(&bytes[20..]).unwrap();
        assert_eq!(pipe.receive(VALUE, |_| {}).unwrap(), 1);
        theirs.write_all(&answer(9)).unwrap();
        assert!(pipe.receive(VALUE, |_| {}).is_err(), "item 3 was asked for");
    }

    #[test]
    fn a_server_that_does_not_read_delays_nothing_but_its_own() {
        let (mut pipe, _theirs) = pair();
        (0..100_000).for_each(|item| pipe.ask(Instant::now(), item));
        pipe.send().unwrap();
        assert!(!pipe.to_send.is_empty(), "the socket took everything");
        assert_eq!(pipe.receive(VALUE, |_| {}).unwrap(), 0);
    }

    #[test]
    fn arrivals_come_at_the_rate_asked_for_and_are_never_dropped() {
        let start = Instant::now();
        let mut arrivals = Arrivals { next: start, mean: 1e-4 };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let late = start + Duration::from_secs(10);
        let times: Vec<Instant> = std::iter::from_fn(|| arrivals.due(late, &mut random)).collect();
        assert!((times.len() as f64 / 100_000.0 - 1.0).abs() < 0.02, "{}", times.len());
        assert!(times.is_sorted() && arrivals.next > late);
    }
}
