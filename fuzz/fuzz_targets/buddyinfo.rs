//! `/proc/buddyinfo` and `/proc/pagetypeinfo`: any text is parsed or refused, and the parts are no more than the whole.
#![no_main]

use kernel::buddy::Buddy;
use kernel::page_types::PageTypes;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(buddy) = Buddy::parse(text) {
        assert!(buddy.free_huge() <= buddy.free());
        assert!((0.0..=1.0).contains(&buddy.fragmentation().unusable));
    }
    if let Ok(types) = PageTypes::parse(text) {
        assert!(types.zones.iter().all(|zone| zone.unmovable <= zone.blocks));
    }
});
