//! The programs that run on this machine: their processes joined, with the CPU time and the memory that they use.
//!
//! Owns: which processes make one program. Never touches: the programs; whether huge pages would help them is for [`scan`].

mod place;
pub mod scan;

use std::collections::BTreeMap;
use std::time::Instant;

use heat::units::{Bytes, Nanos};
use kernel::process::{ProcessStatus, Stat, cpu_time};
use kernel::target::Process;
use kernel::{KernelError, Root, accounts};
use serde::Serialize;

pub use self::place::ProcessPlace;

/// What processes have in common that are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The name, and the container or the service that they run in, or else the user who runs them.
    #[default]
    Program,
    /// The systemd service or scope.
    Service,
    /// The container.
    Container,
    /// The user.
    User,
}

/// Processes that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningProgram {
    /// The name that they have in common: of the program, service, container or user.
    pub name: String,
    /// The container, or else the systemd service or scope, that the busiest process runs in.
    pub place: Option<String>,
    /// How many processes.
    pub processes: u64,
    /// The process that used most CPU time; without any, the one with most memory.
    pub busiest: Process,
    /// Its name.
    pub busiest_name: String,
    /// The share of the program's CPU time that the busiest process used.
    pub share_of_busiest: f64,
    /// CPUs kept busy.
    pub busy_cpus: f64,
    /// Private memory of all, and pool pages; shared memory and file pages as the process has them that has most.
    pub memory: Bytes,
    /// Memory in page tables of all.
    pub page_tables: Bytes,
    /// Whether the busiest process switched huge pages off for itself; None where the kernel does not say.
    pub switched_off: Option<bool>,
}

/// The CPU time of every process at one moment.
pub struct ProgramCensus {
    at: Instant,
    cpu_times: BTreeMap<Process, Nanos>,
}

/// One process at the second moment.
struct Member {
    process: Process,
    status: ProcessStatus,
    place: ProcessPlace,
    cpu: Nanos,
}

impl ProgramCensus {
    /// Reads every process but this one and kernel threads. Errors: `/proc` cannot be listed.
    pub fn take(root: &Root) -> Result<Self, KernelError> {
        let at = Instant::now();
        let stats =
            root.numbered_entries("proc")?.into_iter().filter_map(|pid| Some((pid, Stat::read(root, pid).ok()?)));
        let counts = |(pid, stat): &(u32, Stat)| !stat.kernel_thread && !stat.is_zombie() && *pid != std::process::id();
        let cpu_times = stats.filter(counts).filter_map(|(pid, stat)| {
            Some((Process { pid, start_ticks: stat.start_ticks }, cpu_time(root, pid).ok()?))
        });
        Ok(Self { at, cpu_times: cpu_times.collect() })
    }

    /// The programs of the processes that have lived since, with this much memory or more, those with most CPU time first.
    pub fn programs(self, root: &Root, by: GroupBy, smallest: Bytes) -> Vec<RunningProgram> {
        let elapsed = self.at.elapsed().as_secs_f64();
        let mut joined: BTreeMap<(String, Option<String>), Vec<Member>> = BTreeMap::new();
        let users = accounts::user_names(root);
        for (process, before) in self.cpu_times {
            if let Some(member) = Member::read(root, process, before) {
                joined.entry(member.key(by, &users)).or_default().push(member);
            }
        }
        let programs = joined.into_iter().map(|((name, _), members)| RunningProgram::of(name, members, elapsed));
        let mut programs: Vec<RunningProgram> = programs.filter(|program| program.memory >= smallest).collect();
        let cmp = |one: &RunningProgram, other: &RunningProgram| {
            other.busy_cpus.total_cmp(&one.busy_cpus).then(other.memory.cmp(&one.memory))
        };
        programs.sort_by(cmp);
        programs
    }
}

impl Member {
    /// None if it has ended.
    fn read(root: &Root, process: Process, before: Nanos) -> Option<Self> {
        let status = ProcessStatus::read(root, process.pid).ok().filter(|status| !status.is_zombie())?;
        let cpu = cpu_time(root, process.pid).ok()?.saturating_sub(before);
        Some(Self { process, status, place: ProcessPlace::of(root, process.pid), cpu })
    }

    /// What it has in common with others of its program.
    fn key(&self, by: GroupBy, users: &BTreeMap<u32, String>) -> (String, Option<String>) {
        let uid = self.status.uid;
        match by {
            GroupBy::Program => {
                let place = self.place.name().unwrap_or_else(|| format!("user {uid}"));
                (self.status.name.clone(), Some(place))
            }
            GroupBy::Service => (self.place.service.clone().unwrap_or_else(|| "no service".to_owned()), None),
            GroupBy::Container => (self.place.container.clone().unwrap_or_else(|| "no container".to_owned()), None),
            GroupBy::User => (users.get(&uid).cloned().unwrap_or_else(|| uid.to_string()), None),
        }
    }
}

