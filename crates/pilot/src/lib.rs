//! The pilot: observe, decide, act, again and again.
//!
//! Owns: the choice of what should be on huge pages ([`decide`]), carrying it out ([`act`]), the loop over any number of programs ([`engine`]) in a
//! [`world`] (the [`machine`] or a simulation), and its explanations ([`explain`], [`words`]). Never touches: how memory is observed, or who asks.
#![forbid(unsafe_code)]

pub mod act;
pub mod clients;
pub mod decide;
pub mod engine;
pub mod explain;
pub mod forecast;
pub mod group;
pub mod machine;
pub mod past_trials;
pub mod programs;
pub mod scope;
pub mod series;
pub mod words;
pub mod world;
