//! Arrays on huge pages: pieces of an arena of libhps, as NumPy arrays.
//!
//! Owns: how long a piece lives (as long as any array that refers to it), and what a forked child may do. Never touches: the bytes of a piece, or the
//! pages under it, which are libhps's.

use std::sync::Arc;

use hps::{Arena, ArenaBacking};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::exceptions::of_arena;

/// Memory on huge pages for arrays.
///
/// It reserves address space for `nbytes`, rounded up to 2 MiB, and takes memory as arrays need it, on huge pages as far as the kernel has some. An
/// array keeps its arena. Its memory can be used again when the last array that refers to it is gone.
///
/// With `reserved=True` the arena takes all of it from the machine's pool of reserved huge pages (hugetlb) if that has room. Forked children do not
/// get such memory: an array touched there ends the child with SIGSEGV.
#[pyclass(name = "Arena", module = "hugepilot", frozen)]
pub(crate) struct PyArena {
    memory: Arc<Memory>,
}

/// An arena, shared by its pieces.
struct Memory {
    arena: Arc<Arena>,
    /// The process that has it; None: its children have it, too.
    only_in: Option<u32>,
}

/// A piece of an arena, out until this is dropped. NumPy makes an array of it, and keeps it with the array.
#[pyclass(module = "hugepilot", frozen)]
struct Piece {
    memory: Arc<Memory>,
    address: usize,
    nbytes: usize,
}

/// The shape of an array, as NumPy takes it.
#[derive(FromPyObject)]
enum Shape {
    Vector(usize),
    Any(Vec<usize>),
}

#[pymethods]
impl PyArena {
    #[new]
    #[pyo3(signature = (nbytes, *, reserved = false))]
    fn new(nbytes: u64, reserved: bool) -> PyResult<Self> {
        let arena = Arena::create(nbytes, !reserved).map_err(|error| of_arena(nbytes, &error))?;
        let only_in = reserved.then(std::process::id);
        Ok(Self { memory: Arc::new(Memory { arena: Arc::new(arena), only_in }) })
    }

    /// A new array in the arena, as numpy.empty makes one: its contents are whatever was there before. `array.data` is a memoryview of it.
    ///
    /// Raises MemoryError where the arena has no room or the machine no memory, and TypeError for a dtype of Python objects.
    #[pyo3(signature = (shape, dtype = None))]
    fn empty<'py>(
        &self,
        py: Python<'py>,
        shape: Shape,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dtype = dtype.map_or_else(|| Ok(PyArrayDescr::of::<f64>(py)), |dtype| PyArrayDescr::new(py, dtype))?;
        if dtype.has_object() || dtype.itemsize() == 0 {
            let text =
                format!("an arena holds plain values, and values of dtype {dtype} are Python objects or have no size");
            return Err(PyTypeError::new_err(text));
        }
        let shape = shape.lengths();
        let nbytes = shape.iter().try_fold(dtype.itemsize(), |bytes, &length| bytes.checked_mul(length));
        let nbytes =
            nbytes.ok_or_else(|| PyValueError::new_err(format!("no memory has room for the shape {shape:?}")))?;
        let piece = Bound::new(py, Piece::take(py, &self.memory, nbytes)?)?;
        let bytes = py.import("numpy")?.call_method1("asarray", (piece,))?;
        bytes.call_method1("view", (dtype,))?.call_method1("reshape", (shape,))
    }

    /// Bytes that it may come to have.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.memory.arena.extent().bytes
    }

    /// Bytes that it has taken from the machine so far.
    #[getter]
    fn backed_bytes(&self) -> u64 {
        self.memory.arena.extent().backed_bytes
    }

    /// Of these, bytes on huge pages.
    #[getter]
    fn huge_bytes(&self) -> u64 {
        self.memory.arena.extent().huge_bytes
    }

    /// What it lies on so far: "pool" (reserved huge pages), "huge-pages" (made on request), or "base-pages" (ordinary pages, at least in part).
    #[getter]
    fn backing(&self) -> &'static str {
        match self.memory.arena.backing() {
            ArenaBacking::Pool => "pool",
            ArenaBacking::HugePages => "huge-pages",
            ArenaBacking::BasePages => "base-pages",
        }
    }

    fn __repr__(&self) -> String {
        let extent = self.memory.arena.extent();
        let (bytes, backed, huge) = (extent.bytes, extent.backed_bytes, extent.huge_bytes);
        format!("<Arena of {bytes} bytes: {backed} taken, {huge} on huge pages>")
    }
}

impl Memory {
    fn is_here(&self) -> bool {
        self.only_in.is_none_or(|pid| pid == std::process::id())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.is_here() {
            // In a child something else may be mapped where its parent has the arena; unmapping must leave it alone.
            std::mem::forget(Arc::clone(&self.arena));
        }
    }
}

impl Piece {
    /// Errors: there is no room, or this is a child that does not have the arena.
    fn take(py: Python<'_>, memory: &Arc<Memory>, nbytes: usize) -> PyResult<Self> {
        if !memory.is_here() {
            let text = "this arena may lie on reserved huge pages, which forked children do not get; make one here";
            return Err(PyRuntimeError::new_err(text));
        }
        // An empty array has an address, too. Memory is taken from the machine here, which lasts.
        let taken = py.detach(|| memory.arena.take(nbytes.max(1)).map(|piece| piece.as_ptr() as usize));
        let address = taken.ok_or_else(|| {
            let most = memory.arena.extent().bytes;
            PyMemoryError::new_err(format!(
                "an arena of {most} bytes has no room for {nbytes} more, or the machine no memory"
            ))
        })?;
        Ok(Self { memory: Arc::clone(memory), address, nbytes })
    }
}

#[pymethods]
impl Piece {
    /// The bytes, in the words of NumPy's array interface, version 3; they may be written to.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.nbytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.memory.is_here() {
            self.memory.arena.give_back(self.address);
        }
    }
}

impl Shape {
    fn lengths(self) -> Vec<usize> {
        match self {
            Shape::Vector(length) => vec![length],
            Shape::Any(lengths) => lengths,
        }
    }
}
