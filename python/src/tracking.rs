//! Tracking: the daemon tells this process which of its pages are hot, and a thread of libhps puts them on huge pages.
//!
//! Owns: one tracking of this process, and sums of what its lists led to. Never touches: Python from the library's thread, which so never waits for
//! it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hps::wire::{Range, SOCKET, Track, usual_signal};
use hps::{Application, ProcessTracking, Report, TrackingSettings};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::exceptions::of_tracking;

const BASE_PAGE: u64 = 4096;

/// Has this process tracked by the daemon, and puts its hot memory on huge pages where it is, on a thread of its own.
///
/// Only memory of `arrays` counts (at most 32, contiguous), all memory if there are none. A list of hot pages comes at most every `interval`
/// seconds, and when at least `threshold_pages` pages were used meanwhile. `max_huge_bytes` limits what is put on huge pages, and `max_growth_bytes`
/// what that adds to the process: 1 % of its memory by default. With `own_writes`, and where no daemon listens, the process watches its own writes
/// to `arrays` instead (Linux 6.7). The daemon sends `signal`, SIGRTMIN + 4 by default, and listens at `socket`.
///
/// Ends with close(), or as a context manager. A forked child is not tracked.
#[pyclass(name = "Tracking", module = "hugepilot", frozen)]
pub(crate) struct PyTracking {
    sums: Arc<Sums>,
    open: Mutex<Option<Open>>,
    #[expect(dead_code, reason = "kept, so that no other object is put in their place")]
    arrays: Vec<Py<PyUntypedArray>>,
}

/// A tracking that was not ended yet.
struct Open {
    tracking: ProcessTracking,
    /// The process that is tracked; its children have a copy of all this, but not the thread.
    pid: u32,
}

/// What came of all lists so far.
#[pyclass(name = "Statistics", module = "hugepilot", frozen, get_all)]
#[derive(Clone, Default)]
pub(crate) struct PyStatistics {
    /// Lists of hot pages that came.
    lists: u64,
    /// Hot pages in them.
    pages: u64,
    /// Regions of 2 MiB that hold them.
    regions: u64,
    /// Regions put on huge pages.
    converted: u64,
    /// Regions left as they are: less than a quarter of their pages is hot.
    kept: u64,
    /// Regions left as they are because a limit is reached.
    over_limit: u64,
    /// Regions that the kernel refused.
    refused: u64,
    /// Hot pages for which the lists had no room.
    left_out: u64,
    /// The errno of the last refusal; None if there was none.
    last_error: Option<i32>,
}

#[pymethods]
impl PyTracking {
    #[new]
    #[pyo3(signature = (arrays = Vec::new(), *, interval = 1.0, threshold_pages = 512, max_huge_bytes = None,
        max_growth_bytes = None, own_writes = false, signal = None, socket = None))]
    #[expect(clippy::too_many_arguments, reason = "in Python they are named")]
    fn new(
        py: Python<'_>,
        arrays: Vec<Bound<'_, PyUntypedArray>>,
        interval: f64,
        threshold_pages: u64,
        max_huge_bytes: Option<u64>,
        max_growth_bytes: Option<u64>,
        own_writes: bool,
        signal: Option<i32>,
        socket: Option<PathBuf>,
    ) -> PyResult<Self> {
        let track = Track {
            signal: signal.unwrap_or_else(usual_signal),
            thread: None,
            threshold_pages,
            // What is out of range stays so, and is refused.
            interval_ms: (interval * 1e3).round() as u32,
            ranges: arrays.iter().map(range).collect::<PyResult<_>>()?,
        };
        let settings = TrackingSettings {
            track,
            socket: socket.unwrap_or_else(|| PathBuf::from(SOCKET)),
            own_writes,
            most_huge_bytes: max_huge_bytes.unwrap_or(u64::MAX),
            most_growth_bytes: max_growth_bytes,
        };
        let sums = Arc::new(Sums::default());
        let tracking = py.detach(|| ProcessTracking::with_thread(settings, sums.clone()));
        let tracking = tracking.map_err(|error| of_tracking(&error))?;
        let open = Mutex::new(Some(Open { tracking, pid: std::process::id() }));
        Ok(Self { sums, open, arrays: arrays.into_iter().map(Bound::unbind).collect() })
    }

    /// What came of all lists so far, also after the end.
    fn statistics(&self) -> PyStatistics {
        locked(&self.sums.0).clone()
    }

    /// Ends tracking; a list that is worked through is finished first. What is on huge pages stays there.
    fn close(&self, py: Python<'_>) {
        let open = locked(&self.open).take();
        py.detach(|| end(open));
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

impl Drop for PyTracking {
    fn drop(&mut self) {
        end(self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Ends a tracking of this process, and leaves one of its parent's alone.
fn end(open: Option<Open>) {
    if let Some(Open { tracking, pid }) = open {
        if pid == std::process::id() {
            tracking.end();
        } else {
            std::mem::forget(tracking);
        }
    }
}

/// Where an array lies, in whole pages. Errors: it is not contiguous.
fn range(array: &Bound<'_, PyUntypedArray>) -> PyResult<Range> {
    if !array.is_contiguous() {
        return Err(PyValueError::new_err(
            "an array that is not contiguous is not all of its memory; track the array it is a part of",
        ));
    }
    let start: u64 = array.getattr("ctypes")?.getattr("data")?.extract()?;
    let nbytes: u64 = array.getattr("nbytes")?.extract()?;
    Ok(Range { start: start / BASE_PAGE * BASE_PAGE, end: (start + nbytes).next_multiple_of(BASE_PAGE) })
}

/// Adds up the reports.
#[derive(Default)]
struct Sums(Mutex<PyStatistics>);

impl Application for Sums {
    fn end(&self, report: &Report) {
        let mut sums = locked(&self.0);
        sums.lists += 1;
        sums.pages += report.pages;
        sums.regions += report.regions;
        sums.converted += report.converted;
        sums.kept += report.kept;
        sums.over_limit += report.over_limit;
        sums.refused += report.refused;
        sums.left_out += report.left_out;
        if report.last_error != 0 {
            sums.last_error = Some(report.last_error);
        }
    }
}

#[pymethods]
impl PyStatistics {
    fn __repr__(&self) -> String {
        let Self { lists, pages, regions, converted, kept, over_limit, refused, left_out, last_error } = self;
        let last_error = last_error.map_or("None".to_owned(), |errno| errno.to_string());
        format!(
            "Statistics(lists={lists}, pages={pages}, regions={regions}, converted={converted}, kept={kept}, \
             over_limit={over_limit}, refused={refused}, left_out={left_out}, last_error={last_error})"
        )
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section is left inconsistent by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
