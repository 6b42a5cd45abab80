//! System calls of some processes, counted by the eBPF program in `bpf/system_calls.bpf.c`.
//!
//! Owns: loading it, and reading its count. Never touches: the processes.
//!
//! *Cost*: some 50 ns for each system call of the machine, while a count goes on.

use hugepilot_os::rights::remedy;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use crate::Whose;
use crate::named::{self, ITSELF, NamedProcesses};
use crate::object;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/system_calls.bpf.o"));
const AND_CHILDREN: u32 = 1;

/// A count that goes on until it is dropped.
#[derive(Debug)]
pub struct SystemCalls {
    calls: MapHandle,
    _link: Link,
    _object: Object,
}

/// Why system calls cannot be counted.
#[derive(Debug, thiserror::Error)]
#[error("system calls cannot be counted: {0}; {remedy}", remedy = remedy("CAP_BPF and CAP_PERFMON"))]
pub struct CountError(libbpf_rs::Error);

impl SystemCalls {
    /// Begins to count the system calls of these processes, from 0. Errors: eBPF or a right is missing.
    pub fn begin(processes: impl Iterator<Item = u32>, whose: Whose) -> Result<Self, CountError> {
        Self::load(processes, whose).map_err(CountError)
    }

    fn load(processes: impl Iterator<Item = u32>, whose: Whose) -> libbpf_rs::Result<Self> {
        let mut object = object::load("hugepilot_calls", PROGRAM)?;
        let calls = object::map(&object, "calls")?;
        let whose = if whose == Whose::Theirs { ITSELF } else { AND_CHILDREN };
        NamedProcesses::of(&object)?.name(&object, processes, whose)?;
        let link = named::counting(&mut object).next().expect("bpf/system_calls.bpf.c defines a program").attach()?;
        Ok(Self { calls, _link: link, _object: object })
    }

    /// System calls so far.
    pub fn count(&self) -> u64 {
        let of_processors = self.calls.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let number = |bytes: &Vec<u8>| bytes[..].try_into().map_or(0, u64::from_ne_bytes);
        of_processors.iter().flatten().map(number).sum()
    }
}
