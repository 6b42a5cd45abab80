//! A configuration: any text is understood or refused, with a message that stays short.
#![no_main]

use daemon::config::Config;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Config::parse(text) {
        Ok(config) => assert!(config.scope.rules().iter().all(|rule| rule.weight > 0.0 && !rule.matcher.is_empty())),
        Err(mistake) => assert!(mistake.to_string().len() < 32 << 10),
    }
});
