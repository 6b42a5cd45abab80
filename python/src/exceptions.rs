//! What errors become in Python: the same text, in the exception that a Python program expects.
//!
//! Owns: that choice. Never touches: the text, but for naming what failed where the error does not.

use std::io;

use hps::TrackError;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    hugepilot,
    RecordingError,
    PyValueError,
    "A file is no recording, is damaged, or is of another version of the format."
);

/// A recording that cannot be read: `FileNotFoundError` and the like, or `RecordingError`.
pub(crate) fn of_recording(error: recording::RecordingError) -> PyErr {
    let text = error.to_string();
    match error {
        recording::RecordingError::Read { cause, .. } => io::Error::new(cause.kind(), text).into(),
        _ => RecordingError::new_err(text),
    }
}

/// A tracking that cannot begin: `OSError`, from which Python makes `ConnectionRefusedError` and the like by the errno.
pub(crate) fn of_tracking(error: &TrackError) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

/// An arena that cannot be made: `OSError` with the errno.
pub(crate) fn of_arena(nbytes: u64, error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), format!("cannot make an arena of {nbytes} bytes: {error}")))
}
