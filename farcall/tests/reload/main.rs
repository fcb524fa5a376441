//! A settings file that changes while the program runs: real files, and sockets on loopback.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

mod addresses;
#[cfg(feature = "compression")]
mod compression;
mod file;
mod log;
mod refused;
mod rules;
mod service;
