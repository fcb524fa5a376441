//! What is counted and told of devices and lanes.
//!
//! `lane_info` and `device_status` are the plain data that applications read. The other two are the
//! counters behind it.

pub(crate) mod activity;
pub(crate) mod cancellations;
mod device_status;
mod lane_info;

pub use device_status::{AsyncEventKind, DeviceEvent, DeviceStatus};
pub use lane_info::{CancellationStats, LaneActivity, LaneInfo, LeaseStats};
