//! The two shapes of most files of the kernel's: one thing a line, and `Key: value`.
//!
//! Owns: which line an error names. Never touches: what a line means.

use heat::units::Bytes;

use crate::Malformed;

/// Every line as `parse` understands it, or the first that it does not.
pub(crate) fn parse_lines<T>(
    text: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Malformed> {
    let parsed = |(index, line)| parse(line).ok_or_else(|| Malformed::new(index + 1, expected, line));
    text.lines().enumerate().map(parsed).collect()
}

/// Gives each `Key: value` to `take`, which knows what to do with it unless it is malformed.
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
