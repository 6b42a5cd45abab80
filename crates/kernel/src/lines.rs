//! The two formats of most kernel files: one item per line, and `Key: value`.
//!
//! Owns: which line an error names. Never touches: what a line means.

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
