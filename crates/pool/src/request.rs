//! The requested size of a pool, as written on a command line: `2M=1000`.
//!
//! Owns: that notation. Never touches: the pools.

use std::fmt;
use std::str::FromStr;

use heat::units::{BASE_PAGE, Bytes};
use kernel::hugetlb::size_name;

/// How many pages of one size are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRequest {
    /// Bytes in each page.
    pub page_size: Bytes,
    /// How many.
    pub amount: Amount,
}

/// A number of pages, or a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many.
    Exactly(u64),
    /// This many more than there are.
    More(u64),
    /// This many fewer than there are, but at least none.
    Fewer(u64),
}

/// A request that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum SizeRequestError {
    #[error(
        "'{given}' does not say how large a pool should be: write a page size, '=' and a number of pages or a size, such as 2M=1000, \
         1G=4, 2M=+100 or 2M=8G"
    )]
    NotARequest { given: String },
    #[error("'{given}' is not a whole number of pages: write a multiple of {page_size}")]
    NotWholePages { given: String, page_size: Bytes },
}

impl Amount {
    /// The resulting number if there are `pages` now.
    pub fn of(self, pages: u64) -> u64 {
        match self {
            Amount::Exactly(wanted) => wanted,
            Amount::More(more) => pages.saturating_add(more),
            Amount::Fewer(fewer) => pages.saturating_sub(fewer),
        }
    }
}

impl FromStr for SizeRequest {
    type Err = SizeRequestError;

    fn from_str(text: &str) -> Result<Self, SizeRequestError> {
        let not_a_request = || SizeRequestError::NotARequest { given: text.to_owned() };
        let (size, amount) = text.split_once('=').ok_or_else(not_a_request)?;
        let page_size = page_size(size).ok_or_else(not_a_request)?;
        let (make, digits): (fn(u64) -> Amount, &str) = match amount.split_at_checked(1) {
            Some(("+", digits)) => (Amount::More, digits),
            Some(("-", digits)) => (Amount::Fewer, digits),
            _ => (Amount::Exactly, amount),
        };
        if !digits.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(not_a_request());
        }
        if let Ok(pages) = digits.parse() {
            return Ok(Self { page_size, amount: make(pages) });
        }
        let Bytes(bytes) = digits.parse().map_err(|_| not_a_request())?;
        if !bytes.is_multiple_of(page_size.0) {
            return Err(SizeRequestError::NotWholePages { given: text.to_owned(), page_size });
        }
        Ok(Self { page_size, amount: make(bytes / page_size.0) })
    }
}

impl fmt::Display for SizeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, pages) = match self.amount {
            Amount::Exactly(pages) => ("", pages),
            Amount::More(pages) => ("+", pages),
            Amount::Fewer(pages) => ("-", pages),
        };
        write!(f, "{}={sign}{pages}", size_name(self.page_size))
    }
}

/// Parses `2M`, `1G`: the size of a huge page, though not every machine has pages of that size.
///
/// Errors: `text` is not a size, or not a power of two above 4 KiB.
pub fn parse_page_size(text: &str) -> Result<Bytes, String> {
    page_size(text).ok_or_else(|| {
        format!("'{text}' is not a size of huge pages: write 2M or 1G (`hugepilot pool` lists what is there)")
    })
}

fn page_size(text: &str) -> Option<Bytes> {
    text.parse().ok().filter(|size: &Bytes| size.0 > BASE_PAGE && size.0.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_sizes_and_changes_are_read() {
        let (two, one) = (Bytes(2 << 20), Bytes(1 << 30));
        for (text, page_size, amount) in [
            ("2M=1000", two, Amount::Exactly(1000)),
            ("2M=0", two, Amount::Exactly(0)),
            ("1G=+4", one, Amount::More(4)),
            ("2MiB=-10", two, Amount::Fewer(10)),
            ("2M=8G", two, Amount::Exactly(4096)),
            ("1g=+4G", one, Amount::More(4)),
            ("1G=-0.5T", one, Amount::Fewer(512)),
        ] {
            assert_eq!(text.parse(), Ok(SizeRequest { page_size, amount }), "{text}");
        }
        assert_eq!(
            "1G=512M".parse::<SizeRequest>().unwrap_err().to_string(),
            "'1G=512M' is not a whole number of pages: write a multiple of 1 GiB"
        );
        for text in ["", "2M", "=1", "2M=", "2M=+", "2M=x", "2M=--1", "2M=1.5", "3M=1", "4K=1", "1=1", "2M:1", "2M=é"]
        {
            let error = text.parse::<SizeRequest>().unwrap_err().to_string();
            assert!(error.contains("2M=1000") || error.contains("multiple"), "{text}: {error}");
        }
        assert_eq!(parse_page_size("1G"), Ok(one));
        assert!(parse_page_size("5M").unwrap_err().contains("hugepilot pool"));
    }

    #[test]
    fn amounts_never_wrap() {
        let amounts = [Amount::Exactly(7), Amount::More(u64::MAX), Amount::Fewer(9)].map(|amount| amount.of(5));
        assert_eq!(amounts, [7, u64::MAX, 0]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([0-9.]{1,21}[KMGTx]?=[+-]?[0-9.]{0,21}[KMGTx]?|.{0,16})") {
            let _ = text.parse::<SizeRequest>();
        }

        #[test]
        fn every_request_is_read_back(shift in 13u32..40, pages: u64, kind in 0..3) {
            let amount = [Amount::Exactly, Amount::More, Amount::Fewer][kind as usize](pages);
            let request = SizeRequest { page_size: Bytes(1 << shift), amount };
            prop_assert_eq!(request.to_string().parse(), Ok(request));
        }
    }
}
