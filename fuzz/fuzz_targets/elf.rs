//! A program's file: any bytes are understood or refused, and what is named in it is bounded.
#![no_main]

use launch::program::elf::{Elf, parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(elf) = parse(bytes) {
        assert!(elf.needed.len() <= 256);
        assert!(!elf.is_32_bit || elf == Elf { is_32_bit: true, ..Elf::default() });
    }
});
