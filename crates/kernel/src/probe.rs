//! What this machine can do, gathered once and judged elsewhere. Unknown is not false: every fact tells which it is.
//!
//! Owns: the list of facts. Never touches: system calls beyond reads (the caller passes in what only those can tell); draws no conclusions.

use heat::units::{Bytes, Nanos};

use crate::buddy::Buddy;
use crate::capability::Capabilities;
use crate::cpu::Cpu;
use crate::hugetlb::{self, Pool};
use crate::lines::kilobytes;
use crate::lockdown::{self, Lockdown};
use crate::memory::Meminfo;
use crate::pmu::{self, MemorySampling};
use crate::pressure::Pressure;
use crate::process::ProcessStatus;
use crate::thp::Thp;
use crate::{KernelError, Malformed, Root, balloon, cgroup, damon, kallsyms, unless_ended};

/// A known fact, or the reason why it is unknown.
pub type Fact<T> = Result<T, KernelError>;

/// Whether something can be done here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It is possible.
    Yes,
    /// It is impossible, and why.
    No(String),
    /// Unknown, and why.
    Unknown(String),
}

/// What only a trial shows; the caller tries it on itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveProbes {
    /// A BPF program that copies kernel memory can be loaded and run.
    pub bpf: Ability,
    /// `process_madvise(MADV_COLLAPSE)` is accepted.
    pub process_madvise: Ability,
    /// `pagemap` shows page frame numbers.
    pub pagemap: Ability,
    /// `cachestat` tells which part of a file is in memory.
    pub cachestat: Ability,
    /// A process can track its own writes by userfaultfd and `PAGEMAP_SCAN`.
    pub own_writes: Ability,
    /// Files of the disk come from the page cache on huge pages.
    pub huge_files: Ability,
    /// The kernel replaces base pages of files beneath programs that map them (`MADV_COLLAPSE`).
    pub collapsed_files: Ability,
    /// How long collapses took; None if none could be tried.
    pub collapses: Option<CollapseTimes>,
}

/// How long collapses of our own memory took, the median of a few. A program that touches the region waits that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseTimes {
    /// With a prepared page.
    pub prepared: Nanos,
    /// Without one.
    pub unprepared: Nanos,
    /// How long preparing a page took, which holds nothing up.
    pub preparing: Nanos,
}

impl CollapseTimes {
    /// How long a collapse takes if pages are prepared where that helps.
    pub fn usual(&self) -> Nanos {
        self.prepared.min(self.unprepared)
    }

    /// How long the slower kind takes; the first regions are promoted both ways.
    pub fn slowest(&self) -> Nanos {
        self.prepared.max(self.unprepared)
    }

    /// Whether preparing shortens a collapse enough, by a fifth, to be worth its own time.
    pub fn preparing_helps(&self) -> bool {
        self.prepared.0 * 5 <= self.unprepared.0 * 4
    }
}

/// A process, recognizable to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessName {
    /// Its id.
    pub pid: u32,
    /// Its name, truncated to 15 bytes by the kernel.
    pub name: String,
}

/// All facts.
#[derive(Debug)]
pub struct Facts {
    /// As `uname -r` prints it.
    pub kernel_release: Fact<String>,
    /// The kernel's boot command line.
    pub command_line: Fact<String>,
    /// Bytes in a base page.
    pub page_size: Fact<Bytes>,
    /// The processor, and what it can address.
    pub cpu: Fact<Cpu>,
    /// The kernel describes its own types (BTF), which BPF programs need to run on any kernel.
    pub btf: Ability,
    /// How far the kernel is locked down; `None` where it has no lockdown or does not show it.
    pub lockdown: Fact<Option<Lockdown>>,
    /// Real user id of this process.
    pub uid: Fact<u32>,
    /// Effective capabilities of this process.
    pub capabilities: Fact<Capabilities>,
    /// This process's user namespace is the machine's initial one: BPF and page frame numbers are available only there.
    pub initial_user_namespace: Fact<bool>,
    /// Settings of transparent huge pages; `None` on a kernel without them.
    pub thp: Fact<Option<Thp>>,
    /// Pools of reserved huge pages.
    pub pools: Fact<Vec<Pool>>,
    /// Contiguous free memory.
    pub buddy: Fact<Buddy>,
    /// Memory and swap.
    pub memory: Fact<Meminfo>,
    /// The host of this virtual machine reclaims free memory.
    pub free_memory_reported: Fact<bool>,
    /// The kernel can compact memory on request.
    pub compaction: Ability,
    /// Processes that may not have transparent huge pages (`prctl(PR_SET_THP_DISABLE)`).
    pub thp_disabled: Fact<Vec<ProcessName>>,
    /// Accessed bits can be cleared through `/proc/PID/clear_refs`.
    pub clear_refs: Ability,
    /// Flags of physical pages can be read.
    pub kpageflags: Ability,
    /// How often physical pages are mapped can be read.
    pub kpagecount: Ability,
    /// DAMON threads set up by others; `None` on a kernel without DAMON.
    pub damon_threads: Fact<Option<u32>>,
    /// The event that samples memory accesses; `None` on a machine without such a PMU.
    pub pmu: Fact<Option<MemorySampling>>,
    /// DAMON can observe the virtual addresses of a process.
    pub damon_vaddr: Ability,
    /// DAMON can observe physical addresses.
    pub damon_paddr: Ability,
    /// The kernel marks idle pages on request.
    pub idle_pages: Ability,
    /// Control groups can be told to reclaim memory.
    pub memory_reclaim: Ability,
    /// The kernel tells how long tasks wait for memory.
    pub pressure: Ability,
    /// The caller's trials.
    pub live: LiveProbes,
}

