//! A program that reads a large memory at random and generates its own load: requests that arrive as a Poisson process, or as many as possible.
//!
//! Owns: its requests and their latencies, and both the harness's and the child's side. Never touches: how the figures are judged.
//!
//! A request is a batch of reads of one cache line each. If requests arrive on their own schedule, a latency counts from the time at which the
//! request was due, so that a stall affects all requests that fall into it (no coordinated omission).

use std::ffi::CString;
use std::fmt::Display;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::Result;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::chase::{place, step};
use super::histogram::Histogram;
use super::open_loop::{Arrivals, WINDOW};
use super::own_process::{OwnLoad, OwnProcess, ReadyLine, print_line, report_every, words, work_for};
use super::pages::{UsedPages, populate};
use super::progress::Work;

/// Reads per request.
const READS: u64 = 200;
/// Requests between two checks of the clock, if requests do not wait for a schedule.
const REQUESTS_PER_CLOCK: u64 = 64;

/// Its setup.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Memory mapped and read.
    pub size: Bytes,
    /// The load as a share of its capacity; None for full speed.
    pub load: Option<f64>,
    /// How long its capacity is measured.
    pub capacity: Duration,
    /// The seed of random numbers.
    pub seed: u64,
}

/// The child's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ReaderChild {
    /// Memory to map and read.
    #[arg(long)]
    size: Bytes,
    /// The share of its capacity that is asked of it; without it, it does what it can.
    #[arg(long)]
    load: Option<f64>,
    /// Seconds in which its capacity is measured.
    #[arg(long, default_value_t = 1.0)]
    capacity_seconds: f64,
    /// Where the random numbers start.
    #[arg(long)]
    seed: u64,
    /// A name of its own, as `ps -o comm` shows it, by which a configuration file can name it.
    #[arg(long)]
    called: String,
}

impl Reader {
    /// Starts it under this name, and returns when it is under load.
    pub fn start(&self, called: &str, stop: &Stop) -> Result<OwnProcess> {
        let seconds = self.capacity.as_secs_f64();
        let options: [(&str, &dyn Display); 4] =
            [("size", &self.size.0), ("seed", &self.seed), ("called", &called), ("capacity-seconds", &seconds)];
        let mut words = words("workload-reader", &options);
        words.extend(self.load.map(|load| format!("--load={load}")));
        OwnProcess::start(words, stop)
    }
}

impl ReaderChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        rustix::thread::set_name(&CString::new(self.called.as_str())?)?;
        let mut mapping = populate(self.size, &UsedPages::all(self.size), false)?;
        let ready = ReadyLine::of(&mapping, self.size, "random", self.seed);
        let mut reads = Reads { words: mapping.words_mut(), state: self.seed };
        let Some(load) = self.load else {
            print_line(&ready)?;
            return report_every(WINDOW, || reads.requests());
        };
        let began = Instant::now();
        let requests = work_for(Duration::from_secs_f64(self.capacity_seconds), || reads.requests());
        let capacity_per_second = requests as f64 / began.elapsed().as_secs_f64();
        let requests_per_second = load * capacity_per_second;
        print_line(&ReadyLine { load: Some(OwnLoad { capacity_per_second, requests_per_second }), ..ready })?;
        reads.open_loop(requests_per_second, self.seed)
    }
}

/// Random reads.
struct Reads<'a> {
    words: &'a [u64],
    state: u64,
}

impl Reads<'_> {
    fn request(&mut self) {
        let mut sum = 0u64;
        for _ in 0..READS {
            sum = sum.wrapping_add(self.words[place(self.state, self.words.len())]);
            self.state = step(self.state);
        }
        black_box(sum);
    }

    /// Runs some requests one after the other; returns their number.
    fn requests(&mut self) -> u64 {
        (0..REQUESTS_PER_CLOCK).for_each(|_| self.request());
        REQUESTS_PER_CLOCK
    }

    /// Runs requests on schedule, until the reader of the lines is gone.
    fn open_loop(&mut self, requests_per_second: f64, seed: u64) -> Result<()> {
        // By default the kernel lets a thread sleep 50 us longer than it asked, which is more than a request takes.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut start = Instant::now();
        let mut arrivals = Arrivals::from(start, requests_per_second);
        let (mut operations, mut latencies) = (0, Box::<Histogram>::default());
        loop {
            let mut now = Instant::now();
            while let Some(due) = arrivals.due(now, &mut random) {
                self.request();
                now = Instant::now();
                latencies.add(now.saturating_duration_since(due).as_nanos() as u64, 1);
                operations += 1;
                if now.duration_since(start) >= WINDOW {
                    break;
                }
            }
            if now.duration_since(start) >= WINDOW {
                let (duration, latencies) = (now.duration_since(start), Some(std::mem::take(&mut latencies)));
                print_line(&Work { operations, duration, latencies, ..Work::default() })?;
                (start, operations) = (now, 0);
            }
            std::thread::sleep(arrivals.next().saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_on_where_the_last_one_ended() {
        let words = vec![0; 1 << 12];
        let mut reads = Reads { words: &words, state: 1 };
        reads.request();
        let mut state = 1;
        (0..READS).for_each(|_| state = step(state));
        assert_eq!(reads.state, state);
    }
}
