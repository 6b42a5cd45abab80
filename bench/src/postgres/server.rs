//! A PostgreSQL server: its data, its start under a setup, its end, and pgbench, which loads it.
//!
//! Owns: a directory below the given one, and the processes that it starts there. Never touches: other servers, or the machine's settings.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use heat::units::{Bytes, Nanos};
use hugepilot_os::PidFd;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::{FamilyUsage, ProcessStatus, descendants};
use rustix::process::Signal;

use super::load::Load;
use crate::process::BoundChild;

/// PostgreSQL refuses to run as root.
const USER: &str = "postgres";
/// Has a directory for each version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// It writes a checkpoint before it ends.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// The size of pgbench's tables per unit of scale, including their index.
const OF_SCALE: u64 = 15 << 20;
/// The share of the buffers that data fills, so that all of it stays cached.
const FILLED: f64 = 0.92;

/// The location of PostgreSQL's programs.
#[derive(Clone, Debug)]
pub struct Programs(pub PathBuf);

/// A data directory with pgbench's tables.
#[derive(Debug)]
pub struct Data {
    programs: Programs,
    directory: PathBuf,
    buffers: Bytes,
}

/// A running server.
pub struct PostgresServer<'a> {
    data: &'a Data,
    child: BoundChild,
}

impl Programs {
    /// Finds them in this directory, or in Debian's. Errors: they are in neither.
    pub fn find(directory: Option<PathBuf>) -> Result<Self> {
        let version = |path: &Path| path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let newest = || {
            let versions = std::fs::read_dir(INSTALLED).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
            versions.max_by_key(|path| version(path).unwrap_or(0u32)).map(|path| path.join("bin"))
        };
        let directory =
            directory.or_else(newest).context("no PostgreSQL here: install it, or name --programs DIRECTORY")?;
        ensure!(
            directory.join("postgres").is_file(),
            "no postgres in {}: name --programs DIRECTORY",
            directory.display()
        );
        Ok(Self(directory))
    }

    /// A command that runs one of them as PostgreSQL's user, and that ends when we do.
    fn words(&self, program: &str, words: &[&str]) -> Vec<OsString> {
        let user = [format!("--reuid={USER}"), format!("--regid={USER}")];
        let before = ["setpriv", &user[0], &user[1], "--init-groups", "--pdeathsig=INT", "--"].map(OsString::from);
        let program = self.0.join(program).into_os_string();
        before.into_iter().chain([program]).chain(words.iter().map(OsString::from)).collect()
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(self.words(program, words)).stdin(Stdio::null());
        command
    }

