//! The record of promotions: any bytes are understood or refused, and what is understood is written as it was read.
#![no_main]

use pilot::machine::PromotionRecord;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = serde_json::from_slice::<PromotionRecord>(bytes) {
        let written = serde_json::to_vec(&record).expect("it can be written");
        assert_eq!(serde_json::from_slice::<PromotionRecord>(&written).expect("it can be read again"), record);
    }
});
