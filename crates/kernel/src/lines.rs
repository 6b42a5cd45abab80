//! The two formats of most kernel files: one item per line, and `Key: value`.
//!
//! Owns: which line an error names, and how much of a line is kept. Never touches: what a line means.

use std::borrow::Cow;
use std::io::{self, BufRead};

use heat::units::Bytes;

use crate::Malformed;

/// All lines as `parse` reads them, or the first that it rejects.
pub(crate) fn parse_lines<T>(
    text: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Malformed> {
    let parsed = |(index, line)| parse(line).ok_or_else(|| Malformed::new(index + 1, expected, line));
    text.lines().enumerate().map(parsed).collect()
}

/// Reads lines one by one, in memory that has a bound: a program may map a file whose path has megabytes.
pub(crate) struct LineReader<R> {
    text: R,
    line: Vec<u8>,
    is_cut: bool,
    read: Bytes,
}

impl<R: BufRead> LineReader<R> {
    /// Bytes kept of a line. A line of `numa_maps` has two numbers for each of up to 1,024 nodes.
    pub(crate) const LONGEST: usize = 64 << 10;
    /// Stands for what was cut out.
    const CUT: &'static str = "\u{2026}";

    pub(crate) fn new(text: R) -> Self {
        Self { text, line: Vec::new(), is_cut: false, read: Bytes(0) }
    }

    /// Bytes read so far.
    pub(crate) fn read(&self) -> Bytes {
        self.read
    }

    /// Reads the next line; false after the last.
    ///
    /// Errors: it cannot be read.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.is_cut = false;
        let before = self.read;
        loop {
            let found = self.text.fill_buf()?;
            let end = found.iter().position(|&byte| byte == b'\n');
            let part = &found[..end.unwrap_or(found.len())];
            let taken = end.map_or(found.len(), |end| end + 1);
            self.line.extend_from_slice(part);
            if self.line.len() > Self::LONGEST {
                self.is_cut = true;
                self.line.drain(Self::LONGEST / 2..self.line.len() - Self::LONGEST / 2);
            }
            self.text.consume(taken);
            self.read += Bytes(taken as u64);
            if end.is_some() || taken == 0 {
                return Ok(self.read > before);
            }
        }
    }

    /// The line without its end. Bytes that are not UTF-8 are replaced.
    pub(crate) fn line(&self) -> Cow<'_, str> {
        if !self.is_cut {
            return String::from_utf8_lossy(&self.line);
        }
        let (start, end) = self.line.split_at(Self::LONGEST / 2);
        [String::from_utf8_lossy(start), Self::CUT.into(), String::from_utf8_lossy(end)].concat().into()
    }
}

/// Passes each `Key: value` to `take`, which stores or ignores it unless it is malformed.
pub(crate) fn take_fields<'a>(
    text: &'a str,
    mut take: impl FnMut(&'a str, &'a str) -> Option<()>,
) -> Result<(), Malformed> {
    for (index, line) in text.lines().enumerate() {
        if let Some((key, value)) = line.split_once(':') {
            let taken = take(key, value.trim());
            taken.ok_or_else(|| Malformed::new(index + 1, "a key with a value such as 'Key: 12 kB'", line))?;
        }
    }
    Ok(())
}

/// A size such as `12 kB`.
pub(crate) fn kilobytes(value: &str) -> Option<Bytes> {
    let number: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1 << 10).map(Bytes)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn lines(text: &[u8]) -> Vec<String> {
        let mut reader = LineReader::new(BufReader::with_capacity(7, text));
        let mut lines = Vec::new();
        while reader.advance().unwrap() {
            lines.push(reader.line().into_owned());
        }
        assert_eq!(reader.read(), Bytes(text.len() as u64));
        lines
    }

    #[test]
    fn lines_are_those_of_the_text() {
        for text in ["", "\n", "a", "a\n", "\n\nabcdefghijk\n\nlm", "abcdef\nabcdefg\nabcdefgh\n"] {
            assert_eq!(lines(text.as_bytes()), text.lines().collect::<Vec<_>>(), "{text:?}");
        }
        assert_eq!(lines(b"a\xffb\n"), ["a\u{fffd}b"]);
    }

    #[test]
    fn a_line_of_any_length_takes_little_memory() {
        let text = format!("start{}end\nnext\n", "x".repeat(1 << 20));
        let mut reader = LineReader::new(BufReader::new(text.as_bytes()));
        assert!(reader.advance().unwrap());
        let line = reader.line();
        assert!(line.starts_with("startx") && line.contains("x\u{2026}x") && line.ends_with("xend"));
        assert!(line.len() <= LineReader::<&[u8]>::LONGEST + 3);
        assert!(reader.line.capacity() <= 4 * LineReader::<&[u8]>::LONGEST, "{}", reader.line.capacity());
        assert!(reader.advance().unwrap());
        assert_eq!(reader.line(), "next");
    }
}
