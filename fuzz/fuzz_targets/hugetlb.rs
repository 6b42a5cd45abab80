//! Names below `/sys/kernel/mm/hugepages`, and settings of transparent huge pages.
#![no_main]

use kernel::hugetlb::page_size;
use kernel::thp::Setting;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(size) = page_size(text) {
        assert!(size.0 > 0 && size.0 % 1024 == 0);
    }
    if let Ok(setting) = Setting::parse(text) {
        assert!(setting.choices.contains(&setting.chosen));
    }
});
