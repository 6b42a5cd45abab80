//! Programs and machines for tests.

use std::collections::BTreeSet;

use heat::units::{Bytes, HUGE_PAGE};
use kernel::hugetlb::Pool;

use crate::machine::MachineFacts;
use crate::program::{Linking, Program, ProgramFamily, TUNABLE};
use crate::recipe::Given;

/// A program linked with a glibc that has the tunable.
pub(crate) fn program(family: ProgramFamily) -> Program {
    Program {
        path: "/usr/bin/program".into(),
        script: None,
        family,
        linking: Linking::Glibc,
        allocators: BTreeSet::new(),
        mentions: BTreeSet::new(),
        gains_rights: false,
        has_tunable: Ok(true),
        code: Vec::new(),
    }
}

/// The same without a loader, and with the tunable in its own file if `mentions` says so.
pub(super) fn static_program(mentions: bool) -> Program {
    let mentions = if mentions { BTreeSet::from([TUNABLE]) } else { BTreeSet::new() };
    let has_tunable = Ok(!mentions.is_empty());
    Program { linking: Linking::Static, mentions, has_tunable, ..program(ProgramFamily::Other) }
}

/// A machine with this mode of transparent huge pages, and this many pages available in a pool of 2 MiB.
pub(super) fn machine(transparent: &str, available: u64) -> MachineFacts {
    let pool = Pool {
        page_size: Bytes(HUGE_PAGE),
        total: available + 5,
        free: available + 3,
        reserved: 3,
        surplus: 0,
        overcommit: 0,
    };
    MachineFacts {
        aligns_shared_memory: false,
        transparent: Some(transparent.to_owned()),
        setting: "sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
        general: Some(transparent.to_owned()),
        gives_2_mib: transparent != "never",
        pool: Some(pool),
        mount: Some("/dev/hugepages".into()),
        limits: Vec::new(),
    }
}

/// A user with these variables and arguments, and with the library installed.
pub(super) fn given(environment: &[(&str, &str)], arguments: &[&str]) -> Given {
    Given {
        environment: environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        library: Some("/usr/lib/hugepilot/libhugepilot_preload.so".into()),
    }
}