impl Default for LiveProbes {
    /// Nothing was tried.
    fn default() -> Self {
        let untried = || Ability::Unknown("not tried".to_owned());
        Self {
            bpf: untried(),
            process_madvise: untried(),
            pagemap: untried(),
            cachestat: untried(),
            own_writes: untried(),
            huge_files: untried(),
            collapsed_files: untried(),
            collapses: None,
        }
    }
}

impl Facts {
    /// Reads everything. Takes some 10 ms; never fails, because what cannot be read is also a fact.
    pub fn gather(root: &Root, live: LiveProbes) -> Self {
        let own = || root.parsed("proc/self/status", Root::LIMIT, ProcessStatus::parse);
        let thp = Thp::read(root);
        // Without transparent huge pages in the kernel, it prints `THP_enabled: 0` for every process.
        let thp_disabled = match thp {
            Ok(None) => Ok(Vec::new()),
            _ => thp_disabled(root),
        };
        Self {
            kernel_release: line(root, "proc/sys/kernel/osrelease"),
            command_line: line(root, "proc/cmdline"),
            page_size: root.parsed("proc/self/smaps", SMAPS, parse_page_size),
            cpu: Cpu::read(root),
            btf: present(root, "sys/kernel/btf/vmlinux", "the kernel was built without CONFIG_DEBUG_INFO_BTF"),
            lockdown: lockdown::read(root),
            uid: own().map(|status| status.uid),
            capabilities: own().map(|status| status.cap_eff),
            initial_user_namespace: root.text("proc/self/uid_map").map(|text| is_identity(&text)),
            thp,
            pools: hugetlb::pools(root),
            buddy: Buddy::read(root),
            memory: Meminfo::read(root),
            free_memory_reported: balloon::reports_free_memory(root),
            compaction: present(root, "proc/sys/vm/compact_memory", "the kernel was built without CONFIG_COMPACTION"),
            thp_disabled,
            clear_refs: present(root, "proc/self/clear_refs", "the kernel was built without CONFIG_PROC_PAGE_MONITOR"),
            kpageflags: readable(root, "proc/kpageflags"),
            kpagecount: readable(root, "proc/kpagecount"),
            damon_threads: damon::threads_of_others(root),
            pmu: pmu::memory_sampling(root),
            damon_vaddr: listed(root, VADDR_SYMBOL, "CONFIG_DAMON_VADDR"),
            damon_paddr: listed(root, PADDR_SYMBOL, "CONFIG_DAMON_PADDR"),
            idle_pages: present(root, IDLE_PAGES, "the kernel was built without CONFIG_IDLE_PAGE_TRACKING"),
            memory_reclaim: memory_reclaim(root),
            pressure: pressure(root),
            live,
        }
    }
}

/// Functions that exist where DAMON can observe such addresses. DAMON itself reports that only once it is set up.
pub const VADDR_SYMBOL: &str = "damon_va_check_accesses";
/// The same for physical addresses.
pub const PADDR_SYMBOL: &str = "damon_pa_check_accesses";
/// The file of idle page marks (Documentation/admin-guide/mm/idle_page_tracking.rst).
pub const IDLE_PAGES: &str = "sys/kernel/mm/page_idle/bitmap";

/// The bound on our own `smaps`.
const SMAPS: Bytes = Bytes(64 << 20);

fn line(root: &Root, name: &str) -> Fact<String> {
    root.text(name).map(|text| text.trim().to_owned())
}

fn present(root: &Root, name: &str, otherwise: &str) -> Ability {
    match root.exists(name) {
        Ok(true) => Ability::Yes,
        Ok(false) => Ability::No(otherwise.to_owned()),
        Err(error) => Ability::Unknown(error.to_string()),
    }
}

