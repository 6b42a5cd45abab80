//! `/proc/PID/status`: a process's identity, memory and privileges.
//!
//! Owns: the keys needed from that file. Never touches: the process.

use heat::units::Bytes;

use crate::capability::Capabilities;
use crate::lines::{kilobytes, take_fields};
use crate::{KernelError, Malformed, Root};

/// The lines needed of one process's `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The name, truncated to 15 bytes by the kernel; a newline is written as `\n`.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: char,
    /// The process's id, even if a thread's id was given.
    pub tgid: u32,
    /// The parent's id.
    pub parent: u32,
    /// Ids from the reader's pid namespace inward; more than one means that the process runs in a container.
    pub namespace_pids: Vec<u32>,
    /// Real user id.
    pub uid: u32,
    /// Effective user id.
    pub effective_uid: u32,
    /// Saved user id, which the process can switch back to.
    pub saved_uid: u32,
    /// How many threads it has.
    pub threads: u32,
    /// A kernel thread, without memory of its own.
    pub kernel_thread: bool,
    /// Memory present; 0 where the process has none of its own, as for all fields below.
    pub vm_rss: Bytes,
    /// The most memory that was ever present.
    pub vm_hwm: Bytes,
    /// The anonymous part.
    pub rss_anon: Bytes,
    /// The part from files.
    pub rss_file: Bytes,
    /// The part in shared memory.
    pub rss_shmem: Bytes,
    /// Memory in hugetlb pages, included in no other line.
    pub hugetlb: Bytes,
    /// Memory in page tables.
    pub vm_pte: Bytes,
    /// Swapped-out memory.
    pub vm_swap: Bytes,
    /// Whether huge pages are possible: `false` after `prctl(PR_SET_THP_DISABLE)`; `None` where the kernel does not say.
    pub thp_enabled: Option<bool>,
    /// Effective capabilities.
    pub cap_eff: Capabilities,
    /// Signals that it handles, signal 1 in the lowest bit.
    pub handled_signals: u64,
    /// 0 off, 1 strict, 2 filters; `None` where the kernel does not say.
    pub seccomp: Option<u8>,
}

impl ProcessStatus {
    /// Reads one process's file. Errors: the process has ended (`is_gone`), a malformed line.
    pub fn read(root: &Root, pid: u32) -> Result<Self, KernelError> {
        root.parsed(&format!("proc/{pid}/status"), Root::LIMIT, Self::parse)
    }

    /// Whether it has ended and only waits for its parent.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether it has its own handler for that signal.
    pub fn handles(&self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.handled_signals >> (signal - 1) & 1 == 1
    }

