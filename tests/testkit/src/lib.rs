//! Tools that the test and benchmark programs of farcall share.
//!
//! [`process`] starts child processes within bounds on their time, [`counters`] reads what the
//! kernel counts, [`calls`] makes payloads and compares them byte by byte, [`certificates`] makes
//! those of tests over TLS, [`name_server`] answers queries of tests of DNS, [`table`] lays out
//! tables of text, [`git`] names the commit. Nothing here knows farcall: xtask depends on this
//! crate too, and must build without the runtime.
#![forbid(unsafe_code)]

#[cfg(feature = "calls")]
pub mod calls;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod counters;
pub mod git;
#[cfg(feature = "name-server")]
pub mod name_server;
pub mod process;
pub mod table;
