//! The contents of huge pages: how many of their base pages hold nothing but zeros.
//!
//! Owns: reading the target's memory through `/proc/PID/mem` (proc_pid_mem(5)). Never touches: the contents, except to compare them with zero.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use heat::units::{Address, BASE_PAGE, HUGE_PAGE};
use kernel::Root;

/// A process's memory, open for reading.
#[derive(Debug)]
pub struct Contents {
    memory: File,
    region: Vec<u8>,
}

impl Contents {
    /// Errors: no such process, or CAP_SYS_PTRACE is missing.
    pub fn open(root: &Root, pid: u32) -> io::Result<Self> {
        let memory = File::open(root.path(&format!("proc/{pid}/mem")))?;
        Ok(Self { memory, region: vec![0; HUGE_PAGE as usize] })
    }

    /// How many base pages of the region hold nothing but zeros. The region should be on a huge page, or reading would populate it. Errors: it is not
    /// mapped any more.
    pub fn empty_pages(&mut self, region: Address) -> io::Result<u16> {
        self.memory.read_exact_at(&mut self.region, region.0)?;
        Ok(self.region.chunks(BASE_PAGE as usize).filter(|page| page.iter().all(|&byte| byte == 0)).count() as u16)
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_os::memory::AlignedMemory;

    use super::*;

    #[test]
    fn pages_of_zeros_are_empty() {
        let mut mapping = AlignedMemory::anonymous(HUGE_PAGE as usize).unwrap();
        let region = Address(mapping.address());
        let mut contents = Contents::open(&Root::host(), std::process::id()).unwrap();
        assert_eq!(contents.empty_pages(region).unwrap(), 512);
        mapping.bytes_mut()[BASE_PAGE as usize - 1] = 1;
        mapping.bytes_mut()[7 * BASE_PAGE as usize] = 1;
        assert_eq!(contents.empty_pages(region).unwrap(), 510);
        drop(mapping);
        assert!(contents.empty_pages(region).is_err());
    }
}
