//! hugepilot watches which memory a running program really walks page tables for, and puts exactly that memory on huge
//! pages, while it runs, without changing the program or the kernel.
//!
//! Data flows one way: [`observe`] → [`decide`] → [`act`].
#![forbid(unsafe_code)]

pub mod act;
pub mod decide;
pub mod doctor;
pub mod kernel;
pub mod observe;
pub mod units;
