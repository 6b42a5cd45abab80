//! What the paper says.
//!
//! Owns: its numbers. Never touches: ours.

use super::model::Processor;

/// The end of the gain that its figures show, and how far off it may be.
pub const END: [(Processor, u64, u64); 2] = [(Processor::Celeron, 97, 4), (Processor::Pentium4, 187, 4)];

/// A row of its table: megabytes a second.
pub struct TableRow {
    pub dimension: u64,
    /// On the pages of the kernel without colors.
    pub normal: f64,
    pub colored: f64,
}

/// Of the Celeron.
pub const TABLE: [TableRow; 10] = [
    row(43, 1468.0, 1537.0),
    row(45, 1513.0, 1529.0),
    row(47, 519.0, 1556.0),
    row(49, 379.0, 1560.0),
    row(85, 342.0, 1614.0),
    row(87, 353.0, 1608.0),
    row(89, 362.0, 1211.0),
    row(91, 285.0, 706.0),
    row(93, 262.0, 457.0),
    row(95, 263.0, 301.0),
];

const fn row(dimension: u64, normal: f64, colored: f64) -> TableRow {
    TableRow { dimension, normal, colored }
}
