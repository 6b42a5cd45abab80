//! hugepilot finds the memory for which a running program really walks page tables, and moves exactly that memory to huge pages, while the
//! program runs and without changing it or the kernel.
//!
//! Data flows one way: [`observe`] → [`pilot`], which decides and acts → [`report`]. This crate is the command: it owns what a user types and reads,
//! and makes no decisions.
#![forbid(unsafe_code)]

pub mod cli;
pub mod doctor;
pub mod report;
