//! `/proc/kallsyms`: any bytes are searched for any symbol.
#![no_main]

use kernel::kallsyms;

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| {
    let (symbol, text) = input;
    let _ = kallsyms::find(text, symbol);
});
