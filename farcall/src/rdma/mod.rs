//! RDMA: the handle to its devices, or a stand-in for it where RDMA is not built in.
//!
//! The crate `rpc-transport-rdma` is a dependency on Linux alone, and there only with the feature
//! `rdma` or `sim`. The stand-in keeps this condition out of the channels and servers that hold a
//! handle: only the public names have it.

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
mod handle;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
mod not_built_in;
mod refusal;

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub use self::handle::Rdma;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
pub(crate) use self::not_built_in::Rdma;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
#[cfg(feature = "settings")]
pub(crate) use self::refusal::NOT_BUILT_IN;
pub(crate) use self::refusal::Refusal;
