//! Capabilities that hugepilot may need, and the kernel's bit mask for them.
//!
//! Owns: names and bit numbers (include/uapi/linux/capability.h). Never touches: the process's own set.

use std::fmt;

use serde::Serialize;

/// A capability that some step of hugepilot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(u8)]
pub enum Capability {
    /// Open files of other users: `clear_refs` of their processes.
    DacOverride = 1,
    /// Signal other users' processes.
    Kill = 5,
    /// Lock memory beyond the limit.
    IpcLock = 14,
    /// Read another user's process.
    SysPtrace = 19,
    /// Page frame numbers in `pagemap`; includes BPF and PERFMON.
    SysAdmin = 21,
    /// Advise another process's memory.
    SysNice = 23,
    /// Raise resource limits.
    SysResource = 24,
    /// Real addresses in `kallsyms`.
    Syslog = 34,
    /// Read kernel memory from BPF programs.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

impl Capability {
    /// All of the above.
    pub const ALL: [Capability; 10] = [
        Self::DacOverride,
        Self::Kill,
        Self::IpcLock,
        Self::SysPtrace,
        Self::SysAdmin,
        Self::SysNice,
        Self::SysResource,
        Self::Syslog,
        Self::Perfmon,
        Self::Bpf,
    ];
}

/// As in manuals and systemd.
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CAP_")?;
        self.serialize(f)
    }
}

/// A set of capabilities, as the bit mask in `CapEff:`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Whether the set contains this capability itself.
    pub fn has(self, capability: Capability) -> bool {
        self.0 >> (capability as u8) & 1 == 1
    }

    /// Whether the set permits what this capability permits: CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON (kernel/bpf/syscall.c, `bpf_capable`;
    /// include/linux/perf_event.h, `perfmon_capable`).
    pub fn permits(self, capability: Capability) -> bool {
        let covered = matches!(capability, Capability::Bpf | Capability::Perfmon) && self.has(Capability::SysAdmin);
        covered || self.has(capability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_kernel() {
        // CapEff as printed for CAP_SYS_ADMIN alone, and for CAP_SYS_NICE | CAP_BPF.
        let admin = Capabilities(0x0000_0000_0020_0000);
        assert!(admin.has(Capability::SysAdmin) && !admin.has(Capability::SysNice) && !admin.has(Capability::Bpf));
        assert!(admin.permits(Capability::Bpf) && admin.permits(Capability::Perfmon));
        assert!(!admin.permits(Capability::SysNice));
        let two = Capabilities(0x0000_0080_0080_0000);
        let held: Vec<_> = Capability::ALL.into_iter().filter(|&capability| two.has(capability)).collect();
        assert_eq!(held, [Capability::SysNice, Capability::Bpf]);
    }
}
