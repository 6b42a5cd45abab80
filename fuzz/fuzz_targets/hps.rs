//! What clients of libhps and the daemon say to each other: any bytes are understood or refused.
#![no_main]

use hps::wire::{Head, Notice};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(notice) = Notice::parse(bytes) {
        let line = notice.line();
        assert_eq!(Notice::parse(&line[..line.len() - 1]).expect("it can be read again"), notice);
    }
    if let Some(Ok(head)) = bytes.first_chunk().map(Head::parse) {
        assert_eq!(Head::parse(&head.bytes()), Ok(head));
    }
});
