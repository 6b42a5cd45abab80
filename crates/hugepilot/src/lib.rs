//! hugepilot watches which memory a running program really walks page tables for, and puts exactly that memory on huge
//! pages, while it runs, without changing the program or the kernel.
//!
//! Data flows one way: [`observe`] → [`pilot`], which decides and acts → [`report`]. This crate is the command: it owns what a user types and
//! reads, and touches no decision.
#![forbid(unsafe_code)]

pub mod cli;
pub mod doctor;
pub mod report;
