//! `color probe` on this machine, whatever its caches.

use crate::support::{hugepilot, list, number, shell};

crate::trials!(every_level_gets_an_answer_that_its_numbers_allow, page_frames_must_be_seen);

/// Some emulated machines report no caches.
fn every_level_gets_an_answer_that_its_numbers_allow() {
    let ran = hugepilot("color probe --rounds 8 --json");
    if !ran.status.success() {
        return ran.assert_fails_with(&["tells of no cache"]);
    }
    let json = ran.json();
    let caches = list(&json, "caches");
    assert!(!caches.is_empty(), "{json}");
    for cache in caches {
        assert!(number(cache, "level") >= 2 && number(cache, "colors") >= 1, "{cache}");
        let answer = cache["answer"].as_str().expect("a word");
        let end = |name: &str| cache["slowdown"][name].as_f64();
        let allowed = match answer {
            "real" => end("low").is_some_and(|low| low > 1.1),
            "not-observable" => end("high").is_some_and(|high| high < 1.1) || cache["obstacle"] == "one-color",
            _ => answer == "undecided",
        };
        assert!(allowed, "{cache}");
    }
    let real = caches.iter().any(|cache| cache["answer"] == "real");
    assert_eq!(json["coloring_can_help"], real, "{json}");
}

fn page_frames_must_be_seen() {
    let script = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin $HUGEPILOT color probe";
    shell(script).assert_fails_with(&["missing CAP_SYS_ADMIN"]);
}
