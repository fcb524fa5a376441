//! TLS: calls over it, who calls, and what users are told where there is none.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

mod access;
#[allow(dead_code, reason = "the test `messages` uses the rest")]
mod authority;
#[cfg(all(feature = "compression", feature = "grpc"))]
mod book;
mod reload;
mod rotation;
mod secrets;
mod service;
mod settings;
mod stalled;
mod transfer;
#[cfg(all(target_os = "linux", feature = "sim"))]
mod upgraded;
