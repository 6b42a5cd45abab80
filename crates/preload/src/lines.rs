//! Reads text from the kernel line by line, in a buffer small enough for the stack of a signal handler.
//!
//! Owns: where lines end. Never touches: their contents.

use std::ffi::CStr;

use crate::system::FileReader;

/// Longer lines are cut off: the rest is a long path.
const LONGEST: usize = 512;

/// Passes on each line, without its end. None if the file cannot be read; some lines may have been passed on by then.
pub fn each(path: &CStr, mut show: impl FnMut(&[u8])) -> Option<()> {
    let mut file = FileReader::open(path)?;
    let mut line = Line { bytes: [0; LONGEST], length: 0 };
    let mut buffer = [0; 1024];
    loop {
        let read = file.read(&mut buffer).ok()?;
        if read == 0 {
            return Some(());
        }
        buffer.iter().take(read).for_each(|&byte| line.push(byte, &mut show));
    }
}

struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Line {
    fn push(&mut self, byte: u8, show: &mut impl FnMut(&[u8])) {
        if byte == b'\n' {
            let length = std::mem::take(&mut self.length);
            show(self.bytes.get(..length).unwrap_or_default());
        } else if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn long_lines_are_cut_and_the_next_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, format!("one\n\n{}\nlast\nwithout an end", "x".repeat(5000))).unwrap();
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let mut lengths = Vec::new();
        assert!(each(&path, |line| lengths.push(line.len())).is_some());
        assert_eq!(lengths, [3, 0, LONGEST, 4]);
        assert!(each(c"/proc/self/there/is/none", |_| ()).is_none());
    }
}
