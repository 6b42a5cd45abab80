//! The Python module `hugepilot._native`, the compiled part of the package `hugepilot`.
//!
//! Owns: recordings as arrays ([`observations`]), arrays in an arena of libhps ([`arena`]), tracking ([`tracking`]), and what errors become in Python
//! ([`exceptions`]). Never touches: the system, or unsafe code: an array refers to memory of an arena by NumPy's array interface.

mod arena;
mod exceptions;
mod observations;
mod tracking;

/// hugepilot, compiled.
#[pyo3::pymodule(name = "_native")]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arena::PyArena;
    #[pymodule_export]
    use crate::exceptions::RecordingError;
    #[pymodule_export]
    use crate::observations::{PyMapping, PyRecording};
    #[pymodule_export]
    use crate::tracking::{PyStatistics, PyTracking};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
