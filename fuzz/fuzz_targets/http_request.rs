//! Requests for metrics, as anyone on the machine may send them, whole and in pieces.
#![no_main]

use daemon::metrics_server::{Response, answer_to};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (cut, request) = input;
    let whole = answer_to(request, 0);
    if whole == Some(Response::Metrics) {
        assert!(request.windows(8).any(|bytes| bytes == b"/metrics"));
    }
    let cut = request.len().min(cut.into());
    if answer_to(&request[..cut], 0).is_none() {
        assert_eq!(answer_to(request, cut), whole);
    }
});
