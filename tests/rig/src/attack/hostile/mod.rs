//! Hostile peers: clients in `assault` and the files of their kinds, servers in `trap`.
//!
//! Each is bounded in bytes, connections and time, so that a victim without limits grows by
//! hundreds of MiB and not by what the machine has.

mod answers;
mod assault;
mod floods;
mod frames;
mod http2_clients;
mod http2_servers;
mod names;
mod openings;
mod orders;
mod peer;
mod streams;
mod trap;

pub use assault::{Assault, assault};
pub use trap::{Trap, trap};