impl RunningProgram {
    fn of(name: String, mut members: Vec<Member>, elapsed: f64) -> Self {
        let own = |member: &Member| member.status.rss_anon + member.status.rss_shmem;
        members.sort_by_key(|member| std::cmp::Reverse((member.cpu, own(member))));
        let cpu: Nanos = members.iter().fold(Nanos(0), |sum, member| sum + member.cpu);
        let busiest = &members[0];
        let most =
            |of: fn(&ProcessStatus) -> Bytes| members.iter().map(|member| of(&member.status)).max().unwrap_or_default();
        // The kernel does not say which of a pool's pages are shared. Those of several processes mostly are, as a database's buffers.
        let shared = most(|status| status.rss_shmem) + most(|status| status.rss_file) + most(|status| status.hugetlb);
        let private: Bytes = members.iter().map(|member| member.status.rss_anon).sum();
        Self {
            name,
            place: busiest.place.name(),
            processes: members.len() as u64,
            busiest: busiest.process,
            busiest_name: busiest.status.name.clone(),
            share_of_busiest: if cpu > Nanos(0) { busiest.cpu.seconds() / cpu.seconds() } else { 1.0 },
            busy_cpus: cpu.seconds() / elapsed,
            memory: private + shared,
            page_tables: members.iter().map(|member| member.status.vm_pte).sum(),
            switched_off: busiest.status.thp_enabled.map(|enabled| !enabled),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const ID: &str = "3f2a0123456789abcdef3f2a0123456789abcdef3f2a0123456789abcdef0123";

    /// A process in a tree: id, name, ticks of CPU time, private and shared MiB (beside 4 of files, and as many in a pool as shared), user, control group.
    type Described<'a> = (u32, &'a str, u64, u64, u64, u32, &'a str);

    fn write(tree: &Path, (pid, name, ticks, private, shared, uid, group): Described) {
        let directory = tree.join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} ({name}) S 1 1 1 0 -1 4194304 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {pid}00 0 0 0 1 1 1");
        fs::write(directory.join("stat"), stat).unwrap();
        let status = format!(
            "Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPPid:\t1\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t1\nKthread:\t0\n\
             VmRSS:\t{} kB\nRssAnon:\t{} kB\nRssFile:\t4096 kB\nRssShmem:\t{} kB\nVmPTE:\t100 kB\nVmSwap:\t0 kB\n\
             HugetlbPages:\t{} kB\n",
            (private + shared + 4) << 10,
            private << 10,
            shared << 10,
            shared << 10,
        );
        fs::write(directory.join("status"), status).unwrap();
        fs::write(directory.join("cgroup"), format!("0::{group}\n")).unwrap();
    }

    /// The programs of a machine on which these processes run, and take so much more CPU time in the meantime.
    fn programs(processes: &[Described], later: &[Described], by: GroupBy) -> Vec<RunningProgram> {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("etc")).unwrap();
        fs::write(tree.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbroken\n").unwrap();
        processes.iter().for_each(|&process| write(tree.path(), process));
        let census = ProgramCensus::take(&Root::at(tree.path())).unwrap();
        later.iter().for_each(|&process| write(tree.path(), process));
        census.programs(&Root::at(tree.path()), by, Bytes(64 << 20))
    }

    fn names(programs: &[RunningProgram]) -> Vec<(&str, Option<&str>, u64)> {
        programs.iter().map(|each| (each.name.as_str(), each.place.as_deref(), each.processes)).collect()
    }

    fn machine() -> [Described<'static>; 7] {
        [
            (5, "postgres", 0, 10, 100, 7, "/system.slice/postgresql.service"),
            (6, "postgres", 0, 20, 100, 7, "/system.slice/postgresql.service"),
            (
                7,
                "postgres",
                0,
                80,
                0,
                7,
                "/kubepods/pod1/cri-containerd-3f2a0123456789abcdef3f2a0123456789abcdef3f2a0123456789abcdef0123.scope",
            ),
            (8, "redis-server", 0, 500, 0, 0, "/user.slice/user-0.slice/session-3.scope"),
            (9, "small", 0, 59, 0, 0, "/"),
            (10, "java", 0, 200, 0, 0, "/"),
            (11, "java", 0, 100, 0, 7, "/"),
        ]
    }

    #[test]
    fn processes_of_one_name_in_one_place_or_of_one_user_are_a_program() {
        let mut later = machine();
        (later[1].2, later[0].2, later[2].2) = (30, 10, 5);
        let programs = programs(&machine(), &later, GroupBy::Program);
        let expected = [
            ("postgres", Some("postgresql.service"), 2),
            ("postgres", Some(&ID[..12]), 1),
            ("redis-server", Some("session-3.scope"), 1),
            ("java", None, 1),
            ("java", None, 1),
        ];
        assert_eq!(names(&programs), expected);
        let postgres = &programs[0];
        assert_eq!((postgres.busiest.pid, (100.0 * postgres.share_of_busiest).round()), (6, 75.0));
        assert_eq!(
            (postgres.memory, postgres.page_tables),
            (Bytes(234 << 20), Bytes(200 << 10)),
            "shared memory, a pool's pages and file pages once"
        );
        assert!(postgres.busy_cpus > 0.0 && programs[3].busy_cpus == 0.0, "{programs:?}");
    }

    #[test]
    fn they_can_be_joined_by_service_container_and_user() {
        let by = |by| {
            let programs = programs(&machine(), &machine(), by);
            programs.into_iter().map(|each| (each.name, each.processes)).collect::<BTreeMap<String, u64>>()
        };
        let of = |expected: &[(&str, u64)]| expected.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        let services: BTreeMap<String, u64> =
            of(&[("postgresql.service", 2), ("session-3.scope", 1), ("no service", 4)]);
        assert_eq!(by(GroupBy::Service), services);
        assert_eq!(by(GroupBy::Container), of(&[(&ID[..12], 1), ("no container", 6)]));
        assert_eq!(by(GroupBy::User), of(&[("root", 3), ("7", 4)]));
    }

    #[test]
    fn this_machine_has_programs_but_this_one_is_not_told() {
        let root = Root::host();
        let programs = ProgramCensus::take(&root).unwrap().programs(&root, GroupBy::Program, Bytes(0));
        assert!(!programs.is_empty() && programs.iter().all(|each| each.busiest.pid != std::process::id()));
    }
}
