//! The last error of a thread as a message for C.
//!
//! Owns: that message. Never touches: the error itself; the code that found it words it.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps an error's message for `hps_error`.
pub(crate) fn keep(error: &impl Display) {
    LAST_ERROR.set(CString::new(error.to_string().replace('\0', "")).unwrap_or_default());
}

/// The last error of this thread in words: what is wrong and what to do; empty if there was none. Valid until the next error on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn hps_error() -> *const c_char {
    LAST_ERROR.with_borrow(|words| words.as_ptr())
}
