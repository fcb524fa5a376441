//! RDMA: its devices and lanes, their settings and counters.
//!
//! It exists on Linux, with the feature `rdma`, `rdma-sys` or `sim`.

// The stand-in for the handle keeps this condition out of the channels and servers that hold one:
// only the public names have it.

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub(crate) mod handle;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
mod not_built_in;
mod refusal;

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub(crate) use self::handle::Rdma;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
pub(crate) use self::not_built_in::Rdma;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
#[cfg(feature = "settings")]
pub(crate) use self::refusal::NOT_BUILT_IN;
pub(crate) use self::refusal::Refusal;
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub use rpc_transport_rdma::{
    AsyncEventKind, CancellationStats, ConnectOptions, DeviceEvent, DeviceStatus, DeviceSurvey,
    LaneActivity, LaneInfo, PortChoice, PortSurvey, RkeyScope, SurveyError,
    verbs::{CompletionError, WorkStatus},
};
