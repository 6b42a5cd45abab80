//! What hugepilot is given from outside, as functions of bytes: each hands any bytes to a parser, and checks what must be true of whatever it accepts.
//!
//! Owns: these functions, and their table ([`TARGETS`]). Never touches: where bytes come from. cargo-fuzz makes them (`fuzz/`), and this crate's test
//! replays those that are kept there.
#![forbid(unsafe_code)]

mod files;
mod from_kernel;
mod machine_tree;
mod protocols;
mod words;

pub use files::{command_line, config, elf, reclaim_state, record, recording, trials};
pub use from_kernel::{buddyinfo, hugetlb, kallsyms, machine, maps, numa_maps, samples, smaps, status};
pub use machine_tree::tree;
pub use protocols::{control, hps, http_request};
pub use words::{arguments, size, words};

/// Hands bytes to a parser; panics if what must be true is not.
pub type FuzzTarget = fn(&[u8]);

macro_rules! named {
    ($($target:ident),* $(,)?) => { &[$((stringify!($target), $target)),*] };
}

/// Every target with its name, which its program and its folders of inputs have, too.
pub const TARGETS: &[(&str, FuzzTarget)] = named![
    arguments,
    buddyinfo,
    command_line,
    config,
    control,
    elf,
    hps,
    http_request,
    hugetlb,
    kallsyms,
    machine,
    maps,
    numa_maps,
    reclaim_state,
    record,
    recording,
    samples,
    size,
    smaps,
    status,
    tree,
    trials,
    words,
];

/// The text that bytes begin with.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
