//! Recordings as arrays: a row for each observation, a column for each region that any of them saw.
//!
//! Owns: which regions and mappings were seen over time, and the matrices. Never touches: the format of the file.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::path::{Path, PathBuf};

use heat::units::BASE_PAGE;
use heat::{Heat, Mapping, Meaning, Region};
use numpy::ndarray::Array2;
use numpy::{Element, IntoPyArray, PyArray1, PyArray2};
use pyo3::exceptions::{PyMemoryError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use recording::{Moment, Recording, RecordingError};

use crate::exceptions::of_recording;

/// Values of a matrix at most: 2 GiB of floating-point numbers. A file of a few MiB can ask for more than any machine has.
const MOST_VALUES: usize = 1 << 28;

/// What `hugepilot record` saw of a program.
///
/// Only observations that ended from `start` up to, but not including, `stop` are read, in seconds since recording began. A recording that ends
/// early is read as far as it goes, with a warning.
///
/// Each array is a new one at each access.
#[pyclass(name = "Recording", module = "hugepilot", frozen)]
pub(crate) struct PyRecording {
    /// The program's name.
    #[pyo3(get)]
    name: String,
    /// The process.
    #[pyo3(get)]
    pid: u32,
    observations: Vec<Observation>,
    regions: Vec<RegionSeen>,
    mappings: Vec<Py<PyMapping>>,
}

/// A mapping of the program: `start`, `end` and `name`, which is a path, `[heap]`, `[anon: NAME]`, or empty for anonymous memory.
#[pyclass(name = "Mapping", module = "hugepilot", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct PyMapping {
    /// The first address.
    start: u64,
    /// The address after the last.
    end: u64,
    /// What backs it.
    name: String,
}

/// One observation; regions that it did not see had no memory.
struct Observation {
    at_seconds: f64,
    meaning: Meaning,
    cells: Vec<Cell>,
}

/// What one observation saw of one region. Small, because a day has a hundred million of them.
struct Cell {
    walks_per_second: f64,
    column: u32,
    pages_present: u16,
    huge: bool,
    observed: bool,
}

/// A region, when the whole recording is read.
struct RegionSeen {
    start: u64,
    /// As it was last seen.
    mapping: Option<usize>,
}

#[pymethods]
impl PyRecording {
    #[new]
    #[pyo3(signature = (path, *, start = 0.0, stop = None))]
    fn new(py: Python<'_>, path: PathBuf, start: f64, stop: Option<f64>) -> PyResult<Self> {
        let mut recording = Recording::open(&path).map_err(of_recording)?;
        let (mut collected, stop) = (Collected::default(), stop.unwrap_or(f64::INFINITY));
        while let Some(moment) = py.detach(|| recording.next()) {
            py.check_signals()?;
            match moment {
                Ok(moment) if moment.at.seconds() >= stop => break,
                Ok(moment) if moment.at.seconds() >= start => collected.add(&moment, &path)?,
                Ok(_) => {}
                // What came before is worth having.
                Err(error @ RecordingError::CutOff { .. }) => warn(py, &error)?,
                Err(error) => return Err(of_recording(error)),
            }
        }
        if collected.observations.is_empty() {
            let path = path.display();
            let text =
                format!("no observation of {path} ended from {start} s up to {stop} s; choose another start or stop");
            return Err(PyValueError::new_err(text));
        }
        collected.finish(py, recording.name)
    }

    /// When each observation ended, in seconds since recording began: float64 [time].
    #[getter]
    fn times<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.observations.iter().map(|each| each.at_seconds).collect::<Vec<_>>().into_pyarray(py)
    }

    /// What was counted in each observation: "walked" (page walks), "accessed" (accesses, so that page walks are at most this), "written" or
    /// "sampled".
    #[getter]
    fn meanings(&self) -> Vec<String> {
        self.observations.iter().map(|each| each.meaning.to_string()).collect()
    }

    /// Where each region of 2 MiB starts, ascending: int64 [region].
    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        // Every address is below 2^56.
        self.regions.iter().map(|region| region.start as i64).collect::<Vec<_>>().into_pyarray(py)
    }

    /// The mappings that held a region, in the order in which they were seen, each as it was last seen.
    #[getter]
    fn mappings(&self, py: Python<'_>) -> Vec<Py<PyMapping>> {
        self.mappings.iter().map(|mapping| mapping.clone_ref(py)).collect()
    }

    /// For each region, its mapping as an index into `mappings`, as last seen: the one that holds its first present page. -1 where none was known:
    /// int64 [region].
    #[getter]
    fn mapping_index<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let index = |region: &RegionSeen| region.mapping.map_or(-1, |mapping| mapping as i64);
        self.regions.iter().map(index).collect::<Vec<_>>().into_pyarray(py)
    }

    /// Page walks a second: float64 [time, region]. 0 where the region had no memory, NaN where the tracker could not see it.
    fn heat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.matrix(py, 0.0, |cell| if cell.observed { cell.walks_per_second } else { f64::NAN })
    }

    /// Whether a huge page maps the region: bool [time, region].
    fn huge<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<bool>>> {
        self.matrix(py, false, |cell| cell.huge)
    }

    /// Memory present in the region, in bytes: int64 [time, region].
    fn present_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<i64>>> {
        self.matrix(py, 0, |cell| i64::from(cell.pages_present) * BASE_PAGE as i64)
    }

    fn __repr__(&self) -> String {
        let (observations, regions) = (self.observations.len(), self.regions.len());
        format!("<Recording of {} (process {}): {observations} observations of {regions} regions>", self.name, self.pid)
    }
}

