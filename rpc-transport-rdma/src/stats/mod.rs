//! Statistics of devices and lanes.

mod device_status;
pub(crate) mod lane;

pub use device_status::{AsyncEventKind, DeviceEvent, DeviceStatus};
pub use lane::{CancellationStats, LaneActivity, LaneInfo};
