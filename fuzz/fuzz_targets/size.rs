//! Sizes, shares and pools as a person writes them, as the command line takes them.
#![no_main]

use heat::units::{Bytes, SizeOrShare};
use pool::SizeRequest;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(size) = text.parse::<Bytes>() {
        assert!(size.to_string().contains(' '));
    }
    if let Ok(request) = text.parse::<SizeRequest>() {
        assert_eq!(request.to_string().parse(), Ok(request));
    }
    if let Ok(SizeOrShare::Share(share) | SizeOrShare::ShareOfRam(share)) = text.parse::<SizeOrShare>() {
        assert!(share.is_finite() && share >= 0.0);
    }
});
