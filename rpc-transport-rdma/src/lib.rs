//! farcall over RDMA: small messages by SEND into a shared receive queue, large ones by READ.
//!
//! Three rings, from the inside out: [`verbs`] and [`memory`] hold every line of `unsafe` and the
//! numbered claims it rests on; [`device`] decides which port and GID to use and is safe code like
//! everything else. What drives connections is above both and only moves owned buffers into and
//! out of queues.
//!
//! Deliberately not here: the call protocol and the TCP bootstrap, which belong to other crates.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[forbid(unsafe_code)]
mod account;
#[forbid(unsafe_code)]
mod blob;
mod bootstrap;
#[forbid(unsafe_code)]
mod cancellations;
#[forbid(unsafe_code)]
mod config;
mod config_setters;
#[forbid(unsafe_code)]
mod connection;
#[forbid(unsafe_code)]
mod credits;
#[cfg(feature = "sim")]
#[forbid(unsafe_code)]
pub mod crowd;
#[forbid(unsafe_code)]
pub mod device;
#[forbid(unsafe_code)]
mod devices;
#[forbid(unsafe_code)]
mod fair_queue;
#[forbid(unsafe_code)]
mod fair_semaphore;
#[cfg(any(test, feature = "sim"))]
#[forbid(unsafe_code)]
mod fairness;
#[cfg(feature = "fuzzing")]
#[forbid(unsafe_code)]
pub mod fuzzing;
#[forbid(unsafe_code)]
mod lane;
#[forbid(unsafe_code)]
mod lanes;
#[forbid(unsafe_code)]
mod leases;
#[forbid(unsafe_code)]
mod lent_buffers;
pub mod memory;
#[forbid(unsafe_code)]
mod message;
#[forbid(unsafe_code)]
mod offered;
#[forbid(unsafe_code)]
mod offered_memory;
#[forbid(unsafe_code)]
mod path;
#[forbid(unsafe_code)]
mod peer_gid;
#[forbid(unsafe_code)]
mod pressure;
#[forbid(unsafe_code)]
mod puller;
#[forbid(unsafe_code)]
mod read_queues;
#[forbid(unsafe_code)]
#[cfg_attr(not(feature = "ibverbs"), allow(dead_code))]
mod read_trust;
#[forbid(unsafe_code)]
mod read_turns;
#[forbid(unsafe_code)]
mod refill;
#[forbid(unsafe_code)]
mod rkey_scope;
#[forbid(unsafe_code)]
mod shares;
#[forbid(unsafe_code)]
mod stall;
#[cfg(feature = "ibverbs")]
mod sys;
#[forbid(unsafe_code)]
mod tally;
#[forbid(unsafe_code)]
mod transport;
#[forbid(unsafe_code)]
mod unproven;
#[forbid(unsafe_code)]
mod upgrade;
pub mod verbs;
#[forbid(unsafe_code)]
mod window_check;
#[forbid(unsafe_code)]
mod windows;

pub use cancellations::CancellationStats;
pub use config::RdmaConfig;
pub use device::PortChoice;
pub use devices::DeviceStatus;
pub use leases::LeaseStats;
pub use rkey_scope::{RkeyScope, UnknownRkeyScope};
pub use tally::LaneActivity;
pub use upgrade::{LaneInfo, RdmaUpgrade};
#[cfg(feature = "sim")]
pub use verbs::sim;
pub use window_check::{WindowFault, check_windows};