impl PyRecording {
    /// A matrix with `absent` where a region was not seen. Errors: `MemoryError`.
    fn matrix<'py, T: Element + Copy>(
        &self,
        py: Python<'py>,
        absent: T,
        value: impl Fn(&Cell) -> T,
    ) -> PyResult<Bound<'py, PyArray2<T>>> {
        let shape = (self.observations.len(), self.regions.len());
        let count = shape.0 * shape.1;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        values.resize(count, absent);
        let mut matrix = Array2::from_shape_vec(shape, values).expect("there are as many values as the shape has");
        for (row, observation) in self.observations.iter().enumerate() {
            observation.cells.iter().for_each(|cell| matrix[[row, cell.column as usize]] = value(cell));
        }
        Ok(matrix.into_pyarray(py))
    }
}

#[pymethods]
impl PyMapping {
    fn __repr__(&self) -> String {
        format!("Mapping({:#x}-{:#x} {:?})", self.start, self.end, self.name)
    }
}

/// What was read so far. Until the end, a column is the order in which regions were first seen.
#[derive(Default)]
struct Collected {
    pid: u32,
    observations: Vec<Observation>,
    /// By where they start: the column, and the mapping as last seen.
    regions: BTreeMap<u64, (u32, Option<usize>)>,
    mappings: Mappings,
}

impl Collected {
    /// Adds an observation. Errors: matrices would be too large.
    fn add(&mut self, moment: &Moment, path: &Path) -> PyResult<()> {
        let heat = &moment.heat;
        let mut numbers = vec![None; heat.mappings.len()];
        let cells = heat.regions.iter().map(|region| {
            let mapping = self.mappings.of(region, heat, &mut numbers);
            let next = self.regions.len() as u32;
            let (column, last) = self.regions.entry(region.start.0).or_insert((next, mapping));
            *last = mapping;
            Cell::of(region, *column)
        });
        let cells = cells.collect();
        self.pid = heat.pid;
        self.observations.push(Observation { at_seconds: moment.at.seconds(), meaning: heat.meaning, cells });
        let values = self.observations.len().saturating_mul(self.regions.len());
        if values > MOST_VALUES {
            let text = "has more observations times regions than a matrix may have";
            let text = format!("{} {text} ({MOST_VALUES}): choose a part of it by start and stop", path.display());
            return Err(PyValueError::new_err(text));
        }
        Ok(())
    }

    /// Puts regions in the order of their addresses.
    fn finish(mut self, py: Python<'_>, name: String) -> PyResult<PyRecording> {
        let mut order = vec![0; self.regions.len()];
        for (column, &(seen, _)) in self.regions.values().enumerate() {
            order[seen as usize] = column as u32;
        }
        for cell in self.observations.iter_mut().flat_map(|observation| &mut observation.cells) {
            cell.column = order[cell.column as usize];
        }
        let regions = self.regions.into_iter().map(|(start, (_, mapping))| RegionSeen { start, mapping }).collect();
        let mappings = self.mappings.all.into_iter().map(|mapping| Py::new(py, mapping)).collect::<PyResult<_>>()?;
        Ok(PyRecording { name, pid: self.pid, observations: self.observations, regions, mappings })
    }
}

impl Cell {
    fn of(region: &Region, column: u32) -> Self {
        let pages_present = region.present.len() as u16;
        Self {
            walks_per_second: region.walks_per_second,
            column,
            pages_present,
            huge: region.huge,
            observed: region.unobserved < pages_present.max(1),
        }
    }
}

/// Mappings of all observations. One that starts at the same address and has the same name is the same, though it may have grown.
#[derive(Default)]
struct Mappings {
    all: Vec<PyMapping>,
    known: HashMap<(u64, String), usize>,
}

impl Mappings {
    /// The number of a region's mapping; `numbers` remembers those of this observation, by their index in it.
    fn of(&mut self, region: &Region, heat: &Heat, numbers: &mut [Option<usize>]) -> Option<usize> {
        let index = region.mapping_index()?;
        let mapping = heat.mappings.get(index)?;
        Some(*numbers[index].get_or_insert_with(|| self.number(mapping)))
    }

    fn number(&mut self, mapping: &Mapping) -> usize {
        let (start, end) = (mapping.range.start.0, mapping.range.end.0);
        let number = *self.known.entry((start, mapping.name.clone())).or_insert(self.all.len());
        match self.all.get_mut(number) {
            Some(known) => known.end = end,
            None => self.all.push(PyMapping { start, end, name: mapping.name.clone() }),
        }
        number
    }
}

/// Warns as Python does. Errors: the program made warnings errors.
fn warn(py: Python<'_>, error: &RecordingError) -> PyResult<()> {
    let text = CString::new(error.to_string().replace('\0', "?")).expect("it has no NUL any more");
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)
}
