//! Units that all modules use: sizes, page counts, durations, addresses.
//!
//! Owns: the arithmetic, parsing and printing of units. Never touches: the system, except for the clock that [`Nanos::since`] reads.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, RangeInclusive};
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Bytes in a base page (x86-64).
pub const BASE_PAGE: u64 = 4 << 10;
/// Bytes in a huge page, and in a region.
pub const HUGE_PAGE: u64 = 2 << 20;
/// Bytes in the larger huge page.
pub const GIANT_PAGE: u64 = 1 << 30;
/// Base pages in a region.
pub const PAGES_PER_REGION: usize = (HUGE_PAGE / BASE_PAGE) as usize;

/// A number of bytes; prints as KiB, MiB, GiB; parses `512M`, `2G`, `4096`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A number of base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pages(pub u64);

/// A duration, in nanoseconds; parses `500ms`, `1s`, `2m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// A virtual address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub u64);

/// A half-open range of virtual addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressRange {
    /// The first address in the range.
    pub start: Address,
    /// The first address after the range.
    pub end: Address,
}

impl Bytes {
    /// A fraction of it, rounded down.
    pub fn share(self, share: f64) -> Bytes {
        Bytes((self.0 as f64 * share) as u64)
    }
}

impl Pages {
    /// The bytes that these base pages hold.
    pub fn bytes(self) -> Bytes {
        Bytes(self.0.saturating_mul(BASE_PAGE))
    }
}

impl Nanos {
    /// Whole and fractional seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whole and fractional milliseconds.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// From the standard library's type; saturates after 584 years.
    pub fn from_duration(duration: Duration) -> Self {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long ago that was.
    pub fn since(moment: Instant) -> Self {
        Self::from_duration(moment.elapsed())
    }

    /// To the standard library's type.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Address {
    /// The start of the region that holds this address.
    pub fn region(self) -> Address {
        Address(self.0 & !(HUGE_PAGE - 1))
    }

    /// The first region boundary at or after this address.
    pub fn region_up(self) -> Address {
        Address(self.0.saturating_add(HUGE_PAGE - 1) & !(HUGE_PAGE - 1))
    }
}

impl AddressRange {
    /// From `start` for `len` bytes, truncated at the end of the address space.
    pub fn new(start: Address, len: Bytes) -> Self {
        Self { start, end: Address(start.0.saturating_add(len.0)) }
    }

    /// Bytes in the range; 0 if it is empty or reversed.
    pub fn len(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether no address is in the range.
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// Whether the address is in the range.
    pub fn contains(&self, address: Address) -> bool {
        self.start <= address && address < self.end
    }
}

/// Sums saturate at the largest number; differences, named accordingly, at 0.
macro_rules! saturating {
    ($($unit:ident)*) => {$(
        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl $unit {
            /// The difference; zero where `other` is larger.
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Sum for $unit {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), Add::add)
            }
        }
    )*};
}

saturating!(Bytes Pages Nanos);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            bytes if bytes >= 1 << 30 => (1u64 << 30, "GiB"),
            bytes if bytes >= 1 << 20 => (1 << 20, "MiB"),
            bytes if bytes >= 1 << 10 => (1 << 10, "KiB"),
            bytes => return write!(f, "{bytes} B"),
        };
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 / unit)
        } else {
            write!(f, "{:.2} {name}", self.0 as f64 / unit as f64)
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns >= 99_950_000_000 => write!(f, "{:.0} s", self.seconds()),
            ns if ns >= 9_995_000_000 => write!(f, "{:.1} s", self.seconds()),
            ns if ns >= 1_000_000_000 => write!(f, "{:.2} s", self.seconds()),
            ns if ns >= 1_000_000 => write!(f, "{:.1} ms", self.millis()),
            ns if ns >= 1_000 => write!(f, "{:.1} us", ns as f64 / 1e3),
            ns => write!(f, "{ns} ns"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A malformed size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a size: write a number with B, K, M, G or T, such as 512M{also}")]
pub struct SizeError {
    given: String,
    also: &'static str,
}

impl FromStr for Bytes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse_bytes(text).ok_or_else(|| SizeError { given: text.to_owned(), also: "" })
    }
}

/// Accepts `512`, `512B`, `1.5G`, `2GiB`, `64k`; units are powers of 1024. No parts of a byte: who writes `0.01` means something else.
fn parse_bytes(text: &str) -> Option<Bytes> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).map(Bytes);
    }
    let bytes = number.parse::<f64>().ok().filter(|_| shift > 0)? * (1u64 << shift) as f64;
    (bytes < u64::MAX as f64).then_some(Bytes(bytes as u64))
}

