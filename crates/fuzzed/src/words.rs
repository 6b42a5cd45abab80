//! What a person writes on a command line or as a value of the configuration.
//!
//! Owns: single words, and whole command lines. Never touches: a command.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use clap::Parser;
use daemon::args::DaemonArgs;
use daemon::metrics_server::MetricsPlace;
use heat::memory_use::MemoryUse;
use heat::units::{BASE_PAGE, Bytes, CpuShare, Nanos, SizeOrShare, Slowdown};
use hugepilot::cli::args::Cli;
use launch::request::PageKind;
use observe::TrackerChoice;
use pilot::scope::{ContainerId, PathPattern, Pattern};
use pool::{SizeRequest, parse_page_size};
use reclaim::policy::{ClassPolicy, MappedPageCost, Policies, Preset};

use crate::text;

/// Sizes, shares and pools.
pub fn size(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(size) = text.parse::<Bytes>() {
        assert!(size.to_string().contains(' '));
    }
    if let Ok(size) = parse_page_size(text) {
        assert!(size.0 > BASE_PAGE && size.0.is_power_of_two());
    }
    if let Ok(SizeOrShare::Share(share) | SizeOrShare::ShareOfRam(share)) = text.parse::<SizeOrShare>() {
        assert!(share.is_finite() && share >= 0.0);
    }
    comes_back::<SizeRequest>(text);
}

/// Times, shares of a CPU, names, patterns, policies, and where metrics are served.
pub fn words(bytes: &[u8]) {
    let text = text(bytes);
    comes_back::<MetricsPlace>(text);
    comes_back::<TrackerChoice>(text);
    comes_back::<PageKind>(text);
    comes_back::<MemoryUse>(text);
    comes_back::<Preset>(text);
    comes_back::<Pattern>(text);
    comes_back::<PathPattern>(text);
    let _ = (text.parse::<Nanos>(), text.parse::<ContainerId>(), text.parse::<ClassPolicy>());
    if let Ok(share) = text.parse::<CpuShare>() {
        assert!(share.0 > 0.0 && share.0 <= 1.0);
    }
    if let Ok(slowdown) = text.parse::<Slowdown>() {
        assert!(slowdown.0 > 0.0 && slowdown.0 <= 0.5);
    }
    if let Ok(cost) = text.parse::<MappedPageCost>() {
        assert!(cost.get() <= 100);
    }
    if let Ok(mark) = Policies::parse_mark(text) {
        assert_ne!(mark, SizeOrShare::Size(Bytes(0)));
    }
}

/// Lines, each a word of a command line: any words are understood, or refused with a message.
pub fn arguments(bytes: &[u8]) {
    let words = || text(bytes).lines();
    let refusals = [Cli::try_parse_from(words()).err(), DaemonArgs::try_parse_from(words()).err()];
    for refusal in refusals.into_iter().flatten() {
        assert!(!refusal.to_string().is_empty());
    }
}

/// What is understood is written so that it is understood alike.
fn comes_back<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string().parse().ok(), Some(read));
    }
}
