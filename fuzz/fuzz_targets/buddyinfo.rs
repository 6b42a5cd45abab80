//! `/proc/buddyinfo`: any text is parsed or refused, and the parts are no more than the whole.
#![no_main]

use hugepilot::kernel::buddy::Buddy;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(buddy) = Buddy::parse(text) {
        assert!(buddy.free_huge() <= buddy.free());
        assert!(buddy.free_giant_estimate() <= buddy.free());
    }
});
