//! Recordings: observations kept in a file, to be shown again and decided on anew, here or on another machine.
//!
//! Owns: the file and its format. Never touches: a process, or the use of an observation; what reads a recording needs no tracker.
//!
//! A recording is gzip over lines of JSON, so `zcat` and `jq` can read it: a header, then one line per observation. Each line is flushed, so a
//! truncated recording still holds everything before. Only the number of a region's base pages is kept, not which they are: decisions need no more,
//! and four GiB take about a MiB a minute.
#![forbid(unsafe_code)]

mod error;
mod format;

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

pub use error::RecordingError;
use format::{Header, Observation};

use heat::Heat;
use heat::Mapping;
use heat::units::{Bytes, Nanos};

/// The longest line that is read: about an observation of 16 TiB.
const LONGEST_LINE: Bytes = Bytes(256 << 20);

/// Writes a recording.
pub struct Recorder {
    path: PathBuf,
    output: GzEncoder<BufWriter<File>>,
    mappings: Vec<Mapping>,
}

/// One observation of a recording.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When the observation ended, counted from the beginning of the recording.
    pub at: Nanos,
    /// The observation; of the pages of a region only the number is right, not which they are.
    pub heat: Heat,
    /// Memory taken by the process's page tables.
    pub page_tables: Bytes,
}

/// A recording, read one observation at a time, because a day's recording does not fit into memory.
pub struct Recording<R> {
    /// The process's name.
    pub name: String,
    path: PathBuf,
    lines: Lines<GzDecoder<R>>,
    mappings: Option<Vec<Mapping>>,
    taken: usize,
    ended: bool,
}

impl Recorder {
    /// Begins a recording of a process. Errors: the file cannot be written.
    pub fn create(path: &Path, name: &str) -> Result<Self, RecordingError> {
        let unwritable = |cause| RecordingError::Write { path: path.to_owned(), cause };
        let file = File::create_new(path).map_err(unwritable)?;
        let output = GzEncoder::new(BufWriter::new(file), Compression::default());
        let mut recorder = Self { path: path.to_owned(), output, mappings: Vec::new() };
        recorder.line(&Header::new(name))?;
        Ok(recorder)
    }

    /// Adds an observation, and flushes it to the file. Errors: the file cannot be written.
    pub fn add(&mut self, moment: &Moment) -> Result<(), RecordingError> {
        let known = self.mappings == moment.heat.mappings;
        self.line(&Observation::of(moment, !known))?;
        if !known {
            self.mappings.clone_from(&moment.heat.mappings);
        }
        Ok(())
    }

    /// Ends the recording. Errors: the file cannot be written.
    pub fn finish(self) -> Result<(), RecordingError> {
        let Self { path, output, .. } = self;
        let ended = output.finish().and_then(|mut file| file.flush());
        ended.map_err(|cause| RecordingError::Write { path, cause })
    }

    fn line(&mut self, value: &impl serde::Serialize) -> Result<(), RecordingError> {
        let written = serde_json::to_writer(&mut self.output, value).map_err(std::io::Error::from);
        let flushed = written.and_then(|()| self.output.write_all(b"\n")).and_then(|()| self.output.flush());
        flushed.map_err(|cause| RecordingError::Write { path: self.path.clone(), cause })
    }
}

impl Recording<BufReader<File>> {
    /// Opens a recording. Errors: it cannot be read, is not a recording, or comes from another version of hugepilot.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|cause| RecordingError::Read { path: path.to_owned(), cause })?;
        Self::parse(path, BufReader::new(file))
    }
}

impl<R: BufRead> Recording<R> {
    /// Parses the bytes of a recording; `path` is for errors. Errors: it is not a recording, or comes from another version of hugepilot.
    pub fn parse(path: &Path, input: R) -> Result<Self, RecordingError> {
        let path = path.to_owned();
        let mut lines = Lines(BufReader::new(GzDecoder::new(input)));
        match lines.next_line().ok().flatten().as_deref().and_then(Header::parse) {
            None => Err(RecordingError::Foreign { path }),
            Some(header) if header.version != format::VERSION => {
                Err(RecordingError::Version { path, version: header.version })
            }
            Some(header) => Ok(Self { name: header.name, path, lines, mappings: None, taken: 0, ended: false }),
        }
    }

    /// The next observation; None at a proper end. Errors: what is wrong, in words.
    fn take(&mut self) -> Result<Option<Moment>, String> {
        let Some(line) = self.lines.next_line()? else { return Ok(None) };
        let observation = Observation::parse(&line)?;
        Ok(Some(observation.moment(&mut self.mappings)?))
    }

    fn error(&self, why: String) -> RecordingError {
        match self.taken {
            0 => RecordingError::Damaged { path: self.path.clone(), why },
            observations => RecordingError::CutOff { path: self.path.clone(), observations, why },
        }
    }
}

/// The observations in order, possibly followed by the error that ended them.
impl<R: BufRead> Iterator for Recording<R> {
    type Item = Result<Moment, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let taken = self.take();
        self.ended = !matches!(taken, Ok(Some(_)));
        match taken {
            Ok(Some(moment)) => {
                self.taken += 1;
                Some(Ok(moment))
            }
            Ok(None) if self.taken == 0 => Some(Err(RecordingError::Empty { path: self.path.clone() })),
            Ok(None) => None,
            Err(why) => Some(Err(self.error(why))),
        }
    }
}

/// Lines of bounded length.
struct Lines<R>(BufReader<R>);

