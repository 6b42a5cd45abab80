//! hugepilot watches which memory a running program really walks page tables for, and puts exactly that memory on huge
//! pages, while it runs, without changing the program or the kernel.
//!
//! Data flows one way: [`observe`] → [`decide`] → [`act`]; [`pilot`] is the loop, [`cli`], [`config`], [`control`] and [`report`]
//! are edges.
#![forbid(unsafe_code)]

pub mod act;
pub mod calibrate;
pub mod cli;
pub mod color;
pub mod config;
pub mod control;
pub mod damon;
pub mod decide;
pub mod doctor;
pub mod explain;
pub mod kernel;
pub mod launch;
pub mod metrics_server;
pub mod observe;
pub mod pilot;
pub mod pool;
pub mod privilege;
pub mod recording;
pub mod report;
pub mod run_directory;
pub mod service;
pub mod stop;
pub mod target;
pub mod walk_cycles;