fn memory_reclaim(root: &Root) -> Ability {
    match cgroup::with_file(root, "memory.reclaim") {
        Ok(None) => Ability::No("version 2 of control groups is not mounted".to_owned()),
        Ok(Some(groups)) if groups.is_empty() => Ability::No("no control group has a file memory.reclaim".to_owned()),
        Ok(Some(_)) => Ability::Yes,
        Err(error) => Ability::Unknown(error.to_string()),
    }
}

fn pressure(root: &Root) -> Ability {
    match Pressure::read(root) {
        Ok(Some(_)) => Ability::Yes,
        Ok(None) => Ability::No("the kernel was built without CONFIG_PSI, or booted with psi=0".to_owned()),
        Err(error) => Ability::Unknown(error.to_string()),
    }
}

fn listed(root: &Root, symbol: &str, option: &str) -> Ability {
    match kallsyms::lists(root, symbol) {
        Some(true) => Ability::Yes,
        Some(false) => Ability::No(format!("the kernel was built without {option}")),
        None => Ability::Unknown("/proc/kallsyms lists nothing".to_owned()),
    }
}

fn readable(root: &Root, name: &str) -> Ability {
    match root.stream(name, Root::LIMIT) {
        Ok(_) => Ability::Yes,
        Err(error) if error.is_absent() || error.is_denied() => Ability::No(error.to_string()),
        Err(error) => Ability::Unknown(error.to_string()),
    }
}

/// The first mapping is the program itself, which is never on huge pages.
fn parse_page_size(text: &str) -> Result<Bytes, Malformed> {
    let value = text.lines().find_map(|line| line.strip_prefix("KernelPageSize:"));
    value.and_then(|value| kilobytes(value.trim())).ok_or_else(|| Malformed::missing(text, "a line 'KernelPageSize:'"))
}

/// `uid_map` of the initial namespace maps every id to itself (man 7 user_namespaces).
fn is_identity(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

fn thp_disabled(root: &Root) -> Fact<Vec<ProcessName>> {
    let mut disabled = Vec::new();
    for pid in root.numbered_entries("proc")? {
        let status = unless_ended(ProcessStatus::read(root, pid))?;
        if let Some(status) = status.filter(|status| status.thp_enabled == Some(false)) {
            disabled.push(ProcessName { pid, name: status.name });
        }
    }
    Ok(disabled)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn write(tree: &Path, name: &str, text: &str) {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), text).unwrap();
    }

    #[test]
    fn of_an_empty_tree_nothing_is_known_but_nothing_fails() {
        let facts = Facts::gather(&Root::at(tempfile::tempdir().unwrap().path()), LiveProbes::default());
        assert!(facts.kernel_release.is_err() && facts.capabilities.is_err() && facts.memory.is_err());
        assert!(matches!(facts.btf, Ability::No(_)) && matches!(facts.kpageflags, Ability::No(_)));
        assert!(matches!(facts.thp, Ok(None)) && matches!(facts.lockdown, Ok(None)));
        assert!(matches!(facts.live.bpf, Ability::Unknown(_)));
    }

    #[test]
    fn processes_without_huge_pages_are_listed_only_where_there_are_any() {
        let tree = tempfile::tempdir().unwrap();
        write(tree.path(), "proc/9/status", "Name:\tredis-server\nTgid:\t9\nTHP_enabled:\t0\n");
        write(tree.path(), "proc/10/status", "Name:\tcat\nTgid:\t10\nTHP_enabled:\t1\n");
        write(tree.path(), "proc/11/status", "Name:\tkthread\nTgid:\t11\n");
        fs::create_dir_all(tree.path().join("proc/12")).unwrap();
        let root = Root::at(tree.path());
        assert_eq!(Facts::gather(&root, LiveProbes::default()).thp_disabled.unwrap(), []);
        write(tree.path(), "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        let listed = Facts::gather(&root, LiveProbes::default()).thp_disabled.unwrap();
        assert_eq!(listed, [ProcessName { pid: 9, name: "redis-server".to_owned() }]);
    }

    #[test]
    fn this_machine_is_known() {
        let facts = Facts::gather(&Root::host(), LiveProbes::default());
        assert_eq!(facts.page_size.unwrap(), Bytes(rustix::param::page_size() as u64));
        assert!(facts.kernel_release.unwrap().starts_with(char::is_numeric));
        assert!(facts.capabilities.is_ok() && facts.initial_user_namespace.is_ok() && facts.thp.is_ok());
    }

    #[test]
    fn only_the_identity_is_the_machines_own_namespace() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0       1000          1\n"));
        assert!(!is_identity(""));
    }

    proptest! {
        #[test]
        fn any_text_has_a_page_size_or_none(text in "(KernelPageSize:.{0,12}\n|.{0,20}\n){0,4}") {
            let _ = parse_page_size(&text);
        }
    }
}
