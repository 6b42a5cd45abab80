//! The physical address map, from `/proc/iomem`.
//!
//! Owns: finding where memory is. Never touches: devices.

use std::ops::Range;

use heat::units::BASE_PAGE;

use crate::lines::parse_lines;
use crate::{KernelError, Malformed, Root};

/// The first physical address after all memory; `None` where the kernel shows zeros (no CAP_SYS_ADMIN).
///
/// Errors: as [`memory`].
pub fn end_of_memory(root: &Root) -> Result<Option<u64>, KernelError> {
    Ok(memory(root)?.iter().map(|range| range.end).max())
}

/// Physical address ranges of memory, ascending; none where the kernel shows zeros (no CAP_SYS_ADMIN).
///
/// Errors: `/proc/iomem` cannot be read, or a line `System RAM` has a malformed range.
pub fn memory(root: &Root) -> Result<Vec<Range<u64>>, KernelError> {
    root.parsed("proc/iomem", Root::LIMIT, parse)
}

/// The same without partial pages at the ends.
///
/// Errors: as [`memory`].
pub fn whole_pages(root: &Root) -> Result<Vec<Range<u64>>, KernelError> {
    Ok(in_whole_pages(memory(root)?))
}

fn in_whole_pages(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let whole = |range: Range<u64>| range.start.next_multiple_of(BASE_PAGE)..range.end / BASE_PAGE * BASE_PAGE;
    ranges.into_iter().map(whole).filter(|range| !range.is_empty()).collect()
}

/// Parses the text of `iomem`.
///
/// Errors: a line `System RAM` has no range such as `1000-9fbff`.
pub fn parse(text: &str) -> Result<Vec<Range<u64>>, Malformed> {
    let ranges = parse_lines(text, "a range such as '1000-9fbff'", |line| match line.split_once(" : ") {
        // Memory plugged in later is indented further, below its device, as "System RAM (kmem)".
        Some((range, name)) if name.starts_with("System RAM") => parse_range(range).map(Some),
        _ => Some(None),
    })?;
    let mut found: Vec<_> = ranges.into_iter().flatten().filter(|range| range.end > 1 && !range.is_empty()).collect();
    found.sort_by_key(|range| range.start);
    Ok(found)
}

fn parse_range(range: &str) -> Option<Range<u64>> {
    let (first, last) = range.trim_start().split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(first)?..number(last)?.checked_add(1)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
100000000-62fffffff : System RAM
  121000000-7ffffffff : Kernel code
680000000-6bfffffff : Persistent Memory
  680000000-6bfffffff : System RAM (kmem)
4000000000-40001fffff : PCI Bus 0000:00
";

    #[test]
    fn memory_is_found_wherever_it_stands() {
        assert_eq!(parse(TEXT), Ok(vec![0x1000..0x9fc00, 0x100000000..0x630000000, 0x680000000..0x6c0000000]));
        assert_eq!(parse("00000000-00000000 : System RAM\n00000000-00000000 : PCI Bus\n"), Ok(vec![]), "hidden");
        assert_eq!(parse("00000000-00000fff : Reserved\n1000 : System RAM\n").unwrap_err().line, 2);
    }

    #[test]
    fn parts_of_pages_are_left_out() {
        let ranges = vec![0x1000..0x9fc00, 0x9fc00..0xa0000, 0x100001..0x102000];
        assert_eq!(in_whole_pages(ranges), [0x1000..0x9f000, 0x101000..0x102000]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([0-9a-f]{0,17}-[0-9a-f]{0,17} : (System RAM)?.{0,5}\n|.{0,20}\n){0,8}") {
            let _ = parse(&text);
        }
    }
}
