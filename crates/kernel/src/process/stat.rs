//! `/proc/PID/stat`: one line, of which only a few fields are needed.
//!
//! Owns: field positions (man 5 proc_pid_stat). Never touches: the process.

use heat::units::{Bytes, Nanos};
use rustix::time::{ClockId, clock_gettime};

use crate::{KernelError, Malformed, Root};

/// The unit of time in `stat`: `USER_HZ` is 100 on x86-64, whatever the kernel's own tick is.
pub(super) const TICK: Nanos = Nanos(10_000_000);

/// The flag of kernel threads (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The facts needed about one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The name, truncated to 15 bytes by the kernel; a newline is written as `\n`.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: char,
    /// A kernel thread, without memory of its own.
    pub kernel_thread: bool,
    /// The parent's id.
    pub parent: u32,
    /// Page faults of all threads that needed no disk.
    pub minor_faults: u64,
    /// The same for children that have ended and were waited for, and for theirs.
    pub ended_children_minor_faults: u64,
    /// Page faults of all threads that waited for a disk.
    pub major_faults: u64,
    /// Time in user mode of all threads, in ticks of 10 ms.
    pub user_ticks: u64,
    /// Time in the kernel of all threads, in ticks of 10 ms.
    pub system_ticks: u64,
    /// Both kinds of time for children that have ended and were waited for, and for theirs.
    pub ended_children_ticks: u64,
    /// When it started, in ticks of 10 ms after boot; with the id it identifies a process for good.
    pub start_ticks: u64,
    /// All that is mapped, present or not.
    pub virtual_size: Bytes,
    /// Where its program's code begins; 1 for readers without CAP_SYS_PTRACE.
    pub code_start: u64,
    /// Where its stack began; 0 for readers without CAP_SYS_PTRACE.
    pub stack_start: u64,
}

impl Stat {
    /// Reads one process's line. Errors: the process has ended (`is_gone`), a malformed line.
    pub fn read(root: &Root, pid: u32) -> Result<Self, KernelError> {
        root.parsed(&format!("proc/{pid}/stat"), Root::LIMIT, Self::parse)
    }

    /// Whether it has ended and only waits for its parent.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Parses the text of a `stat` file.
    ///
    /// Errors: the name in parentheses is missing, or a field after it is missing or malformed.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::new(1, "the fields of a 'stat' line", text.trim_end());
        // The name is in parentheses and may itself contain spaces and parentheses: the last one ends it.
        let (start, rest) = text.rsplit_once(')').ok_or_else(malformed)?;
        let (_, name) = start.split_once('(').ok_or_else(malformed)?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(26).collect();
        // man 5 proc_pid_stat counts from 1; the state, first after the name, is field 3.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let parse = || {
            Some(Self {
                name: name.to_owned(),
                state: fields.first()?.chars().next()?,
                kernel_thread: number(9)? & KERNEL_THREAD != 0,
                parent: u32::try_from(number(4)?).ok()?,
                minor_faults: number(10)?,
                ended_children_minor_faults: number(11)?,
                major_faults: number(12)?,
                user_ticks: number(14)?,
                system_ticks: number(15)?,
                ended_children_ticks: number(16)?.saturating_add(number(17)?),
                start_ticks: number(22)?,
                virtual_size: Bytes(number(23)?),
                code_start: number(26)?,
                stack_start: number(28)?,
            })
        };
        parse().ok_or_else(malformed)
    }
}

/// CPU time of all threads of a process so far, in steps of 10 ms.
///
/// Errors: as [`Stat::read`].
pub fn cpu_time(root: &Root, pid: u32) -> Result<Nanos, KernelError> {
    let stat = Stat::read(root, pid)?;
    Ok(Nanos(stat.user_ticks.saturating_add(stat.system_ticks).saturating_mul(TICK.0)))
}

/// The processor on which a thread last ran, or is running.
///
/// Errors: the thread has ended (`is_gone`), a malformed line.
pub fn processor(root: &Root, pid: u32, thread: u32) -> Result<u32, KernelError> {
    root.parsed(&format!("proc/{pid}/task/{thread}/stat"), Root::LIMIT, parse_processor)
}

fn parse_processor(text: &str) -> Result<u32, Malformed> {
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace());
    let field = fields.and_then(|mut fields| fields.nth(39 - 3));
    field
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| Malformed::new(1, "39 fields of a 'stat' line", text.trim_end()))
}

