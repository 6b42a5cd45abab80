//! Parses policies as users write them.

use std::str::FromStr;

use heat::units::{Bytes, SizeOrShare};

use crate::policy::{ClassPolicy, MappedPageCost, Policies};

impl FromStr for MappedPageCost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cost = text.parse().ok().and_then(Self::new);
        cost.ok_or_else(|| {
            format!("'{text}' is not a cost: write a number from 0 to 100; 100 leaves alone what processes map")
        })
    }
}

impl FromStr for ClassPolicy {
    type Err = String;

    /// Accepts `RATE` and `RATE:FLOOR`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, floor) = text.split_once(':').unwrap_or((text, "0"));
        let amount = |text: &str| SizeOrShare::from_str(text).map_err(|error| error.to_string());
        Ok(Self { rate: amount(rate)?, floor: amount(floor)? })
    }
}

impl Policies {
    /// Parses a mark: memory is reclaimed while less than this is free.
    ///
    /// Errors: `text` is neither a size nor a share, is a share of more than 100%, or is 0 bytes.
    pub fn parse_mark(text: &str) -> Result<SizeOrShare, String> {
        match SizeOrShare::from_str(text).map_err(|error| error.to_string())? {
            SizeOrShare::Share(share) if share > 1.0 => {
                Err(format!("'{text}' is more than all memory: write at most 100%"))
            }
            SizeOrShare::Size(Bytes(0)) => {
                Err("less than 0 is never free: leave it out to reclaim always, or write a size".to_owned())
            }
            mark => Ok(mark),
        }
    }

    /// Sets the given marks; even a single one replaces both existing ones.
    pub fn set_marks(&mut self, free: Option<SizeOrShare>, huge: Option<SizeOrShare>) {
        if free.is_some() || huge.is_some() {
            // Repeating the preset's marks changes nothing.
            self.marks_are_presets &= (free, huge) == (self.free_below, self.huge_below);
            (self.free_below, self.huge_below) = (free, huge);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_policy_is_a_rate_and_perhaps_a_floor() {
        let request = |text: &str| text.parse::<ClassPolicy>().map(|request| (request.rate, request.floor));
        let size = |size| SizeOrShare::Size(Bytes(size));
        assert_eq!(request("20%:1G"), Ok((SizeOrShare::Share(0.2), size(1 << 30))));
        assert_eq!(request("0"), Ok((size(0), size(0))));
        assert!(request("lots").is_err() && request("1%:").is_err() && request("1:2:3").is_err());
    }

    #[test]
    fn a_mark_can_be_reached() {
        assert_eq!(Policies::parse_mark("100%"), Ok(SizeOrShare::Share(1.0)));
        assert!(Policies::parse_mark("101%").is_err() && Policies::parse_mark("0").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,24}|[0-9]{0,4}[%GMr]{0,2}(:[0-9]{1,3}%?)?") {
            let _ = (text.parse::<ClassPolicy>(), Policies::parse_mark(&text), text.parse::<MappedPageCost>());
        }
    }
}
