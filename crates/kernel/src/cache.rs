//! The caches of a processor, from `/sys/devices/system/cpu/cpuN/cache` (Documentation/ABI/testing/sysfs-devices-system-cpu).
//!
//! Owns: the files of one `index` directory each, and what follows from them. Never touches: the caches.

use heat::units::{BASE_PAGE, Bytes};

use crate::{KernelError, Malformed, Root, optional};

/// A cache that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is the nearest to the processor.
    pub level: u32,
    /// All of it.
    pub size: Bytes,
    /// Lines in a set.
    pub ways: u32,
    /// Bytes in a line.
    pub line: Bytes,
    /// Sets of lines.
    pub sets: u64,
}

impl Cache {
    /// Colors, if address bits alone select the set: pages of different colors never share a set. 1 where a page covers all sets.
    pub fn colors(&self) -> u32 {
        u32::try_from(self.sets.saturating_mul(self.line.0) / BASE_PAGE).unwrap_or(u32::MAX).max(1)
    }

    /// Whether address bits alone can select the set; so many sets that they cannot are selected by a hash.
    pub fn may_be_indexed_by_bits(&self) -> bool {
        self.sets.is_power_of_two()
    }
}

/// The data caches of one processor, nearest first; leaves out those whose geometry the kernel does not report. Empty where it reports none.
///
/// Errors: a file below `/sys/devices/system/cpu/cpuN/cache` exists but cannot be read, or holds no number.
pub fn data_caches(root: &Root, cpu: u32) -> Result<Vec<Cache>, KernelError> {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
    let names = optional(root.entries(&folder))?.unwrap_or_default();
    let indexes = names.iter().filter(|name| name.starts_with("index"));
    let mut caches = Vec::new();
    for index in indexes {
        caches.extend(read(root, &format!("{folder}/{index}"))?);
    }
    caches.sort_by_key(|cache: &Cache| cache.level);
    Ok(caches)
}

/// None for instruction caches, and where a file is missing or says 0, which means unknown.
fn read(root: &Root, folder: &str) -> Result<Option<Cache>, KernelError> {
    if optional(root.text(&format!("{folder}/type")))?.is_none_or(|kind| kind.trim() == "Instruction") {
        return Ok(None);
    }
    let number = |name: &str| -> Result<Option<u64>, KernelError> {
        Ok(optional(root.number(&format!("{folder}/{name}")))?.filter(|&number| number > 0))
    };
    let size = optional(root.parsed(&format!("{folder}/size"), Root::LIMIT, parse_size))?;
    let shape = (
        number("level")?,
        size,
        number("ways_of_associativity")?,
        number("coherency_line_size")?,
        number("number_of_sets")?,
    );
    let (Some(level), Some(size), Some(ways), Some(line), Some(sets)) = shape else { return Ok(None) };
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Some(Cache { level: narrow(level), size, ways: narrow(ways), line: Bytes(line), sets }))
}

/// Parses `2048K`.
fn parse_size(text: &str) -> Result<Bytes, Malformed> {
    let text = text.trim();
    let kilobytes = text.strip_suffix('K').and_then(|digits| digits.parse::<u64>().ok());
    let size = kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1024));
    size.map(Bytes).ok_or_else(|| Malformed::new(1, "a size such as '2048K'", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = tree.path().join("sys/devices/system/cpu/cpu3/cache").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    #[test]
    fn geometry_gives_colors() {
        let cache = |ways, sets| Cache { level: 2, size: Bytes(0), ways, line: Bytes(64), sets };
        // The paper's processors: 4 ways of 32 KiB, 8 ways of 64 KiB.
        assert_eq!(Cache { line: Bytes(32), ..cache(4, 1024) }.colors(), 8);
        assert_eq!((cache(8, 1024).colors(), cache(16, 2048).colors(), cache(12, 64).colors()), (16, 32, 1));
        assert!(cache(16, 2048).may_be_indexed_by_bits() && !cache(20, 212_992).may_be_indexed_by_bits());
    }

    #[test]
    fn what_is_unknown_and_what_holds_instructions_is_left_out() {
        let shape = [("type", "Unified"), ("level", "3"), ("size", "32768K"), ("ways_of_associativity", "0")];
        let shape = shape.map(|(name, text)| (format!("index3/{name}"), text));
        let mut files: Vec<(&str, &str)> = shape.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        files.push(("index1/type", "Instruction\n"));
        let tree = tree(&files);
        assert_eq!(data_caches(&Root::at(tree.path()), 3).unwrap(), []);
        assert_eq!(data_caches(&Root::at(tree.path()), 4).unwrap(), [], "nothing is told of it");
    }

    #[test]
    fn a_size_has_its_unit() {
        assert_eq!(parse_size("266240K\n"), Ok(Bytes(260 << 20)));
        for text in ["", "12", "K", "-1K", "99999999999999999999K", "18014398509481984K"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
