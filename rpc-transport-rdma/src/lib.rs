//! farcall over RDMA: small messages by SEND into a shared receive queue, large ones by READ.
//!
//! Rings, from the inside out: `sys` with the provider of verbs, [`memory`] and [`verbs`] hold
//! every line of `unsafe` and the numbered claims it rests on. [`device`] decides which port and
//! GID to use and is safe code like everything else. What drives connections only moves owned
//! buffers into and out of queues. No folder imports one that imports it.
//!
//! Deliberately not here: the call protocol and the TCP bootstrap, which belong to other crates.

#![doc(html_root_url = "https://docs.rs/rpc-transport-rdma/latest")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[forbid(unsafe_code)]
mod config;
#[forbid(unsafe_code)]
mod connection;
#[forbid(unsafe_code)]
pub mod device;
#[forbid(unsafe_code)]
mod lane;
#[forbid(unsafe_code)]
mod link;
pub mod memory;
#[forbid(unsafe_code)]
mod proto;
#[forbid(unsafe_code)]
mod quota;
#[cfg(feature = "sim")]
#[forbid(unsafe_code)]
pub mod sim;
#[forbid(unsafe_code)]
mod stats;
mod sys;
#[cfg(any(test, feature = "fuzzing", feature = "sim"))]
#[doc(hidden)]
#[forbid(unsafe_code)]
pub mod testing;
pub mod verbs;
#[forbid(unsafe_code)]
mod worker;

pub use config::{ConnectOptions, PortChoice, RdmaConfig, RkeyScope};
#[doc(hidden)]
pub use config::{ConnectOptionsOverlay, RdmaOverlay};
pub use device::{DeviceSurvey, PortSurvey, SurveyError, WindowFault, check_windows};
pub use link::RdmaUpgrade;

/// Entry points for the fuzz targets alone.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::proto::fuzzing::{conn_params, conn_params_seeds, message, message_seeds};
    pub use crate::testing::script::{Seen, connection, connection_seeds, play};
}
pub use stats::{
    AsyncEventKind, CancellationStats, DeviceEvent, DeviceStatus, LaneActivity, LaneInfo,
};
