//! The processes whose page faults or system calls are counted, named to the eBPF programs that include `bpf/named_processes.h`.
//!
//! Owns: which processes have a number. Never touches: the processes, and what is counted of them.
//!
//! The programs know a process by its id in the machine's first pid namespace. A tool in another one, such as a container, cannot see that id, so an
//! iterator that is limited to the process looks it up.

use std::io::Read;
use std::os::fd::AsFd;

use hugepilot_os::bpf::TaskIterator;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ProgramMut, Result};

use crate::object;

// bpf/named_processes.h
const MOST_PROCESSES: usize = 4096;
const NAMING: &str = "name_process";

/// The number of a process that counts alone; with any other its children count, too.
pub(super) const ITSELF: u32 = 0;

/// Which processes have a number, and which number the next one gets.
#[derive(Debug)]
pub(super) struct NamedProcesses {
    numbers: MapHandle,
    next_number: MapHandle,
}

impl NamedProcesses {
    /// None is named yet.
    pub(super) fn of(object: &Object) -> Result<Self> {
        Ok(Self { numbers: object::map(object, "processes")?, next_number: object::map(object, "next_number")? })
    }

    /// Gives these processes, ids in our pid namespace, a number. Those that ended meanwhile have none. Errors: the kernel cannot limit an iterator to a
    /// process (before 6.1), or a right is missing.
    pub(super) fn name(&self, object: &Object, processes: impl Iterator<Item = u32>, number: u32) -> Result<()> {
        self.next_number.update(&0u32.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY)?;
        let naming = object.progs().find(|program| program.name() == NAMING);
        let naming = naming.expect("bpf/named_processes.h defines the program");
        for process in processes.take(MOST_PROCESSES) {
            let visited =
                TaskIterator::attach(naming.as_fd(), process).and_then(|iterator| iterator.open()?.read(&mut [0; 8]));
            match visited {
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// None is named any more.
    pub(super) fn clear(&self) -> Result<()> {
        object::clear(&self.numbers)
    }
}

/// The programs that count, in the order of their source.
pub(super) fn counting(object: &mut Object) -> impl Iterator<Item = ProgramMut<'_>> {
    object.progs_mut().filter(|program| program.name() != NAMING)
}
