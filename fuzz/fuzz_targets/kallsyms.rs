//! `/proc/kallsyms`: any bytes are searched for any symbol, and zero is never an address.
#![no_main]

use hugepilot::kernel::kallsyms;

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| {
    let (symbol, text) = input;
    if let Ok(Some(address)) = kallsyms::find(text, symbol) {
        assert_ne!(address, 0);
    }
});