    /// Parses the text of a `status` file.
    ///
    /// Errors: a needed line has a malformed value, or `Tgid:` is missing.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut status = Self::default();
        let (mut tgid, mut kthread, mut has_memory) = (None, None, false);
        take_fields(text, |key, value| {
            match key {
                "Tgid" => tgid = Some(value.parse().ok()?),
                "Kthread" => kthread = Some(flag(value)?),
                _ => {
                    has_memory |= key == "VmRSS";
                    status.set(key, value)?;
                }
            }
            Some(())
        })?;
        status.tgid = tgid.ok_or_else(|| Malformed::missing(text, "a line 'Tgid:'"))?;
        // `Kthread:` came with 6.8; before, kernel threads are kthreadd (2) and its children, without memory.
        let below_kthreadd = status.tgid == 2 && status.parent == 0 || status.parent == 2;
        status.kernel_thread = kthread.unwrap_or(below_kthreadd && !has_memory && !status.is_zombie());
        Ok(status)
    }

    /// Stores one line; `None` if a known key's value is malformed. Unknown keys are ignored.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "Name" => self.name = value.to_owned(),
            "State" => self.state = value.chars().next()?,
            "PPid" => self.parent = value.parse().ok()?,
            "NSpid" => {
                self.namespace_pids = value.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
            }
            "Uid" => {
                let mut ids = value.split_ascii_whitespace().map(|id| id.parse().ok());
                (self.uid, self.effective_uid, self.saved_uid) = (ids.next()??, ids.next()??, ids.next()??);
            }
            "Threads" => self.threads = value.parse().ok()?,
            "VmRSS" => self.vm_rss = kilobytes(value)?,
            "VmHWM" => self.vm_hwm = kilobytes(value)?,
            "RssAnon" => self.rss_anon = kilobytes(value)?,
            "RssFile" => self.rss_file = kilobytes(value)?,
            "RssShmem" => self.rss_shmem = kilobytes(value)?,
            "HugetlbPages" => self.hugetlb = kilobytes(value)?,
            "VmPTE" => self.vm_pte = kilobytes(value)?,
            "VmSwap" => self.vm_swap = kilobytes(value)?,
            "THP_enabled" => self.thp_enabled = Some(flag(value)?),
            "CapEff" => self.cap_eff = Capabilities(u64::from_str_radix(value, 16).ok()?),
            "SigCgt" => self.handled_signals = u64::from_str_radix(value, 16).ok()?,
            "Seccomp" => self.seccomp = Some(value.parse().ok()?),
            _ => {}
        }
        Some(())
    }
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_wanted_lines_are_taken() {
        let text = "Name:\tredis: (x)\nState:\tS (sleeping)\nTgid:\t812\nPPid:\t1\nUid:\t104\t0\t7\t0\nNSpid:\t812\t7\n\
                    VmRSS:\t    1636 kB\nVmHWM:\t    2048 kB\nVmPTE:\t      48 kB\nTHP_enabled:\t0\nThreads:\t5\n\
                    CapEff:\t000001fffeffffff\nSeccomp:\t2\nMems_allowed:\t1\nodd line\n";
        let status = ProcessStatus::parse(text).unwrap();
        assert_eq!((status.name.as_str(), status.state, status.tgid, status.parent), ("redis: (x)", 'S', 812, 1));
        assert_eq!((status.vm_rss, status.vm_pte), (Bytes(1636 << 10), Bytes(48 << 10)));
        assert_eq!(status.vm_hwm, Bytes(2048 << 10));
        assert_eq!((status.thp_enabled, status.threads, status.uid), (Some(false), 5, 104));
        assert_eq!((status.effective_uid, status.saved_uid), (0, 7));
        assert_eq!((status.namespace_pids.as_slice(), status.seccomp), ([812, 7].as_slice(), Some(2)));
        assert_eq!(status.cap_eff, Capabilities(0x1fffeffffff));
        assert!(!status.kernel_thread && !status.is_zombie());
    }

    #[test]
    fn kernel_threads_are_known_on_old_and_new_kernels() {
        let kernel = |text: &str| ProcessStatus::parse(text).unwrap().kernel_thread;
        assert!(kernel("Tgid:\t2\nPPid:\t0\nKthread:\t1\n"));
        assert!(kernel("Tgid:\t2\nPPid:\t0\n"), "kthreadd before 6.8");
        assert!(kernel("State:\tI (idle)\nTgid:\t9\nPPid:\t2\n"), "a child of it before 6.8");
        assert!(!kernel("Tgid:\t9\nPPid:\t2\nKthread:\t0\n"), "in a container, 2 is anyone");
        assert!(!kernel("State:\tZ (zombie)\nTgid:\t9\nPPid:\t2\n"));
        assert!(!kernel("Tgid:\t9\nPPid:\t2\nVmRSS:\t 4 kB\n"));
    }

    #[test]
    fn a_malformed_value_is_named_and_a_missing_id_told() {
        let error = ProcessStatus::parse("Tgid:\t1\nVmRSS:\t12 MB\n").unwrap_err();
        assert_eq!((error.line, error.found.as_str()), (2, "VmRSS:\t12 MB"));
        assert_eq!(ProcessStatus::parse("Tgid:\t1\nVmRSS:\t18446744073709551615 kB\n").unwrap_err().line, 2);
        assert!(ProcessStatus::parse("Name:\ta\n").unwrap_err().to_string().contains("Tgid"));
    }

    #[test]
    fn our_own_status_is_read() {
        let status = ProcessStatus::read(&Root::host(), std::process::id()).unwrap();
        assert_eq!(status.tgid, std::process::id());
        assert!(status.vm_rss > Bytes(0) && status.threads > 0 && !status.kernel_thread);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "(Tgid:\t1\n)?((VmRSS|NSpid|Uid|CapEff|Seccomp|State|Kthread|PPid|.{0,6}):.{0,20}\n|.{0,20}\n){0,8}"
        ) {
            let _ = ProcessStatus::parse(&text);
        }
    }
}
