//! farcall over RDMA: small messages by SEND into a shared receive queue, large ones by READ.
//!
//! Three rings, from the inside out: [`verbs`] and [`memory`] hold every line of `unsafe` and the
//! numbered claims it rests on; [`device`] decides which port and GID to use and is safe code like
//! everything else. What drives connections is above both and only moves owned buffers into and
//! out of queues.
//!
//! Without the feature `transport`, which every provider of verbs brings, only plain data is left:
//! the configuration, and what devices and lanes say of themselves. An application can name these
//! types in a build without RDMA then.
//!
//! Deliberately not here: the call protocol and the TCP bootstrap, which belong to other crates.

#![doc(html_root_url = "https://docs.rs/rpc-transport-rdma/latest")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod account;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod blob;
#[cfg(feature = "transport")]
mod bootstrap;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod cancellations;
#[forbid(unsafe_code)]
mod config;
#[forbid(unsafe_code)]
mod config_setters;
#[forbid(unsafe_code)]
mod config_values;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod connection;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod credits;
#[cfg(feature = "sim")]
#[forbid(unsafe_code)]
pub mod crowd;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
pub mod device;
#[forbid(unsafe_code)]
mod device_status;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod devices;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod fair_queue;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod fair_semaphore;
#[cfg(any(test, feature = "sim"))]
#[forbid(unsafe_code)]
mod fairness;
#[cfg(feature = "fuzzing")]
#[forbid(unsafe_code)]
pub mod fuzzing;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod lane;
#[forbid(unsafe_code)]
mod lane_info;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod lanes;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod leases;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod lent_buffers;
#[cfg(feature = "transport")]
pub mod memory;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod message;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod offered;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod offered_memory;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod path;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod peer_gid;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod pressure;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod puller;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod read_queues;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
#[cfg_attr(not(feature = "ibverbs"), allow(dead_code))]
mod read_trust;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod read_turns;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod refill;
#[forbid(unsafe_code)]
mod rkey_scope;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod shares;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod stall;
#[cfg(feature = "ibverbs")]
mod sys;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod tally;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod transport;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod unproven;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod upgrade;
#[cfg(feature = "transport")]
pub mod verbs;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod window_check;
#[cfg(feature = "transport")]
#[forbid(unsafe_code)]
mod windows;

pub use config::RdmaConfig;
pub use config_values::{ConnectOptions, PortChoice};
pub use device_status::{AsyncEventKind, DeviceStatus};
pub use lane_info::{CancellationStats, LaneActivity, LaneInfo, LeaseStats};
pub use rkey_scope::{RkeyScope, UnknownRkeyScope};
#[cfg(feature = "transport")]
pub use upgrade::RdmaUpgrade;
#[cfg(feature = "sim")]
pub use verbs::sim;
#[cfg(feature = "transport")]
pub use window_check::{WindowFault, check_windows};