/// CPU time of all threads of this process so far.
pub fn own_cpu_time() -> Nanos {
    time_of(ClockId::ProcessCPUTime)
}

/// CPU time of this thread so far.
pub fn thread_cpu_time() -> Nanos {
    time_of(ClockId::ThreadCPUTime)
}

/// The time on a clock.
pub fn time_of(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Distinguishes the program of a process from the next one, which exec starts at other addresses. None where they are hidden. With address
/// randomization switched off the next may look like the last.
///
/// Errors: as [`Stat::read`].
pub fn address_space(root: &Root, pid: u32) -> Result<Option<u64>, KernelError> {
    let Stat { code_start, stack_start, .. } = Stat::read(root, pid)?;
    Ok((stack_start != 0).then_some(code_start.rotate_left(32) ^ stack_start))
}

/// The user who may read a process's memory: its effective user, or root where the process is not dumpable. That is so after the exec of a program with
/// more rights than its user has, or of a file that the user may not read (man 5 proc, man 2 `PR_SET_DUMPABLE`).
///
/// Errors: the process has ended (`is_gone`).
pub fn reader(root: &Root, pid: u32) -> Result<u32, KernelError> {
    root.owner(&format!("proc/{pid}/maps"))
}

/// When a process started, in ticks of 10 ms after boot.
///
/// Errors: as [`Stat::read`].
pub fn start_time(root: &Root, pid: u32) -> Result<u64, KernelError> {
    Ok(Stat::read(root, pid)?.start_ticks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REST: &str = "R 4 5 6 0 -1 4194304 103 9 5 0 70 30 6 2 20 0 1 0 99133 3133440 402 9 4096 8192 12288";

    #[test]
    fn a_threads_processor_is_field_39() {
        let fields = |processor: &str| format!("7 (a) b) S {} {processor} 0 0", vec!["1"; 35].join(" "));
        assert_eq!(parse_processor(&fields("12")).unwrap(), 12);
        for wrong in [&fields("-1"), "7 (a) S 1 2", ""] {
            assert!(parse_processor(wrong).is_err(), "{wrong}");
        }
        assert!(processor(&Root::host(), std::process::id(), std::process::id()).is_ok());
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let expected = |name: &str| Stat {
            name: name.to_owned(),
            state: 'R',
            kernel_thread: false,
            parent: 4,
            minor_faults: 103,
            ended_children_minor_faults: 9,
            major_faults: 5,
            user_ticks: 70,
            system_ticks: 30,
            ended_children_ticks: 8,
            start_ticks: 99133,
            virtual_size: Bytes(3_133_440),
            code_start: 4096,
            stack_start: 12288,
        };
        for name in ["cat", "a) R 1 2 3 (b", "", ") ) )", "two\nlines"] {
            let stat = Stat::parse(&format!("123 ({name}) {REST}\n")).unwrap();
            assert_eq!(stat, expected(name), "{name}");
        }
    }

    #[test]
    fn zombies_and_kernel_threads_are_known() {
        let zombie = Stat::parse(&format!("7 (sh) {}", REST.replacen('R', "Z", 1))).unwrap();
        assert!(zombie.is_zombie() && !zombie.kernel_thread);
        let worker = Stat::parse(&format!("8 (kworker/0:1) {}", REST.replacen("4194304", "69238880", 1))).unwrap();
        assert!(worker.kernel_thread && !worker.is_zombie());
    }

    #[test]
    fn a_short_line_is_an_error() {
        for text in ["", "1 (a)", "1 a R 4", "1 a) R 4 5", "1 (a) R 4 5 6 0 -1 4194304 103 0 0 0 70 30 0 0 20 0 1 0"] {
            assert!(Stat::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn our_own_time_and_start_are_read() {
        let pid = std::process::id();
        let before = cpu_time(&Root::host(), pid).unwrap();
        assert!(before.seconds() < 1e6);
        assert!(start_time(&Root::host(), pid).unwrap() > 0);
        assert!(address_space(&Root::host(), pid).unwrap().is_some());
        assert_eq!(Stat::read(&Root::host(), pid).unwrap().parent, std::os::unix::process::parent_id());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,20}\\)?[ 0-9-]{0,60}") {
            let _ = Stat::parse(&text);
        }
    }
}