impl<R: Read> Lines<R> {
    /// The next whole line; None at the end.
    fn next_line(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        let limited = self.0.by_ref().take(LONGEST_LINE.0).read_line(&mut line);
        match limited.map_err(|error| error.to_string())? {
            0 => Ok(None),
            _ if line.ends_with('\n') => Ok(Some(line)),
            _ => Err(format!("a line does not end within {LONGEST_LINE}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::{MEMFD, at, clearing, heat_of, mixed_heat, region};
    use heat::{Growth, Meaning, Obstacle, Region};

    use super::*;

    fn moment(at_seconds: u64, heat: Heat) -> Moment {
        Moment { at: Nanos(at_seconds * 1_000_000_000), heat, page_tables: Bytes(12 << 10) }
    }

    /// Writes observations to a file.
    fn written(moments: &[Moment]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let mut recorder = Recorder::create(&path, "memcached").unwrap();
        moments.iter().for_each(|moment| recorder.add(moment).unwrap());
        recorder.finish().unwrap();
        (folder, path)
    }

    fn read_again(moments: &[Moment]) -> Vec<Moment> {
        let (_folder, path) = written(moments);
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.name, "memcached");
        recording.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let mut second = Heat { meaning: Meaning::Accessed, busy_cpus: None, ..mixed_heat() };
        second.regions.remove(0);
        second.waited_share = Some(0.8);
        second.clearing = Some(clearing());
        second.mappings[1].shared = Some(MEMFD);
        second.mappings[0].spread_over_nodes = true;
        let moments = [moment(1, mixed_heat()), moment(2, second), moment(3, heat_of(vec![region(5, 12345.678, 3)]))];
        let read_again = read_again(&moments);
        assert_eq!(read_again.len(), 3);
        for (read, written) in read_again.iter().zip(&moments) {
            assert_eq!((read.at, read.page_tables, read.heat.rss), (written.at, written.page_tables, written.heat.rss));
            assert_eq!((read.heat.meaning, &read.heat.mappings), (written.heat.meaning, &written.heat.mappings));
            assert_eq!(read.heat.clearing, written.heat.clearing);
            assert_eq!(read.heat.waited_share, written.heat.waited_share);
            let relative = read.heat.walks_per_second() / written.heat.walks_per_second();
            assert!((relative - 1.0).abs() < 1e-3, "{relative}");
        }
    }

    #[test]
    fn what_came_before_a_cut_is_still_there() {
        let moments: Vec<Moment> = (1..6).map(|second| moment(second, mixed_heat())).collect();
        let (_folder, path) = written(&moments);
        let bytes = std::fs::read(&path).unwrap();
        for len in 0..bytes.len() {
            let Ok(recording) = Recording::parse(&path, &bytes[..len]) else { continue };
            let (good, bad): (Vec<_>, Vec<_>) = recording.partition(Result::is_ok);
            assert!(good.len() == 5 || bad.len() == 1, "{len}");
        }
        let cut = Recording::parse(&path, &bytes[..bytes.len() - 20]).unwrap().collect::<Vec<_>>();
        assert!(cut.len() >= 5 && matches!(cut.last(), Some(Err(RecordingError::CutOff { .. }))));
    }

    #[test]
    fn foreign_newer_and_empty_files_are_told_apart() {
        let parse = |text: &str| {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            let bytes = gzip.finish().unwrap();
            Recording::parse(Path::new("r"), &bytes[..]).and_then(|mut it| it.next().expect("an error")).unwrap_err()
        };
        assert!(matches!(Recording::parse(Path::new("r"), &b"hello"[..]), Err(RecordingError::Foreign { .. })));
        assert!(matches!(parse("{\"some\":1}\n"), RecordingError::Foreign { .. }));
        assert!(matches!(
            parse("{\"hugepilot_recording\":3,\"more\":1}\n"),
            RecordingError::Version { version: 3, .. }
        ));
        let header = "{\"hugepilot_recording\":2,\"name\":\"a\"}\n";
        assert!(matches!(parse(header), RecordingError::Empty { .. }));
        assert!(matches!(parse(&format!("{header}{{}}\n")), RecordingError::Damaged { .. }));
    }

    #[test]
    fn a_minute_of_four_gib_fits_into_a_mib() {
        // Rates and counts like those of random reads: different in each region and each second.
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let regions: Vec<Region> = (0..2048).map(|number| region(number, 1.0, 0)).collect();
        let moments: Vec<Moment> = (0..60)
            .map(|second| {
                let mut heat = heat_of(regions.clone());
                for region in &mut heat.regions {
                    region.walks_per_second = 20_000.0 + random(5_000) as f64 + 0.123;
                    region.walked_in_window = 400 + random(100) as u16;
                    region.walked = heat::PageSet::first(380 + random(60) as usize);
                }
                moment(second, heat)
            })
            .collect();
        let (_folder, path) = written(&moments);
        let size = std::fs::metadata(path).unwrap().len();
        assert!(size <= 1 << 20, "{size}");
    }

    #[test]
    fn growth_obstacles_and_passes_are_kept() {
        let growth = Growth { unpopulated: 1, zero: 2, lazily_freed: 3, shared_by_fork: 4, merged: 5 };
        let regions = vec![
            Region { growth, ..region(0, 1.0, 1) },
            Region { obstacle: Some(Obstacle::Stack), mapping: None, in_order: true, ..region(1, 0.0, 0) },
        ];
        let read_again = read_again(&[moment(1, heat_of(regions))]);
        let read = &read_again[0].heat.regions;
        assert_eq!((read[0].growth, read[0].start, read[0].present.len()), (growth, at(0), 511));
        assert_eq!((read[1].obstacle, read[1].mapping, read[1].start), (Some(Obstacle::Stack), None, at(1)));
        assert_eq!((read[0].in_order, read[1].in_order), (false, true));
    }
}
