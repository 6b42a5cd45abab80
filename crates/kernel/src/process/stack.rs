//! `/proc/PID/task/TID/syscall`: where a thread's stack is.
//!
//! Owns: the format of that file (man 5 proc_pid_syscall). Never touches: the thread.

use heat::units::Address;

use crate::{KernelError, Root};

/// A thread's stack pointer when it last entered the kernel; None while it runs, because the kernel does not say then.
///
/// Errors: the thread has ended (`is_gone`), the reader lacks CAP_SYS_PTRACE (`is_denied`).
pub fn stack_pointer(root: &Root, pid: u32, tid: u32) -> Result<Option<Address>, KernelError> {
    Ok(parse(&root.text(&format!("proc/{pid}/task/{tid}/syscall"))?))
}

/// `running`, `-1 SP PC`, or `NUMBER` and six arguments before `SP PC`.
fn parse(text: &str) -> Option<Address> {
    let words: Vec<&str> = text.split_ascii_whitespace().take(10).collect();
    let [.., pointer, _counter] = words.as_slice() else { return None };
    u64::from_str_radix(pointer.strip_prefix("0x")?, 16).ok().map(Address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointer_is_the_last_word_but_one() {
        let waiting = "270 0xfb 0x7ffd547d31d0 0x0 0x0 0x7ffd547d30e0 0x7ffd547d30f0 0x7ffd547d30b0 0x7f99935bbaec\n";
        assert_eq!(parse(waiting), Some(Address(0x7ffd547d30b0)));
        assert_eq!(parse("-1 0x7ffd0000 0x401000\n"), Some(Address(0x7ffd0000)));
        for text in ["running\n", "", "-1\n", "a b\n", "0xzz 0x1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
