//! Why there are no large pages: what happened, and what to do.
//!
//! Owns: the messages. Never touches: error codes; each system's file knows the meaning of its own.

use std::error::Error;
use std::fmt;

const GRANT: &str = "give the account the right \"Lock pages in memory\" (`hugepilot.exe grant`, or secpol.msc, Local Policies, User Rights \
                     Assignment) and sign out and in again; running elevated does not replace it, running as a service under SYSTEM does; \
                     `hugepilot.exe doctor` tells more";

/// Why there are no large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePagesError {
    /// Windows refused the memory, because the privilege to lock pages is not in force (error 1314, 0x522), although it had been enabled for the
    /// process: the thread acts for another account.
    PrivilegeNotHeld,
    /// The account was never given that privilege: enabling it "succeeds", and assigns nothing (error 1300, 0x514).
    PrivilegeNotAssigned,
    /// Memory is free, but not in pieces of that size.
    NoContiguousMemory {
        /// What was requested.
        bytes: usize,
        /// In pages of that size.
        page_bytes: usize,
        /// Windows's number for it (1450, 0x5AA), which people search for; None on Linux.
        code: Option<u32>,
    },
    /// Linux has too few pages of that size reserved.
    PoolShort {
        /// What was requested.
        bytes: usize,
        /// In pages of that size.
        page_bytes: usize,
    },
    /// The system or the processor has no such pages, or they are switched off.
    NotSupported {
        /// Their size; 0 if the system has no large pages at all.
        page_bytes: usize,
    },
    /// No memory has that size.
    Size {
        /// What was requested.
        bytes: usize,
    },
    /// A memory limit of the process, its group or the whole machine does not allow that much.
    Quota {
        /// What was requested.
        bytes: usize,
    },
    /// Something else went wrong.
    System {
        /// What was being done.
        doing: &'static str,
        /// The system's number for it.
        code: i32,
    },
}

impl LargePagesError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::PrivilegeNotHeld => {
                "the process has the right to, so that this thread must impersonate an account that has not: allocate before the thread \
                 impersonates another account"
            }
            Self::PrivilegeNotAssigned => GRANT,
            Self::NoContiguousMemory { .. } => {
                "allocate once, when the program starts and best soon after the machine did; now, end other programs or restart the \
                 machine, or on Linux have memory compacted (echo 1 > /proc/sys/vm/compact_memory)"
            }
            Self::PoolShort { .. } => {
                "reserve more: `hugepilot pool` shows what is there, and `hugepilot pool set` makes it larger"
            }
            Self::NotSupported { .. } => {
                "ask for pages of another size, or for ordinary ones; Linux needs 6.1 and transparent huge pages that this process did \
                 not switch off, or a pool (`hugepilot pool`)"
            }
            Self::Size { .. } => "ask for at least one byte, and for no more than the machine has",
            Self::Quota { .. } => {
                "ask for less, end other programs, or raise the limit: on Windows the paging file's size or the job's limit, on Linux the \
                 control group's, or `ulimit -v`"
            }
            Self::System { .. } => "look the number up; it is nothing that large pages are known to fail with",
        }
    }

    fn what(&self) -> String {
        match self {
            Self::PrivilegeNotHeld => "Windows refuses to lock pages for this thread (error 1314, 0x522)".to_owned(),
            Self::PrivilegeNotAssigned => {
                "this account has no right to lock pages in memory (error 1300, 0x514)".to_owned()
            }
            Self::NoContiguousMemory { bytes, page_bytes, code } => {
                let code = code.map(|code| format!(" (error {code}, {code:#X})")).unwrap_or_default();
                format!("{} in pieces of {} are not free{code}", size(*bytes), size(*page_bytes))
            }
            Self::PoolShort { bytes, page_bytes } => {
                format!("{} are not reserved in pages of {}", size(*bytes), size(*page_bytes))
            }
            Self::NotSupported { page_bytes: 0 } => "this system has no large pages".to_owned(),
            Self::NotSupported { page_bytes } => format!("this system gives no pages of {}", size(*page_bytes)),
            Self::Size { bytes } => format!("there is no memory of {bytes} bytes"),
            Self::Quota { bytes } => {
                format!("{} are more than the machine has left, or than a limit allows", size(*bytes))
            }
            Self::System { doing, code } => format!("cannot {doing} (error {code})"),
        }
    }
}

// Not derived, because callers also ask for the remedy alone.
impl fmt::Display for LargePagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what(), self.remedy())
    }
}

impl Error for LargePagesError {}

/// In the largest unit that divides it.
fn size(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let (bytes, page_bytes) = (6 << 20, 2 << 20);
        let told = [
            (LargePagesError::PrivilegeNotHeld, "error 1314, 0x522)", "before the thread impersonates"),
            (LargePagesError::PrivilegeNotAssigned, "error 1300, 0x514)", "secpol.msc"),
            (
                LargePagesError::NoContiguousMemory { bytes, page_bytes, code: None },
                "6 MiB in pieces of 2 MiB are not free:",
                "when the program starts",
            ),
            (
                LargePagesError::NoContiguousMemory { bytes, page_bytes, code: Some(1450) },
                "are not free (error 1450, 0x5AA):",
                "when the program starts",
            ),
            (LargePagesError::PoolShort { bytes, page_bytes: 1 << 30 }, "in pages of 1 GiB", "hugepilot pool set"),
            (LargePagesError::NotSupported { page_bytes: 0 }, "no large pages", "ordinary ones"),
            (LargePagesError::NotSupported { page_bytes: 1 << 30 }, "no pages of 1 GiB", "another size"),
            (LargePagesError::Size { bytes: 0 }, "0 bytes", "at least one"),
            (LargePagesError::Quota { bytes: 4096 }, "4 KiB are more than", "paging file"),
            (
                LargePagesError::System { doing: "open the token", code: 5 },
                "open the token (error 5)",
                "look the number up",
            ),
        ];
        for (error, what, remedy) in told {
            let said = error.to_string();
            assert!(said.contains(what) && error.remedy().contains(remedy) && said.ends_with(error.remedy()), "{said}");
        }
    }
}
