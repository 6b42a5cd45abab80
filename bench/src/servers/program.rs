//! The servers: how each is filled, started and loaded, and how its load reports its speed.
//!
//! Owns: their command lines. Never touches: the machine's settings, or directories other than the one that it is given.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::descendants;
use serde::{Deserialize, Serialize};

use crate::process::BoundChild;
use crate::tool::Tool;

/// The time limit for a server to answer; it may have to be filled first.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);
/// MariaDB's own cache for pages of tables.
const BUFFER_POOL: Bytes = Bytes(2 << 30);
/// The web server's port; the second server has the next one.
const FIRST_PORT: u16 = 18_080;

/// A web application with 1 GiB of memory that all workers share by fork; a request reads a thousand locations in it.
const APPLICATION: &str = "\
import array, random
memory = array.array('q', bytes(1 << 30))
def application(environment, start):
    total = sum(memory[random.randrange(len(memory))] for _ in range(1000))
    start('200 OK', [('Content-Type', 'text/plain')])
    return [str(total).encode()]
";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServerProgram {
    /// MariaDB, whose buffer pool is private: sysbench looks rows up.
    Mariadb,
    /// gunicorn, whose workers share an application's memory by fork: ab asks for pages.
    Gunicorn,
    /// Redis: redis-benchmark reads and writes items.
    Redis,
}

shown_as_typed!(ServerProgram);

/// Where and how a server is started.
pub struct ServerPlace<'a> {
    /// Its own directory.
    pub directory: PathBuf,
    /// Whether it is the first or the second of its kind.
    pub number: u16,
    /// How long it is loaded.
    pub seconds: u32,
    /// The tool that starts it by `hugepilot run` on a pool's pages.
    pub tool: Option<&'a Tool>,
    /// Ends everything early.
    pub stop: &'a Stop,
}

/// A running server.
pub struct RunningServer {
    child: BoundChild,
    /// `hugepilot run` is the child, and the server is its child.
    is_below_tool: bool,
    load: Vec<String>,
    program: ServerProgram,
}

impl ServerProgram {
    /// The pool that it needs, if that is its only way to huge pages: MariaDB disables all others (`PR_SET_THP_DISABLE`).
    pub fn pool(self) -> Option<Bytes> {
        (self == ServerProgram::Mariadb).then_some(Bytes(BUFFER_POOL.0 + BUFFER_POOL.0 / 8))
    }

    /// Starts it, fills it and waits until it answers.
    pub fn start(self, place: &ServerPlace<'_>) -> Result<RunningServer> {
        std::fs::create_dir_all(&place.directory)?;
        let directory = place.directory.to_str().context("the directory's name is not plain")?;
        let (child, load) = match self {
            ServerProgram::Mariadb => place.start_mariadb(directory)?,
            ServerProgram::Gunicorn => place.start_gunicorn(directory)?,
            ServerProgram::Redis => place.start_redis(directory)?,
        };
        Ok(RunningServer { child, is_below_tool: place.tool.is_some(), load: words(&load), program: self })
    }

    /// The load's output in requests a second.
    fn per_second(self, printed: &str) -> Option<f64> {
        let after = match self {
            ServerProgram::Mariadb => printed.split_once("transactions:")?.1.split_once('(')?.1,
            ServerProgram::Gunicorn => printed.split_once("Requests per second:")?.1,
            ServerProgram::Redis => printed.split_once("\"GET\",\"")?.1,
        };
        after.trim_start().split([' ', '"']).next()?.parse().ok()
    }
}

