//! The processor and its address sizes, from `/proc/cpuinfo`, and which processors are online.
//!
//! Owns: the lines needed from that file (Documentation/arch/x86/cpuinfo.rst), and lists of numbers such as `0-3,8`. Never touches: the processor.

use heat::units::Bytes;

use crate::{KernelError, Malformed, Root};

/// The bound on the file: every processor prints some 1.5 KiB.
const LIMIT: Bytes = Bytes(16 << 20);
/// The most processors that Linux supports on x86 (`NR_CPUS`).
pub(super) const MOST_CPUS: u32 = 8192;

/// The first processor; the others can address the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The maker: `GenuineIntel`, `AuthenticAMD`.
    pub vendor: String,
    /// The vendor's family number; None if unknown.
    pub family: Option<u32>,
    /// The vendor's model number within the family; None if unknown.
    pub model_number: Option<u32>,
    /// The vendor's name for it.
    pub model: String,
    /// Bits of a physical address.
    pub physical_bits: u32,
    /// Page tables have five levels: the kernel shows the flag `la57` only while it uses them.
    pub five_levels: bool,
    /// Pages of 1 GiB are possible.
    pub giant_pages: bool,
    /// Runs in a virtual machine.
    pub virtual_machine: bool,
}

impl Cpu {
    /// Reads `/proc/cpuinfo`.
    ///
    /// Errors: `/proc/cpuinfo` cannot be read, or its line `address sizes` is missing or malformed.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        root.parsed("proc/cpuinfo", LIMIT, Self::parse)
    }

    /// Parses the text of `cpuinfo`.
    ///
    /// Errors: the first processor's line `address sizes` is missing or malformed.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let first = text.split("\n\n").next().unwrap_or_default();
        let value = |wanted: &str| {
            first.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim_end() == wanted)
        };
        let text_of = |wanted: &str| value(wanted).map_or("", |(_, text)| text.trim());
        let flags: Vec<&str> = text_of("flags").split_ascii_whitespace().collect();
        let (_, sizes) = value("address sizes").ok_or_else(|| Malformed::missing(first, "a line 'address sizes'"))?;
        let physical_bits = parse_sizes(sizes)
            .ok_or_else(|| Malformed::new(1, "address sizes such as '48 bits physical, 48 bits virtual'", sizes))?;
        Ok(Self {
            vendor: text_of("vendor_id").to_owned(),
            family: text_of("cpu family").parse().ok(),
            model_number: text_of("model").parse().ok(),
            model: text_of("model name").to_owned(),
            physical_bits,
            five_levels: flags.contains(&"la57"),
            giant_pages: flags.contains(&"pdpe1gb"),
            virtual_machine: flags.contains(&"hypervisor"),
        })
    }
}

/// The online processors, by number.
///
/// Errors: `/sys/devices/system/cpu/online` cannot be read, or is neither empty nor a list such as `0-3,8`.
pub fn online(root: &Root) -> Result<Vec<u32>, KernelError> {
    list(root, "sys/devices/system/cpu/online", MOST_CPUS)
}

/// A file that holds a list, possibly empty.
pub(super) fn list(root: &Root, name: &str, end: u32) -> Result<Vec<u32>, KernelError> {
    root.parsed(name, Root::LIMIT, |text| match text.trim() {
        "" => Ok(Vec::new()),
        text => parse_list(text, end).ok_or_else(|| Malformed::new(1, "numbers such as '0-3,8'", text)),
    })
}

/// Parses `0-3,8`: numbers below `end` in the order listed, at most `end` of them.
pub(super) fn parse_list(text: &str, end: u32) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= end || numbers.len() + (last - first) as usize >= end as usize {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

fn parse_sizes(text: &str) -> Option<u32> {
    let (physical, rest) = text.trim().split_once(" bits physical, ")?;
    let bits = |digits: &str| digits.parse::<u32>().ok().filter(|bits| (1..=64).contains(bits));
    bits(rest.strip_suffix(" bits virtual")?).and(bits(physical))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_and_flags_are_taken_from_the_first_processor() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Some CPU: fast\nflags\t\t: fpu pdpe1gb la57 lm\n\
                    address sizes\t: 52 bits physical, 57 bits virtual\n\nprocessor\t: 1\nflags\t: hypervisor\n";
        let cpu = Cpu::parse(text).unwrap();
        assert_eq!((cpu.model.as_str(), cpu.physical_bits), ("Some CPU: fast", 52));
        assert_eq!((cpu.vendor.as_str(), cpu.family, cpu.model_number), ("GenuineIntel", Some(6), Some(143)));
        assert_eq!((cpu.five_levels, cpu.giant_pages, cpu.virtual_machine), (true, true, false));
        // Linux 6.16 and later print this if booted with no5lvl.
        assert!(!Cpu::parse(&text.replace("la57", "la57_capable")).unwrap().five_levels);
    }

    #[test]
    fn missing_or_absurd_sizes_are_errors() {
        for sizes in ["", "address sizes: 48 bits physical", "address sizes: 99 bits physical, 48 bits virtual"] {
            assert!(Cpu::parse(sizes).is_err(), "{sizes}");
        }
    }

    #[test]
    fn this_machine_is_read() {
        assert!(Cpu::read(&Root::host()).unwrap().physical_bits >= 36);
        assert!(online(&Root::host()).unwrap().contains(&0));
    }

    #[test]
    fn lists_are_understood_within_bounds() {
        assert_eq!(parse_list("0-2,7,4", 8), Some(vec![0, 1, 2, 7, 4]));
        for text in ["", "0-8", "3-1", "1-", "-1", "0-7,0", "x"] {
            assert_eq!(parse_list(text, 8), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "((flags|address sizes|.{0,8}): .{0,40}\n){0,8}") {
            let _ = Cpu::parse(&text);
        }
    }
}
