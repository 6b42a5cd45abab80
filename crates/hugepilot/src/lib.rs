//! hugepilot watches which memory a running program really walks page tables for, and puts exactly that memory on huge
//! pages, while it runs, without changing the program or the kernel.
//!
//! Data flows one way: [`observe`] → [`decide`] → [`act`].
#![forbid(unsafe_code)]

pub mod act;
pub mod cli;
pub mod decide;
pub mod observe;
pub mod report;
pub mod units;