    fn before_others(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "-19"]).args(self.words(program, words)).stdin(Stdio::null());
        command
    }

    /// Runs one until it ends. Errors: it fails; the error has its output.
    fn run(&self, program: &str, words: &[&str]) -> Result<String> {
        let output = self.command(program, words).output().with_context(|| format!("cannot start {program}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} failed ({}): {}", output.status, said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Data {
    /// Creates tables that fill the buffers, in a new directory below this one.
    pub fn create(programs: &Programs, below: &Path, buffers: Bytes, stop: &Stop) -> Result<Self> {
        let owned = |path: &Path| Command::new("chown").arg(format!("{USER}:")).arg(path).status();
        owned(below).with_context(|| format!("cannot give {} to {USER}", below.display()))?;
        std::fs::set_permissions(below, std::fs::Permissions::from_mode(0o755))?;
        let data = Self { programs: programs.clone(), directory: below.join("data"), buffers };
        programs.run("initdb", &["-D", data.path(), "--auth=trust", "--no-sync", "--no-instructions"])?;
        let server = data.start("off", &["fsync=off", "max_wal_size=32GB"], stop)?;
        let scale = (buffers.0 as f64 * FILLED / OF_SCALE as f64).max(1.0) as u64;
        server.on_it("pgbench", &["-i", "-q", "-s", &scale.to_string(), "postgres"])?;
        server.on_it("psql", &["-qc", "CREATE EXTENSION pg_prewarm", "postgres"])?;
        server.stop()?;
        Ok(data)
    }

    /// A second copy of the data, for a server that runs beside the first.
    pub fn copy(&self, name: &str) -> Result<Self> {
        let directory = self.directory.with_file_name(name);
        let copied = Command::new("cp").args(["-a", "--reflink=auto"]).args([&self.directory, &directory]).status()?;
        ensure!(copied.success(), "cannot copy {} to {}", self.directory.display(), directory.display());
        Ok(Self { directory, programs: self.programs.clone(), ..*self })
    }

    /// Starts a server on it, with all tables in its buffers.
    pub fn serve(&self, huge_pages: &str, stop: &Stop) -> Result<PostgresServer<'_>> {
        let server = self.start(huge_pages, &[], stop)?;
        for relation in ["pgbench_accounts", "pgbench_accounts_pkey", "pgbench_tellers", "pgbench_branches"] {
            server.on_it("psql", &["-qAtc", &format!("SELECT pg_prewarm('{relation}')"), "postgres"])?;
        }
        Ok(server)
    }

    fn start(&self, huge_pages: &str, more: &[&str], stop: &Stop) -> Result<PostgresServer<'_>> {
        let buffers = format!("shared_buffers={}MB", self.buffers.0 >> 20);
        let (pages, sockets) = (format!("huge_pages={huge_pages}"), format!("unix_socket_directories={}", self.path()));
        let settings =
            ["listen_addresses=", "max_connections=600", "log_min_messages=fatal", &buffers, &pages, &sockets];
        let mut words = vec!["-D", self.path()];
        settings.iter().chain(more).for_each(|setting| words.extend(["-c", setting]));
        let log = std::fs::File::create(self.directory.with_extension("log"))?;
        let child = BoundChild::start(&self.programs.words("postgres", &words), None, log.into())?;
        let mut server = PostgresServer { data: self, child };
        let asked = Instant::now();
        while server.on_it("pg_isready", &["-q"]).is_err() {
            server.child.check().context("PostgreSQL did not start")?;
            ensure!(asked.elapsed() < PATIENCE, "PostgreSQL did not answer within {} s", PATIENCE.as_secs());
            stop.sleep_until(Instant::now() + POLL)?;
        }
        Ok(server)
    }

    fn path(&self) -> &str {
        self.directory.to_str().expect("a directory of our own has a plain name")
    }
}

impl PostgresServer<'_> {
    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Runs a program against it until it ends.
    fn on_it(&self, program: &str, words: &[&str]) -> Result<String> {
        self.data.programs.run(program, &[&["-h", self.data.path()], words].concat())
    }

    /// Starts pgbench, which ends after the load's time. At a constant rate it runs at a higher priority than ordinary work, because it stands for
    /// other machines.
    pub fn load(&self, load: &Load) -> Result<Child> {
        let words = load.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = [&["-h", self.data.path()], &words[..], &["postgres"]].concat();
        let mut command = match load.rate {
            Some(_) => self.data.programs.before_others("pgbench", &words),
            None => self.data.programs.command("pgbench", &words),
        };
        command.current_dir(self.data.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot start pgbench")
    }

    /// The size of the page tables of all its processes.
    pub fn page_tables(&self) -> Result<Bytes> {
        let root = Root::host();
        let children = descendants(&root, self.pid())?.into_iter();
        let of = |pid| ProcessStatus::read(&root, pid).map_or(Bytes(0), |status| status.vm_pte);
        Ok(children.chain([self.pid()]).map(of).sum())
    }

    /// CPU time of all its processes so far, including those that have ended.
    pub fn cpu_time(&self) -> Result<Nanos> {
        Ok(FamilyUsage::read(&Root::host(), self.pid())?.cpu_time)
    }

    /// Its data directory, where pgbench writes its log.
    pub fn directory(&self) -> &Path {
        &self.data.directory
    }

    /// Shuts it down properly. Errors: it did not end.
    pub fn stop(mut self) -> Result<()> {
        PidFd::open(self.pid())?.signal(Signal::INT)?;
        let asked = Instant::now();
        while self.child.child.try_wait()?.is_none() {
            if asked.elapsed() > PATIENCE {
                bail!("PostgreSQL (process {}) did not end within {} s of SIGINT", self.pid(), PATIENCE.as_secs());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