/// A size, or a share of something known only later, as in `--max-growth 1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeOrShare {
    /// A fixed number of bytes.
    Size(Bytes),
    /// A fraction of a process's resident memory, 0.01 for `1%`.
    Share(f64),
    /// A fraction of the machine's memory, 0.5 for `50%ram`; [`SizeOrShare::with_ram`] turns it into a size.
    ShareOfRam(f64),
}

impl SizeOrShare {
    /// The same, with a share of the machine's memory turned into a size.
    pub fn with_ram(self, ram: Bytes) -> Self {
        match self {
            SizeOrShare::ShareOfRam(share) => SizeOrShare::Size(ram.share(share)),
            SizeOrShare::Size(_) | SizeOrShare::Share(_) => self,
        }
    }
}

impl FromStr for SizeOrShare {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let share = |percent: &str| {
            let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..=1e6).contains(percent));
            percent.map(|percent| percent / 100.0)
        };
        let parsed = if let Some(percent) = text.strip_suffix("%ram") {
            share(percent).filter(|share| *share <= 1.0).map(SizeOrShare::ShareOfRam)
        } else if let Some(percent) = text.strip_suffix('%') {
            share(percent).map(SizeOrShare::Share)
        } else {
            // A number without a unit was meant as something else.
            let has_unit = !text.bytes().all(|each| each.is_ascii_digit() || each == b'.');
            parse_bytes(text).filter(|size| size.0 == 0 || has_unit).map(SizeOrShare::Size)
        };
        let also = ", or a share such as 1% (of resident memory) or 50%ram (of the machine's)";
        parsed.ok_or_else(|| SizeError { given: text.to_owned(), also })
    }
}

impl fmt::Display for SizeOrShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeOrShare::Size(bytes) => bytes.fmt(f),
            SizeOrShare::Share(share) => write!(f, "{}%", share * 100.0),
            SizeOrShare::ShareOfRam(share) => write!(f, "{}%ram", share * 100.0),
        }
    }
}

/// A malformed time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TimeError {
    #[error("'{given}' is not a time: write a number with ms, s, m or h, such as 500ms")]
    NotATime { given: String },
    #[error("'{given}' is out of range: write a time {allowed}")]
    OutOfRange { given: String, allowed: &'static str },
}

impl FromStr for Nanos {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse_time(text).ok_or_else(|| TimeError::NotATime { given: text.to_owned() })
    }
}

impl Nanos {
    /// Parses a time within bounds; `in_words` describes them, such as `from 100ms to 1h`.
    ///
    /// Errors: `text` is not a time with a unit, or is outside `allowed`.
    pub fn parse_within(text: &str, allowed: RangeInclusive<Nanos>, in_words: &'static str) -> Result<Self, TimeError> {
        let time = text.parse()?;
        let out_of_range = || TimeError::OutOfRange { given: text.to_owned(), allowed: in_words };
        allowed.contains(&time).then_some(time).ok_or_else(out_of_range)
    }
}

/// Accepts `500ms`, `1s`, `1.5s`, `2m`, `1h`; a bare number is ambiguous and rejected.
fn parse_time(text: &str) -> Option<Nanos> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let nanos = match unit {
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    // The cast saturates; callers that need a bounded time then reject it.
    Some(Nanos((number.parse::<f64>().ok()? * nanos) as u64))
}

/// A share of one CPU, 0.01 for `1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuShare(pub f64);

impl CpuShare {
    /// How long to rest after this much CPU time, to keep to the share.
    pub fn rest_after(self, busy: Nanos) -> Duration {
        busy.duration().div_f64(self.0)
    }
}

impl Default for CpuShare {
    fn default() -> Self {
        Self(0.01)
    }
}

impl FromStr for CpuShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = parse_percent(text, 0.01..=100.0).map(Self);
        share.ok_or_else(|| format!("'{text}' is not a share of a CPU: write 0.01% to 100%"))
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

/// How much promoting may slow a program down while it lasts: the share of its speed that it may lose, 0.05 for `5%`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Slowdown(pub f64);

impl Slowdown {
    /// When a user waits for the command: 3 GiB in a minute, in stalls of less than a millisecond.
    pub const ASKED_FOR: Self = Self(0.05);
    /// When no user is waiting: nothing that shows in response times.
    pub const UNASKED: Self = Self(0.01);
    /// The value of `--fast`: over in seconds, at a cost of up to 40 % of the program's speed meanwhile.
    pub const FAST: Self = Self(0.4);

    /// Whether speed matters more than the effect on the program.
    pub fn is_fast(self) -> bool {
        self >= Self::FAST
    }
}

