//! A number printed by a command of the user's.
//!
//! Owns: the command's run. Never touches: what it does.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::meter::{Meter, MeterError};

/// How long the command may take.
const LONGEST: Duration = Duration::from_secs(10);
/// How often it is checked whether it has ended.
const POLL: Duration = Duration::from_millis(5);
/// When a command that printed nothing is run once more.
const SOON: Duration = Duration::from_millis(50);
/// What is read of its output at most.
const MOST_OUTPUT: u64 = 4096;

/// A command for `sh`, which prints a number.
#[derive(Clone, Debug)]
pub struct CommandMeter(pub String);

impl Meter for CommandMeter {
    fn read(&mut self) -> Result<f64, MeterError> {
        let (mut said, mut complained) = self.run()?;
        if said.trim().is_empty() {
            // A file that is being written anew is empty for a moment.
            thread::sleep(SOON);
            (said, complained) = self.run()?;
        }
        let not_a_number = || MeterError::NotANumber {
            command: self.0.clone(),
            said: said.trim().to_owned(),
            complained: complained.trim().to_owned(),
        };
        parse(&said).ok_or_else(not_a_number)
    }
}

impl CommandMeter {
    /// What it printed, and what to its standard error.
    fn run(&self) -> Result<(String, String), MeterError> {
        let mut command = std::process::Command::new("sh");
        // In a group of its own, so that Ctrl-C ends the trial first, and a command that hangs is ended with its children.
        command
            .args(["-c", &self.0])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let start = |cause| MeterError::Start { command: self.0.clone(), cause };
        let mut child = command.spawn().map_err(start)?;
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let status = self.wait(&mut child)?;
        let [out, err] = [out, err].map(|reader| reader.join().unwrap_or_default());
        if !status.success() {
            return Err(MeterError::Failed { command: self.0.clone(), status, said: err.trim().to_owned() });
        }
        Ok((out, err))
    }

    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus, MeterError> {
        let until = Instant::now() + LONGEST;
        loop {
            let status = child.try_wait().map_err(|cause| MeterError::Start { command: self.0.clone(), cause })?;
            match status {
                Some(status) => return Ok(status),
                None if Instant::now() > until => {
                    let group = Pid::from_child(child);
                    // It may have ended just now.
                    let _ = kill_process_group(group, Signal::KILL);
                    let _ = child.wait();
                    return Err(MeterError::Slow { command: self.0.clone(), seconds: LONGEST.as_secs() });
                }
                None => thread::sleep(POLL),
            }
        }
    }
}

/// Reads without holding the command up.
fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What came until an error counts.
            let _ = stream.by_ref().take(MOST_OUTPUT).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The last word, if it is a number.
fn parse(said: &str) -> Option<f64> {
    let number: f64 = said.split_whitespace().last()?.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: &str) -> Result<f64, MeterError> {
        CommandMeter(command.to_owned()).read()
    }

    #[test]
    fn the_last_word_is_the_number() {
        assert_eq!(read("echo 12").unwrap(), 12.0);
        assert_eq!(read("printf 'total_commands_processed: 1.5e3\\r\\n'").unwrap(), 1500.0);
        assert_eq!(
            read("head -c 100000 /dev/zero | tr '\\0' x >&2; echo 7").unwrap(),
            7.0,
            "a full pipe holds nothing up"
        );
    }

    #[test]
    fn a_command_that_prints_nothing_is_run_once_more() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let command = format!("if test -s {path}; then echo 7; else echo written > {path}; fi");
        assert_eq!(read(&command).unwrap(), 7.0);
    }

    #[test]
    fn errors_say_what_the_command_did() {
        assert!(read("echo hello").unwrap_err().to_string().contains("it printed 'hello'"));
        assert!(read("echo nan").unwrap_err().to_string().contains("one number"));
        assert!(read("true").unwrap_err().to_string().contains("it printed ''"));
        let denied = read("echo NOAUTH >&2; echo denied").unwrap_err().to_string();
        assert!(denied.contains("it printed 'denied', and 'NOAUTH' to its standard error"), "{denied}");
        let failed = read("echo no such table >&2; exit 3").unwrap_err().to_string();
        assert!(failed.contains("exit status: 3: no such table"), "{failed}");
    }
}
