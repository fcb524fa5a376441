//! Fuzz targets of farcall, on stable Rust.
//!
//! A [`Target`] is a plain function of bytes that panics where a property does not hold. Its corpus
//! lies in `fuzz/corpus/NAME`, small files made from valid encodings by [`Target::seeds`]; `cargo
//! test -p farcall-fuzz` replays them and then mutates them (see [`campaign`]). `wire`, `records`,
//! `proxy_header` and the `rdma` targets but one are about bytes alone. `rdma_connection` plays the
//! state of an RDMA connection, with a device and a peer that are scripts (`testing/script` in
//! `rpc-transport-rdma`).
//! `client` and `server` run a whole session, the real one, over a `scripted` transport whose peer
//! may do anything, while a `ledger` reads along what the session sends, and a second one, of the
//! `heap`, what it holds: a peer cannot make it hold more than `Limits` states. `port` is a whole
//! server, whose client begins with any bytes.
#![forbid(unsafe_code)]

pub mod campaign;
mod client;
mod craft;
mod flood;
mod heap;
mod ledger;
mod peer;
mod port;
mod proxy_header;
mod records;
mod scripted;
mod seeds;
mod server;
mod target;
mod wire;

pub use target::{Target, targets};

/// The most bytes of heap that the sessions of a target have held, and may hold, for each of the
/// limits that its scripts have. Empty for targets without sessions.
#[must_use]
pub fn held(target: &Target) -> Vec<(u64, u64)> {
    heap::peaks(target.name)
}