impl FromStr for Slowdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = parse_percent(text, 0.1..=50.0).map(Self);
        share.ok_or_else(|| format!("'{text}' is not a slowdown: write 0.1% to 50%"))
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 1e4).round() / 1e2)
    }
}

/// `5%` as 0.05, if the percentage is within these bounds.
fn parse_percent(text: &str, bounds: RangeInclusive<f64>) -> Option<f64> {
    let percent = text.strip_suffix('%')?.parse::<f64>().ok()?;
    bounds.contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slowdowns_are_bounded_and_read_as_they_are_written() {
        for slowdown in [Slowdown::ASKED_FOR, Slowdown::UNASKED, Slowdown::FAST] {
            assert_eq!(slowdown.to_string().parse(), Ok(slowdown));
        }
        assert_eq!(Slowdown(0.07).to_string(), "7%");
        for text in ["", "5", "0%", "51%", "-1%", "NaN%"] {
            assert!(text.parse::<Slowdown>().unwrap_err().contains("50%"), "{text}");
        }
    }

    #[test]
    fn shares_of_a_cpu_are_bounded() {
        let share: CpuShare = "0.5%".parse().unwrap();
        assert_eq!(share.rest_after(Nanos(10_000_000)), Duration::from_secs(2));
        assert_eq!(CpuShare::default().to_string().parse(), Ok(CpuShare::default()));
        for text in ["", "1", "0%", "101%", "-1%", "NaN%", "1%%"] {
            assert!(text.parse::<CpuShare>().unwrap_err().contains("100%"), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_in_every_spelling() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64k", 65536), ("512M", 512 << 20), ("2GiB", 2 << 30), ("1.5G", 3 << 29)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "G", "-1", "12X", "1e9", "99999999T", "1..5", "NaN"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_or_a_share_is_told_by_its_end() {
        for (text, meant) in [
            ("2M", SizeOrShare::Size(Bytes(2 << 20))),
            ("1%", SizeOrShare::Share(0.01)),
            ("50%ram", SizeOrShare::ShareOfRam(0.5)),
            ("100%ram", SizeOrShare::ShareOfRam(1.0)),
        ] {
            assert_eq!(text.parse(), Ok(meant), "{text}");
        }
        assert_eq!(SizeOrShare::ShareOfRam(0.5).to_string(), "50%ram");
        for text in ["", "%", "-1%", "NaN%", "%ram", "101%ram", "-1%ram", "50%RAM", "50 %ram", "5Gram", "5"] {
            let error = text.parse::<SizeOrShare>().unwrap_err().to_string();
            assert!(error.contains("50%ram (of the machine's)"), "{text}: {error}");
        }
    }

    #[test]
    fn only_a_share_of_the_machine_is_known_from_its_memory() {
        let with = |text: &str| text.parse::<SizeOrShare>().unwrap().with_ram(Bytes(500));
        assert_eq!(with("50%ram"), SizeOrShare::Size(Bytes(250)));
        assert_eq!([with("50%"), with("7K")], [SizeOrShare::Share(0.5), SizeOrShare::Size(Bytes(7 << 10))]);
    }

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, nanos) in [("500ms", 500_000_000), ("1.5s", 1_500_000_000), ("2m", 120_000_000_000)] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["", "1", "s", "1 s", "-1s", "1.2.3s", "1us", "1e3s", "infs"] {
            let error = text.parse::<Nanos>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' is not a time")), "{error}");
        }
    }

    #[test]
    fn more_pages_than_there_can_be_are_the_largest_size() {
        assert_eq!([Pages(3).bytes(), Pages(u64::MAX).bytes()], [Bytes(3 * BASE_PAGE), Bytes(u64::MAX)]);
    }

    #[test]
    fn sizes_print_with_their_unit() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(2 << 20).to_string(), "2 MiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
        assert_eq!(Nanos(1_500_000).to_string(), "1.5 ms");
        let seconds = [1.0, 9.994, 9.996, 99.94, 99.96, 754.3].map(|seconds| Nanos((seconds * 1e9) as u64).to_string());
        assert_eq!(seconds, ["1.00 s", "9.99 s", "10.0 s", "99.9 s", "100 s", "754 s"]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,24}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<SizeOrShare>();
            let _ = text.parse::<Nanos>();
        }

        #[test]
        fn regions_enclose_their_addresses(address in 0..(1u64 << 57)) {
            let region = Address(address).region();
            prop_assert!(AddressRange::new(region, Bytes(HUGE_PAGE)).contains(Address(address)));
            prop_assert!(Address(address).region_up().0 - region.0 <= HUGE_PAGE);
        }
    }
}
