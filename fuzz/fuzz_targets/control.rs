//! The control socket's lines: any bytes are understood or refused, and what is understood is written as it was read.
#![no_main]

use daemon::control::protocol::{Reply, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.line()).expect("it can be read again"), request);
    }
    if let Ok(reply) = Reply::parse(bytes) {
        // Fractions may differ in their last digit, so only the form is compared.
        Reply::parse(&reply.line()).expect("it can be read again");
    }
});
