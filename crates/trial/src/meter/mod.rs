//! How a program's work is counted.
//!
//! Owns: the ways of counting. Never touches: the program.
//!
//! | meter                  | counts                                  | tells                                                             | cannot tell                                |
//! |------------------------|-----------------------------------------|-------------------------------------------------------------------|--------------------------------------------|
//! | [`CommandMeter`]            | whatever a command of the user prints   | as much as the number does: requests, transactions, rows          |                                            |
//! | [`ExporterMeter`]           | a metric from Prometheus or an exporter | the same                                                          | anything between two scrapes of a server   |
//! | [`SystemCallsMeter`]   | system calls                            | how fast a server answers: a request takes as many on huge pages  | programs that compute without system calls |

mod command;
mod exporter;
mod running_total;

pub use command::CommandMeter;
pub use exporter::{ExporterMeter, MeasuredSeries, PrometheusServer};
pub use running_total::{NumberKind, RunningTotal};

use observe::system_calls::SystemCalls;

/// Reads a number that tells of a program's work.
pub trait Meter {
    /// The number now: a total that only grows, or a rate a second. Errors: it cannot be had.
    fn read(&mut self) -> Result<f64, MeterError>;
}

fn and_to_stderr(complained: &str) -> String {
    if complained.is_empty() { String::new() } else { format!(", and '{complained}' to its standard error") }
}

/// Why a number cannot be had.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum MeterError {
    #[error("cannot run `{command}`: {cause}")]
    Start { command: String, cause: std::io::Error },
    #[error("`{command}` does not end within {seconds} s; it should print one number, and end")]
    Slow { command: String, seconds: u64 },
    #[error("`{command}` fails with {status}: {said}")]
    Failed { command: String, status: std::process::ExitStatus, said: String },
    #[error(
        "`{command}` should print one number, a running total or a rate a second; it printed '{said}'{}",
        and_to_stderr(complained)
    )]
    NotANumber { command: String, said: String, complained: String },
    #[error(
        "the number changed {changes} times in {readings} readings, too seldom to tell a running total from a rate; put load on the program, or say what \
         it is (--number total, --number rate)"
    )]
    EitherKind { changes: usize, readings: usize },
    #[error("{url}: {cause}")]
    Http { url: String, cause: String },
    #[error(
        "{url}: hugepilot reads metrics over plain HTTP only; forward the port, as by `kubectl port-forward service/prometheus 9090` or by a proxy that \
         adds TLS and a token, and name http://localhost:9090"
    )]
    Https { url: String },
    #[error("{url} has no metric '{query}' with a number")]
    NoMetric { url: String, query: String },
}

/// System calls of processes.
#[derive(Debug)]
pub struct SystemCallsMeter(pub SystemCalls);

impl Meter for SystemCallsMeter {
    fn read(&mut self) -> Result<f64, MeterError> {
        Ok(self.0.count() as f64)
    }
}