/// Each method starts a server in that directory, and returns the command that loads it.
impl ServerPlace<'_> {
    fn start_mariadb(&self, directory: &str) -> Result<(BoundChild, String)> {
        run(&format!("mariadb-install-db --no-defaults --user=root --datadir={directory}/data --skip-test-db"))?;
        let (socket, buffer_pool) = (format!("{directory}/socket"), BUFFER_POOL.0);
        let pages = if self.tool.is_some() { " --large-pages" } else { "" };
        let child = self.child(&format!(
            "mariadbd --no-defaults --user=root --datadir={directory}/data --socket={socket} --skip-networking \
             --skip-grant-tables --innodb-buffer-pool-size={buffer_pool} --innodb-flush-log-at-trx-commit=0 \
             --log-error={directory}/log{pages}"
        ))?;
        answers(&format!("mariadb-admin --no-defaults --socket={socket} ping"), self.stop)?;
        run(&format!("mariadb --no-defaults --socket={socket} -e CREATE\\ DATABASE\\ sbtest"))?;
        let bench = format!(
            "sysbench oltp_point_select --mysql-socket={socket} --mysql-user=root --tables=4 --table-size=1500000"
        );
        run(&format!("{bench} --threads=2 prepare"))?;
        Ok((child, format!("{bench} --threads=8 --time={} run", self.seconds)))
    }

    fn start_gunicorn(&self, directory: &str) -> Result<(BoundChild, String)> {
        std::fs::write(self.directory.join("application.py"), APPLICATION)?;
        let address = format!("127.0.0.1:{}", FIRST_PORT + self.number);
        let child = self.child(&format!(
            "gunicorn --preload --workers 4 --chdir {directory} --bind {address} --log-level error application"
        ))?;
        answers(&format!("ab -q -n 1 http://{address}/"), self.stop)?;
        Ok((child, format!("ab -q -c 8 -n 10000000 -t {} http://{address}/", self.seconds)))
    }

    fn start_redis(&self, directory: &str) -> Result<(BoundChild, String)> {
        let socket = format!("{directory}/socket");
        let child = self.child(&format!(
            "redis-server --port 0 --unixsocket {socket} --save  --dir {directory} --loglevel warning"
        ))?;
        answers(&format!("redis-cli -s {socket} ping"), self.stop)?;
        let bench = format!("redis-benchmark -s {socket} -r 2000000 -d 512 --csv");
        run(&format!("{bench} -t set -n 4000000 -P 32"))?;
        Ok((child, format!("{bench} -t get -c 50 -n {}", 60_000 * self.seconds)))
    }

    fn child(&self, line: &str) -> Result<BoundChild> {
        let mut command = Vec::new();
        if let Some(tool) = self.tool {
            command.push(tool.path().into());
            command.extend(["run", "--pages", "2M", "--"].map(OsString::from));
            // Makes the server end when hugepilot ends.
            command.extend([std::env::current_exe()?.into(), "bound".into(), "--".into()]);
        }
        command.extend(words(line).into_iter().map(OsString::from));
        BoundChild::start(&command, None, Stdio::null())
    }
}

impl RunningServer {
    /// The process id of its first process.
    pub fn pid(&self) -> Result<u32> {
        let child = self.child.pid();
        if !self.is_below_tool {
            return Ok(child);
        }
        descendants(&Root::host(), child)?.first().copied().context("hugepilot has started no server")
    }

    /// Loads it while this value lives, with these words besides. Errors: the load cannot be started.
    pub fn load_in_background(&self, words: &[&str]) -> Result<BoundChild> {
        let all = self.load.iter().map(String::as_str).chain(words.iter().copied());
        BoundChild::start(&all.map(OsString::from).collect::<Vec<_>>(), None, Stdio::null())
    }

    /// Loads it for some seconds and returns requests a second. Errors: it has ended, or the load fails.
    pub fn load(&mut self) -> Result<f64> {
        self.child.check()?;
        let printed = output(&self.load)?;
        self.program.per_second(&printed).with_context(|| format!("{} told no speed: '{printed}'", self.load[0]))
    }
}

/// Words of a line; an escaped space separates none, and two spaces have an empty word between them.
fn words(line: &str) -> Vec<String> {
    line.replace("\\ ", "\0").split(' ').map(|word| word.replace('\0', " ")).collect()
}

fn run(line: &str) -> Result<String> {
    output(&words(line))
}

fn output(words: &[String]) -> Result<String> {
    let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}: is it installed?", words[0]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed ({}): {}", words[0], output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until a command succeeds.
fn answers(line: &str, stop: &Stop) -> Result<()> {
    let asked = Instant::now();
    while let Err(error) = run(line) {
        ensure!(asked.elapsed() < PATIENCE, "no answer within {} s: {error:#}", PATIENCE.as_secs());
        stop.sleep_until(Instant::now() + POLL)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_from_what_loads_print() {
        let told = |program: ServerProgram, printed| program.per_second(printed);
        let sysbench =
            "    transactions:                        123456 (24690.12 per sec.)\n    queries: 9 (1 per sec.)";
        assert_eq!(told(ServerProgram::Mariadb, sysbench), Some(24690.12));
        assert_eq!(told(ServerProgram::Gunicorn, "Requests per second:    812.34 [#/sec] (mean)"), Some(812.34));
        assert_eq!(told(ServerProgram::Redis, "\"test\",\"rps\"\n\"GET\",\"81234.50\",\"0.3\""), Some(81234.5));
        assert_eq!(told(ServerProgram::Redis, "Could not connect"), None);
    }

    #[test]
    fn a_line_has_its_words() {
        assert_eq!(words("a --save  -e CREATE\\ DATABASE"), ["a", "--save", "", "-e", "CREATE DATABASE"]);
    }
}
